import unittest

from abacus.units import convert


class Metric(unittest.TestCase):
    def test_kilometres_to_metres(self):
        self.assertAlmostEqual(convert(2.5, "km", "m"), 2500)


class Mile(unittest.TestCase):
    def test_has_1609_metres_and_a_bit(self):
        self.assertAlmostEqual(convert(1, "mile", "m"), 1609.344)

    def test_has_5280_feet(self):
        self.assertAlmostEqual(convert(1, "mile", "foot"), 5280)
