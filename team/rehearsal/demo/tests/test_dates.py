import unittest

from abacus.dates import days_in_february


class LeapYear(unittest.TestCase):
    def test_every_fourth(self):
        self.assertEqual(days_in_february(2024), 29)
        self.assertEqual(days_in_february(2023), 28)

    def test_centuries(self):
        self.assertEqual(days_in_february(1900), 28)
        self.assertEqual(days_in_february(2000), 29)
