"""Benchmarks: `python -m bench`. Nothing here is installed."""
