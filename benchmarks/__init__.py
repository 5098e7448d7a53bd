"""Benchmarks of splitjit: `asv` runs split, startup and ratios; report.py stands alone."""
