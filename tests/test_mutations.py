"""Each defect of tests/mutations.py still applies to the package, and names tests that exist.

Running the mutations takes too long for every test run. These checks take a second, and tell at
once when a change to the package or to a test makes a mutation obsolete.
"""

import ast
from pathlib import Path

import pytest

from tests.mutations import MUTATIONS, ROOT, mutated

TESTS = Path(__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_to_replace_occurs_once(mutation):
    changed = mutated(mutation, ROOT / "splitjit")  # exits if the text does not occur once
    assert mutation.new != mutation.old, "the mutation changes nothing"
    ast.parse(changed)  # a syntax error would fail every test, even a test that checks nothing


@pytest.mark.parametrize("test", sorted({t for m in MUTATIONS for t in m.tests.split()}))
def test_the_tests_of_mutations_exist(test):
    file, *functions = test.split("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert defined.issuperset(functions), f"{file} does not define {functions}"


def test_names_of_mutations_differ():
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
