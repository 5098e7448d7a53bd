"""Tables and pictures of the README show what the package does."""

import ast
import importlib.util
from pathlib import Path

import pytest

import splitjit
from splitjit._plan.rules import PARAMETERS

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "pictures.py"

if not SCRIPT.exists():
    pytest.skip("needs docs/ beside tests/", allow_module_level=True)

spec = importlib.util.spec_from_file_location("pictures", SCRIPT)
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)


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


@pytest.mark.parametrize("name", pictures.INKS)
def test_the_package_draws_the_pictures_of_the_readme(name):
    file = ROOT / "docs" / "_static" / f"split-{name}.svg"
    assert file.read_text("utf-8") == pictures.picture(pictures.INKS[name])
    assert "[4096, 1024, 1024], axis=1" in (ROOT / "README.md").read_text("utf-8")


def test_the_chart_shows_the_times_of_the_table():
    drawn = pictures.chart()
    assert drawn.count('class="ours"') == drawn.count("plain copy in C") == 3
    assert "9.8 ms" in drawn
