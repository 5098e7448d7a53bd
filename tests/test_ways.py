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


def run(chooser, seconds, calls):
    """Make calls with a fake clock; return the chosen ways. ``seconds(way, call)`` is the time."""
    chosen = []
    for call in range(calls):
        way = chooser.choose()
        chooser.took(way, seconds(way, call))
        chosen.append(way)
    return chosen


@pytest.mark.parametrize("slow", [1.2, 2.0, 20.0])
@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_fastest_way_is_chosen(best, slow):
    chosen = run(Ways(3), lambda way, call: 1.0 if way == best else slow, 2000)
    assert chosen[0] == 0
    assert chosen[100:].count(best) > 0.75 * 1900
    cost = sum([slow - 1.0 for way in chosen if way != best])
    first = 3 * ways._FIRST  # calls to measure each way
    assert cost <= ways._SHARE * (len(chosen) + cost) + first * (slow - 1.0)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_slow_first_calls_turn_no_choice(slow):
    """One call of four may count: not the very first, and no slow one."""

    def seconds(way, call):
        counts[way] += 1
        return 20.0 if counts[way] <= slow + 1 else 1.0 if way == 0 else 1.3

    counts = [0, 0]
    chosen = run(Ways(2), seconds, 200)
    assert chosen[10:].count(0) > 0.85 * 190


@pytest.mark.parametrize(("slow", "every"), [(2.0, 50), (20.0, 950)])
def test_how_often_a_slower_way_is_tried(slow, every):
    chosen = run(Ways(2), lambda way, call: slow if way else 1.0, 20 * every)
    assert 15 <= chosen.count(1) <= 25


@pytest.mark.parametrize("at", range(50, 60))
def test_one_slow_call_turns_no_choice(at):
    chooser = Ways(2)
    chosen = run(chooser, lambda way, call: 20.0 if call == at else 1.3 if way else 1.0, 100)
    assert chosen[at + 1 : at + 20].count(1) <= 2 * ways._TRY


def test_rare_slow_calls_turn_no_choice_for_long():
    rng = random.Random(0)

    def seconds(way, call):
        return (
            (1.3 if way else 1.0) * rng.lognormvariate(0, 0.1) * (20 if rng.random() < 0.02 else 1)
        )

    chosen = run(Ways(2), seconds, 5000)
    assert chosen.count(0) > 0.8 * len(chosen)


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        ((1.0, 1.3), (2.0, 1.3), 30),
        ((1.0, 1.5), (20.0, 1.5), 30),
        ((1.0, 1.3), (1.0, 0.5), 40),  # another way became faster, which the next try finds
        ((1.0, 2.0), (1.0, 0.5), 110),
    ],
)
def test_a_lasting_change_turns_the_choice(before, after, within):
    chooser = Ways(2)
    run(chooser, lambda way, call: before[way], 500)
    chosen = run(chooser, lambda way, call: after[way], within + 80)
    best = min((0, 1), key=after.__getitem__)
    assert chosen[within:].count(best) > 0.8 * 80


@given(st.lists(st.lists(st.floats(1e-6, 1e3), min_size=3, max_size=3), max_size=200))
def test_trying_costs_at_most_the_budget_and_one_try(times):
    """Whatever the times are."""
    chooser, spent, tried, last, before = Ways(3), 0.0, 0.0, 0.0, 0
    for row in times:
        way = chooser.choose()
        if way != chooser.best:
            if way != before:  # a try begins
                assert tried <= ways._SHARE * spent
                last = 0.0
            if chooser.calls[way] >= ways._FIRST:  # the first try is not paid for
                last += max(row[way] - chooser.means[chooser.best], 0.0)
                tried += max(row[way] - chooser.means[chooser.best], 0.0)
        before = way
        spent += row[way]
        chooser.took(way, row[way])
        assert tried <= ways._SHARE * spent + last


def test_similar_copies_begin_with_what_is_known():
    known = Ways(2)
    run(known, lambda way, call: 1.0 if way else 3.0, 100)
    chosen = run(Ways(2, known), lambda way, call: 1.0 if way else 3.0, 20)
    assert chosen.count(0) <= 1


@needs_kernels
@pytest.mark.parametrize(
    ("shape", "order"),
    [((2048, 1024), "C"), ((4096, 1536), "C"), ((2048, 1024), "F"), ((2**20, 3), "C")],
)
@pytest.mark.parametrize("way", [0, 1])
def test_both_ways_copy_the_same(shape, order, way, monkeypatch):
    splitjit.warmup()
    monkeypatch.setattr(Ways, "choose", lambda self: way)
    monkeypatch.setattr(threads, "_allowed", lambda: 2)
    x = np.asarray(np.random.default_rng(way).random(shape, np.float32), order=order)
    expected = np.array_split(x, 3, axis=1)
    out = [np.empty_like(part, order="C") for part in expected]
    for target in (None, out):
        parts = splitjit.split(x, num_sections=3, axis=1, out=target)
        for part, view in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(part, view)
    plan = splitjit.plan_split(shape, num_sections=3, axis=1)
    assert plan._kernel_copy.ways.calls[way] >= 2
