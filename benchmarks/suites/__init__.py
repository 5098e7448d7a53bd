"""The benchmarks that asv runs. They use the harness beside this folder."""

import sys
from pathlib import Path

# At the end, because the checkout also has a splitjit, and asv measures the installed one.
sys.path.append(str(Path(__file__).resolve().parents[2]))
