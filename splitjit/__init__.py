"""Split tensors into contiguous parts, as fast as memory allows.

>>> import numpy as np
>>> import splitjit
>>> q, k, v = splitjit.split(np.zeros((16, 2304), np.float32), num_splits=3, axis=1)
>>> q.shape, q.flags.c_contiguous
((16, 768), True)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from splitjit._api.split import plan_split, split, split_into
from splitjit._api.split_plan import SplitPlan, clear_caches
from splitjit._copy.buffers import set_buffer_limit
from splitjit._planes import unstack
from splitjit.errors import SplitError, SplitTypeError

if TYPE_CHECKING:
    from splitjit import dask as dask
    from splitjit import files as files
    from splitjit import numpy as numpy
    from splitjit import onnx as onnx
    from splitjit import openvino as openvino
    from splitjit import torch as torch
    from splitjit._api.explain import explain
    from splitjit._api.join import join, stack
    from splitjit._api.warmup import warmup
    from splitjit._copy.explanation import Explanation

__all__ = ["explain", "join", "plan_split", "split", "split_into", "stack", "unstack"]
__all__ += ["Explanation", "SplitError", "SplitPlan", "SplitTypeError"]
__all__ += ["clear_caches", "set_buffer_limit", "warmup"]
__version__ = "0.3.0"

_LATER = {
    "explain": "splitjit._api.explain",
    "Explanation": "splitjit._copy.explanation",
    "join": "splitjit._api.join",
    "stack": "splitjit._api.join",
    "warmup": "splitjit._api.warmup",
}
"""Rarely used public names and their modules, imported late: `import splitjit` is faster."""

_SUBMODULES = ("dask", "files", "numpy", "onnx", "openvino", "torch")


def __dir__() -> list[str]:
    """List the public names and submodules, even those not imported yet."""
    return [*__all__, *_SUBMODULES]


if not TYPE_CHECKING:  # type checkers would otherwise accept any misspelled attribute

    def __getattr__(name: str) -> Any:
        """Import a public submodule, or the module of a public name, when it is first used."""
        if name in _SUBMODULES:
            return import_module(f"splitjit.{name}")
        if name in _LATER:
            globals()[name] = found = getattr(import_module(_LATER[name]), name)
            return found  # a next access finds it at once, and saves 3 us
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
