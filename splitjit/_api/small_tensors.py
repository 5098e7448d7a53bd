"""Small tensors of torch that were split before, by builtin functions.

The checks of `splitjit._inputs.torch.tensors` take Python 8 µs or more. torch copies a small
tensor in 4 to 8. Once it pays to load kernels, one builtin function asks whether a tensor is plain
CPU memory. With `out`, another one asks the same of all outputs, and copies. If a tensor is
anything else, `split_again` returns None, and Python decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from splitjit._abi.addresses import address_of
from splitjit._abi.builtins import METH_FASTCALL, METH_O, builtin
from splitjit._abi.layout_record import WORD
from splitjit._abi.structs import ARRAY_FLAGS, LIST_ITEMS, READS_ARRAYS
from splitjit._copy import recipe
from splitjit._copy.kernel_copy import KernelCopy
from splitjit._inputs.input import Request
from splitjit._inputs.torch.reach import watcher
from splitjit._inputs.torch.tensors import is_compiling
from splitjit._plan.plan import Plan
from splitjit._runtime.loading import LOADER

if TYPE_CHECKING:
    from splitjit._inputs.torch.structs import Facts

_READERS: list[Any] = []
"""The reader, once a split has wanted it; None if this torch cannot be read."""


_GAIN = 8e-6
"""Seconds that the builtin functions save in each call."""


def split_again(x: Any, request: Request, out: Any) -> list[Any] | None:
    """Copy a tensor to new tensors, or to those of `out`; return None if Python must check more."""
    if is_compiling():  # torch.compile cannot trace the rest
        return None
    reader = _READERS[0] if _READERS else _new_reader()
    if reader is None or reader.is_watched():
        return None
    number = reader.number_of(x)
    if number < 0:
        return None
    plan = request.plan_of(tuple(x.shape))
    compiled: KernelCopy | None = plan._kernel_copy
    if compiled is not None:
        fresh, into = compiled.tensors or reader.builtins(plan, compiled)
        if out is None:
            parts: list[Any] = fresh(x)
            if parts:
                return parts
        elif type(out) is list or type(out) is tuple:
            given = list(out)
            if into(x, given):
                reader.wrote(given)
                return given
    return reader.fresh(plan, x, number) if out is None else None


def _new_reader() -> _Reader | None:
    """Return a reader, once kernels are loaded and no mode is active."""
    is_watched = watcher()
    if not READS_ARRAYS or is_watched is None:
        _READERS.append(None)
    elif not is_watched() and LOADER.pays(_GAIN):
        code, facts = LOADER.load("tensors"), None
        if code is None:
            return None
        from splitjit._inputs.torch.structs import tensor_facts  # most programs never need it

        facts = tensor_facts()
        _READERS.append(None if facts is None else _Reader(facts, code, is_watched))
    return _READERS[0] if _READERS else None


class _Record(np.ndarray):
    """Addresses in memory, which keeps everything that they point to alive."""

    kept: tuple[Any, ...]


class _Reader:
    """Builtin functions that read tensors, and what else a split asks of torch.

    Attributes
    ----------
    is_watched : callable
        Whether torch records or changes what its operators do, see `splitjit._inputs.torch.reach`.
    number_of : callable
        ``number_of(x)`` returns the number of the dtype of a plain tensor, and -1 for others.
    wrote : callable
        Tells torch about writes, so that autograd refuses values it has saved.
    """

    __slots__ = ("_code", "_facts", "_from_numpy", "is_watched", "number_of", "wrote")

    def __init__(self, facts: Facts, code: dict[str, int], is_watched: Callable[[], bool]) -> None:
        torch = sys.modules["torch"]
        self._facts, self._code, self.is_watched = facts, code, is_watched
        self._from_numpy = torch.from_numpy
        self.number_of = builtin("number_of", code["number_of"], METH_O, facts)
        self.wrote = torch.autograd.graph.increment_version

    def fresh(self, plan: Plan, x: Any, number: int) -> list[Any]:
        """Return new tensors; `number` is what `number_of` says of `x`."""
        dtype, word = self._facts.dtypes[number]
        from_numpy = self._from_numpy
        if word is None:
            return [from_numpy(part) for part in recipe.run(plan, x.numpy(), None, True)]
        parts = recipe.run(plan, x.view(word).numpy(), None, True)
        return [from_numpy(part).view(dtype) for part in parts]

    def builtins(self, plan: Plan, compiled: KernelCopy) -> tuple[Any, Any]:
        """Make the builtin functions that copy tensors as `compiled` copies arrays."""
        expected = getattr(compiled.into, "__self__", None)
        if isinstance(expected, np.ndarray):
            words = (plan._count + 1) * (ARRAY_FLAGS + 1 + len(plan.shape))
            words += LIST_ITEMS + 1 + plan._count
            record = np.zeros(3 + words, np.int64).view(_Record)
            memory = address_of(record) + 3 * WORD
            record[:3] = address_of(expected), address_of(self._facts), memory
            record.kept = expected, self._facts
            fresh = builtin("fresh_tensors", self._code["fresh"], METH_O, record)
            into = builtin("into_tensors", self._code["into"], METH_FASTCALL, record)
            compiled.tensors = fresh, into
        else:  # for large arrays, Python checks
            compiled.tensors = lambda x: [], lambda x, outputs: 0
        return compiled.tensors
