"""The value of expressions such as `2 + 3 * (4 - 1)`."""

import re


class CalcError(ValueError):
    """The expression has no value; the message says why."""


def evaluate(text):
    """The value of `text` as a float."""
    tokens = re.findall(r"\d+\.?\d*|\S", text)
    value = _sum(tokens)
    if tokens:
        raise CalcError(f"unexpected {tokens[0]!r}")
    return value


def _sum(tokens):
    """Products joined by + and -."""
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        if tokens.pop(0) == "+":
            value += _product(tokens)
        else:
            value -= _sum(tokens)
    return value


def _product(tokens):
    """Factors joined by * and /."""
    value = _factor(tokens)
    while tokens and tokens[0] in "*/":
        if tokens.pop(0) == "*":
            value *= _factor(tokens)
        else:
            value /= _factor(tokens)
    return value


def _factor(tokens):
    """A number, or an expression in parentheses."""
    if not tokens:
        raise CalcError("the expression ends too early")
    token = tokens.pop(0)
    if token == "(":
        value = _sum(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise CalcError("a parenthesis is not closed")
        return value
    if not token[0].isdigit():
        raise CalcError(f"unexpected {token!r}")
    return float(token)
