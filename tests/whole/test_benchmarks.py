"""Workers carry out orders and end; results are summarized, saved and read back unchanged."""

import importlib
import itertools
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, astuple
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    busy,
    contenders,
    documentation,
    gate,
    harness,
    in_program,
    landscape,
    mechanisms,
    milestones,
    report,
    suites,
    threads,
)
from benchmarks.contenders import Case, allocate
from benchmarks.harness import ROOT, Result, Worker, busy_programs
from benchmarks.landscape import Cell, Found
from benchmarks.suites import history
from splitjit._runtime.threads import _ALONE
from tests.conftest import load_module
from tests.processes import python

asv_pages = load_module(ROOT / "docs" / "tools" / "asv_pages.py")
CASE = Case((20, 12), 1, (4,) * 3)
MS = 1_000_000  # nanoseconds

pytestmark = pytest.mark.slow
needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git repository")


# ---- workers --------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["fresh", "out", "plan.empty"])
def test_a_worker_splits_and_ends(outputs):
    with Worker("NumPy, slices") as worker:
        assert worker.ask("prepare", CASE, outputs) is None
        assert 0 < worker.ask("burst") < 1
        answer = worker.ask("calls", 0.01, 0, 0.001)  # a pause of 1 ms is in no time
        assert 0 < min(answer["times"]) < 0.5 * MS
        assert answer["cpu"] > 0
        worker.ask("release")
        assert worker.process.poll() is None
    assert worker.process.returncode


OURS = {name for name in contenders.PREPARE if "splitjit" in name} - {"splitjit, unstack"}
"""Our contenders that split this case."""


@pytest.mark.parametrize("contender", sorted(OURS))
def test_our_own_contenders_are_verified(contender):
    with Worker(contender) as worker:
        assert worker.ask("prepare", CASE, "out") is None


def test_ours_on_one_thread_has_no_helpers():
    with contenders._ENTERED:
        contenders.PREPARE["splitjit, one thread"](CASE, CASE.array(), None, 1)
        assert _ALONE
    assert not _ALONE


def test_a_contender_that_cannot_do_a_case_says_why():
    with Worker("splitjit, bind") as worker:
        assert "bind" in worker.ask("prepare", CASE, "fresh")


def test_a_worker_ends_with_its_parent():
    with Worker("NumPy, slices") as worker:
        worker.process.stdin.close()
        assert worker.process.wait(60) == 0
        worker.process.stdin = None
        with pytest.raises(RuntimeError, match="NumPy, slices ended"):
            worker.receive()


def test_an_error_in_a_worker_reaches_the_parent(capfd):
    with Worker("nobody") as worker, pytest.raises(RuntimeError, match="nobody ended"):
        worker.ask("prepare", CASE, "out")
    assert "KeyError: 'nobody'" in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
@pytest.mark.parametrize("everything", [False, True])
def test_a_worker_narrows_its_affinity(everything):
    with Worker("NumPy, slices") as worker:
        worker.ask("narrow", everything)
        assert len(os.sched_getaffinity(worker.process.pid)) == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_threads_that_end_meanwhile_are_not_narrowed(monkeypatch):
    def gone(*_):
        raise ProcessLookupError

    monkeypatch.setattr(os, "sched_setaffinity", gone)
    harness.Contender("NumPy, slices").narrow(True)


def test_busy_programs_end_with_their_block(monkeypatch):
    killed, kill = {}, subprocess.Popen.kill

    def note(program):
        killed[program] = program.poll()
        kill(program)

    monkeypatch.setattr(subprocess.Popen, "kill", note)
    with pytest.raises(KeyboardInterrupt), busy_programs(2):
        raise KeyboardInterrupt
    assert [*killed.values()] == [None] * 2
    assert all(program.returncode for program in killed)


def test_separate_outputs_start_at_the_same_offset_in_a_page():
    out = allocate(Case((300, 300), 1, (100, 200)), "out")
    assert {part.ctypes.data % contenders.mmap.PAGESIZE for part in out[1:]} == {16}
    assert [part.shape for part in out] == [(300, 100), (300, 200)]


# ---- gate -----------------------------------------------------------------------------

KEY = ("splitjit, one thread", "6 into 3, fresh")


@pytest.mark.parametrize(("count", "ranks"), [(5, (1, 5)), (9, (2, 8)), (15, (4, 12))])
def test_an_interval_has_the_true_median_with_the_stated_confidence(count, ranks):
    found = gate.interval([*range(count, 0, -1)])
    assert found == (ranks[0], (count + 1) / 2, ranks[1])


@pytest.mark.parametrize(
    ("first", "second", "slower"),
    [
        ([1.0] * 5, None, False),
        ([1.3] * 5, [1.3] * 9, True),
        ([1.3] * 5, [1.0] * 9, False),  # a busy minute
        ([1.3] * 5, [1.05, 1.05] + [1.3] * 7, False),  # in doubt
        ([1.3] * 5, [1.05] + [1.3] * 8, True),
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
    told = capsys.readouterr()
    for case in planted:
        assert f"slower beyond doubt: {case}" in told.out
    assert told.out.count(f"time of {harness.commit()} over {harness.commit()}") == 1
    assert "2 cases, 5 pairs of" in told.err
    assert "2 of 2 cases took more than 1.08 times as long" in told.err


@needs_git
def test_a_revision_is_checked_out_and_removed():
    with gate.checkout("HEAD") as folder:
        assert (folder / "splitjit" / "__init__.py").exists()
    assert not folder.exists()


def test_an_unknown_revision_is_no_alarm(capfd):
    with pytest.raises(SystemExit) as error, gate.checkout("no such revision"):
        pass
    assert error.value.code == 2
    assert "is no git revision" in capfd.readouterr().err


# ---- tables ---------------------------------------------------------------------------


def result(seconds, place="out", case="1x2304", **more):
    return Result(place, case, seconds, **more)


def test_losses_are_bold_and_all_contenders_are_named():
    seconds = {"splitjit": 2.0, "torch": 1.0, "numpy": 4.0, "NumPy, slices": 3.0, "memcpy": 0.5}
    cells = result(seconds).ranked(["torch", "numpy"])
    assert cells == ["2 s", "torch", "1 s", "**0.50**", "NumPy's slices 3 s, `np.split` 4 s"]
    assert result({"torch": 1.0}).ranked(["torch"])[-1] == "torch 1 s"


@pytest.mark.parametrize(("peer", "shown"), [(0.996, "1.00"), (0.994, "**0.99**"), (1.0, "1.00")])
def test_a_row_that_prints_as_equal_is_no_loss(peer, shown):
    """Neither in the tables of results, nor in the table of costs, nor next to a goal."""
    seconds = {"splitjit": 1.0, "NumPy, slices": peer}
    assert result(seconds).ranked()[3] == shown
    assert documentation._times(seconds)[0].startswith("**") == (shown == "1.00")
    assert report._against(peer, 1.0).endswith("missed**)") == (shown != "1.00")


# ---- busy -----------------------------------------------------------------------------


def test_a_team_s_rate_is_the_sum_of_its_workers():
    fast, slow = {"times": [10 * MS] * 5, "cpu": 0.01}, {"times": [40 * MS] * 5, "cpu": 0.03}
    found = busy.result("quiet", "11 MB, out", {"splitjit": [[fast, slow]] * 2, "opencv": [[], []]})
    assert found.seconds == {"splitjit": pytest.approx(2 / 125)}
    assert found.p99 == {"splitjit": 0.04}
    assert found.cpu == {"splitjit": pytest.approx(0.02)}


def test_the_rival_is_the_fastest_one():
    seconds = {"splitjit": 9e-3, "NumPy, slices": 2e-2, "splitjit, one thread": 6e-3, "torch": 5e-3}
    p99, cpu = {name: 2 * s for name, s in seconds.items()}, dict.fromkeys(seconds, 1.0)
    found = [result(seconds, "quiet", "11 MB, out", p99=p99, cpu=cpu | {"splitjit": 1.1})]
    rows = busy.comparisons(found)
    ratio = pytest.approx(6 / 9)
    least = "0.67 (11 MB, out, splitjit, one thread)"
    assert rows == [["splitjit", "quiet", ratio, least, pytest.approx(9 / 6), pytest.approx(1.1)]]
    assert (
        "### Quiet\n\n| split | splitjit | fastest peer | its time | over ours | the others |\n"
        "| --- | --: | --- | --: | --: | --- |\n"
        "| 11 MB, out | 9 ms (18 ms) | torch | 5 ms (10 ms) | **0.56** |"
        " splitjit on one thread 6 ms (12 ms), NumPy's slices 20 ms (40 ms) |\n"
    ) in busy.tables(found)


# ---- processes and programs -----------------------------------------------------------


@pytest.mark.parametrize("program", contenders.PROGRAMS)
@pytest.mark.parametrize("kind", in_program.KINDS)
def test_a_program_s_iteration_is_its_step_and_a_split(program, kind):
    if kind == "tensors":
        pytest.importorskip("torch")
    for way in ("splitjit", *in_program.WAYS, *in_program.KINDS[kind]):
        contender = harness.Contender(way)
        with contenders._ENTERED:
            for outputs in in_program.OUTPUTS:
                contender.prepare([(4, 6), 1, [2, 4]], outputs, kind)
                if means := contender.between(program, 0.01):
                    assert 0 < means[1] < means[0]


def test_a_step_is_timed_with_its_split_but_not_as_one():
    wait = harness.time.sleep
    iteration, alone = harness.iterate(lambda: wait(0.002), lambda: wait(0.001), 0.05)
    assert 0.001 <= alone < iteration - 0.002 + 1e-9


def test_the_tool_of_programs_compares_with_another_checkout(tmp_path, monkeypatch, capsys):
    options = "--program Python --kind arrays --outputs out --processes 1 --seconds 0.02 --size"
    file = tmp_path / "results.json"
    given = [*options.split(), "1.2 MB", "--before", str(ROOT), "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["in_program.py", *given])
    in_program.main()
    told = capsys.readouterr().out
    assert "### The iteration" in told
    assert "Best peer over splitjit, before:" in told
    found = [Result(**one) for one in json.loads(file.read_text())["results"]]
    assert [one.place for one in found] == ["Python, iteration", "Python, split alone"]
    ways = {"splitjit", "splitjit, before", *in_program.WAYS}
    assert [set(one.seconds) for one in found] == [ways, ways]


def test_threads_have_a_row_for_each_number_of_helpers(monkeypatch, capsys):
    command = ["threads.py", "--helpers", "0", "1", "--processes", "1", "--seconds", "0.02"]
    monkeypatch.setattr(sys, "argv", command)
    threads.main()
    head, _, *rows = [line for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert "| 0.5 MB, GB/s | 4 MB, GB/s | 32 MB, GB/s |" in head
    assert [row.split(" |")[0] for row in rows] == ["| 0", "| 1"]


# ---- cases ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F", "T"])
def test_an_array_has_the_order_of_its_case(order):
    case = Case((3, 4, 5), 1, (2, 2), "uint16", order)
    x = case.array()
    assert (x.shape, x.dtype) == ((3, 4, 5), "uint16")
    assert x.strides == {"C": (40, 10, 2), "F": (2, 6, 24), "T": (40, 2, 8)}[order]
    assert np.array_equal(x, Case((3, 4, 5), 1, (2, 2), "uint16").array())


def test_all_cases_split_the_whole_axis():
    names = "cases busy in_program threads history layouts small njit"
    lists = [(name,) for name in names.split()]
    lists += [("report", name, "cases") for name in report.GROUPS]
    lists += [("processes", name) for name in contenders.CASES["processes"]]
    lists += [("gate", name) for name in contenders.CASES["gate"]]
    for path in lists:
        for name, case in contenders.cases(*path).items():
            assert sum(case.sizes) == case.shape[case.axis], name


def test_each_named_case_is_used():
    text = (ROOT / "benchmarks" / "cases.toml").read_text("utf-8")
    unused = [name for name in contenders.CASES["cases"] if text.count(f'"{name}') < 2]
    assert not unused


def test_the_gate_has_each_of_its_cases():
    full, small = ({*itertools.chain(*of.values())} for of in (gate.FULL, gate.SMALL))
    assert small < full == {*gate.CASES}


# ---- landscape ------------------------------------------------------------------------


def test_cells_have_the_runs_they_say():
    runs = [1, 2, 3, 6, *landscape.RUNS[1:]]
    for total, parts, run in itertools.product(landscape.TOTALS, landscape.PARTS, runs):
        if run * parts <= total:
            case = Cell("out", total, parts, run).case
            assert case.nbytes == run * parts * case.shape[0]
            assert total - run * parts < case.nbytes <= total


@pytest.mark.parametrize("nbytes", [1, 4, 1 << 10, 1 << 14, 1 << 20, 1 << 30])
def test_sizes_are_read_as_they_are_written(nbytes):
    text = landscape.size(nbytes)
    assert landscape.parse_size(text) == landscape.parse_size(text.replace(" ", "")) == nbytes


PLACES = [Cell("out", 1 << 24, parts, run) for parts in (2, 3, 4) for run in (64, 256, 1024)]
PIT = PLACES[4]
FOUND = [Found(*astuple(cell), 0.5 if cell == PIT else 0.9, 2.0) for cell in PLACES]


def test_an_interrupted_survey_keeps_what_it_has(monkeypatch):
    times = iter([{"splitjit": 2.0, "NumPy, slices": 3.0, "memcpy": 1.0, "streaming": 1.5}])

    def sample(*_):
        if found := next(times, None):
            return found
        raise KeyboardInterrupt

    monkeypatch.setattr(landscape, "sample", sample)
    assert landscape.survey([PIT, PIT], 0) == [Found(*astuple(PIT), 0.5, 1.5)]


def test_maps_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    landscape.draw(FOUND, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == "landscape-16MB.svg"
    text = file.read_text("utf-8")
    assert harness.SCHEMES in text
    assert "stroke: currentColor" in text


# ---- documentation --------------------------------------------------------------------


def invented(folder):
    """Write results of all steps, in which each contender has one time; return the folder."""

    def write(step, results):
        known = {"machine": "2026-01-02, Linux, A (R) CPU, 2 threads; Python 3.13.", "cores": 2}
        known |= {"commit": "abc", "results": [asdict(one) for one in results]}
        (folder / f"{step}.json").write_text(json.dumps(known))

    times = {"numpy": 6e-3, "NumPy, slices": 5e-3, "torch": 2e-3, "memcpy": 1e-3}
    groups = {name: contenders.cases("report", name, "cases").values() for name in report.GROUPS}
    groups |= report.SWEEPS
    write("report", [
        Result(name, str(case), {"splitjit": 3e-3, **times}, case.nbytes)
        for name, cases in groups.items()
        for case in cases
    ])  # fmt: skip
    seconds = {"splitjit": 4e-3, "NumPy, split": 1e-2, "NumPy, slices": 8e-3}
    for step, case in {"busy": "2.4 MB, fresh", "planes": "4K frame, out"}.items():
        write(step, [Result(place, case, seconds, 0, seconds) for place in busy.SITUATIONS])
    seconds = {"splitjit": 2e-6, "NumPy, slices": 3e-6, "torch": 5e-6}
    write("processes", [Result("fresh", "256x2304", seconds)])
    for kind, hand in {"arrays": 3e-5, "tensors": 1e-5}.items():
        ways = {"splitjit": 2e-5, "splitjit, one thread": 4e-5, "NumPy, slices": hand}
        ways |= {"torch": 12.5e-6} if kind == "tensors" else {}
        write(f"{kind}_in_programs", [
            Result(f"torch, {place}", f"{kind}, out, 2.4 MB", {w: n * s for w, s in ways.items()})
            for n, place in enumerate(reversed(in_program.PLACES), 1)
        ])  # fmt: skip
    write("landscape", [Found("out", 1 << 24, 2, 64, 0.7, 2.0)])
    return folder


def test_pages_are_written_from_results(tmp_path):
    found = documentation.Measured(invented(tmp_path))
    pages = documentation.pages(found).items()
    text = {page.name: " ".join(text.split()) for page, text in pages}
    for words in documentation.ratios(found):
        assert re.search(rf"[\d.]+ {words}", " ".join(text.values())), words
    readme, results, notebook = (text[f"{name}.md"] for name in ("README", "results", "notebook"))
    row = "| (2048, 22016) float32 into 2, `out=` | 3 ms | 5 ms | torch **2 ms** | 1 ms |"
    assert row in readme
    assert "beside a busy program | **4 ms** | 8 ms | | |" in readme
    assert "2026-01-02, on 2 cores of A (R) CPU (commit abc)" in readme
    assert "then (256, 2304) into 3, `out=` | **40 µs** | 60 µs |" in readme
    assert "is 1.5 times as fast as with the fastest other way" in results
    assert "0.62 times as fast as with torch's own operator" in results
    assert "splitjit is 2 times as fast as NumPy for pixels" in text["performance.md"]
    times = "splitjit is 2 times as fast as NumPy beside busy programs"
    assert times in text["performance.md"]
    loss = f"{report.GROUPS['long']['title']} | 3 ms | torch | 2 ms | **0.67** |"
    assert f"(2048, 22016) float32, axis 1 → 2x11008 | {loss}" in results
    assert "| (480, 640, 3) | `out=` | 3 ms | - |" in text["planes.md"]
    iteration = "40 µs | NumPy's slices | 60 µs | 1.50 | splitjit on one thread 80 µs |"
    assert f"| torch | arrays, out, 2.4 MB | {iteration}" in notebook
    assert "Best peer over splitjit: geometric mean 0.87, least 0.50; 1 of 2" in notebook
    assert "| tensors, out, 2.4 MB | in a program: torch, split alone | 20 µs |" in results
    assert "| tensors, out, 2.4 MB | in a program: torch, iteration | 40 µs |" in results


def commits_since(commit, *paths):
    """Return how many commits after this one change files below the paths."""
    git = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", *paths]
    return int(subprocess.check_output(git, cwd=ROOT))


@needs_git
def test_figures_are_new():
    """`python benchmarks/documentation.py` measures them all, on a quiet machine."""
    commit = json.loads((documentation.KEPT / "report.json").read_text("utf-8"))["commit"]
    assert commits_since(commit, "splitjit") <= 60


@pytest.mark.parametrize("name", mechanisms.MECHANISMS)
def test_a_mechanism_can_be_switched_off(name):
    """The names of private parts in programs are right; what they save is not measured here."""
    mechanism = mechanisms.MECHANISMS[name]
    for code in (mechanism["program"], mechanism.get("off", "")):
        compile(code, name, "exec")
        for module, names in re.findall(r"from (splitjit\S+) import (.+)", code):
            imported = importlib.import_module(module)
            for part in names.split(", "):
                assigned = re.findall(rf"{part}\.(\w+) = ", code)
                assert all(hasattr(getattr(imported, part), one) for one in assigned)
    assert "off" in mechanism or "variables" in mechanism


def test_results_of_several_machines_are_refused(tmp_path):
    file = invented(tmp_path) / "busy.json"
    text = file.read_text()
    file.write_text(text.replace('"abc"', '"other"'))
    assert documentation.Measured(tmp_path).commit == "abc and other"
    file.write_text(re.sub('"cores": [0-9]+', '"cores": 99', text))
    with pytest.raises(SystemExit, match="machines"):
        documentation.Measured(tmp_path)


def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    asked = []
    known = {"commit": "abc", "cores": documentation.CORES}

    def measure(command, **_):
        file = Path(command[-1])
        assert file.is_relative_to(tmp_path)
        asked.append(file.stem)
        if file.stem == "processes" and asked.count("processes") == 1:
            raise KeyboardInterrupt
        file.write_text(json.dumps(known))

    monkeypatch.setattr(documentation.harness, "commit", lambda: "abc")
    monkeypatch.setattr(documentation, "ROOT", tmp_path)
    monkeypatch.setattr(documentation.subprocess, "run", measure)
    monkeypatch.setattr(sys, "argv", ["documentation"])
    with pytest.raises(KeyboardInterrupt):
        documentation.main()
    with pytest.raises(KeyError):  # there are no figures in these files
        documentation.main()
    assert sorted(asked) == sorted([*documentation.STEPS, "processes"])


# ---- the history ----------------------------------------------------------------------


def test_milestones_and_no_other_commits_have_results_of_the_whole_history():
    tracks = [name for name in vars(history.History) if name.startswith("track_")]
    for commit in milestones.milestones():
        (file,) = (ROOT / "benchmarks" / "results").glob(f"*/{commit[:8]}-*.json")
        results = json.loads(file.read_text("utf-8"))["results"]
        for name in tracks:
            values, params = results[f"history.History.{name}"][:2]
            current = getattr(history.History, name).params[0]
            assert params[0] == [repr(param) for param in current], (commit, name)
            assert all(isinstance(value, float | int) for value in values), (commit, name)
    kept = milestones.RESULTS.glob("*/*-*.json")
    assert {file.name[:8] for file in kept} == {commit[:8] for commit in milestones.milestones()}
    assert not milestones.gaps()


def test_incomplete_results_replace_nothing(tmp_path, monkeypatch):
    pytest.importorskip("asv")
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(milestones, "ROOT", tmp_path)
    monkeypatch.setattr(milestones, "RESULTS", kept)
    monkeypatch.setattr(milestones, "milestones", lambda: {"a" * 40: "first", "b" * 40: "last"})
    monkeypatch.setattr(milestones.subprocess, "run", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="bbbbbbbb split.Plan.time_plan"):
        milestones.measure("some machine")
    assert kept.exists()


def test_only_the_newest_milestones_need_all_suites(tmp_path, monkeypatch):
    versions = {"split.Plan.time_plan": "1", "history.History.track_process": "2"}
    monkeypatch.setattr(milestones, "suite_versions", lambda: versions)
    for i, commit in enumerate(reversed(milestones.milestones())):
        found = {"history.History.track_process": [[1.0], [], "2"]}
        if i < milestones.NEWEST:
            found["split.Plan.time_plan"] = [[1.0, 2.0 if i else float("nan")], [], "1"]
        (tmp_path / "machine").mkdir(exist_ok=True)
        file = tmp_path / "machine" / f"{commit[:8]}-env.json"
        file.write_text(json.dumps({"results": found}))
    newest = [*milestones.milestones()][-1][:8]
    assert milestones.gaps(tmp_path) == [f"{newest} split.Plan.time_plan"]
    versions["history.History.track_process"] = "3"
    assert len(milestones.gaps(tmp_path)) == 1 + len(milestones.milestones())


def test_the_suites_are_those_that_asv_finds():
    known = json.loads((milestones.RESULTS / "benchmarks.json").read_text("utf-8"))
    assert set(milestones.suite_versions()) == set(known) - {"version"}


@pytest.mark.parametrize("name", [one.name for one in pkgutil.iter_modules(suites.__path__)])
def test_asv_calls_no_table_of_a_suite(name):
    """asv takes a module's `setup` for a hook, whether its name is in upper or lower case."""
    module = pytest.importorskip(f"benchmarks.suites.{name}")
    hooks = [hook for hook in vars(module) if hook.lower() in ("setup", "teardown", "setup_cache")]
    assert all(callable(getattr(module, hook)) for hook in hooks)


def test_the_page_of_the_history_shows_the_results():
    pytest.importorskip("asv")
    text = milestones.PAGE.read_text("utf-8")
    assert milestones.written(text) == text
    rows = re.findall(r"^\| (\d+) \| (\w{7}) \|", text, re.M)
    assert rows == [(str(i), c[:7]) for i, c in enumerate(milestones.milestones(), 1)]


def test_the_results_agree_with_the_page_of_the_history():
    """What benchmarks/history.md says without figures."""
    pytest.importorskip("asv")
    found = milestones.facts()
    assert found["times at the newest milestone"] > found["of NumPy's time at milestone 18"]
    before = found["times the array at milestone 18"]
    assert found["times the array at the newest milestone"] > before
    token = milestones.history(milestones.RATIO)["QKV of 1 token, out"]
    assert token[11] > 0.8 * token[10]
    assert token[13] < 0.8 * token[10]


def test_a_first_call_that_compiles_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(history, "PROCESSES", {"first call ever, seconds": "print(0.001)"})
    with pytest.raises(RuntimeError, match="compiled nothing"):
        history._in_processes()


@pytest.mark.long
def test_the_first_call_ever_compiles():
    seconds = history._in_processes()
    assert seconds["first call ever, seconds"] > 5 * seconds["first call, cached, seconds"]


@needs_git
def test_the_newest_milestone_is_new():
    """`python benchmarks/milestones.py --measure NAME` measures them all, on a quiet machine.

    Only commits of the rooms through which a split goes can change its speed. Most of them change
    its shape, so many may pass between two milestones.
    """
    rooms = "_plan", "_abi", "_kernels", "_runtime", "_inputs", "_copy", "_api"
    newest = [*milestones.milestones()][-1]
    assert commits_since(newest, *[f"splitjit/{name}" for name in rooms]) <= 100


def test_a_result_inside_of_a_merge_is_shown_at_the_merge(tmp_path, monkeypatch):
    if not shutil.which("git"):
        pytest.skip("needs git")

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.check_output(["git", *who, *arguments], cwd=tmp_path, text=True).strip()

    def commit(message):
        git("commit", "--quiet", "--allow-empty", "--message", message)
        return git("rev-parse", "HEAD")

    git("init", "--quiet", "--initial-branch=main")
    first = commit("first")
    git("switch", "--quiet", "--create", "side")
    inside = commit("inside")
    git("switch", "--quiet", "main")
    git("merge", "--quiet", "--no-ff", "--message", "merge", "side")
    merge = git("rev-parse", "HEAD")
    commit("later")

    results = tmp_path / "benchmarks" / "results"
    (results / "machine").mkdir(parents=True)
    (results / "benchmarks.json").write_text('{"kept": {}, "never measured": {}, "version": 2}')
    for shown in (first, inside):
        content = {"commit_hash": shown, "date": 1, "results": {"kept": []}}
        (results / "machine" / f"{shown[:8]}-env.json").write_text(json.dumps(content))
    monkeypatch.setattr(asv_pages, "ROOT", tmp_path)
    asv_pages.copy_results(tmp_path / "copy")
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("copy/machine/*")}
    assert set(files) == {f"{first[:8]}-env.json", f"{merge[:8]}-env.json"}
    assert files[f"{merge[:8]}-env.json"]["commit_hash"] == merge
    assert set(json.loads((tmp_path / "copy/benchmarks.json").read_text())) == {"kept", "version"}


def test_pages_load_fetched_scripts(tmp_path, monkeypatch):
    monkeypatch.setattr(asv_pages, "SCRIPTS", tmp_path / "scripts")
    (tmp_path / "scripts").mkdir()
    for name in ("jquery.min.js", "stupidtable.js"):
        (tmp_path / "scripts" / name).touch()
    (tmp_path / "index.html").write_text(
        '<script src="https://a/jquery-3.3.1.min.js" integrity="x"></script>\n'
        '<script src="https://b/1.0.1/stupidtable.min.js" integrity="y"></script>\n'
        '<a href="https://c/">asv</a> <script src="asv.js"></script>'
    )
    asv_pages.use_copies(tmp_path)
    assert (tmp_path / "index.html").read_text() == (
        '<script src="jquery.min.js"></script>\n<script src="stupidtable.js"></script>\n'
        '<a href="https://c/">asv</a> <script src="asv.js"></script>'
    )


MEASURED = {command.split()[0] for _, command, _ in documentation.STEPS.values()}


@pytest.mark.parametrize("name", [*sorted(MEASURED), "gate", "threads", "checkpoints"])
def test_a_tool_is_a_script(name):
    assert "usage:" in python(f"benchmarks/{name}.py", "--help", cwd=ROOT)
