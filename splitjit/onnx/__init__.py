"""The ONNX operators Split and SplitToSequence, in every published version.

`Split` and `SplitToSequence` need no other package. `reference_ops` makes
``onnx.reference.ReferenceEvaluator`` use them, and `SplitBackend` is a backend for
``onnx.backend.test``. These two need the onnx package: ``pip install onnx``.
"""

from typing import TYPE_CHECKING, Any

from splitjit._operators import Unknown
from splitjit.onnx.split import Split, SplitToSequence

if TYPE_CHECKING:
    from splitjit.onnx.reference import SplitBackend, reference_ops

__all__ = ["Split", "SplitBackend", "SplitToSequence", "Unknown", "reference_ops"]

if not TYPE_CHECKING:  # type checkers would otherwise accept any misspelled attribute

    def __getattr__(name: str) -> Any:
        """Import the module that needs the onnx package on first use."""
        if name not in ("SplitBackend", "reference_ops"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from splitjit.onnx import reference
        except ModuleNotFoundError as error:
            needs = "needs the onnx package: pip install onnx"
            raise ImportError(f"splitjit.onnx.{name} {needs}") from error
        return getattr(reference, name)
