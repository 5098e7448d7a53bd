"""The cases in which implementations disagree: what splitjit does, and the page that lists them."""

import pytest

from tests.conftest import ROOT, load_module

SCRIPT = ROOT / "docs" / "tools" / "conformance.py"

if not SCRIPT.exists():
    pytest.skip("needs docs/ beside tests/", allow_module_level=True)

conformance = load_module(SCRIPT)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case.row} | {case.text}") for case in conformance.CASES]
)
def test_decision(case):
    assert conformance.run_splitjit(case) == case.expected


def test_the_page_shows_the_decisions():
    tables = conformance.PAGE.read_text().partition("## ONNX Split\n")[2]
    table = [line for line in tables.splitlines() if line.startswith("| ")]
    shown = [line.split(" | ")[:3] for line in table if not line.startswith(("| **", "| case |"))]
    cases = conformance.CASES
    assert shown == [[f"| {case.text}", case.expected, f"✓ {case.expected}"] for case in cases]
