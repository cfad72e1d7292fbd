"""The shared bare repository: the only meeting place.

:mod:`~team.upstream.upstream` is what others call. A push comes in through ``wire`` and ``receive``, waits in
``quarantine``, is looked at by ``inspection``, and lands, or not, by ``landing`` under the rules of ``claims`` and
``protected``. No git hook and no ``git receive-pack`` takes part: refused objects never reach upstream.

What may land is admitted by ``admission``: at once, or after the ``gate`` checked it (``check``, ``own_check``), or
after a person looked at it (``held``). What waits is in the ``queue`` (the ledger) and on a ``shelf`` (its objects).
``undo`` and ``tamper`` look at what a push takes back, and at what it does to tests.
"""
