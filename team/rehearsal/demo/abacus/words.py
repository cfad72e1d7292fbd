"""Small things that are done to text."""


def count(text):
    """How many words `text` has."""
    return len(text.split(" "))


def wrap(text, width):
    """`text` as lines of at most `width` characters, broken between words."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines
