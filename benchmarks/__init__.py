"""Benchmarks: ``python -m benchmarks.NAME [--json]``. Ratios measured in one run; machines are noisy."""
