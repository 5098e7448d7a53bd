"""Compile functions with Numba, under names that no other code has.

Each function gets one signature and one cache file: processes that save several
signatures of one function at the same time can mix them up.

Names carry a digest of the source of all kernels, because Numba's cache and the
linker go by names alone. Numba's cache watches only the file of the function
that it saves, and does not notice a change in another file. The linker treats
functions of the same name, number and signature as one function. Numba numbers
functions as it compiles them, and each process starts again. So without the
digest, code that one process saved could replace code that another process
compiled from another version.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import sys
from importlib import resources

import llvmlite
import numba
from numba import njit
from numba.core.registry import cpu_target

from splitjit._kernels.cached_files import CachedFiles

_log = logging.getLogger(__name__)

COMPILED = []
"""The names of the functions that this process compiled, and did not load from the cache."""


def jit(function=None, **options):
    """Compile a helper of the loops on its first call, as `numba.njit` does.

    It is never a first-class function, so Numba need not compile the wrapper for that.

    Parameters
    ----------
    function : function
    **options
        Options of `numba.njit`.
    """
    if function is None:
        return functools.partial(jit, **options)
    return njit(no_cfunc_wrapper=True, **options)(named(function))


def named(function):
    """Give a function a name that no other code has, in this process or in a cache."""
    function.__qualname__ = f"{function.__name__}_{_digest(function.__module__)}"
    return function


@functools.cache
def _digest(module):
    """Return a digest of the source of all kernels, of Python, the compiler and the processor."""
    source = (_kernel_source(), _module_source(module))
    target = cpu_target.target_context.codegen().magic_tuple()
    identity = repr((source, sys.version, numba.__version__, llvmlite.__version__, target))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@functools.cache
def _kernel_source():
    try:
        files = resources.files(__package__).iterdir()
        return [file.read_bytes() for file in sorted(files, key=str) if file.name.endswith(".py")]
    except OSError:  # a frozen application has no source; Numba watches the executable
        return []


def _module_source(module):
    module = sys.modules[module]
    if module.__package__ == __package__:
        return b""
    try:
        return module.__spec__.loader.get_data(module.__file__)
    except OSError:
        return b""


def compile_cached(decorator, signature, function, *, wait=False, **options):
    """Compile a function for one signature, or load it from the cache.

    Parameters
    ----------
    decorator : callable
        `numba.njit`, `numba.jit` or `numba.cfunc`.
    signature : tuple or Numba signature
        The only signature of the function.
    function : function
        The function, at the top level of a module.
    wait : bool, default False
        Whether to wait while another process compiles the function.
    **options
        Options of the decorator.

    Returns
    -------
    callable
        The result of the decorator.

    Raises
    ------
    BlockingIOError
        If another process compiles the function at this moment, unless `wait`.
    """
    function = named(function)
    files = None
    try:
        files = CachedFiles(function)
        if files.are_intact():
            return _cached(decorator, signature, function, options)
        with files.lock(wait=wait):
            if not files.are_intact():  # else the other process has finished meanwhile
                files.discard()
            compiled = _cached(decorator, signature, function, options)
            files.seal()
            return compiled
    except BlockingIOError:
        raise
    except Exception:  # no folder, no space or damaged files must not fail a split
        _log.debug("%s is not cached", function.__qualname__, exc_info=True)
    if files is not None:
        files.discard()
    COMPILED.append(function.__qualname__)
    return decorator(signature, **options)(function)


def _cached(decorator, signature, function, options):
    """Load a function from Numba's cache, or compile it and save it there."""
    compiled = decorator(signature, cache=True, **options)(function)
    try:
        hits = compiled.cache_hits  # of a C callback
    except AttributeError:
        hits = sum(compiled.stats.cache_hits.values())
    if not hits:
        COMPILED.append(function.__qualname__)
    return compiled
