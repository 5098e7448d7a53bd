"""Benchmarks of splitjit: `asv` runs all modules except report.py and compare.py."""
