"""Functions of higher packages that lower packages call but must not import.

``splitjit/__init__.py``, which is above all packages, sets them.
"""

from typing import Any

load_verbs: Any = None
"""Returns `splitjit.checkpoints.verbs`, which the functions of `splitjit.files` call."""
