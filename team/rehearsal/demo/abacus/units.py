"""Lengths in other units."""

METRES = {
    "mm": 0.001,
    "cm": 0.01,
    "m": 1.0,
    "km": 1000.0,
    "inch": 0.0254,
    "foot": 0.3048,
    "mile": 1600.0,
}


def convert(amount, unit, wanted):
    """`amount` of `unit` in `wanted`."""
    return amount * METRES[unit] / METRES[wanted]
