"""Benchmarks of splitjit; README.md says which modules asv runs, and which are commands."""
