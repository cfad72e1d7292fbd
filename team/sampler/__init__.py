"""``team test``: the test harness made for agents.

Runs inside a session's container, where there is nothing but the standard library: no module of this room, nor what
it imports, needs more. It also runs on the host, where the person uses the same command.
"""
