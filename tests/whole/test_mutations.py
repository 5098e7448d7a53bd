"""The operators of tests/mutations.py make the defects that they say, and name tests that exist."""

import ast
from pathlib import Path

import pytest

from tests.mutations import TARGETS, files, mutations_of

TESTS = Path(__file__).parents[1]
SOURCE = """
def copy(first, last):
    while first < last:
        move(min(first, 8))
        first += 1
"""
DEFECTS = {
    "compare 0": "while first <= last",
    "arithmetic 0": "first -= 1",
    "number 0": "min(first, 9)",
    "number 1": "first += 2",
    "least 0": "max(first, 8)",
    "omit 0": "last:\n        pass",
    "omit 1": "8))\n        pass",
}


def test_each_operator_changes_one_place():
    found = {m.name: m for m in mutations_of(SOURCE, "loop.py", "copy/test_split.py")}
    assert [*found] == [f"loop.py::copy {name}" for name in DEFECTS]
    for (name, expected), mutation in zip(DEFECTS.items(), found.values(), strict=True):
        text = mutation.text()
        assert expected in text, name
        assert sum(defect in text for defect in DEFECTS.values()) == 1
        assert mutation.line == (3 if "compare" in name else 4 if "8" in name else mutation.line)
        ast.parse(text)


def test_the_kernels_of_compiled_code_have_its_tests():
    tests = {path.name: tests for path, tests in files().items()}
    names = {name for name, tests in tests.items() if tests == "njit/test_overloads.py"}
    assert names == {"blocks.py", "njit_split.py", "functions.py"}
    assert "copy/test_split.py" in tests["plain.py"]


@pytest.mark.parametrize("test", sorted({t for tests in TARGETS.values() for t in tests.split()}))
def test_the_tests_of_targets_exist(test):
    file, *functions = test.split("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert defined.issuperset(functions), f"{file} does not define {functions}"
