"""The fastest way is found, followed and never paid for by more than the budget."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitjit
from splitjit._runtime import threads, ways
from splitjit._runtime.ways import Ways
from tests.conftest import needs_kernels

STRETCH = ways._STRETCH
took = Ways.took


def run(chooser, seconds, calls, gap=lambda way, call: 0.0, unit=2.0**-20):
    """Make calls with a fake clock; return the chosen ways.

    ``seconds(way, call)`` is the time of a call, and ``gap(way, call)`` the time after it, both in
    units of `unit` seconds.
    """
    chosen, now = [], 0.0
    for call in range(calls):
        skips = chooser.skip()
        way = chooser.way if skips else chooser.choose(now)
        end = now + seconds(way, call) * unit
        if not skips:
            chooser.took(way, now, end, unit)
        now = end + gap(way, call) * unit
        chosen.append(way)
    chooser.choose(now)
    return chosen


@pytest.mark.parametrize("slow", [1.2, 2.0, 20.0])
@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_fastest_way_is_chosen(best, slow):
    chosen = run(Ways("abc"), lambda way, call: 1.0 if way == best else slow, 4000)
    assert chosen[0] == 0
    assert chosen[100:].count(best) > 0.75 * 3900
    cost = sum([slow - 1.0 for way in chosen if way != best])
    first = 3 * 2 * STRETCH  # calls to measure each way
    assert cost <= ways._SHARE * (len(chosen) + cost) + first * (slow - 1.0)


@pytest.mark.parametrize("burst", range(1, 8))
def test_long_calls_are_measured_sooner(burst):
    """Few of the splits of a short program go the slower way, wherever the program rests."""

    def rest(way, call):
        return 100.0 * (call % burst == 0)

    chosen = run(Ways("ab"), lambda way, call: (1.0, 1.5)[way], 30, rest, unit=2 * ways._LONG)
    assert chosen.count(1) == 2 * ways._LONG_STRETCH


def test_most_calls_of_the_best_way_are_not_measured(monkeypatch):
    measured = []
    monkeypatch.setattr(Ways, "took", lambda *of: measured.append(of) or took(*of))
    run(Ways("a"), lambda way, call: 1.0, 900)
    share = 900 / (1 + ways._REST)
    assert share <= len(measured) <= 1.4 * share


def test_no_call_is_charged_with_those_that_are_not_measured(monkeypatch):
    monkeypatch.setattr(ways, "_STRETCH", 1)  # so that no median hides one
    chooser = Ways("a")
    run(chooser, lambda way, call: 1.0, 100)
    assert chooser.means == [1.0]


@pytest.mark.parametrize("settle", [1, STRETCH])
def test_what_a_change_costs_is_not_compared(settle):
    """Right after a change of way, each way is slow."""
    chooser, called = Ways("ab"), []

    def seconds(way, call):
        is_new = called[-settle:] != [way] * settle
        called.append(way)
        return 3.0 if is_new else (1.0, 1.3)[way]

    chosen = run(chooser, seconds, 2000)
    assert chooser.means == pytest.approx([1.0, 1.3])
    assert chosen[4 * STRETCH :].count(1) < 0.1 * 2000


@pytest.mark.parametrize(("slow", "between"), [(1.0, 30), (2.0, 180), (20.0, 2900)])
def test_how_often_a_slower_way_is_tried(slow, between):
    stretches = 20 * between
    chosen = run(Ways("ab"), lambda way, call: slow if way else 1.0, stretches * STRETCH)
    tries = chosen.count(1) / (2 * STRETCH)
    assert 10 <= tries <= 40


def test_a_way_that_slows_the_rest_of_the_program_is_left():
    """Way 0 is faster, and the steps after it take longer."""
    chosen = run(Ways("ab"), lambda way, call: (1.0, 1.2)[way], 1000, lambda way, call: (4, 3)[way])
    assert chosen[4 * STRETCH :].count(1) > 0.9 * 980


@pytest.mark.parametrize("rest", [100.0, 1e6])
def test_rests_hide_no_difference(rest):
    """After a call, the program rests for many times as long, sometimes twice as long."""
    rng = random.Random(0)

    def rests(way, call):
        return rest * rng.choice([1, 2])

    chosen = run(Ways("ab"), lambda way, call: (1.5, 1.0)[way], 1000, rests)
    assert chosen[4 * STRETCH :].count(1) > 0.9 * 980


@pytest.mark.parametrize("pause", [20.0, 1000.0, 1e6])
@pytest.mark.parametrize("at", range(STRETCH, 5 * STRETCH, 3))
def test_a_pause_turns_no_choice(at, pause):
    """Wherever it falls in the first tries."""
    chosen = run(Ways("ab"), lambda way, call: pause if call == at else 1.5 if way else 1.0, 1000)
    assert chosen[6 * STRETCH :].count(1) < 0.1 * 1000


def test_rare_slow_calls_turn_no_choice_for_long():
    rng = random.Random(0)

    def seconds(way, call):
        rarely = 20 if rng.random() < 0.02 else 1
        return (1.0, 1.3)[way] * rng.lognormvariate(0, 0.1) * rarely

    chosen = run(Ways("ab"), seconds, 5000)
    assert chosen.count(0) > 0.8 * len(chosen)


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        ((1.0, 1.3), (2.0, 1.3), 40),
        ((1.0, 1.5), (20.0, 1.5), 20),
        ((1.0, 1.3), (1.0, 0.5), 400),  # another way became faster, which the next try finds
        ((1.0, 2.0), (1.0, 0.25), 900),
    ],
)
def test_a_lasting_change_turns_the_choice(before, after, within):
    chooser = Ways("ab")
    run(chooser, lambda way, call: before[way], 1000)
    chosen = run(chooser, lambda way, call: after[way], within + 80)
    best = min((0, 1), key=after.__getitem__)
    assert chosen[within:].count(best) > 0.7 * 80


def test_a_step_that_ends_hides_no_better_way():
    """Beside a long step way 0 is a little better; without it, way 1 is much better."""
    chooser = Ways("ab")
    run(chooser, lambda way, call: (1.0, 0.6)[way], 1000, lambda way, call: (4.0, 4.8)[way])
    chosen = run(chooser, lambda way, call: (1.0, 0.6)[way], 1000)
    assert chosen[400:].count(1) > 0.9 * 600


def test_a_step_that_begins_turns_no_choice_for_long():
    """The other way only looks faster: it was measured without the step."""
    chooser = Ways("ab")
    run(chooser, lambda way, call: (1.0, 1.9)[way], 1000)
    chosen = run(chooser, lambda way, call: (1.0, 1.9)[way], 30 * STRETCH, lambda way, call: 5.0)
    assert chosen.count(1) <= 2 * STRETCH


@given(st.lists(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=3), min_size=5, max_size=80))
def test_a_try_begins_only_if_the_budget_covers_all_losses(times):
    """Whatever the stretches take."""
    chooser, spent, lost, lent = Ways("abc"), 0.0, 0.0, 0.0
    for row in times:
        way, best, means = chooser.way, chooser.best, [*chooser.means]
        settles = not chooser._stretches
        run(chooser, lambda way, call, row=row: row[way], STRETCH)
        if not means[way]:  # the first measurement is not paid for
            spent, lost, lent = 0.0, 0.0, ways._LENT * chooser.means[chooser.best]
        elif way == best and not settles:
            spent += row[way]
        else:
            lost += max(row[way] - means[best], 0.0)
        if chooser.way not in (way, chooser.best):
            assert lost <= lent + ways._SHARE * spent + 1e-9


def test_similar_copies_begin_with_what_is_known():
    known = Ways("ab")
    run(known, lambda way, call: 1.0 if way else 3.0, 100)
    chosen = run(Ways("ab", known), lambda way, call: 1.0 if way else 3.0, 20)
    assert chosen.count(0) == 0


@needs_kernels
@pytest.mark.parametrize(
    ("shape", "order"),
    [((2048, 1024), "C"), ((4096, 1536), "C"), ((2048, 1024), "F"), ((2**20, 3), "C")],
)
@pytest.mark.parametrize("way", [0, 1, 2])
def test_all_ways_copy_the_same(shape, order, way, monkeypatch):
    splitjit.warmup()
    monkeypatch.setattr(threads, "ways_here", lambda: threads.WAYS)
    monkeypatch.setattr(Ways, "choose", lambda self, now: way)
    monkeypatch.setattr(Ways, "skip", lambda self: False)
    monkeypatch.setattr(threads, "_allowed", lambda: 2)
    splitjit.clear_caches()
    x = np.asarray(np.random.default_rng(way).random(shape, np.float32), order=order)
    expected = np.array_split(x, 3, axis=1)
    out = [np.empty_like(part, order="C") for part in expected]
    for target in (None, out):
        parts = splitjit.split(x, num_sections=3, axis=1, out=target)
        for part, view in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(part, view)
    plan = splitjit.plan_split(shape, num_sections=3, axis=1)
    assert plan._copy.ways.calls[way] >= 2
    splitjit.clear_caches()
