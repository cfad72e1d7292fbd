import unittest

from abacus import menu


class Menu(unittest.TestCase):
    def test_runs_a_command(self):
        self.assertEqual(menu.run("calc", ["2", "*", "21"]), "42")

    def test_refuses_what_is_not_listed(self):
        with self.assertRaises(KeyError):
            menu.run("menu", [])

    def test_lists_each_command_once(self):
        self.assertEqual(len(menu.COMMANDS), len(set(menu.COMMANDS)))


class Mean(unittest.TestCase):
    def test_of_numbers(self):
        self.assertEqual(menu.run("mean", ["1", "2", "6"]), "3")


class Median(unittest.TestCase):
    def test_of_an_odd_and_an_even_number_of_numbers(self):
        self.assertEqual(menu.run("median", ["9", "1", "5"]), "5")
        self.assertEqual(menu.run("median", ["9", "1", "5", "6"]), "5.5")


class Roman(unittest.TestCase):
    def test_numerals(self):
        self.assertEqual(menu.run("roman", ["1994"]), "MCMXCIV")
        self.assertEqual(menu.run("roman", ["48"]), "XLVIII")


class Slug(unittest.TestCase):
    def test_of_a_title(self):
        self.assertEqual(menu.run("slug", ["Hello,", "World", "2!"]), "hello-world-2")


class Temperature(unittest.TestCase):
    def test_both_ways(self):
        self.assertEqual(menu.run("temperature", ["100", "c"]), "212 f")
        self.assertEqual(menu.run("temperature", ["32", "f"]), "0 c")
