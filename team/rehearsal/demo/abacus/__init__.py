"""A pocket calculator for the terminal."""
