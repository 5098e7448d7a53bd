"""Contenders in processes of their own, which take turns.

The speed of a split depends on the state of its process: the places of its
pages in memory, its thread pools, and the statistics that a library keeps of
earlier calls. So each contender runs in a worker, a process that sleeps on a
pipe until the parent gives it an order. Orders and
answers are lines of JSON::

    parent                                        worker
    Worker("torch").ask("prepare", case, "out")   Contender("torch").prepare(case, "out")

An order is the name of a method of `Contender`, followed by its arguments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.machine import CORES, REST, ROOT

PATIENCE = 120
"""Seconds after which a worker ends itself if it has not finished its order."""

BEFORE = "splitjit, before"
"""The contender that runs the splitjit of another checkout."""


_CALLS_AFTER = 15
"""Calls of a turn of `Contender.after`."""


# ---- the parent's side ----------------------------------------------------------------


class Worker:
    """A process that holds one contender. Use it as a context manager.

    Parameters
    ----------
    contender : str
        A name in `preparations`, or `BEFORE`.
    checkout : path-like, optional
        The folder of the splitjit to import; this checkout by default.
    """

    def __init__(self, contender: str, checkout: str | os.PathLike[str] = ROOT):
        self.contender = contender
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workers", contender, Path(checkout).resolve()],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def send(self, order: str, *arguments: object) -> None:
        """Give an order and do not wait for its result."""
        print(json.dumps([order, *arguments], default=dataclasses.astuple), file=self.process.stdin)
        self.process.stdin.flush()

    def receive(self):
        """Wait for the result of the order given last."""
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker of {self.contender} ended before it answered")
        return json.loads(answer)

    def ask(self, order: str, *arguments: object):
        """Give an order and return its result."""
        self.send(order, *arguments)
        return self.receive()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def together(team: list[Worker], order: str, *arguments: object) -> list:
    """Give all workers of a team the same order at once; return their results."""
    for worker in team:
        worker.send(order, *arguments)
    return [worker.receive() for worker in team]


SPIN = """
import os, time
parent, end = os.getppid(), time.monotonic() + 3600
while os.getppid() == parent and time.monotonic() < end:
    for _ in range(100_000):
        pass
"""


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Run programs that each keep one core busy, until the ``with`` block ends."""
    programs = []
    try:
        for _ in range(count):
            programs.append(subprocess.Popen([sys.executable, "-c", SPIN]))  # noqa: PERF401
        time.sleep(0.5 if count else 0)  # until the interpreters have started
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


# ---- the worker's side ----------------------------------------------------------------


@functools.cache
def preparations() -> dict:
    """Return by name the functions ``(case, x, out, threads)`` that prepare a call."""
    from benchmarks import compare

    return compare.PREPARE | {
        "splitjit": _split,
        BEFORE: _split,
        "splitjit, one thread": lambda case, x, out, _: compare.prepare_splitjit(case, x, out, 1),
        "splitjit, cold": _split,
        "splitjit, warm": _warm,
        "splitjit, plan": _plan,
        "splitjit, plan, warm": lambda *given: _warm(*given) and _plan(*given),
        "splitjit, bind": _bind,
        "NumPy, split": compare.prepare_numpy,
    }


def _split(case, x, out, threads):
    import splitjit

    return lambda: splitjit.split(x, case.sizes, axis=case.axis, out=out)


def _warm(case, x, out, threads):
    import splitjit

    splitjit.warmup()
    return _split(case, x, out, threads)


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


@functools.cache
def model_of(library: str):
    """Return a call of another library that works on all cores: a product of two matrices.

    Its threads spin after the work, see `benchmarks.machine.REST`.
    """
    matrix = np.ones((512, 512), np.float32)
    if library == "torch":
        import torch

        torch.set_num_threads(CORES)
        tensor = torch.from_numpy(matrix)
        return lambda: tensor @ tensor
    import onnxruntime
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, matrix.shape) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["y"])], "product", values[:1], values[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = CORES
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": matrix})


def allocate(case, outputs: str) -> list[np.ndarray] | None:
    """Allocate the arrays to split into, and touch their pages.

    Parameters
    ----------
    case : Case
        The split.
    outputs : {"fresh", "out", "plan.empty"}
        "fresh": none, each call makes its own. "out": separate arrays; those
        of 128 KiB and more start at the same offset in a page, as large
        arrays of `numpy.empty` do. "plan.empty": the arrays of
        `splitjit.SplitPlan.empty`, which start at different offsets.

    Returns
    -------
    list of ndarray or None
        One array a part, or None for "fresh".
    """
    import splitjit

    if outputs == "fresh":
        return None
    plan = splitjit.plan_split(case.shape, case.sizes, axis=case.axis)
    if outputs == "plan.empty":
        out = plan.empty(case.dtype)
    else:
        out = [_like_large_empty(shape, np.dtype(case.dtype)) for shape in plan.output_shapes]
    for part in out:
        part.fill(0)
    return out


def _like_large_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    # malloc maps each large block and starts it with 16 bytes of its own. But the size from which
    # malloc maps blocks grows when blocks are freed, so `np.empty` alone gives varying offsets.
    part = np.empty(shape, dtype)
    if part.nbytes < 1 << 17:
        return part
    block = np.empty(part.nbytes + mmap.PAGESIZE, np.uint8)
    start = (16 - block.ctypes.data) % mmap.PAGESIZE
    return block[start : start + part.nbytes].view(dtype).reshape(shape)


class Contender:
    """One way to split, and the arrays of the case that it is prepared for."""

    def __init__(self, name: str):
        self.name = name
        self.call = self.x = None

    def prepare(self, case: list, outputs: str) -> str | None:
        """Allocate, call once and verify; return a reason if the contender cannot do it."""
        from benchmarks.compare import Case

        shape, axis, sizes, dtype, order = case
        case = Case(tuple(shape), axis, tuple(sizes), dtype, order)
        x = case.array()
        try:
            call = preparations()[self.name](case, x, allocate(case, outputs), CORES)
        except (ImportError, NotImplementedError) as error:
            return f"{self.name}: {error}"
        right = np.split(x, np.cumsum(case.sizes)[:-1], case.axis)
        for part, view in zip(call(), right, strict=True):
            assert np.array_equal(part, view), f"{self.name} gets {case} wrong"
        self.call, self.x = call, x  # some calls hold only the address of x
        return None

    def release(self) -> None:
        """Drop the arrays of the case."""
        self.call = self.x = None

    def burst(self, cpu: bool = False, rest: float = REST) -> float:
        """Sleep for `rest` seconds; then return the seconds a call takes, over at least 10 ms.

        If ``cpu`` is true, count the seconds that the threads of this process run.
        """
        from benchmarks.compare import burst

        self._rest(rest)
        return burst(self.call, time.process_time if cpu else time.perf_counter)

    def after(self, library: str, rest: float = REST) -> float:
        """Sleep; then return the median seconds of calls, each right after a model of a library."""
        model, times = model_of(library), []
        self._rest(rest)
        for _ in range(_CALLS_AFTER):
            model()
            start = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def slow(self, factor: float) -> None:
        """Repeat some calls, so that a call takes longer by a factor on average."""
        call, debt = self.call, 0.0

        def slowed():
            nonlocal debt
            debt += factor - 1
            while debt >= 1:
                debt -= 1
                call()
            return call()

        self.call = slowed

    def calls(self, seconds: float) -> list[int]:
        """Call for some seconds; return the nanoseconds of each call."""
        self._rest()
        call, clock, times = self.call, time.perf_counter_ns, []
        before = clock()
        end = before + int(seconds * 1e9)
        while before < end:
            call()
            now = clock()
            times.append(now - before)
            before = now
        return times

    def narrow(self, everything: bool) -> None:
        """Leave one core to the main thread, or to every thread that the process has now."""
        core = min(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task") if everything else ("0",):
            os.sched_setaffinity(int(thread), {core})

    def _rest(self, seconds: float = REST) -> None:
        time.sleep(seconds)
        self.call()


def serve(contender: str, checkout: str) -> None:
    """Carry out the orders on standard input, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C, too, and kills workers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not garble answers
    sys.path.insert(0, checkout)  # `benchmarks` is already loaded from the parent's checkout
    holder = Contender(contender)
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        result = getattr(holder, order)(*arguments)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
