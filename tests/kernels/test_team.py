"""The protocol of `_kernels/core/team.py`: all orders in which a caller and two helpers may step.

Each step reads or writes one word, as in the code; the last test compares the order with it.
"""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

import splitjit

JOBS, CHUNKS, HELPERS = 3, 2, 2

CALLER = ("job", "open", "generation", "wake", "chunks", "close", "wait", "free")
WAKE = ("clear", "release")
HELPER = (
    *("spin", "mark", "look again", "take back", "sleep"),
    *("see", "peek", "wake", "count", "look", "read", "chunks", "leave"),
)

TOUCHED = "a helper copies a chunk of a job whose caller has returned"
TAKEN = "another caller may write the words of a job that a helper still reads"
TWICE = "a chunk is not copied exactly once"
MISSED = "a helper that has seen a job finds it closed too early, or does not look"
SLEPT = "a helper sleeps through a job, or for good"
LOCKED = "a lock is released twice"
STUCK = "nobody can go on, and the caller has not returned"


class Broken(Exception):
    """A rule is broken."""


class Words(NamedTuple):
    """The shared words, and which chunks of the job are copied."""

    open: int = 0
    generation: int = 0
    active: int = 0
    job: int = 0
    front: int = 0
    back: int = 0
    copied: int = 0


class Caller(NamedTuple):
    """The job, the next step, and the part of the step: the phase of a wake, or a chunk taken."""

    job: int = 1
    at: int = 0
    part: int = 0


class Helper(NamedTuple):
    """The next step and its part, what the helper knows, its line, and what it copies."""

    at: int = 0
    part: int = 0
    current: int = 1  # whether it has seen the newest generation
    looked: int = 1  # whether it has looked at `open` since
    mark: int = 0
    lock: int = 0
    job: int = 0
    chunk: int = -1


class Model:
    """The protocol: which states can follow a state.

    `check` passes the order of the steps of each thread. With short turns, a helper leaves the job
    after each chunk, and looks at it once more.
    """

    def __init__(self, caller, wake, helper, has_short_turns):
        self.caller, self.wake, self.helper = caller, wake, helper
        self.has_short_turns = has_short_turns

    def following(self, state):
        """Yield each state to which one step leads."""
        words, caller, helpers = state
        if caller.job <= JOBS:
            after = self.call(words, caller, helpers)
            if after:
                yield after
        for i in range(HELPERS):
            after = self.help(words, caller, helpers, i)
            if after:
                yield after[0], caller, after[1]

    def wake_next(self, helpers, i, part):
        """Let somebody make one part of waking helper `i`; return the helpers and the next part."""
        if i == HELPERS or (part == 0 and not helpers[i].mark):
            return helpers, 0
        helper = helpers[i]
        if self.wake[part] == "clear":
            helper = helper._replace(mark=0)
        elif helper.lock:
            raise Broken(LOCKED)
        else:
            helper = helper._replace(lock=1)
        return (*helpers[:i], helper, *helpers[i + 1 :]), (part + 1) % len(self.wake)

    def call(self, words, caller, helpers):
        """Let the caller make a step; return nothing if it must wait."""
        step, done = self.caller[caller.at], caller._replace(at=caller.at + 1, part=0)
        if step == "job":
            words = words._replace(job=caller.job, front=0, back=0, copied=0)
        elif step in ("open", "close"):
            words = words._replace(open=int(step == "open"))
        elif step == "generation":
            words = words._replace(generation=words.generation + 1)
            helpers = tuple(helper._replace(current=0) for helper in helpers)
        elif step == "wake":
            helpers, part = self.wake_next(helpers, 0, caller.part)
            if part:
                done = caller._replace(part=part)
        elif step == "chunks" and caller.part:
            words, done = copied(words, caller.job, caller.job, caller.part - 1), caller
            done = caller._replace(part=0)
        elif step == "chunks" and words.front + words.back < CHUNKS:
            done = caller._replace(part=words.front + 1)
            words = words._replace(front=words.front + 1)
        elif step == "wait" and words.active:
            return None
        elif step == "free" and any(map(self.is_at_work, helpers)):
            raise Broken(TAKEN)
        if done.at == len(self.caller):
            if words.copied != 2**CHUNKS - 1:
                raise Broken(TWICE)
            done = Caller(caller.job + 1)
        return words, done, helpers

    def help(self, words, caller, helpers, i):
        """Let helper `i` make a step; return nothing if it sleeps."""
        helper = helpers[i]
        step, at = self.helper[helper.at], (helper.at + 1) % len(self.helper)
        if step == "spin":
            if not helper.looked:
                raise Broken(MISSED)
            at = at if helper.current else self.helper.index("sleep") + 1
        elif step == "mark":
            helper = helper._replace(mark=1)
        elif step == "look again":
            if helper.current:
                at = self.helper.index("sleep")
            elif self.helper[at] == "sleep":
                at += 1
        elif step == "take back":
            at += helper.mark
            helper = helper._replace(mark=0)
        elif step == "sleep":
            if not helper.lock:
                is_late, is_waking = self.waker(caller, helpers, i)
                if (is_late and not helper.current) or not (helper.mark or is_waking):
                    raise Broken(SLEPT)
                return None
            helper = helper._replace(lock=0)
        elif step == "see":
            helper = helper._replace(current=1, looked=0)
        elif step in ("count", "leave"):
            more = 1 if step == "count" else -1
            words = words._replace(active=words.active + more)
            if step == "leave" and self.has_short_turns:
                at = self.helper.index("see")
        elif step in ("peek", "look"):
            is_early = caller.at <= self.caller.index("chunks")
            if not words.open and helper.current and words.generation == caller.job and is_early:
                raise Broken(MISSED)
            helper = helper._replace(looked=1, job=words.open)
            if step == "peek" and not words.open:
                at = 0
        elif step == "wake":
            helpers, part = self.wake_next(helpers, i + 1, helper.part)
            helper, at = helper._replace(part=part), helper.at if part else at
        elif step == "read":
            helper = helper._replace(job=words.job if helper.job else 0)
        elif helper.chunk >= 0:
            words = copied(words, caller.job, helper.job, helper.chunk)
            helper = helper._replace(chunk=-1, job=0 if self.has_short_turns else helper.job)
            at = at if self.has_short_turns else helper.at
        elif helper.job and words.front + words.back < CHUNKS:
            helper, at = helper._replace(chunk=CHUNKS - 1 - words.back), helper.at
            words = words._replace(back=words.back + 1)
        else:
            helper = helper._replace(job=0)
        return words, (*helpers[:i], helper._replace(at=at), *helpers[i + 1 :])

    def is_at_work(self, helper):
        """Return whether a helper reads the words of a job, or copies its chunks."""
        return bool(helper.job) and self.helper[helper.at] in ("read", "chunks")

    def waker(self, caller, helpers, i):
        """Return whether the one who wakes helper `i` has done so for this job, or is doing so."""
        if i == 0:
            at, wake = caller.at, self.caller.index("wake")
            return at > wake, at == wake
        waker, wake = helpers[i - 1], self.helper.index("wake")
        return waker.at > wake and waker.current, waker.at == wake


def copied(words, newest, job, chunk):
    """Return the words after a chunk is copied."""
    if job != newest:
        raise Broken(TOUCHED)
    if words.copied >> chunk & 1:
        raise Broken(TWICE)
    return words._replace(copied=words.copied | 1 << chunk)


def check(caller=CALLER, wake=WAKE, helper=HELPER, has_short_turns=False):
    """Try all interleavings; return the rule that one of them breaks, or None."""
    model = Model(caller, wake, helper, has_short_turns)
    new = {(Words(), Caller(), (Helper(),) * HELPERS)}
    known = set()
    try:
        while new:
            known |= new
            found = set()
            for state in new:
                following = {*model.following(state)}
                if not following and state[1].job <= JOBS:
                    return STUCK
                found |= following
            new = found - known
    except Broken as broken:
        return str(broken)
    return None


@pytest.mark.parametrize("has_short_turns", [False, True])
def test_the_protocol_keeps_all_rules(has_short_turns):
    assert check(has_short_turns=has_short_turns) is None


ORDERS = {"caller": CALLER, "wake": WAKE, "helper": HELPER}


def moved(steps, name, before):
    """Return the steps with one of them before another."""
    rest = [step for step in steps if step != name]
    at = rest.index(before)
    return (*rest[:at], name, *rest[at:])


MOVED = [
    (
        "caller",
        "open<job generation<job generation<open wake<generation wake<open close<generation",
    ),
    ("caller", "close<chunks wait<close wait<chunks free<wait free<close"),
    ("wake", "release<clear"),
    (
        "helper",
        "sleep<mark look<count look<see wake<see read<look read<count leave<read leave<chunks",
    ),
]


@pytest.mark.parametrize(
    ("of", "name", "before"),
    [(of, *move.split("<")) for of, moves in MOVED for move in moves.split()],
)
def test_another_order_breaks_a_rule(of, name, before):
    assert check(**{of: moved(ORDERS[of], name, before)}) is not None


@pytest.mark.parametrize(
    "without", [{"look again", "take back"}, {"take back"}, {"count", "leave"}, {"look"}]
)
def test_each_step_of_a_helper_is_needed(without):
    assert check(helper=tuple(step for step in HELPER if step not in without)) is not None


# The steps in the code, which `CALLER`, `WAKE` and `HELPER` stand for. "free" is the write of 0 to
# BUSY, which only that caller makes that has found 0 there.
CODE = {
    "share": [
        *("read_word chunk", "exchange busy 1", "_copy_with_helpers", "exchange busy 0"),
        *("call_address", "exchange ended"),
    ],
    "_copy_with_helpers": [
        *("read_word served", "exchange job", "exchange asked", "exchange core"),
        *("exchange taken 0", "exchange open 1", "add_to generation 1", "_wake 0"),
        *("_take_chunks 1 0", "exchange open 0", "read_word active", "exchange served"),
        *("read_word awake", "read_word taken", "read_word stopped", "exchange paused"),
        "read_word pause",
    ],
    "_wake": ["read_word", "exchange 0", "release"],
    "_sleep_until_woken": ["exchange 1", "read_word generation", "exchange 0", "acquire 1"],
    "serve": [
        *("add_to numbered 1", "acquire 1", "_spin", "read_word generation"),
        *("stay_off", "read_word core", "_sleep_until_woken", "read_word turn"),
        *("read_word generation", "read_word asked", "read_word open", "read_word core"),
        *("stay_off", "_wake", "add_to active 1", "read_word open"),
        *("add_to helped", "_take_chunks _BACK", "add_to active -1"),
        "read_word turn",
    ],
}
STEPS = {step.split()[0] for steps in CODE.values() for step in steps}


def name_of(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def step_of(call):
    """Return a call as `CODE` writes it: the function, the word, and a constant value."""
    texts = [ast.unparse(argument).removeprefix("team + ") for argument in call.args]
    known = [text for text in texts if text[:3] == "AT." or text in ("_BACK", "-1", "0", "1")]
    return " ".join([name_of(call), *known]).replace("AT.", "")


@pytest.mark.parametrize("name", CODE)
def test_the_code_has_this_order(name):
    source = (
        Path(splitjit.__file__).with_name("_kernels").joinpath("core/team.py").read_text("utf-8")
    )
    (function,) = [node for node in ast.parse(source).body if getattr(node, "name", "") == name]
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    steps = [step_of(node) for node in calls if name_of(node) in STEPS]
    assert steps == CODE[name]
