"""The ONNX operators Split and SplitToSequence, in every published version.

`Split` and `SplitToSequence` need no other package. `reference_ops`, which
plugs them into ``onnx.reference.ReferenceEvaluator``, and `SplitBackend`, a
backend for ``onnx.backend.test``, need onnx: ``pip install splitjit[onnx]``.
"""

from typing import TYPE_CHECKING, Any

from splitjit.onnx.split import Split
from splitjit.onnx.split_to_sequence import SplitToSequence

if TYPE_CHECKING:
    from splitjit.onnx.backend import SplitBackend
    from splitjit.onnx.reference import reference_ops

__all__ = ["Split", "SplitBackend", "SplitToSequence", "reference_ops"]

_HOMES = {"SplitBackend": "backend", "reference_ops": "reference"}

if not TYPE_CHECKING:  # for whom it would make a name of each misspelled one

    def __getattr__(name: str) -> Any:
        """Import what needs the onnx package once it is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            return getattr(import_module(f"splitjit.onnx.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "onnx":
                raise
            raise ImportError(
                f"splitjit.onnx.{name} needs the onnx package: pip install splitjit[onnx]"
            ) from error
