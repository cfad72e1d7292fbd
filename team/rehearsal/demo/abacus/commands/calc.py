"""`calc 2 + 3`: the value of an expression."""

from abacus.calc import evaluate


def run(words):
    return f"{evaluate(' '.join(words)):g}"
