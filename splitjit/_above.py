"""What lower packages may call of higher ones, which they must not import.

``splitjit/__init__.py`` is above all packages, and hands these functions over.
"""

from typing import Any

load_verbs: Any = None
"""Returns `splitjit.checkpoints.verbs`, which the functions of `splitjit.files` call."""
