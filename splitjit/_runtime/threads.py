"""How many threads copy: the caller, and helpers if they pay.

`splitjit._kernels.core.team` is the compiled side: helpers are threads that a caller does not wait
for, so a copy never depends on other programs, pools or threads. This module counts the helpers
that may run now, and owns the memory that callers and helpers share.

With ``SPLITJIT_THREADS=numba``, Numba's threads run the same loops instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import perf_counter
from typing import Any

import numpy as np

from splitjit._abi.builtins import keep_forever
from splitjit._abi.calls import AT, FEWEST_CHUNKS, MOST_HELPERS, SPACING
from splitjit._abi.kernels import LARGE
from splitjit._runtime.cores import NUMBA_THREADS, limits, usable
from splitjit._runtime.loading import NATIVE
from splitjit._runtime.ways import Ways

_CHUNK = LARGE // FEWEST_CHUNKS
"""Bytes of a chunk. The caller may have to wait for one that a helper has begun."""

FEW = 3
"""Helpers of the way between none and all."""

WAYS = "with helpers", "alone", "with few helpers"
"""The ways to make a large copy; the last one is for machines with many cores."""

_ALONE = 1

_CORES_FOR = 0.1
"""Seconds between two reads of the usable cores."""


def _is_on_numba() -> bool:
    """Return whether the user chose Numba's threads; warn if the choice is unknown."""
    value = os.environ.get("SPLITJIT_THREADS", "helpers")
    if value not in ("helpers", "numba"):
        warnings.warn(
            f"SPLITJIT_THREADS={value[:40]!r} must be 'helpers' or 'numba'; helpers copy",
            RuntimeWarning,
            stacklevel=2,
        )
    return value == "numba"


ON_NUMBA = _is_on_numba()

_alone = ContextVar("splitjit copies on the calling thread alone", default=False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Make splits in the ``with`` block copy on the calling thread alone."""
    before = _alone.get()
    _alone.set(True)
    try:
        yield
    finally:
        _alone.set(before)


class _Team:
    """The team record.

    Attributes
    ----------
    address : int
        The address of the record; see `splitjit._abi.calls`.
    chunk : c_int64
        Its word with the bytes of a chunk.
    cores : int
        How many threads can run at once, until the time `cores_until`.
    """

    def __init__(self) -> None:
        nbytes = SPACING * (AT.helpers + MOST_HELPERS + 1)
        self._memory = keep_forever((ctypes.c_char * nbytes)())  # helpers outlive this object
        self.address = -(-ctypes.addressof(self._memory) // SPACING) * SPACING
        self.chunk = self.word(AT.chunk)
        self.chunk.value = _CHUNK
        self.cores, self.cores_until = 1, float("-inf")

    def count_cores(self) -> int:
        """Return how many threads can run at once, which may have been read just before."""
        now = perf_counter()
        if now >= self.cores_until:
            self.cores, self.cores_until = usable(now), now + _CORES_FOR
            self.word(AT.allowed).value = self.cores - 1
        return self.cores

    def word(self, index: int) -> ctypes.c_int64:
        """Return a word of the record."""
        return ctypes.c_int64.from_address(self.address + SPACING * index)

    def after_fork(self) -> None:
        """Forget the helpers, which the child of a fork does not have."""
        kept = {index: self.word(index).value for index in (AT.allowed, AT.chunk)}
        ctypes.memset(self._memory, 0, len(self._memory))
        for index, value in kept.items():
            self.word(index).value = value


TEAM = _Team()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TEAM.after_fork)


def shared(function: Callable[..., Any], nbytes: int, ways: Ways | None) -> Callable[..., Any]:
    """Return a function that copies with the helpers that pay now.

    Parameters
    ----------
    function : callable
        Copies, with as many helpers as its first argument says; its result is false if it has
        copied nothing.
    nbytes : int
        Bytes of all parts.
    ways : Ways or None
        Of `WAYS`. None asks all helpers.

    Returns
    -------
    callable
        Takes the other arguments of the function, and returns its result.
    """

    def copy(*arguments: Any) -> Any:
        if ways is None:
            return function(_allowed() - 1, *arguments)
        if (ways.way == _ALONE and ways.skip()) or not (most := _allowed() - 1):
            return function(0, *arguments)
        helpers = most, 0, min(FEW, most)
        if ways.skip():
            return function(helpers[ways.way], *arguments)
        began = perf_counter()
        way = ways.choose(began)
        result = function(helpers[way], *arguments)
        if result:
            ways.took(way, began, perf_counter(), nbytes)
        return result

    return copy


def run_loop(
    loop: int, nbytes: int, arguments: tuple[int, int, int, int], ways: Ways | None = None
) -> None:
    """Run a copy loop, with helpers if they pay.

    Parameters
    ----------
    loop : int
        The loop's address.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        The fields of `splitjit._abi.calls.Arguments`. The caller has checked them, and
        keeps the memory that they point to alive until this function returns.
    ways : Ways, optional
        See `shared`.
    """
    threads = _allowed()
    if ON_NUMBA and nbytes >= LARGE and threads > 1:
        from splitjit._kernels.numba_threads import run_on_numba

        given = np.array(arguments, np.int64)
        run_on_numba(loop, min(nbytes // TEAM.chunk.value, threads), given.ctypes.data)
        return
    shared(NATIVE.share_without_gil, nbytes, ways)(TEAM.address, loop, nbytes, *arguments)


def ways_here() -> tuple[str, ...]:
    """Return the ways to try here: without many cores, a few helpers are all helpers."""
    return WAYS[:2] if TEAM.count_cores() <= FEW + 1 else WAYS


def _allowed() -> int:
    """Return how many threads may copy now."""
    if _alone.get():
        return 1
    cores = TEAM.count_cores()
    count = getattr(sys.modules.get(NUMBA_THREADS), "_get_num_threads", None)
    return cores if count is None else min(count(), cores)


def explain(nbytes: int) -> tuple[int, str]:
    """Return how many threads the next copy may use, and why not more.

    Parameters
    ----------
    nbytes : int
        Bytes of all parts.
    """
    if nbytes < LARGE:
        return 1, f"a helper does not pay below {LARGE} bytes"
    if _alone.get():
        return 1, "this thread runs a Dask task, and Dask uses the other cores"
    limited_by, most = next(iter(limits().items()))
    threads, chunks = min(most, MOST_HELPERS + 1), nbytes // _CHUNK
    if chunks < threads:
        return chunks, f"a chunk has at least {_CHUNK} bytes"
    if threads == 1 or ON_NUMBA:
        return threads, f"limited by {limited_by}"
    return threads, f"the caller and {threads - 1} of its helpers, limited by {limited_by}"
