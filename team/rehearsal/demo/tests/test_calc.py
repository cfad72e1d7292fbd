import unittest

from abacus.calc import CalcError, evaluate


class Arithmetic(unittest.TestCase):
    def test_products_come_before_sums(self):
        self.assertEqual(evaluate("2 + 3 * 4"), 14)

    def test_parentheses_come_first(self):
        self.assertEqual(evaluate("(2 + 3) * 4"), 20)

    def test_rubbish_is_an_error(self):
        with self.assertRaises(CalcError):
            evaluate("2 $ 3")


class Subtraction(unittest.TestCase):
    def test_goes_from_left_to_right(self):
        self.assertEqual(evaluate("10 - 4 - 3"), 3)

    def test_a_sum_after_it_is_added(self):
        self.assertEqual(evaluate("10 - 4 + 3"), 9)


class UnaryMinus(unittest.TestCase):
    def test_at_the_beginning(self):
        self.assertEqual(evaluate("-2 + 5"), 3)

    def test_before_a_parenthesis_and_twice(self):
        self.assertEqual(evaluate("3 * -(1 + 1)"), -6)
        self.assertEqual(evaluate("--4"), 4)


class ZeroDivision(unittest.TestCase):
    def test_is_an_error_that_says_so(self):
        with self.assertRaisesRegex(CalcError, "division by zero"):
            evaluate("1 / (2 - 2)")
