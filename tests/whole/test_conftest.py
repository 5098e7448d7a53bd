"""A default run says what it left out, and the rest runs it; no run leaves files."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests import conftest


def report(kind, nodeid, module):
    """Return the report of a test or file that was skipped."""
    made = kind.__new__(kind)
    made.nodeid = nodeid
    made.longrepr = ("file.py", 1, f"Skipped: could not import {module!r}: No module named ...")
    return made


class Item:
    """A test, as far as the choice of tests reads it."""

    def __init__(self, name, file, *marks):
        self.name, self.nodeid = name, f"{file}::test_{name}"
        self.parent, self.get_closest_marker = SimpleNamespace(nodeid=file), marks.count


def test_a_run_names_the_missing_libraries_in_one_line_and_the_rest_runs_their_tests():
    skipped = [
        report(pytest.TestReport, "a.py::test_one", "torch"),
        report(pytest.TestReport, "a.py::test_two", "jax.numpy"),
        report(pytest.CollectReport, "b.py", "torch"),
    ]
    lines, kept = [], {}
    reporter = SimpleNamespace(stats={"skipped": skipped}, write_line=lines.append)
    cache = SimpleNamespace(set=kept.__setitem__, get=kept.get)
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    conftest.pytest_terminal_summary(reporter, SimpleNamespace(cache=cache))
    (line,) = lines
    assert "2 tests and 1 test files were skipped" in line
    assert "missing: jax, torch (python -m pip install --group peers)" in line

    items = [Item("one", "a.py"), Item("passed", "a.py"), Item("long", "a.py", "long")]
    items.append(Item("of_b", "b.py"))
    for rest, markexpr, chosen in [
        (True, "", ["one", "of_b"]),
        (False, "", ["one", "passed", "of_b"]),
        (False, "long or not long", ["one", "passed", "long", "of_b"]),
    ]:
        option = SimpleNamespace(rest=rest, markexpr=markexpr)
        config = SimpleNamespace(option=option, cache=cache, hook=hook)
        conftest.pytest_collection_modifyitems(config, left := [*items])
        assert [item.name for item in left] == chosen


@pytest.mark.parametrize(
    ("made", "status"),
    [("--page", pytest.ExitCode.TESTS_FAILED), ("ignored/file", pytest.ExitCode.OK)],
)
def test_a_run_that_leaves_a_file_fails(made, status, tmp_path, monkeypatch, capsys):
    if not shutil.which("git"):
        pytest.skip("needs git")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("ignored/")
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    config = SimpleNamespace(stash=pytest.Stash())
    session = SimpleNamespace(config=config, exitstatus=pytest.ExitCode.OK)
    conftest.pytest_sessionstart(session)
    (tmp_path / "ignored").mkdir()
    (tmp_path / made).touch()
    conftest.pytest_sessionfinish(session)
    assert session.exitstatus == status
    assert (made in capsys.readouterr().out) == bool(status)
