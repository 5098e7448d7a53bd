"""Every benchmark runs once, in its smallest form; the gate finds slower code."""

import re
import sys

import pytest

from benchmarks import busy, gate, harness, in_program, landscape, processes, report, threads
from benchmarks.harness import ROOT
from tests.conftest import long

pytestmark = pytest.mark.slow

SMALLEST = {
    busy: "--situation quiet --outputs out --rounds 1 --seconds 0.02 --contender torch --size",
    in_program: "--program Python --kind arrays --outputs out --processes 1 --seconds 0.02 --size",
    landscape: "--outputs out --rounds 1 --run 64 --parts 2 --total 64KB --count",
    processes: "--processes 1 --rounds 1 --outputs out --contender torch --case",
    report: "--quick --group",
    threads: "--processes 1 --seconds 0.02 --helpers",
}
LAST = {busy: "2.4 MB", in_program: "1.2 MB", landscape: "1", report: "small", threads: "0"}
LAST[processes] = next(iter(processes.CASES))


@pytest.mark.parametrize(
    "tool", long(*SMALLEST, if_not=[landscape, threads]), ids=lambda tool: tool.__name__
)
def test_a_tool_prints_a_table(tool, monkeypatch, capsys):
    monkeypatch.setattr(harness, "WARM_SECONDS", 0.01)
    monkeypatch.setattr(sys, "argv", [tool.__name__, *SMALLEST[tool].split(), LAST[tool]])
    tool.main()
    assert re.search(r"^\| --", capsys.readouterr().out, re.M)


KEY = ("splitjit, one thread", "6 into 3, fresh")


@pytest.mark.parametrize(
    ("first", "second", "slower"),
    [
        ([1.0] * 5, None, False),
        ([1.3] * 5, [1.3] * 9, True),
        ([1.3] * 5, [1.0] * 9, False),  # a busy minute
        ([1.3] * 5, [1.05, 1.05] + [1.3] * 7, False),  # in doubt
    ],
)
def test_a_case_is_slower_only_if_a_second_look_confirms_it(monkeypatch, first, second, slower):
    looks = iter([{KEY: first}, {KEY: second} if second else {}])
    monkeypatch.setattr(gate, "look", lambda *_: next(looks))
    found, alarms = gate.judge([KEY], (ROOT, ROOT))
    assert found[KEY] == gate.interval(second or first)
    assert alarms == ([KEY] if slower else [])


@pytest.mark.long
def test_the_gate_finds_what_is_planted(monkeypatch, capsys):
    """2 µs in each call, and a copy of arrays of 1 MB or more."""
    planted = ["6 into 3, fresh", "pixels, out"]
    command = ["gate.py", str(ROOT), "--small", "--plant", "2e-6", "--case", *planted]
    monkeypatch.setattr("sys.argv", command)
    assert gate.main() == 1
    told = capsys.readouterr().out
    assert all(f"slower beyond doubt: {case}" in told for case in planted)
