"""Run a team of autonomous coding agents on one code base, with git as the meeting place."""

__version__ = "0.1.0"
