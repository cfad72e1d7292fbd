import unittest

from abacus.words import count, wrap


class Count(unittest.TestCase):
    def test_does_not_mind_how_wide_the_gaps_are(self):
        self.assertEqual(count("  to be,\n or   not "), 4)

    def test_of_nothing(self):
        self.assertEqual(count(""), 0)


class Wrap(unittest.TestCase):
    def test_keeps_the_last_line(self):
        self.assertEqual(wrap("one two three four", 8), ["one two", "three", "four"])

    def test_of_nothing(self):
        self.assertEqual(wrap("", 8), [])
