"""The examples of the documentation, run as they are printed."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {"dask.md": "dask.array", "models.md": "onnx", "README.md": "onnx", "compiled.md": "numba"}


@pytest.mark.skipif(not PAGES[0].exists(), reason="not in a checkout")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # to which plans are drawn
    pytest.importorskip(NEEDS.get(page.name, "numpy"))
    text = page.read_text("utf-8")
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert tried == sum(line.lstrip().startswith(">>> ") for line in text.splitlines())
