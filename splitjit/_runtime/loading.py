"""Load kernels: link the object files in the cache, and compile the missing ones.

Linking needs only llvmlite, whose import takes most of the time. Compiling needs Numba, but only
once per installation. While another thread is loading, or if nothing can be loaded, NumPy copies.

If llvmlite or Numba cannot be imported, for whatever reason, a later split tries again: another
thread may be importing it, or this one, in a signal handler that interrupts the import. The same
holds if memory or the limit of recursion was too small for a moment.

A forked child does not inherit the other threads of its parent. If one of them was importing
llvmlite at the fork, or was inside of it, its lock stays taken forever: the child loads no kernels.
"""

import contextlib
import ctypes
import functools
import math
import os
import sys
import time
from _thread import get_ident  # `threading` takes longer to import
from types import SimpleNamespace
from typing import Any

from splitjit._abi.calls import function_of, keep_forever
from splitjit._abi.kernels import BUILTINS, JOIN_LOOPS, KERNELS, LOOPS
from splitjit._abi.structs import WORKS_WITH
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._runtime import kernel_files
from splitjit._runtime.events import debug, warn

_RETRY_AFTER, _LONGEST_PAUSE = 0.01, 60.0
"""Seconds before a split tries again to load, after the first failure, and at most. Each failure
doubles the pause."""

_PASSING = MemoryError, RecursionError, ctypes.ArgumentError
"""Errors of a moment. Near the limit of recursion, ctypes cannot convert an argument."""

_WARN_FROM = 1.0
"""The pause in seconds from which on the log warns. Another process that compiles, or a fork, is no
reason to warn."""

NATIVE: Any = SimpleNamespace()
"""The functions of the kernel "core" as attributes, once it is loaded; see `function_of`."""

LOOP_ADDRESSES = keep_forever((ctypes.c_int64 * (2 * len(LOOPS)))())
"""The address of each loop: first those that split, then those that join. A 0 is not loaded yet."""


class _Loader:
    """The kernels that this process has loaded.

    Attributes
    ----------
    is_forked_child : bool
        Whether this process is a forked child, which inherits no threads.
    loaded : dict
        The functions of each kernel that is loaded, by name; see `function_of`.
    compiled : list of str
        The kernels that this process compiled because they were not cached.
    splits : int
        How many copies NumPy has made that kernels could make.
    """

    def __init__(self) -> None:
        self.is_forked_child = False
        self.compiled: list[str] = []
        self.splits = 0
        self._lacking: set[str] = set()  # kernels that the cache lacks
        self._may_load = self._was_alone = True
        self._has_warned = False
        self.loaded: dict[str, dict[str, Any]] = {}
        self._not_before: dict[str, float] = {}  # when to retry loading a kernel
        self._pauses: dict[str, float] = {}
        # The threads in `load`; the first one loads. A list rather than a lock, because Ctrl-C
        # between `acquire` and `try` would leave a lock taken.
        self._loading: list[int] = []

    def pays(self, name: str, nbytes: float) -> bool:
        """Return whether it is time to load a kernel, for a copy of so many bytes.

        The first split of 64 KB or more loads kernels, or the 500th smaller one. After that, a
        kernel is loaded when it is first needed. One that the cache lacks is compiled by the first
        split of 4 MB or more, or by the 20 000th.
        """
        if name in self._lacking:
            return self._may_compile(nbytes)
        if self.loaded:
            return True
        return nbytes >= THRESHOLDS.load_from or self.splits + 1 >= THRESHOLDS.load_after

    def _may_compile(self, nbytes: float) -> bool:
        return nbytes >= THRESHOLDS.compile_from or self.splits + 1 >= THRESHOLDS.compile_after

    def load(
        self, name: str, nbytes: float = math.inf, *, wait: bool = False
    ) -> dict[str, Any] | None:
        """Return the functions of a kernel, see `function_of`; load it first if it is time to.

        Parameters
        ----------
        name : str
            One of `splitjit._abi.kernels.KERNELS`.
        nbytes : int, optional
            The bytes of the copy that needs the kernel, see `pays`. By default, it is time.
        wait : bool, default False
            Whether to wait while another thread loads a kernel, to try again at once after a
            failure, and to compile what another process is compiling.

        Returns
        -------
        dict or None
            None if the kernel is not loaded, so that NumPy must copy. A later call tries again,
            unless loading has failed for good.
        """
        if name in self.loaded or not (self._may_load and self.pays(name, nbytes)):
            return self.loaded.get(name)
        if never_compiles() or (not wait and time.monotonic() < self._not_before.get(name, 0.0)):
            return None
        thread = get_ident()
        try:
            self._loading.append(thread)
            while wait and self._loading[0] != thread:
                time.sleep(0.001)
            if self._loading[0] != thread or self._loading.count(thread) > 1:
                return None  # another thread is loading, or a signal handler interrupted this one
            if name not in self.loaded:
                self._load(name, wait, self._may_compile(nbytes))
        except Exception as error:  # a broken compiler or disk must not fail a split
            pause = min(2 * self._pauses.get(name, _RETRY_AFTER / 2), _LONGEST_PAUSE)
            self.give_up(name, error, pause if _may_pass(error) else math.inf)
        finally:
            self._loading.remove(thread)
        return self.loaded.get(name)

    def load_here(self, name: str) -> dict[str, Any]:
        """Return the functions of a kernel; load them in this thread without waiting for others.

        Users' compiled code needs them while this thread holds Numba's lock, and another thread
        in `load` may be waiting for that lock. Compiler errors are raised.
        """
        if name not in self.loaded:
            self._load(name, wait=True, has_lock=True)
        return self.loaded[name]

    def give_up(self, name: str, error: Exception, pause: float = math.inf) -> None:
        """Note that no split may try to load a kernel again before a pause, and log it.

        The log warns once of what is more than a moment's failure: other kernels may fail for the
        same reason.
        """
        self._pauses[name], self._not_before[name] = pause, time.monotonic() + pause
        lasts = pause >= _WARN_FROM and not isinstance(error, BlockingIOError)
        say = warn if lasts and not self._has_warned else debug
        self._has_warned |= lasts
        message = "the kernel %s cannot be loaded: %r; so NumPy copies, which is slower. "
        say(message + WORKS_WITH, name, error)

    def _load(
        self, name: str, wait: bool, may_compile: bool = True, has_lock: bool = False
    ) -> None:
        """Put the functions of a kernel into `loaded`, unless it may not be compiled."""
        began = time.monotonic()
        _llvm()  # first, because the names of object files depend on it
        code = kernel_files.read(name)
        if code is not None:
            try:
                self.loaded[name] = _link(name, code)
                return
            except RuntimeError as error:
                debug("the cached kernel %s cannot be linked: %s", name, error)
        if not may_compile:
            self._lacking.add(name)
            return
        if self.is_forked_child and not has_lock:  # the fork may have left Numba's locks taken
            raise BlockingIOError("a forked child does not compile")
        from splitjit._kernels.compiling import compile_kernel

        with contextlib.nullcontext() if wait else kernel_files.compiling(name):
            code = compile_kernel(name)
            functions = _link(name, code)
            self.compiled.append(name)
            kernel_files.write(name, code)
        self.loaded[name] = functions
        debug("compiled %s in %.3f s", name, time.monotonic() - began)

    def before_fork(self) -> None:
        """Note whether this thread is the only one: then no other is importing llvmlite."""
        self._was_alone = len(sys._current_frames()) == 1

    def after_fork(self) -> None:
        """Reset what does not survive a fork."""
        self.is_forked_child = True
        self._may_load &= _is_llvm_free() if _is_whole() else self._was_alone
        self._loading = [thread for thread in self._loading if thread == get_ident()]


def _may_pass(error: BaseException | None) -> bool:
    """Return whether a later try may go well. Another process that compiles blocks this one.

    A module that cannot be imported now may raise anything. So every error may pass until the
    compiler is imported.
    """
    is_early = "splitjit._kernels.compiling" not in sys.modules
    if is_early or isinstance(error, (ImportError, BlockingIOError)):
        return True
    while error is not None and not isinstance(error, _PASSING):  # Numba wraps what happens in it
        error = error.__cause__ or error.__context__
    return error is not None


def never_compiles() -> bool:
    """Return whether compilation is disabled, as with ``NUMBA_DISABLE_JIT=1``."""
    config = getattr(sys.modules.get("numba"), "config", None)
    if config is not None:
        return bool(config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding

    if not _is_whole():  # this thread is importing it, and a signal handler runs
        raise ImportError("llvmlite is being imported")
    return llvmlite.binding


def _is_whole() -> bool:
    """Return whether llvmlite has been imported, and is not being imported now."""
    spec = getattr(sys.modules.get("llvmlite.binding"), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _is_llvm_free() -> bool:
    """Return whether no thread that the fork has ended holds llvmlite's lock."""
    try:
        lock = sys.modules["llvmlite.binding.ffi"].lib._lock._lock
    except (KeyError, AttributeError):  # a version with another lock
        return False
    free: bool = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free


def _link(name: str, code: bytes) -> dict[str, Any]:
    """Link an object into this process for good."""
    # The process has the functions of C and of Python's C API.
    library = _llvm().JITLibraryBuilder().add_object_img(code).add_current_process()
    exported = [function for module in KERNELS[name].values() for function in module]
    for function in exported:
        library.export_symbol(function)
    linked = keep_forever(library.link(_linker(), f"{name}{time.monotonic_ns()}"))
    functions = {key: function_of(key, linked[key], BUILTINS.get(key, 0)) for key in exported}
    if name == "core":
        vars(NATIVE).update(functions)
    for i, loop in enumerate((*LOOPS, *JOIN_LOOPS)):
        LOOP_ADDRESSES[i] = functions.get(loop, LOOP_ADDRESSES[i])
    return functions


@functools.cache
def _linker() -> Any:
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # LLVM's older linker maps each section on its own. In a large process they may be more than
    # 2 GB apart, and an assertion then ends the process.
    near = sys.platform != "win32"  # where JITLink does not support all objects
    compiler = llvm.create_lljit_compiler(machine, suppress_errors=True, use_jit_link=near)
    return keep_forever(compiler)


LOADER = _Loader()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOADER.before_fork, after_in_child=LOADER.after_fork)
