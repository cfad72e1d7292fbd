"""The calendar."""


def is_leap_year(year):
    """Whether `year` has a 29th of February."""
    return year % 4 == 0


def days_in_february(year):
    """28 or 29."""
    return 29 if is_leap_year(year) else 28
