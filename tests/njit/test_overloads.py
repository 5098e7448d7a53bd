"""`split` and `split_into` in compiled code return the same parts and refusals as in Python."""

import collections
import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import njit, typed
from numba.core import event
from numpy.lib.stride_tricks import as_strided

import splitjit
import splitjit.numpy
from splitjit import SplitError, SplitTypeError
from splitjit._abi.calls import SLOTS
from splitjit._abi.kernels import KERNELS
from splitjit._copy import buffers
from tests.cases import RANDOM_CASES, random_cases
from tests.conftest import long, needs_kernels
from tests.guarded import split_compiled
from tests.processes import python

pytestmark = [
    needs_kernels,
    # Numba plans to drop reflected lists of Python; while it has them, splitjit accepts them.
    pytest.mark.filterwarnings("ignore::numba.NumbaPendingDeprecationWarning"),
]


by_split = njit(lambda x, split, axis: splitjit.split(x, split, axis))
by_num_outputs = njit(lambda x, n, axis: splitjit.split(x, num_outputs=n, axis=axis))
by_num_splits = njit(lambda x, n, axis=-1: splitjit.split(x, axis=axis, num_splits=n))
by_indices = njit(lambda x, indices, axis: splitjit.split(x, indices=indices, axis=axis))
by_num_sections = njit(lambda x, n, axis: splitjit.split(x, num_sections=n, axis=axis))
into = njit(lambda x, outs, split, axis: splitjit.split_into(x, outs, split, axis))
BY = {
    "split": by_split,
    "num_outputs": by_num_outputs,
    "num_splits": by_num_splits,
    "indices": by_indices,
    "num_sections": by_num_sections,
}


def assert_same(parts, expected):
    assert type(parts) is list
    for part, right in zip(parts, expected, strict=True):
        assert part.dtype == right.dtype
        assert part.shape == right.shape
        assert part.tobytes() == right.tobytes()
        assert part.flags.c_contiguous


X = np.arange(6 * 10, dtype=np.float64).reshape(6, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        {"split": (2, 3, 5)},
        {"indices": np.array([4, 2**63, 2**64 - 1], np.uint64)},
        *long(
            {"split": [10, 0]},
            {"split": np.array([4, 6], np.int32)},
            {"split": np.array([4, 6], np.uint64)},
            {"split": typed.List([1, 9])},
            {"split": (np.int8(1), 9)},
            {"split": 3},
            {"split": np.array(3)},
            {"split": 10**12},
            {"indices": (2, 5)},
            {"indices": [-4, 20]},
            {"indices": np.array([4, -1], np.int8)},
            {"indices": typed.List([1, 9])},
            {"indices": (np.int8(-3), np.uint64(2**63))},
            {"indices": (-(2**63), 2**63 - 1)},
            {"indices": ()},
        ),
    ],
    ids=str,
)
def test_what_a_value_may_be(rule):
    ((name, value),) = rule.items()
    plain = [int(item) for item in value] if np.ndim(value) else value
    assert_same(BY[name](X, value, 1), splitjit.split(X, axis=1, **{name: plain}))


@pytest.mark.long
def test_integers_beyond_those_with_a_sign():
    huge = np.uint64(2**64 - 1)  # -1 as a signed integer
    for count in huge, np.uint64(2**63):  # the second equals 2**63 - 1 as a float
        assert_same(by_split(X, count, 1), [X])
    for wrong in [
        lambda: by_split(X, np.array([huge, 11], np.uint64), 1),
        lambda: by_split(X, (huge, 11), 1),
        lambda: by_split(X, 5, huge),
        lambda: by_num_outputs(X, huge, 1),
        lambda: by_num_splits(X, huge),
    ]:
        with pytest.raises(SplitError):
            wrong()
    for count in huge, np.uint64(2**63), np.uint64(2**63 - 1), np.uint64(7):
        says = min(int(count), 2**63 - 1)  # the largest word
        with pytest.raises(SplitError, match=rf"num_splits={says}, .* a multiple of {says}$"):
            by_num_splits(X, count)


@pytest.mark.slow
def test_a_part_for_which_there_is_no_memory():
    x = np.broadcast_to(np.uint8(1), 2**62)
    with pytest.raises(MemoryError):
        by_num_outputs(x, 1, 0)


def shorten_sums(text):
    return re.sub(r"to \d{19,}", "to more than 10**18", text)


# Lengths that seem to sum to 10, and numbers that the random cases leave out.
MORE_CASES = [
    *[{"split": np.array(n)} for n in ([-1, 11], [11, -1], [-1, -1], [2**63 - 1, 2**63 - 1, 12])],
    *[{name: n} for name in ("num_outputs", "num_splits", "num_sections") for n in (-3, 2**31)],
]


@pytest.mark.slow
def test_the_rules_are_those_of_python():
    """In random cases of each rule, both return equal parts or refuse by the same rule."""
    seen = collections.Counter()
    more_cases = [(X, {**rule, "axis": 1}) for rule in MORE_CASES]
    for x, rule in [*random_cases(RANDOM_CASES), *more_cases]:
        name, value = next(iter(rule.items()))
        try:
            expected = splitjit.split(x, **rule)
        except SplitError as error:
            with pytest.raises(SplitError) as caught:
                BY[name](x, value, rule["axis"])
            assert caught.value.operator == "split"
            # Compiled code clamps a sum beyond int64.
            assert shorten_sums(caught.value.rule) == shorten_sums(error.rule)
            seen[name, "refused"] += 1
        except MemoryError:  # there would be 2**62 parts
            with pytest.raises((SplitError, MemoryError)):
                BY[name](x, value, rule["axis"])
        else:
            assert_same(BY[name](x, value, rule["axis"]), expected)
            seen[name, "split"] += 1
    assert len(seen) == 10
    assert min(seen.values()) > RANDOM_CASES // 10


SOURCES = [
    np.arange(24, dtype=np.uint8),
    np.asfortranarray(np.arange(6 * 8, dtype=np.int16).reshape(6, 8)),
    np.arange(2 * 6 * 8, dtype=np.complex128).reshape(2, 6, 8)[:, ::-1, ::2],
    np.arange(2 * 6 * 3 * 4, dtype=np.float32).reshape(2, 6, 3, 4).swapaxes(1, 2),
    np.arange(6 * 3 * 4 * 5, dtype=np.int32).reshape(6, 3, 4, 5)[::2],  # two of the axes merge
    np.broadcast_to(np.arange(8) > 3, (6, 8)),
    np.arange(8).astype("datetime64[s]").reshape(2, 4),
    np.array([["a", "bc"], ["", "é"]]),
    np.array([(1, 2.5), (3, -0.0), (5, np.nan)], [("i", "i1"), ("f", "f8")]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "x",
    [SOURCES[1], SOURCES[-1], *long(SOURCES[0], *SOURCES[2:-1])],
    ids=lambda x: f"{x.dtype} {x.ndim}-D",
)
def test_any_dtype_rank_and_layout(x):
    for axis in range(-x.ndim, x.ndim):
        for chunk in (1, 2, 5):
            assert_same(by_split(x, chunk, axis), splitjit.split(x, chunk, axis=axis))


COLUMNS = typed.List([np.zeros((6, 4)), np.zeros((6, 6))])
ROWS = [np.zeros((4, 10)), np.zeros((2, 10))]
EMPTY_OF_X = [np.zeros_like(X), X[:, 3:3]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outs", "split", "axis"),
    [
        (COLUMNS, typed.List([4, 6]), 1),
        pytest.param(ROWS, 4, 0, marks=pytest.mark.long),
        pytest.param(EMPTY_OF_X, np.array([10, 0]), 1, marks=pytest.mark.long),
    ],
    ids=["typed lists", "a list and a chunk", "an empty part from anywhere"],
)
def test_split_into_takes(outs, split, axis):
    into(X, outs, split, axis)
    assert np.array_equal(np.concatenate(list(outs), axis), X)


@pytest.mark.slow
def test_split_into_refuses_what_does_not_fit():
    a, b = np.zeros((6, 4)), np.zeros((6, 6))
    whole = np.zeros((6, 10))
    for x, outs, split, axis in [
        (X, [a], (4, 6), 1),
        (X, [a, b, b], (4, 6), 1),
        (X, [b, a], (4, 6), 1),
        (X, [a, b], (4, 5), 1),
        (X, [a, b], (4, 6), 2),
        (X, (), (4, 6), 1),
        (whole, [whole], (10, 0), 1),
        (whole, [whole], (10,), 1),
        (np.zeros((12, 4)), [a, a], (6, 6), 0),
    ]:
        with pytest.raises(SplitError):
            into(x, outs, np.array(split), axis)
    for outs, says in (
        ((a, np.zeros((6, 7))), r"outs\[1\] of length 7 along axis 1: part 1 has length 6$"),
        ([b, a], r"outs\[0\] of length 6 along axis 1: part 0 has length 4$"),
        ([a.T, a.T], r"outs\[0\] of length 4 along axis 0: part 0 has length 6$"),
    ):
        with pytest.raises(SplitError, match=f"^split_into: {says}"):
            into(X, outs, np.array((4, 6)), 1)
    assert not a.any()
    assert not b.any()


def fortran(memory, columns):
    """Return a Fortran-contiguous array of four rows at the start of some memory."""
    return memory[: 4 * columns].reshape(columns, 4).T


MEMORY, GRID = np.zeros(300), np.zeros((4, 30))
ONES = np.ones((4, 6))
A, B, C = (fortran(MEMORY[100 + 20 * i :], 2) for i in range(3))
D, E = GRID[:, 0:6:3], GRID[:, 1:7:3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "outs", "says"),
    [
        (fortran(MEMORY, 6), (fortran(MEMORY[4:], 2), B, C), r"outs\[0\] and x"),
        (fortran(MEMORY, 6)[::-1], (A, B, fortran(MEMORY[20:], 2)), r"outs\[2\] and x"),
        (ONES, (A, fortran(MEMORY, 2), fortran(MEMORY[7:], 2)), r"outs\[1\] and outs\[2\]"),
        (ONES, (D, E, D), r"outs\[0\] and outs\[2\]"),
        (ONES, [D, E, D], r"outs\[0\] and outs\[2\]"),
        (np.broadcast_to(MEMORY[:6], (4, 6)), (A, B, fortran(MEMORY[2:], 2)), r"outs\[2\] and x"),
        # Neither the first nor the last byte of one array is in the other.
        (ONES, (D, A, GRID[:, 3:5]), r"outs\[0\] and outs\[2\]"),
        (GRID[:, 0:30:5], (A, B, GRID[:, 4:6]), r"outs\[2\] and x"),
        (ONES, (A, as_strided(GRID, (4, 2), (0, 0)), B), r"outs\[1\]: its elements"),
        # Compiled code cannot tell these apart.
        (ONES, (D, E, GRID[:, 8:10]), r"outs\[0\] and outs\[1\]"),
    ],
)
def test_split_into_finds_shared_memory(x, outs, says):
    with pytest.raises(SplitError, match=f"^split_into: {says}.* must not share memory"):
        into(x, outs, 2, 1)
    assert not MEMORY.any()
    assert not GRID.any()


@pytest.mark.slow
def test_split_into_accepts_interleaved_outputs():
    grid = np.zeros((4, 30))
    x = np.arange(24.0).reshape(4, 6)
    cube = np.zeros((4, 6, 5))
    for outs in [
        (grid[:, 0:2], grid[:, 8:10], grid[:, 2:4]),
        (grid[:, 0:6:3], grid[:, 10:16:3], grid[:, 20:26:3]),
        (grid[::-1, 10:12], grid[::-1, 12:14], grid[::-1, 8:10]),
        (cube[:, :2, 1], cube[:, 4:, 1], cube[:, 2:4, 1]),
    ]:
        into(x, outs, 2, 1)
        assert np.array_equal(np.hstack(outs), x)


@pytest.mark.slow
def test_split_into_accepts_no_shared_memory():
    """Random arrays in one block of memory, with gaps, of any order and often interleaved."""
    rng = random.Random(0)
    block = np.zeros(900, np.uint8)
    seen = collections.Counter()

    def drawn(shape):
        strides = [rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 20, 24, -4, -12]) for _ in shape]
        return as_strided(block[rng.randrange(300, 500) :], shape, strides)

    for _ in range(3000):
        shape = [rng.choice([1, 2, 2, 3, 6]) for _ in range(rng.randint(1, 3))]
        axis = rng.randrange(len(shape))
        plan = splitjit.plan_split(shape, num_sections=3, axis=axis)
        x, outs = drawn(shape), [drawn(part) for part in plan.output_shapes]
        says = []
        for call in (split_compiled, lambda plan, x, outs: plan(x, outs)):
            try:
                call(plan, x, outs)
            except SplitError:
                says.append("shared")
            else:
                says.append("apart")
        seen[tuple(says)] += 1
    # Compiled code refuses some outputs that NumPy finds apart, and accepts none that share.
    assert seen.keys() == {("apart", "apart"), ("shared", "shared"), ("shared", "apart")}
    assert seen["apart", "apart"] > 100


INTEGERS, READ_ONLY = X.astype(int), np.broadcast_to(0.0, X.shape)
AFTER_AXIS = "argument of .* rules after axis must be given by name"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: by_split(X, (2.0, 8.0), 1), r"split of type UniTuple\(float64 x 2\): must be an"),
        (lambda: by_split(X, True, 1), "split of type bool.*: must be an integer, a tuple"),
        (lambda: by_split(X, np.ones((2, 2), int), 1), "split of type .* an integer, a tuple"),
        (lambda: by_split(X, 5, 1.0), "axis of type float64: axis must be an integer"),
        (lambda: by_num_outputs(X, 2.5, 1), "num_outputs of type float64: num_outputs must be an"),
        (lambda: by_num_sections(X, True, 1), "num_sections of type bool.*: num_sections must be"),
        (lambda: by_indices(X, 3, 1), "indices of type int64: must be a tuple or list of int"),
        (lambda: by_indices(X, (True,), 1), "indices of type .*: must be a tuple or list of int"),
        (lambda: by_indices(X, np.ones(2), 1), "indices of type .*: must be a tuple or list of"),
        (lambda: by_split([1, 2], 1, 0), "x of type .*: x must be an array of rank 1 or more"),
        (lambda: by_split(np.array(1), 1, 0), "x of type .*: x must be an array of rank 1 or"),
        (lambda: into(X, X, 5, 0), "outs of type .*: outs must be a tuple or a list of arrays"),
        (lambda: into(X, (X, 1), 5, 0), "outs of type .*: outs must be a tuple or a list of arr"),
        (lambda: into(X, (INTEGERS,), 6, 0), r".*outs\[0\] of .*: must have the dtype of x$"),
        (
            lambda: into(X, (X[0],), 6, 0),
            r"x of .*, outs\[0\] of .*rank of x; .* as in plane\[..., None\]",
        ),
        (lambda: into(X, (X, INTEGERS), 5, 1), r"x of .*, outs\[1\] of .*: must have the dtype of"),
        (lambda: into(X, (READ_ONLY,), 6, 0), r"outs\[0\] .* must be writeable"),
        (lambda: into(X, (X, READ_ONLY), 6, 0), r"outs\[1\] .* must be writeable"),
        (lambda: into(X, [X[0]], 6, 0), r"x of .*, each of outs of .*: must have the rank of x"),
        (njit(lambda: splitjit.split(X, 2, copy=False)), "copy of .* slice x for views"),
        (njit(lambda: splitjit.split(X, 2, out=(X, X, X))), "out of .* call splitjit.split_into"),
        # arguments that Python refuses, too
        (njit(lambda: splitjit.split(X, 3, 0, 1)), AFTER_AXIS),
        (njit(lambda: splitjit.split(X, 3, 0, None)), AFTER_AXIS),
        (njit(lambda: splitjit.split(X, 3, dim=1)), r"dim of .* dim; did you mean axis\?$"),
        (njit(lambda: splitjit.split_into(X, (X,), 6, dim=0)), r"dim of .* mean axis\?$"),
        (njit(lambda: splitjit.split(X, num_split=3)), r"num_split of .* mean num_splits\?$"),
        (njit(lambda: splitjit.split_into(X, (X,), None, 0, 1)), AFTER_AXIS),
    ],
)
def test_wrong_types_are_refused_readably(call, says):
    """The clear sentence is the whole message; Numba hides the message of a TypingError."""
    with pytest.raises(SplitTypeError, match=f"^split(_into)?: {says}") as caught:
        call()
    assert "\n" not in str(caught.value)


into_by_indices = njit(lambda x, outs, i: splitjit.split_into(x, outs, indices=i, axis=1))


@pytest.mark.slow
def test_split_into_takes_outputs_of_several_layouts():
    whole = np.zeros((6, 20))
    fortran, strided = np.asfortranarray(np.zeros((6, 2))), whole[:, 1::4]
    outs = (np.zeros((6, 3)), strided, fortran)
    into_by_indices(X, outs, (3, 8))
    assert np.array_equal(np.hstack(outs), X)
    assert not np.delete(whole, np.s_[1::4], axis=1).any()
    for out in outs:
        out[...] = 0
    for wrong in [(3, 7), (3,), (8, 3)]:
        with pytest.raises(SplitError):
            into_by_indices(X, outs, wrong)
    shared = np.zeros((6, 10))
    with pytest.raises(SplitError, match=r"^split_into: outs\[2\] and x: must not share memory"):
        into_by_indices(
            shared, (shared[:, :3].copy(), strided, shared.ravel()[:12].reshape(6, 2)), (3, 8)
        )
    assert not any(out.any() for out in outs)


NO_RULE = "no rule: exactly one of split"
MAYBE = {
    "num_splits": ("num_splits=maybe", "5", NO_RULE),
    "axis": ("split=4, axis=maybe", "0", "axis=None: axis must be an integer"),
    "typed list": ("split=maybe", "typed.List([4, 6])", NO_RULE),
}


def compiled_from(lines):
    """Compile the body of a function of an array and of whether its arguments are given."""
    names = {"np": np, "splitjit": splitjit, "typed": typed}
    exec("\n    ".join(["def function(x, is_given):", *lines]), names)
    return njit(names["function"])


@pytest.mark.parametrize("case", MAYBE)
def test_arguments_that_may_be_none(case):
    keywords, value, says = MAYBE[case]
    if "axis" not in keywords:
        keywords += ", axis=1"
    set_it = ["maybe = None", f"if is_given: maybe = {value}"]
    split = compiled_from([*set_it, f"return splitjit.split(x, {keywords})"])
    assert_same(split(X, True), split.py_func(X, True))
    with pytest.raises(SplitError, match=f"^split: {re.escape(says)}"):
        split(X, False)


@pytest.mark.parametrize(
    "call",
    [
        *("unstack(x)", "numpy.unstack(x)", "numpy.split(x, 2, axis=1)", "plan_split(x.shape, 2)"),
        *("join((x, x))", "numpy.stack((x, x))"),
    ],
)
def test_other_functions_name_those_that_work(call):
    name = call.partition("(")[0].split(".")[-1]
    says = f"^{name}: .* only splitjit.split and split_into work there; pass planes .*slices"
    with pytest.raises(SplitTypeError, match=says):
        compiled_from([f"return splitjit.{call}"])(X, True)


@pytest.mark.slow
def test_exactly_one_rule():
    says = "^split: split of type .*, num_splits of type .*: exactly one of split, num_outputs"
    with pytest.raises(SplitError, match=says):
        njit(lambda x: splitjit.split(x, 2, num_splits=2))(X)
    with pytest.raises(SplitError, match="^split: no rule: exactly one of split, num_outputs"):
        njit(lambda x: splitjit.split(x))(X)


@njit
def sum_or(x, n, otherwise):
    total = 0.0
    for i in range(len(x)):
        try:
            parts = splitjit.split(x[i], n)  # Numba loses keywords in `try`
            total += parts[0].sum()
        except Exception:
            try:
                parts = splitjit.split(x[i], n + 0)
            except Exception:
                total += otherwise
    return total


@pytest.mark.slow
def test_refusals_are_caught_in_compiled_code():
    x = np.ones((3, 6))
    assert (sum_or(x, 2, 0.5), sum_or(x, 0, 0.5)) == (6, 1.5)


USERS = """
import numpy as np, os, sys, splitjit
from numba import njit, prange
from splitjit._runtime import kernel_files
from splitjit._runtime.loading import LOADER

if len(sys.argv) > 1:  # as if splitjit had changed
    kernel_files._digest = lambda: sys.argv[1]

@njit(cache=True)
def thirds(x):
    a, b, c = splitjit.split(x, num_splits=3, axis=1)
    return a, b, c

@njit(cache=True)
def middle(x):
    return thirds(x)[1].sum()

@njit(cache=True, parallel=True, nogil=True)
def sums(x):
    total = np.zeros(len(x))
    for i in prange(len(x)):
        parts = splitjit.split(x[i], 2)
        splitjit.split_into(x[i], (parts[1], parts[2], parts[0]), 2)
        for part in parts:
            total[i] += part.sum()
    return total

def main():
    x = np.arange(24.0).reshape(4, 6)
    assert middle(x) == x[:, 2:4].sum()
    assert np.array_equal(sums(x), x.sum(1))
    assert np.array_equal(np.hstack(thirds(x)), x)

if os.environ.get("IN_CHILD"):  # the parent has compiled and loaded nothing
    pid = os.fork()
    if pid:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
main()
hits = [sum(function.stats.cache_hits.values()) for function in (middle, sums, thirds)]
print(hits, sorted(LOADER.compiled), flush=True)
"""
ALL = str(sorted(KERNELS.keys() - {"join"}))


def run_users(folder, *arguments, **environment):
    """Run a program of a user; return how often each function came from the cache, and what was
    compiled of splitjit."""
    if not (folder / "users.py").exists():  # a newer file would have no cached code
        (folder / "users.py").write_text(USERS)
    cache = {"NUMBA_CACHE_DIR": str(folder / "cache")}
    return python("-W", "ignore", folder / "users.py", *arguments, **cache, **environment).strip()


@pytest.mark.long
def test_in_cached_code(tmp_path):
    """Later processes load the code that earlier processes saved, if it fits."""
    assert run_users(tmp_path) == f"[0, 0, 0] {ALL}"
    assert run_users(tmp_path) == "[1, 1, 1] []"
    for file in (tmp_path / "cache" / "splitjit").iterdir():
        file.unlink()
    assert run_users(tmp_path) == f"[1, 1, 1] {ALL}"  # cached code has no use without these
    for hits, compiled in ([0, 0, 0], ALL), ([1, 1, 1], "[]"):
        assert run_users(tmp_path, "another_version") == f"{hits} {compiled}"


NOT_INSTALLED = """
import sys, numpy as np, splitjit
from numba import njit
from numba.core import entrypoints

entrypoints._already_initialized = len(sys.argv) > 1

@njit(cache=True)
def halves(x):
    return splitjit.split(x, num_splits=2)

print([part.tolist() for part in halves(np.arange(4))], sum(halves.stats.cache_hits.values()))
"""


@pytest.mark.long
def test_cached_code_while_splitjit_is_not_installed(tmp_path):
    """Numba finds no entry point then, but the code that it has saved."""
    script = tmp_path / "halves.py"
    script.write_text(NOT_INSTALLED)
    for hits, *arguments in [0], [1, "not_installed"]:
        assert python(script, *arguments) == f"[[0, 1], [2, 3]] {hits}\n"


@pytest.mark.long
def test_a_call_compiles_while_another_thread_waits_to_compile_a_kernel(tmp_path):
    code = """
import threading, time, numpy as np, splitjit
from numba import njit
from numba.core.compiler_lock import global_compiler_lock
from splitjit._runtime.loading import LOADER

njit(lambda: 1)()
with global_compiler_lock:  # as a thread has it that compiles
    threading.Thread(target=LOADER.load, args=("core",)).start()
    time.sleep(0.5)
    parts = njit(lambda x: splitjit.split(x, 2))(np.arange(5))
assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4]]
"""
    python("-c", code, NUMBA_CACHE_DIR=str(tmp_path), timeout=120)


@pytest.mark.slow
def test_a_call_compiles_no_other_function():
    """The rule, the checks and the copy are compiled once, not for each function of a user."""
    by_split(X, 2, 1)  # compiles or loads them
    with event.install_recorder("numba:compile") as recorder:
        njit(lambda x, n: splitjit.split(x, num_outputs=n, axis=1))(X.astype("f4"), 3)
    names = {found.data["dispatcher"].py_func.__name__ for _, found in recorder.buffer}
    assert names == {"<lambda>", "implementation"}


WRITES_AROUND = """a, b = np.zeros((4, 3)), np.zeros((4, 3))
for row in x: row += 1
splitjit.split_into(x, (a, b), 3, axis=1)
for row in a: row *= 2
return [a, b, x]"""
WRITES_TO_PARTS = """parts = splitjit.split(x, num_splits=2, axis=1)
for part in parts:
    for row in part: {}
return parts"""
WRITES = [WRITES_TO_PARTS.format(write) for write in ("row /= 2.0", "row[0] = 7", "row.fill(7)")]


@pytest.mark.slow
@pytest.mark.parametrize("body", [WRITES_AROUND, *long(*WRITES)])
def test_what_the_caller_writes_to_rows_is_kept(body):
    # Numba would remove such writes as dead code if it inlined the call.
    function, x = compiled_from(body.splitlines()), np.arange(24.0).reshape(4, 6)
    pairs = zip(function(x.copy(), True), function.py_func(x.copy(), True), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


halves = njit(lambda x: splitjit.split(x, num_splits=2, axis=1))


@pytest.fixture
def kept():
    """Return the bytes of blocks that compiled code keeps; keep none before and after."""
    splitjit.set_buffer_limit(2**28)  # other tests set other limits
    splitjit.clear_caches()
    yield lambda: buffers.POOL.kept
    splitjit.set_buffer_limit(2**28)
    splitjit.clear_caches()


def test_large_fresh_parts_reuse_blocks(kept):
    x = np.arange(2**20, dtype=np.float32).reshape(1024, -1)
    parts = halves(x)
    assert kept() == 0
    places = [part.ctypes.data for part in parts]
    alive = parts[0].copy()
    last = parts[1]
    del parts
    assert kept() == 0  # one part keeps the whole block
    del last
    assert 2**22 <= kept() < 2**22 + 2**12
    again = halves(x + 1)
    assert kept() == 0
    assert [part.ctypes.data for part in again] == places
    np.testing.assert_array_equal(alive, x[:, :512])
    np.testing.assert_array_equal(np.concatenate(again, axis=1), x + 1)
    assert all(part.ctypes.data % 64 == 0 for part in again)


def test_blocks_of_programs_that_split_only_in_compiled_code():
    code = """
import numpy as np, splitjit
from numba import njit
from splitjit._copy.buffers import POOL

halves = njit(lambda x: splitjit.split(x, num_splits=2, axis=1))
for forget in (splitjit.clear_caches, lambda: splitjit.set_buffer_limit(0)):
    halves(np.ones((1024, 2048), np.float32))
    assert POOL.kept > 0
    forget()
    assert POOL.kept == 0
"""
    python("-c", code)


def test_a_kept_block_is_reused_for_at_least_half_of_its_size(kept):
    x = np.ones((512, 1024), np.float32)
    halves(x)
    alive = halves(x[:300])
    assert kept() == 0
    del alive
    assert kept() > 0
    halves(x[:200])
    assert kept() > 1.3 * x.nbytes  # two blocks


def test_a_block_takes_the_place_of_another_if_all_slots_are_full(kept):
    x = np.ones((512, 512), np.float32)
    alive = [halves(x) for _ in range(SLOTS + 3)]
    del alive[0]
    one = kept()
    for number in range(1, SLOTS + 3):
        del alive[0]
        assert kept() == min(number + 1, SLOTS) * one


def test_the_buffer_limit_holds_in_compiled_code(kept):
    x = np.ones((1024, 2048), np.float32)
    halves(x)
    assert kept() > 0
    splitjit.clear_caches()
    assert kept() == 0
    halves(x)
    splitjit.set_buffer_limit(0)
    assert kept() == 0
    halves(x)
    assert kept() == 0
    splitjit.set_buffer_limit(9 * 2**20)  # room for one of two
    first, second = halves(x), halves(x)
    del first, second
    assert 0 < kept() <= 9 * 2**20


def test_blocks_change_hands_between_threads(kept):
    x = np.arange(2**19, dtype=np.float32).reshape(512, -1)

    def work(seed):
        for i in range(200):
            first, second = halves(x + (seed + i))
            assert (first == x[:, :512] + (seed + i)).all()
            assert (second == x[:, 512:] + (seed + i)).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 4000, 1000)))
    assert kept() <= 2**28
