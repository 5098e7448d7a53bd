"""Mutation tests: put one defect at a time where a wrong byte can come from, and run the tests.

``python -m tests.mutations --sample 60`` tries 60 defects in a quarter of an hour; ``--list``
names all, and a NAME, such as ``_kernels/loops/runs.py::stream_runs``, tries those that begin so.
Some survivors are no defects: they change only the speed, or the order of writes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "splitjit"
SECONDS = 600
"""The time limit for the tests of one defect."""
SURVIVORS = 0.25
"""The greatest share of defects that may survive: most of these change only the speed."""

MEMORY = "kernels/test_memory.py::test_nothing_outside_of_a_buffer_is_touched"
CHUNKS = "runtime/test_threads.py::test_each_chunk_is_copied_once_by_the_caller_or_a_helper"
KERNELS = "kernels/test_team.py copy/test_layout.py copy/test_split.py copy/test_join.py "
KERNELS += f"copy/test_outputs.py kernels/test_entry.py copy/test_overlap.py {CHUNKS} {MEMORY}"
TARGETS = {
    # files, relative to the package: their tests, the quickest first; the first pattern counts
    "_kernels/core/blocks.py": "njit/test_overloads.py",
    "_kernels/njit_split.py": "njit/test_overloads.py",
    "_kernels/**/*.py": KERNELS,
    "_copy/buffers.py": KERNELS,
    "_copy/how.py": KERNELS,
    "_copy/outputs.py": "copy/test_outputs.py copy/test_overlap.py",
    "_njit/functions.py": "njit/test_overloads.py",
}
ONLY_SPEED = ["build", "compiling", "compile", "cache", "digest", "__init__", "_load"]
ONLY_SPEED += ["warm", "_now", "stay_off", "nap"]
"""Parts of the names of files and functions that copy and check nothing."""


class Mutation(NamedTuple):
    """A defect: a place in a file, its changed text, and the tests that should detect it."""

    name: str
    file: str
    line: int
    text: Callable[[], str]
    tests: str


SWAPS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And},
}


def compare(node: ast.AST) -> ast.AST | None:
    """Include a bound, or exclude it."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
        return node
    return None


def arithmetic(node: ast.AST) -> ast.AST | None:
    """Compute with another operator."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()
        return node
    return None


def number(node: ast.AST) -> ast.AST | None:
    """Add one to an integer."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return node
    return None


def least(node: ast.AST) -> ast.AST | None:
    """Take the least for the greatest."""
    if isinstance(node, ast.Name) and node.id in ("min", "max"):
        node.id = "max" if node.id == "min" else "min"
        return node
    return None


def omit(node: ast.AST) -> ast.AST | None:
    """Leave out a statement that changes a value, or a call for its effect."""
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if call or isinstance(node, ast.AugAssign) else None


OPERATORS: list[Callable[[ast.AST], ast.AST | None]] = [compare, arithmetic, number, least, omit]


class Change(ast.NodeTransformer):
    """Apply an operator at its n-th place below a node."""

    def __init__(self, operator: Callable[[ast.AST], ast.AST | None], place: int):
        self.operator, self.left, self.line = operator, place, 0

    def visit(self, node: ast.AST) -> ast.AST:
        """Change this node, or look below it."""
        changed = None if self.line else self.operator(copy.deepcopy(node))
        if changed is not None:
            if self.left == 0:
                self.line = node.lineno
                return changed
            self.left -= 1
        return self.generic_visit(node)


def mutations_of(source: str, file: str, tests: str) -> Iterator[Mutation]:
    """Yield each change of each function of a file."""
    tree = ast.parse(source)
    for i, function in enumerate(tree.body):
        if not isinstance(function, ast.FunctionDef) or is_only_speed(function.name):
            continue
        for operator in OPERATORS:
            for place in range(sys.maxsize):
                change = Change(operator, place)
                body = [change.visit(copy.deepcopy(statement)) for statement in function.body]
                if not change.line:
                    break
                name = f"{file}::{function.name} {operator.__name__} {place}"
                text = functools.partial(text_with, tree, i, body)
                yield Mutation(name, file, change.line, text, tests)


def text_with(tree: ast.Module, i: int, body: list[ast.AST]) -> str:
    """Return the source of a module, with another body of its i-th function."""
    changed = copy.deepcopy(tree)
    changed.body[i].body = body
    return ast.unparse(ast.fix_missing_locations(changed))


def is_only_speed(name: str) -> bool:
    """Tell whether a file or function copies and checks nothing."""
    return any(part in name for part in ONLY_SPEED)


def files() -> dict[Path, str]:
    """Return the files that get defects, and their tests."""
    return {
        path: tests
        for pattern, tests in reversed(TARGETS.items())
        for path in sorted(PACKAGE.glob(pattern))
        if not is_only_speed(path.name)
    }


def mutations() -> list[Mutation]:
    """Return all defects."""
    found: list[Mutation] = []
    for path, tests in files().items():
        name = path.relative_to(PACKAGE).as_posix()
        found += mutations_of(path.read_text("utf-8"), name, tests)
    return found


def test(folder: Path, tests: str) -> str:
    """Run tests until one fails; return the failure, or an empty string."""
    cache = str(folder / "cache")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment |= {"NUMBA_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}  # a file may change twice within one second
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "2"]
    with subprocess.Popen(
        [*command, *(f"tests/{test}" for test in tests.split())], cwd=folder, env=environment,
        text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also ends child processes that hang
    if process.returncode in (4, 5):  # pytest found no such test
        sys.exit(f"{' '.join(command)}\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - |$)", output, re.MULTILINE)
    return failed[1] if failed else f"exit status {process.returncode}" * (process.returncode != 0)


def main() -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginning of the names to try")
    parser.add_argument("--list", action="store_true", help="show the names, and try nothing")
    parser.add_argument("--sample", type=int, metavar="N", help="try so many of them")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the sample")
    options = parser.parse_args()
    chosen = [m for m in mutations() if m.name.startswith(tuple(options.names) or "")]
    if options.sample and options.sample < len(chosen):
        print(f"{options.sample} of {len(chosen)}, --seed {options.seed}")
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    if options.list:
        print(*(f"{mutation.name} (line {mutation.line})" for mutation in chosen), sep="\n")
        return 0
    survived = 0
    with tempfile.TemporaryDirectory(prefix="splitjit-") as name:
        folder = Path(name)
        unwanted = shutil.ignore_patterns("__pycache__")
        for part in ("splitjit", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=unwanted)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for tests in dict.fromkeys(mutation.tests for mutation in chosen):
            if failure := test(folder, tests):
                sys.exit(f"without a defect: {failure}")
        for mutation in chosen:
            file = folder / "splitjit" / mutation.file
            original = file.read_text(encoding="utf-8")
            file.write_text(mutation.text(), encoding="utf-8")
            start = time.perf_counter()
            failure = test(folder, mutation.tests)
            seconds = time.perf_counter() - start
            file.write_text(original, encoding="utf-8")
            survived += not failure
            result = f"caught by {failure}" if failure else f"SURVIVED, line {mutation.line}"
            print(f"{mutation.name}: {result} ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return int(survived > SURVIVORS * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
