"""Tables and pictures of the README show what the package does."""

import ast

import pytest

import splitjit
from splitjit._plan.rules import PARAMETERS
from tests.conftest import ROOT, load_module

SCRIPT = ROOT / "docs" / "tools" / "pictures.py"

if not SCRIPT.exists():
    pytest.skip("needs docs/ beside tests/", allow_module_level=True)


pictures, thumbnails = load_module(SCRIPT), load_module(SCRIPT.with_stem("thumbnails"))


def test_the_table_of_rules_shows_what_the_rules_give():
    shown = [row["7 into 3 gives"] for row in pictures.table("rules")]
    assert len(shown) == len(PARAMETERS)
    for cell in shown:
        rule, parts = cell.removeprefix("`").split("`: ")
        keyword, _, value = rule.rpartition("=")
        arguments = {keyword or "split": ast.literal_eval(value)}
        if parts == "an error":
            with pytest.raises(splitjit.SplitError):
                splitjit.plan_split((7,), **arguments)
        else:
            sizes = splitjit.plan_split((7,), **arguments).sizes
            assert parts == ", ".join(map(str, sizes))


def test_the_package_draws_the_picture_of_the_readme():
    file = ROOT / "docs" / "_static" / "split.svg"
    assert file.read_text("utf-8") == pictures.file_of(pictures.picture())
    assert "[4096, 1024, 1024], axis=1" in (ROOT / "README.md").read_text("utf-8")
