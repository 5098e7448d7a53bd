"""Prepare, verify and time splits of splitjit and its peers, and plain copies as the limit.

Thread pools spin for a while after their work, which slows down the next
contender. Therefore the order is random in every round and each contender
sleeps before its turn. Compare only ratios within one call of `measure`.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

import splitjit
from benchmarks.machine import THREADS, rest_among

OURS = "splitjit"
PEERS = ("numpy", "NumPy, slices", "torch", "onnxruntime", "openvino", "opencv")
LIMIT = ("memcpy", "streaming")

Call = Callable[[], Iterable]  # splits once and returns the parts


@dataclass(frozen=True)
class Case:
    """A split: the shape of the array, the axis, and the sizes along the axis.

    In memory, the axes of the array have an order: "C", "F" for all axes reversed, or "T" for
    the last two axes swapped.
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    dtype: str = "float32"
    order: str = "C"

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        groups = [(size, len(list(group))) for size, group in itertools.groupby(self.sizes)]
        sizes = ", ".join(f"{n}x{size}" if n > 1 else f"{size}" for size, n in groups)
        order = "" if self.order == "C" else f" order {self.order}"
        return f"{self.shape} {self.dtype}{order}, axis {self.axis} → {sizes}"

    def array(self) -> np.ndarray:
        """Return an array to split.

        Its items are small integers: exact in every dtype, and no NaN, which would not equal
        itself.
        """
        x = np.random.default_rng(0).integers(0, 127, self.shape, np.int8).astype(self.dtype)
        if self.order == "T":
            return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        return np.asarray(x, order=self.order)


# ---- measuring ------------------------------------------------------------------------


def measure(
    calls: dict[str, Call], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Time several calls in turn, so that their ratios are comparable.

    Each round visits every call in a new random order. Before each burst,
    some sleep lets the previous thread pool come to rest, and one call is not
    counted. The parts of a call are dropped before the next call.

    Parameters
    ----------
    calls : dict of str to callable
        The calls to time, by name.
    rounds : int, default 5
        Number of rounds; fewer give only a first impression.
    clock : callable, optional
        `time.process_time` leaves out the time of other programs, for calls on one thread.

    Returns
    -------
    dict of str to float
        Median seconds per call, over the rounds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    rest = rest_among(calls)
    for _ in range(rounds):
        for name in random.sample(list(calls), len(calls)):
            time.sleep(rest)
            calls[name]()
            seconds[name].append(burst(calls[name], clock))
    return {name: statistics.median(values) for name, values in seconds.items()}


def burst(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds per call, over at least 3 calls and 10 ms."""
    count, batch = 0, 3
    start = clock()
    while True:
        for _ in range(batch):
            call()
        count += batch
        elapsed = clock() - start
        if elapsed >= 0.01:
            return elapsed / count
        batch = count  # double the count, so that the clock is rarely read


# ---- contenders -----------------------------------------------------------------------


def contenders(
    case: Case,
    *,
    fresh: bool,
    names: Iterable[str] = (OURS, *PEERS, *LIMIT),
    threads: int = THREADS,
) -> dict[str, Call]:
    """Prepare a case for each contender that is installed and supports it.

    Parameters
    ----------
    case : Case
        The split to make.
    fresh : bool
        True for new parts at each call, False to reuse arrays whose pages are touched.
    names : iterable of str
        The contenders to prepare.
    threads : int, default 2
        The number of threads that each contender may use.

    Returns
    -------
    dict of str to callable
        The calls by name. Each was made once, and its parts were equal to NumPy's slices.

    Raises
    ------
    AssertionError
        If a contender returns a wrong part.
    """
    x = case.array()
    expected = splitjit.split(x, case.sizes, axis=case.axis, copy=False)
    out = None if fresh else [np.empty_like(part, order="C") for part in expected]

    calls = {}
    for name in names:
        for part in out or ():
            part.fill(0)  # touch the pages, and remove the result of the previous contender
        try:
            call = PREPARE[name](case, x, out, threads)
        except (ImportError, NotImplementedError):
            continue
        for part, right in zip(call(), expected, strict=True):
            equal = np.array_equal(np.asarray(part).reshape(right.shape), right)
            assert equal, f"{name} gets {case} wrong"
        calls[name] = call
    return calls


def prepare_splitjit(case, x, out, threads):
    """Return a call of `splitjit.split`."""
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    return lambda: splitjit.split(x, case.sizes, axis=case.axis, out=out)


def prepare_numpy(case, x, out, threads):
    """Return a call of `numpy.split`, and a copy of each part."""
    cuts = np.cumsum(case.sizes)[:-1]
    if out is None:
        return lambda: [part.copy() for part in np.split(x, cuts, case.axis)]

    def call():
        for target, part in zip(out, np.split(x, cuts, case.axis), strict=True):
            np.copyto(target, part)
        return out

    return call


def _slices(case, x, out, threads):
    ends = np.cumsum(case.sizes).tolist()
    slices = [
        (slice(None),) * case.axis + (slice(end - size, end),)
        for size, end in zip(case.sizes, ends, strict=True)
    ]
    if out is None:
        return lambda: [x[part].copy() for part in slices]  # ascontiguousarray may return a view
    pairs = list(zip(out, slices, strict=True))

    def call():
        for target, part in pairs:
            np.copyto(target, x[part])
        return out

    return call


def _torch(case, x, out, threads):
    import torch

    torch.set_num_threads(threads)
    tensor = torch.from_numpy(x)
    split = functools.partial(torch.split_with_sizes_copy, tensor, case.sizes, case.axis)
    if out is None:
        return split
    tensors = [torch.from_numpy(part) for part in out]

    def call():
        split(out=tensors)
        return out

    return call


def _onnxruntime(case, x, out, threads):
    import onnxruntime
    from onnx import helper, numpy_helper

    if x.dtype.kind == "c":
        raise NotImplementedError("complex tensors")
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    names = [f"part{i}" for i in range(len(case.sizes))]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x", "split"], names, axis=case.axis)],
        "split",
        [helper.make_tensor_value_info("x", kind, case.shape)],
        [helper.make_tensor_value_info(name, kind, None) for name in names],
        [numpy_helper.from_array(np.array(case.sizes, np.int64), "split")],
    )
    # Every runtime that supports Split-18 reads this IR version.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
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

    def call():
        cv2.split(image, targets)
        return out

    return call


# ---- the limit ------------------------------------------------------------------------


def _plain_copy(name, case, x, out, threads):
    library = _limit_library()
    if not hasattr(library, f"copy_{name}"):
        raise NotImplementedError("no streaming stores on this processor")
    copy = getattr(library, f"copy_{name}")
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    copy.restype = None
    block = np.full_like(x, 0)
    parts = splitjit.split(block, case.sizes, axis=case.axis, copy=False)
    arguments = (block.ctypes.data, x.ctypes.data, x.nbytes, threads)

    def call(x=x):  # `arguments` has only the address of x
        copy(*arguments)
        return parts

    return call


@functools.cache
def _limit_library() -> ctypes.CDLL:
    """Compile limit.c, or raise NotImplementedError if no compiler can."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotImplementedError("no C compiler")
    source = Path(__file__).with_name("limit.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limit.so")
        options = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        try:
            subprocess.run([compiler, *options, source, "-o", library], check=True)
        except subprocess.CalledProcessError as error:
            raise NotImplementedError("no C compiler with OpenMP") from error
        return ctypes.CDLL(str(library))  # stays loaded after the folder is deleted


PREPARE = {
    OURS: prepare_splitjit,
    "numpy": prepare_numpy,
    "NumPy, slices": _slices,
    "torch": _torch,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "opencv": _opencv,
    **{name: functools.partial(_plain_copy, name) for name in LIMIT},
}
