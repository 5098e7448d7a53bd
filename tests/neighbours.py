"""Generated functions: a call of `split` changes no statement around it in compiled code.

``python -m tests.neighbours FIRST LAST [SECONDS]`` makes the functions with these random seeds.
Each has statements with effects, errors among them, around calls of `split` and `split_into`. It
runs compiled with the calls, compiled without them, and as Python, with the same effects. Numba
removes unused statements itself if it inlines or parallelizes something of the function: then only
the compiled functions have to agree.
"""

from __future__ import annotations

import collections
import contextlib
import io
import random
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from numba import njit, typed, types
from numba.core.errors import NumbaWarning
from numba.experimental import jitclass

from tests.conftest import load_module

HEADER = """
import numpy as np
import splitjit
from numba import objmode, prange
from tests.neighbours import add_one, add_two, bump, refused
"""


class PythonCounter:
    """Counts the calls of its methods in `log`."""

    def __init__(self, log):
        self.log = log

    @property
    def value(self):
        self.log[0] += 1
        return 7

    def __getitem__(self, i):
        self.log[1] += 1
        return i

    def __add__(self, other):
        self.log[2] += 1
        return 1

    def __eq__(self, other):
        self.log[3] += 1
        return True

    def __contains__(self, item):
        self.log[4] += 1
        return True

    def __neg__(self):
        self.log[5] += 1
        return 3


Counter = jitclass([("log", types.int64[::1])])(PythonCounter)


@njit
def bump(log, i, n):
    log[i] += n
    return log[i]


@njit
def refused(zero):
    """Raise an error in a compiled callee, as a refused split does."""
    if zero == 0:
        raise ValueError("refused", zero)


@njit("int64(int64[::1])")
def add_one(log):
    log[6] += 1
    return 1


@njit("int64(int64[::1])")
def add_two(log):
    log[6] += 2
    return 2


@njit
def seed(n):
    np.random.seed(n)  # noqa: NPY002  Numba knows only this one


@njit
def draw():
    return np.random.random()  # noqa: NPY002


# Only calls and operators: Numba may remove them where it removes dead code.
EFFECTS = [
    "np.random.random()", "np.random.randint(10)", "items[0]", "table[1]", "1 // one", "1.0 / one",
    "a, b = pair", "counter.value", "counter[3]", "counter + 1", "counter == counter",
    "3 in counter", "-counter", "bump(log, 7, 1)", "bump(log, 9, np.random.randint(100))",
    "bump(log, 10, items[-1])", "items.append(4)", "items.pop()", "work[0].fill(7)", "print(11)",
]  # fmt: skip
ERRORS = [
    "items[5]",
    "table[99]",
    "1 // zero",
    "1.0 / zero",
    "1 % zero",
    "a, b = triple",
    "refused(zero)",
]
FIRST = [EFFECTS, *([error] for error in ERRORS)]
WRITES = [
    ["log[8] += 1"],
    ["items[1] = 8"],
    ["table[2] = 5"],
    ["table[6] = table[1]"],
    ["work[1][2] = 9"],
    ["work += 1"],
    ["for row in work:", "    row += 1"],
    ["for row in work:", "    row[0] = 7"],
]
FIRST_CLASS = ["for f in (add_one, add_two):", "    f(log)"]
OBJECT_MODE = ["with objmode():", "    log[11] += 1"]
CLOSURE = ["def inner(n):", "    return bump(log, 12, n)", "inner(2)"]

# A call, and what the function without the call has instead.
CALLS = [
    ("splitjit.split(x, 3)", "one"),
    ("splitjit.split_into(x, (left, right), 2, 0)", "one"),
    ("bump(log, 13, splitjit.split(x, 1)[1].shape[1])", "bump(log, 13, 6)"),
    (
        "for part in splitjit.split(x, 2): bump(log, 14, int(part[1, 1]))",
        "bump(log, 14, 7); bump(log, 14, 19)",
    ),
]
CALLS_WITH_NAMES = [  # in `try`, Numba for Python 3.11 loses names
    (
        "first = splitjit.split(x, num_splits=2, axis=1)[0]; bump(log, 13, int(first[0, 2]))",
        "bump(log, 13, 2)",
    )
]
REFUSED = [
    ("splitjit.split(x, zero)", "refused(zero)"),
    ("splitjit.split_into(x, (left, left), 2, 0)", "refused(zero)"),
]
PARALLEL = [
    (
        ["for i in prange(4):", "    rows[i, 0] += splitjit.split(x[i], 3)[1][0]"],
        ["for i in prange(4):", "    rows[i, 0] += x[i, 3]"],
    ),
    (
        ["for i in prange(4):", "    splitjit.split_into(x[i], (rows[i, :3], rows[i, 3:]), 3)"],
        ["for i in prange(4):", "    rows[i] = x[i]"],
    ),
    (["for i in prange(4):", "    rows[i, 1] += i"],) * 2,
]

KINDS = {"plain": 12, "parallel": 3, "generator": 2, "cached": 2, "closure": 2}
MORE = {
    "write": 4, "first class": 1, "object mode": 1, "loop": 3, "branch": 3, "try": 4, "error": 4,
    "refused": 1,
}  # fmt: skip
PARAMETERS = [
    "x", "log", "items", "table", "pair", "triple", "counter", "one", "zero", "work", "rows",
    "left", "right",
]  # fmt: skip


class Function:
    """The two sources of a generated function, and how to compile and compare them."""

    def __init__(self, number: int) -> None:
        rng = self.rng = random.Random(number)
        self.number = number
        self.kind = rng.choices([*KINDS], [*KINDS.values()])[0]
        self.options = {"parallel": {"parallel": True}, "cached": {"cache": True}}.get(
            self.kind, {}
        )
        self.is_generator = self.kind == "generator"
        self.is_exact = self.kind not in ("parallel", "closure")
        self.lines: list[tuple[str, str]] = []  # with and without the calls
        steps = ["effect"] * rng.randint(1, 3) + ["call"] * rng.choice([1, 1, 2])
        steps += rng.choices([*MORE], [*MORE.values()], k=rng.choice([0, 1, 1, 2]))
        steps += [self.kind] * {"parallel": 1, "closure": 1, "generator": 2}.get(self.kind, 0)
        rng.shuffle(steps)
        if number < len(FIRST):
            self.kind, self.options, self.is_generator, self.is_exact = "plain", {}, False, True
            self.same(*FIRST[number])
            steps = ["call"]
        for step in steps:
            self.add(step)

    def add(self, step: str) -> None:
        rng = self.rng
        if step == "effect":
            self.same(rng.choice(EFFECTS))
        elif step == "call":
            self.lines.append(rng.choice(CALLS + CALLS_WITH_NAMES))
        elif step == "write":
            self.same(*rng.choice(WRITES))
        elif step == "first class":
            self.same(*FIRST_CLASS)
        elif step == "object mode":
            self.same(*([] if self.is_generator else OBJECT_MODE))
        elif step == "error":
            self.same(rng.choice(ERRORS))
        elif step == "refused":
            self.lines.append(rng.choice(REFUSED))
        elif step == "generator":
            self.same("yield log[7]")
        elif step == "closure":
            self.same(*CLOSURE)
        elif step == "parallel":
            self.lines.extend(zip(*rng.choice(PARALLEL), strict=True))
        else:
            self.same({"loop": "for i in range(2):", "branch": "if zero == 0:"}.get(step, "try:"))
            choices = [(line, line) for line in EFFECTS] * 2 + CALLS * 4
            if step == "try":
                choices += [(line, line) for line in ERRORS] * 5 + REFUSED * 10
            for line in rng.choices(choices, k=rng.randint(1, 2)):
                self.lines.append(tuple(f"    {half}" for half in line))
            if step == "try":
                self.same("except Exception:", "    bump(log, 15, 1)")

    def same(self, *lines: str) -> None:
        self.lines += [(line, line) for line in lines]

    @property
    def parameters(self) -> list[str]:
        """The parameters that a statement uses; each costs time to compile."""
        words = {word for line in self.lines for half in line for word in re.findall(r"\w+", half)}
        return [name for name in PARAMETERS if name in words]

    def name(self, version: int) -> str:
        return f"f{self.number}_{('with', 'without')[version]}"

    def source(self, version: int) -> str:
        lines = [f"def {self.name(version)}({', '.join(self.parameters)}):"]
        lines += [f"    {line[version]}" for line in self.lines]
        return "\n".join(lines) + "\n\n\n"


def outcome(function, is_compiled: bool, parameters: list[str]) -> dict[str, object]:
    """Call a function with new values; return everything that it may have changed."""
    log = np.zeros(16, np.int64)
    values = {
        "x": np.arange(24.0).reshape(4, 6),
        "log": log,
        "items": [1, 2, 3],
        "table": {1: 10, 2: 20},
        "pair": [4, 5],
        "triple": [4, 5, 6],
        "counter": (Counter if is_compiled else PythonCounter)(log),
        "one": 1,
        "zero": 0,
        "work": np.zeros((3, 4)),
        "rows": np.zeros((4, 6)),
        "left": np.zeros((2, 6)),
        "right": np.zeros((2, 6)),
    }
    if is_compiled:
        for name in ("items", "pair", "triple"):
            values[name] = typed.List(values[name])
        values["table"] = typed.Dict.empty(types.int64, types.int64)
        values["table"][1], values["table"][2] = 10, 20
    (seed if is_compiled else seed.py_func)(1)
    error = None
    yielded = []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            returned = function(*[values[name] for name in parameters])
            for item in returned or ():
                yielded.append(item)  # noqa: PERF402  keeps the items before an error
        except Exception as raised:
            error = "ValueError" if isinstance(raised, ValueError) else type(raised).__name__
    found = {"error": error, "yielded": yielded, "printed": printed.getvalue()}
    found["next draw"] = (draw if is_compiled else draw.py_func)()
    for name, value in values.items():
        if name != "counter":
            found[name] = value.tolist() if isinstance(value, np.ndarray) else value
    found["items"], found["table"] = list(values["items"]), dict(values["table"])
    found["pair"], found["triple"] = list(values["pair"]), list(values["triple"])
    return found


def differences(ours, theirs, except_for=()) -> list[str]:
    return [
        f"{key}: {ours[key]}, not {theirs[key]}"
        for key in ours
        if ours[key] != theirs[key] and key not in except_for
    ]


def check(function: Function, module) -> None:
    """Compare the three ways; raise an AssertionError that shows the function if they differ."""
    ours, theirs = (getattr(module, function.name(version)) for version in (0, 1))
    parameters = function.parameters
    for _ in range(2 if function.kind == "cached" else 1):  # the second one loads from the cache
        compiled = outcome(njit(**function.options)(ours), True, parameters)
        without = outcome(njit(**function.options)(theirs), True, parameters)
        wrong = differences(compiled, without, except_for=("left", "right"))
        if function.is_exact:
            python = outcome(ours, False, parameters)
            wrong += [f"as Python, {line}" for line in differences(compiled, python)]
        assert not wrong, "\n".join([f"{function.options}", function.source(0), *wrong])


def main(first: int, last: int, seconds: float = float("inf")) -> int:
    """Check functions; return the number of functions that differ."""
    warnings.simplefilter("ignore", NumbaWarning)  # first-class functions are experimental
    end = time.monotonic() + seconds
    failures, seen = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, last):
            if time.monotonic() > end:
                break
            function = Function(number)
            path = Path(folder, f"function_{number}.py")
            path.write_text(HEADER + function.source(0) + function.source(1))
            module = load_module(path)  # code loaded from a cache may import it by its name
            seen[function.kind] += 1
            try:
                check(function, module)
            except Exception as error:
                failures += 1
                print(f"function {number} differs: {error}", flush=True)
    print(f"{sum(seen.values())} functions, {failures} differ: {dict(seen)}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *map(float, sys.argv[3:])) > 0)
