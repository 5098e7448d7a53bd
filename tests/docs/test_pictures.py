"""Tables and pictures of the README show what the package does."""

import ast
import re
import tomllib

import pytest

import splitjit
from benchmarks import harness
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


NOTEBOOK = [ROOT / "benchmarks" / name for name in ("notebook.md", "history.md")]
IMAGES = [
    (page.name, page.parent / image)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *NOTEBOOK]
    for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
]


@pytest.mark.parametrize(("page", "file"), IMAGES, ids=lambda of: getattr(of, "stem", of))
def test_images_follow_the_color_scheme(page, file):
    """Their background suits their text, whatever the scheme of the page."""
    assert harness.SCHEMES == pictures.SCHEMES
    text = file.read_text("utf-8")
    assert text.count(harness.SCHEMES) == 1
    assert "currentColor" in text
    assert harness.INK not in text.replace(harness.SCHEMES, "")


def test_each_chart_is_on_a_page():
    charts = {*(ROOT / "benchmarks" / "charts").iterdir()}
    assert charts == {file for _, file in IMAGES if file.parent.name == "charts"}


def test_each_rule_has_a_picture():
    drawn = pictures.rules()
    assert drawn.count("<figure>") == len(PARAMETERS)
    assert drawn.count("<svg") == len(PARAMETERS) - 1  # and one refusal
    assert "the axis length 7 must be a multiple of 3" in drawn
    # to one scale
    widths = re.findall(r'<svg[^>]* width="(\d+)"', drawn)
    assert set(widths) == {str(pictures.WIDTH + 2)}
    cells = [int(width) for width in re.findall(r'<rect[^>]* width="(\d+)"', drawn)]
    assert sum(cells) == pictures.WIDTH * len(widths)


def test_the_pictures_of_the_tutorial_are_on_its_page():
    site = tomllib.loads((SCRIPT.parent / "site.toml").read_text("utf-8"))
    shown = [piece["show"] for piece in site["tutorial"]]
    for name, drawing in pictures.tutorial().items():
        assert f"_made/tutorial-{name}.html" in shown
        assert "<svg" in drawing


@pytest.mark.parametrize("script", [path.stem for path in sorted((ROOT / "examples").glob("*.py"))])
def test_each_example_has_a_picture_of_its_own(script):
    text = (ROOT / "examples" / f"{script}.py").read_text("utf-8")
    if "plt.show()" in text:
        return  # the gallery shows its plot
    assert f"sphinx_gallery_thumbnail_path = '_made/thumbnails/{script}.svg'" in text
    assert script in thumbnails.DRAWINGS


def test_the_chart_shows_the_times_of_the_table():
    drawn = pictures.chart()
    assert drawn.count('class="ours"') == drawn.count("plain copy in C") == 3
    first = next(row for row in pictures.table("cost") if pictures.milliseconds(row["splitjit"]))
    for name in pictures.CHARTED:
        assert f"{pictures.milliseconds(first[name]):.3g} ms" in drawn
