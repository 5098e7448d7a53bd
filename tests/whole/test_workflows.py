"""The workflows of hosted machines call sessions of nox, and nothing else. Sessions note runs."""

import ast
import re
import runpy

import pytest

from tests.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

if not WORKFLOWS:
    pytest.skip("only a checkout has workflows", allow_module_level=True)


def sessions_of_nox():
    """Return the names of the functions of noxfile.py that are sessions."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if any("session" in ast.unparse(d) for d in f.decorator_list)}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_sessions_of_nox(path):
    text = path.read_text(encoding="utf-8")
    commands = re.findall(r"run: (.*)", text)
    assert commands
    assert all(re.fullmatch(r'uvx --from "nox\[uv\]" nox --session \S+.*', c) for c in commands)
    listed = re.findall(r"session: \[(.*)\]", text)
    called = [name for names in listed for name in names.split(", ")]
    called += re.findall(r"^ {10}- (\S+)", text, re.MULTILINE)
    called += re.findall(r"--session (\w+)$", text, re.MULTILINE)
    assert called
    assert {re.match(r"\w+", name)[0] for name in called} <= sessions_of_nox()


def test_a_session_replaces_its_row_of_the_table_of_runs():
    record = runpy.run_path(str(ROOT / "tests" / "platforms" / "record.py"))
    page = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
    row = record["row"]("none", "run")
    once = record["with_row"](page, row)
    assert once.replace(row + "\n", "") == page
    later = row.replace(row[-12:-2], "2100-01-01")
    assert record["with_row"](once, later) == once.replace(row, later)
