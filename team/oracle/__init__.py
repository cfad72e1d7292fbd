"""``team oracle``: splits one giant failing task into many small ones, by a known-good reference.

Like the sampler it also runs in a session's container: no module of this room needs more than the standard library.
"""
