"""The shared bare repository: the only meeting place.

:mod:`~team.upstream.upstream` is what others call. A push comes in through ``wire`` and ``receive``, waits in
``quarantine``, is looked at by ``inspection``, and lands, or not, by ``landing`` under the rules of ``claims`` and
``protected``. No git hook and no ``git receive-pack`` takes part: refused objects never reach upstream.
"""
