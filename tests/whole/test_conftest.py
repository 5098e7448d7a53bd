"""A default run says what it left out, and the rest runs it; no run leaves files."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests import conftest

TESTS = """
import pytest

def test_passed():
    pass

def test_skipped():
    pytest.importorskip("nowhere.at_all")

@pytest.mark.long
def test_long():
    pass
"""


def test_a_run_names_what_is_missing_and_the_rest_runs_its_tests(tmp_path, capsys):
    def run(*options):
        # This run keeps its own fault handler, and need not collect all garbage.
        plugins = ["-p", "tests.conftest", "-p", "no:faulthandler", "-p", "no:unraisableexception"]
        assert pytest.main([str(tmp_path), *plugins, *options]) == pytest.ExitCode.OK
        return capsys.readouterr().out

    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text("import pytest; pytest.importorskip('nothing')")
    printed = run()
    assert "1 passed, 2 skipped, 1 deselected" in printed
    assert "1 tests and 1 test files were skipped" in printed
    assert "missing: nothing, nowhere (python -m pip install --group peers)" in printed
    (tmp_path / "test_two.py").write_text("def test_installed():\n    pass")
    assert "1 passed, 1 skipped, 2 deselected" in run("--rest")
    assert "3 passed, 1 skipped" in run("-m", "long or not long")


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
