"""What is compared: the cases of cases.toml, the ways to split, and the programs around a split.

The ways are splitjit's own, its peers, and plain copies as the limit. `PREPARE` has a function
``(case, x, out, threads)`` for each, which returns a call. splitjit is imported only inside
functions, because a worker first chooses the checkout.
"""

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
OURS = "splitjit"
BEFORE = "splitjit, before"
"""The contender that runs the splitjit of another checkout."""
PEERS = ("numpy", "NumPy, slices", "torch", "onnxruntime", "openvino", "opencv")
LIMIT = ("memcpy", "streaming")
CONTIGUOUS = ("onnxruntime", "openvino", "opencv")
"""Peers that would first copy a source whose axes have another order."""

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text("utf-8"))

Call = Callable[[], Iterable]  # splits once and returns the parts


@dataclass(frozen=True)
class Case:
    """A split: the shape of the array, the axis, and the sizes along the axis.

    In memory, the axes have an order: "C", "F" for all axes reversed, "T" for the last two axes
    swapped, or the numbers of the axes, such as "0231" for images with channels last.
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    dtype: str = "float32"
    order: str = "C"

    @classmethod
    def of(cls, given: list | str):
        """Make a case as it is written in cases.toml, or return one that has a name there."""
        if isinstance(given, str):
            given = CASES["cases"][re.sub(", (fresh|out)$", "", given)]
        shape, axis, sizes, *more = given
        runs = [size.rpartition("x")[::2] for size in sizes.split()]
        each = (int(size) for count, size in runs for _ in range(int(count or 1)))
        return cls(tuple(shape), axis, tuple(each), *more)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def rule(self) -> dict[str, Any]:
        """Arguments of `splitjit.split` that make equal parts by their number."""
        equal = len({*self.sizes}) == 1
        chosen = {"num_splits": len(self.sizes)} if equal else {"split": list(self.sizes)}
        return {"axis": self.axis, **chosen}

    def __str__(self) -> str:
        groups = [[*group] for _, group in itertools.groupby(self.sizes)]
        sizes = ", ".join(f"{len(g)}x{g[0]}" if len(g) > 1 else f"{g[0]}" for g in groups)
        order = "" if self.order == "C" else f" order {self.order}"
        return f"{self.shape} {self.dtype}{order}, axis {self.axis} → {sizes}"

    def array(self) -> np.ndarray:
        """Return an array of small integers, which are exact in every dtype and no NaN."""
        x = np.random.default_rng(0).integers(0, 127, self.shape, np.int8).astype(self.dtype)
        if self.order == "C":
            return x
        axes = [*range(x.ndim)]
        if self.order == "T":
            axes[-2:] = axes[:-3:-1]
        else:
            axes = axes[::-1] if self.order == "F" else [*map(int, self.order)]
        return x.transpose(axes).copy().transpose(np.argsort(axes))

    def views(self, x: np.ndarray) -> list[np.ndarray]:
        """Return the parts as NumPy's views."""
        return np.split(x, np.cumsum(self.sizes)[:-1], self.axis)


def cases(*path: str) -> dict[str, Case]:
    """Return a list of cases.toml; cases without a name are named by what they split."""
    given = functools.reduce(lambda table, key: table[key], path, CASES)
    if isinstance(given, dict):
        return {name: Case.of(case) for name, case in given.items()}
    return {one if isinstance(one, str) else str(Case.of(one)): Case.of(one) for one in given}


def targets(*path: str) -> dict[str, tuple[Case, str]]:
    """Return a list of cases.toml, with what the end of each name says: "fresh" or "out"."""
    return {name: (case, name.rpartition(", ")[2]) for name, case in cases(*path).items()}


def allocate(case: Case, outputs: str) -> list[np.ndarray] | None:
    """Allocate the arrays to split into, or none if each call makes its own.

    ``outputs`` is "fresh", "plan.empty", or "out": separate arrays, which start at the same offset
    in a page from 128 KiB on, as large arrays of `numpy.empty` do.
    """
    import splitjit

    if outputs == "fresh":
        return None
    plan = splitjit.plan_split(case.shape, case.sizes, axis=case.axis)
    if outputs == "plan.empty":
        return plan.empty(case.dtype)
    return [_like_large_empty(shape, np.dtype(case.dtype)) for shape in plan.output_shapes]


def _like_large_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    # malloc maps each large block and starts it with 16 bytes of its own. But the size from which
    # malloc maps blocks grows when blocks are freed, so `np.empty` alone gives varying offsets.
    part = np.empty(shape, dtype)
    if part.nbytes < 1 << 17:
        return part
    block = np.empty(part.nbytes + mmap.PAGESIZE, np.uint8)
    start = (16 - block.ctypes.data) % mmap.PAGESIZE
    return block[start : start + part.nbytes].view(dtype).reshape(shape)


def verified(name: str, case: Case, x: np.ndarray, out: list | None, threads: int) -> Call:
    """Prepare a contender and call it once; check that its parts equal NumPy's."""
    if name in CONTIGUOUS and case.order != "C":
        raise NotImplementedError("splits contiguous sources only")
    for part in out or ():
        np.asarray(part).fill(0)  # touch the pages, and remove the result of the one before
    if "torch" in sys.modules:  # its own operator may make our parts, too
        sys.modules["torch"].set_num_threads(threads)
    call = PREPARE[name](case, x, out, threads)
    if name not in LIMIT:  # a plain copy moves the same bytes, in another order
        for part, right in zip(call(), case.views(np.asarray(x)), strict=True):
            equal = np.array_equal(np.asarray(part).reshape(right.shape), right)
            assert equal, f"{name} gets {case} wrong"
    return call


def prepared(
    case: Case, fresh: bool, names: Iterable[str], threads: int, x: np.ndarray | None = None,
    out: list[np.ndarray] | None = None,
) -> dict[str, Call]:  # fmt: skip
    """Prepare and verify a case for each contender that is installed and supports it."""
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    x, calls = case.array() if x is None else x, {}
    if out is None and not fresh:
        out = [part.copy() for part in case.views(x)]
    for name in names:
        with contextlib.suppress(ImportError, NotImplementedError):
            calls[name] = verified(name, case, x, out, threads)
    return calls


def prepared_joins(case: Case, names: Iterable[str], threads: int) -> dict[str, Call]:
    """Prepare and verify what joins the parts of a case, into one array; and the limit."""
    x, calls = case.array(), {}
    parts = [_like_large_empty(view.shape, x.dtype) for view in case.views(x)]
    for part, view in zip(parts, case.views(x), strict=True):
        part[...] = view
    out = _like_large_empty(x.shape, x.dtype)
    for name in names:
        out.fill(0)
        with contextlib.suppress(ImportError, NotImplementedError):
            if name in LIMIT:
                calls[name] = PREPARE[name](case, out, parts, threads)
            elif name in JOINS:
                calls[name] = JOINS[name](parts, case.axis, out, threads)
                calls[name]()
                assert np.array_equal(out, x), f"{name} joins {case} wrong"
    return calls


def _join(parts, axis, out, threads):
    import splitjit

    return lambda: splitjit.join(parts, axis, out=out)


def _join_torch(parts, axis, out, threads):
    import torch

    torch.set_num_threads(threads)
    tensors, whole = [torch.from_numpy(part) for part in parts], torch.from_numpy(out)
    return lambda: torch.cat(tensors, axis, out=whole)


def _join_opencv(parts, axis, out, threads):
    import cv2

    if axis != 2 or out.ndim != 3 or {part.shape[2] for part in parts} != {1}:
        raise NotImplementedError("joins planes only")
    cv2.setNumThreads(threads)
    planes = [part[..., 0] for part in parts]
    return lambda: cv2.merge(planes, out)


JOINS = {
    OURS: _join,
    "numpy": lambda parts, axis, out, _: lambda: np.concatenate(parts, axis, out=out),
    "torch": _join_torch,
    "opencv": _join_opencv,
}
"""What joins arrays, as `PREPARE`; ``(parts, axis, out, threads)`` for each."""


def _split(case, x, out, threads):
    import splitjit

    return lambda: splitjit.split(x, case.sizes, axis=case.axis, out=out)


def _one_thread(*given):
    import numba  # noqa: F401  kernels then load at once

    from splitjit._runtime.threads import one_thread

    _ENTERED.enter_context(one_thread())
    return _split(*given)


_ENTERED = contextlib.ExitStack()  # until the process ends


def _on_numba(*given):
    from splitjit._runtime import threads

    threads.ON_NUMBA = True  # as with SPLITJIT_THREADS=numba, which is read on import
    return _split(*given)


def _warm(*given):
    import splitjit

    splitjit.warmup()
    return _split(*given)


def _plan(case, x, out, threads):
    import splitjit

    plan = splitjit.plan_split(x.shape, case.sizes, axis=case.axis)
    return lambda: plan(x, out)


def _bind(case, x, out, threads):
    import splitjit

    if out is None or not hasattr(splitjit.SplitPlan, "bind"):
        raise NotImplementedError("needs outputs, and a splitjit that has SplitPlan.bind")
    into = splitjit.plan_split(x.shape, case.sizes, axis=case.axis).bind(out)
    return lambda: into(x)


def _unstack(case, x, out, threads):
    import splitjit

    if out is None or {*case.sizes} != {1}:
        raise NotImplementedError("needs outputs, and parts of length 1")
    planes = [part.squeeze(case.axis) for part in out]
    return lambda: splitjit.numpy.unstack(x, axis=case.axis, out=planes) and out


def _numpy(case, x, out, threads):
    cuts = np.cumsum(case.sizes)[:-1]
    return _copies(lambda: np.split(x, cuts, case.axis), x, out)


def _slices(case, x, out, threads):
    ends = np.cumsum(case.sizes).tolist()
    cuts = [slice(end - size, end) for size, end in zip(case.sizes, ends, strict=True)]
    slices = [(slice(None),) * case.axis + (cut,) for cut in cuts]
    return _copies(lambda: [x[part] for part in slices], x, out)


def _copies(views, x, out):
    copy, copy_to = np.ndarray.copy, np.copyto  # ascontiguousarray may return a view
    if not isinstance(x, np.ndarray):
        copy, copy_to = type(x).clone, type(x).copy_
    if out is None:
        return lambda: [copy(part) for part in views()]

    def call():
        for target, part in zip(out, views(), strict=True):
            copy_to(target, part)
        return out

    return call


def _torch(case, x, out, threads):
    import torch

    torch.set_num_threads(threads)
    tensor = torch.as_tensor(x)
    split = functools.partial(torch.split_with_sizes_copy, tensor, case.sizes, case.axis)
    if out is None:
        return split
    tensors = [torch.as_tensor(part) for part in out]
    return lambda: split(out=tensors) or out


def _session(nodes, inputs, outputs, threads, constants=()):
    import onnxruntime
    from onnx import helper

    graph = helper.make_graph(nodes, "benchmark", inputs, outputs, constants)
    # Every runtime that supports Split-18 reads this IR version.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


def _onnxruntime(case, x, out, threads):
    from onnx import helper, numpy_helper

    if x.dtype.kind == "c":
        raise NotImplementedError("complex tensors")
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = [f"part{i}" for i in range(len(case.sizes))]
    session = _session(
        [helper.make_node("Split", ["x", "split"], names, axis=case.axis)],
        [helper.make_tensor_value_info("x", kind, case.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name in names],
        threads,
        [numpy_helper.from_array(np.array(case.sizes, np.int64), "split")],
    )
    if out is None:
        return lambda: session.run(None, {"x": x})
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, x.dtype.type, x.shape, x.ctypes.data)
    for name, part in zip(names, out, strict=True):
        binding.bind_output(name, "cpu", 0, part.dtype.type, part.shape, part.ctypes.data)

    def call(x=x):  # the binding knows only the address of x
        session.run_with_iobinding(binding)
        return out

    return call


def _openvino(case, x, out, threads):
    import openvino
    from openvino import opset13 as operators

    if x.dtype.kind == "c":
        raise NotImplementedError("complex tensors")
    data = operators.parameter(case.shape, x.dtype.type)
    node = operators.variadic_split(data, case.axis, list(case.sizes))
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Model(node.outputs(), [data], "split")
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
    if out is None:
        return lambda: request.infer([x], share_inputs=True).values()
    for i, part in enumerate(out):
        request.set_output_tensor(i, openvino.Tensor(part, shared_memory=True))

    def call():
        request.infer([x], share_inputs=True, share_outputs=True)
        return out

    return call


def _opencv(case, x, out, threads):
    import cv2

    channels = len(case.sizes)
    if case.axis != x.ndim - 1 or {*case.sizes} != {1} or x.dtype.kind == "c" or channels > 32:
        raise NotImplementedError("splits channels of images only")
    cv2.setNumThreads(threads)
    image = x.reshape(-1, x.shape[-2], channels)
    if out is None:
        return lambda: cv2.split(image)
    targets = [part.reshape(image.shape[:2]) for part in out]
    return lambda: cv2.split(image, targets) and out


PROGRAMS = ("torch", "BLAS", "ONNX Runtime", "prange", "Python", "none")


@functools.cache
def step_of(program: str) -> Callable[[], object]:
    """Return what a program does before each split; its threads may spin for a while after it."""
    matrix = np.random.default_rng(0).random((256, 256), np.float32)
    if program == "torch":
        import torch

        w, x = torch.randn(64, 64), torch.randn(2, 400_000)
        return lambda: (w @ w, w @ w, w @ w, torch.relu(x))
    if program == "BLAS":
        return lambda: matrix @ matrix
    if program == "ONNX Runtime":
        from onnx import TensorProto, helper

        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, matrix.shape) for n in "xy"]
        product = helper.make_node("MatMul", ["x", "x"], ["y"])
        session = _session([product], info[:1], info[1:], CORES)
        return lambda: session.run(None, {"x": matrix})
    if program == "prange":
        from numba import njit, prange

        @njit(parallel=True)
        def scale(x):
            for i in prange(len(x)):
                x[i] *= np.float32(1.0001)

        x = np.ones(400_000, np.float32)
        return lambda: scale(x)
    return (lambda: sum(range(3000))) if program == "Python" else (lambda: None)


def _plain_copy(name, case, x, out, threads):
    copy = getattr(_limit_library(), f"copy_{name}", None)
    if copy is None:
        raise NotImplementedError("no streaming stores on this processor")
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = np.full_like(x, 0)
    arguments = (block.ctypes.data, x.ctypes.data, x.nbytes, threads)
    return lambda keep=(block, x): copy(*arguments)  # `arguments` has only the addresses


@functools.cache
def _limit_library() -> ctypes.CDLL:
    """Compile limit.c, or raise NotImplementedError if no compiler can."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or "cc"
    source = Path(__file__).with_name("limit.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limit.so")
        options = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        try:
            subprocess.run([compiler, *options, source, "-o", library], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotImplementedError("no C compiler with OpenMP") from error
        return ctypes.CDLL(str(library))  # stays loaded after the folder is deleted


PREPARE = {
    OURS: _split,
    BEFORE: _split,
    "splitjit, one thread": _one_thread,
    "splitjit, Numba's threads": _on_numba,
    "splitjit, cold": _split,
    "splitjit, warm": _warm,
    "splitjit, plan": _plan,
    "splitjit, bind": _bind,
    "splitjit, unstack": _unstack,
    "numpy": _numpy,
    "NumPy, split": _numpy,
    "NumPy, slices": _slices,
    "torch": _torch,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "opencv": _opencv,
    **{name: functools.partial(_plain_copy, name) for name in LIMIT},
}
