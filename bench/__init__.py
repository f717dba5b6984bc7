"""Benchmarks: `python -m bench kernels`, `python -m bench engine`. Nothing here is installed."""
