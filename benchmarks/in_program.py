"""Time splits between other steps of a program, whose threads use the same cores.

A program runs one step, then a split into three parts, and so on. The pools of torch, BLAS, ONNX
Runtime and Numba spin for a while after each step. Each way to split has processes of its own, in
turns: ours, ours on one thread, torch's own operator (tensors), and slices by hand.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from benchmarks import harness

OURS, ALONE, TORCH, HAND, BEFORE = "ours", "one thread", "torch", "by hand", "ours before"
PROGRAMS = ("torch", "BLAS", "ONNX Runtime", "prange", "none")
SHAPES = {
    "1.2 MB": (128, 2304),
    "4.7 MB": (512, 2304),
    "11 MB": (600, 4608),
    "22 MB": (1200, 4608),
    "50 MB": (2048, 6144),
}


def step_of(program: str) -> Callable[[], object]:
    """Return what a program does before each split."""
    if program == "torch":
        import torch

        w, x = torch.randn(64, 64), torch.randn(2, 400_000)
        return lambda: (w @ w, w @ w, w @ w, torch.relu(x))
    if program == "BLAS":
        w = np.random.default_rng(0).random((256, 256), np.float32)
        return lambda: w @ w
    if program == "ONNX Runtime":
        return _session_step()
    if program == "prange":
        from numba import njit, prange

        @njit(parallel=True)
        def scale(x):
            for i in prange(len(x)):
                x[i] *= np.float32(1.0001)

        x = np.ones(400_000, np.float32)
        return lambda: scale(x)
    return lambda: None


def _session_step() -> Callable[[], object]:
    import onnx
    import onnxruntime

    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [256, 256])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [256, 256])
    node = onnx.helper.make_node("MatMul", ["x", "x"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "step", [given], [made]),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = {"x": np.ones((256, 256), np.float32)}
    return lambda: session.run(None, x)


def split_of(way: str, kind: str, outputs: str, shape: tuple[int, int]) -> Callable[[], object]:
    """Return a split of an array or a tensor, fresh or into existing parts."""
    size = shape[1] // 3
    cuts = [slice(i * size, (i + 1) * size) for i in range(3)]
    x = np.random.default_rng(0).random(shape, np.float32)
    out = [np.ones((shape[0], size), np.float32) for _ in cuts]
    if kind == "tensors":
        import torch

        x, out = torch.from_numpy(x), [torch.from_numpy(part) for part in out]
    if way == TORCH:
        sizes = [size] * 3
        if outputs == "fresh":
            return lambda: torch.split_with_sizes_copy(x, sizes, 1)
        return lambda: torch.split_with_sizes_copy(x, sizes, 1, out=out)
    if way == HAND and outputs == "fresh":
        if kind == "tensors":
            return lambda: [x[:, cut].contiguous() for cut in cuts]
        return lambda: [x[:, cut].copy() for cut in cuts]
    if way == HAND:
        if kind == "tensors":
            return lambda: [part.copy_(x[:, cut]) for part, cut in zip(out, cuts, strict=True)]
        return lambda: [np.copyto(part, x[:, cut]) for part, cut in zip(out, cuts, strict=True)]
    import splitjit

    splitjit.warmup()
    given = None if outputs == "fresh" else out
    return lambda: splitjit.split(x, num_splits=3, axis=1, out=given)


def mean_seconds(split: Callable[[], object], step: Callable[[], object], seconds: float) -> float:
    """Return the mean time of a split between steps; a third of the seconds is not counted."""
    step(), split()  # the first ones may compile
    begun, times = time.perf_counter(), []
    while (now := time.perf_counter()) < begun + seconds:
        step()
        before = time.perf_counter()
        split()
        if now > begun + seconds / 3:
            times.append(time.perf_counter() - before)
    return statistics.mean(times)


def work(way: str, program: str, kind: str, outputs: str, seconds: str, *sizes: str) -> None:
    """Time the sizes in this process; print the mean seconds."""
    step = step_of(program)
    splits = {size: split_of(way, kind, outputs, SHAPES[size]) for size in sizes}
    times = {size: mean_seconds(split, step, float(seconds)) for size, split in splits.items()}
    print(json.dumps(times))


def ways_of(kind: str, before: Path | None) -> list[str]:
    """Return the ways to split arrays or tensors."""
    torch = [TORCH] * (kind == "tensors")
    return [OURS, *[BEFORE] * bool(before), ALONE, *torch, HAND]


def measure(options) -> dict[tuple[str, str, str], dict[str, dict[str, float]]]:
    """Return the median of the processes' means, by case, way and size."""
    found: dict = {}
    cases = list(itertools.product(options.program, options.kind, options.outputs))
    for i, case in itertools.product(range(options.processes), cases):
        for way in ways_of(case[1], options.before):
            folder = options.before if way == BEFORE else harness.ROOT
            environment = {**os.environ, "PYTHONPATH": str(Path(folder).resolve())}
            if way == ALONE:
                environment["NUMBA_NUM_THREADS"] = "1"
            what = [*case, str(options.seconds), *options.size]
            command = [sys.executable, __file__, "--work", way, *what]
            with contextlib.suppress(subprocess.CalledProcessError):  # a library is missing
                printed = subprocess.check_output(command, env=environment, text=True)
                found.setdefault(case, {}).setdefault(way, []).append(json.loads(printed))
        harness.say(f"process {i + 1} of {options.processes}: {', '.join(case)}")
    return {
        case: {
            way: {size: statistics.median([one[size] for one in runs]) for size in options.size}
            for way, runs in ways.items()
        }
        for case, ways in found.items()
    }


def by_case(results: Iterable[list]) -> dict:
    """Return saved results as `measure` does."""
    found: dict = {}
    for *case, way, times in results:
        found.setdefault(tuple(case), {})[way] = times
    return found


def report(found: dict) -> str:
    """Return the table, the mean of the best other way over ours, and the cells below 0.9."""
    rows, ratios, lost = [], [], []
    named = [BEFORE] * any(BEFORE in ways for ways in found.values())
    named = [OURS, *named, ALONE, TORCH, HAND]
    for case, ways in found.items():
        for size in ways[OURS]:
            others = [ways[way][size] for way in (ALONE, TORCH, HAND) if way in ways]
            ratio = min(others) / ways[OURS][size]
            ratios.append(ratio)
            lost += [f"{', '.join(case)}, {size}: {ratio:.2f}"] if harness.below(ratio, 0.9) else []
            times = [harness.time_text(ways[way][size]) if way in ways else "-" for way in named]
            rows.append([*case, size, *times, ratio])
    head = ["program", "splits", "parts", "size", *named, "best other over ours"]
    said = f"Best other way over ours: mean {statistics.mean(ratios):.2f}, least {min(ratios):.2f}."
    below = "; ".join(lost) or "none"
    return f"{harness.table(head, rows)}\n\n{said} Below 0.9: {below}."


def main() -> None:
    """Measure the cases of the command line, and print the table."""
    if sys.argv[1:2] == ["--work"]:
        sys.path.insert(0, os.environ["PYTHONPATH"])  # the checkout to measure
        work(*sys.argv[2:])
        return
    lists = {"--program": PROGRAMS, "--kind": ("arrays", "tensors"), "--outputs": ("out", "fresh")}
    parser = harness.parser(__doc__, *lists.items(), ("--size", SHAPES), before=True)
    parser.add_argument("--processes", type=int, default=3, help="processes of each way")
    parser.add_argument("--seconds", type=float, default=0.8, help="of each case in each process")
    options = parser.parse_args()
    machine, found = harness.describe(), measure(options)
    results = [[*case, way, ways[way]] for case, ways in found.items() for way in ways]
    harness.finish(options, machine, report(found), {"results": results})


if __name__ == "__main__":
    main()
