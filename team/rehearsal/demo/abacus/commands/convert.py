"""`convert 3 mile km`: a length in another unit."""

from abacus.units import convert


def run(words):
    amount, unit, wanted = words
    return f"{convert(float(amount), unit, wanted):g} {wanted}"
