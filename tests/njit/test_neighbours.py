"""A call of `split` changes no other statement of the function in which it stands.

When Numba inlines a call, it removes statements of the whole function whose values are unused, with
their effects and errors. So splitjit inlines nothing into functions of users. Generated functions
are compared in separate processes, because compiled code is never freed.
``SPLITJIT_NJIT_FUNCTIONS`` sets their number, and one function of a failure runs alone by
``python -m tests.neighbours 17 18``.
"""

import os
import textwrap

import numpy as np
import pytest
from numba import njit, typed

import splitjit
from tests import neighbours
from tests.conftest import needs_kernels
from tests.processes import python

pytestmark = [needs_kernels, pytest.mark.slow]

FUNCTIONS = int(os.environ.get("SPLITJIT_NJIT_FUNCTIONS", "12"))
X = np.arange(24.0).reshape(4, 6)
CALL = "splitjit.split(x, num_splits=2, axis=1)"


def compiled(statements, parameters, call="", **options):
    """Compile a function of statements, with a call of `split` behind them."""
    lines = [f"def function(x, {parameters}):", *textwrap.indent(statements, "    ").splitlines()]
    lines += [f"    {line}" for line in (call, "return 1") if line]
    names = {"splitjit": splitjit, "np": np}
    exec("\n".join(lines), names)
    return njit(**options)(names["function"])


@pytest.mark.parametrize("call", ["", CALL])
@pytest.mark.parametrize(
    ("statement", "value", "error"),
    [
        ("value[5]", lambda: typed.List([1, 2, 3]), IndexError),
        ("value[99]", lambda: typed.Dict.empty(*[neighbours.types.int64] * 2), KeyError),
        ("1 // value", lambda: 0, ZeroDivisionError),
        ("1.0 / value", lambda: 0.0, ZeroDivisionError),
        ("a, b = value", lambda: typed.List([1, 2, 3]), ValueError),
    ],
)
def test_a_statement_with_an_error_raises_it(statement, value, error, call):
    with pytest.raises(error):
        compiled(statement, "value", call)(X, value())


@pytest.mark.parametrize("call", ["", CALL])
@pytest.mark.parametrize(
    ("statement", "which"),
    [
        ("value.value", 0),
        ("value[3]", 1),
        ("value + 1", 2),
        ("value == value", 3),
        ("3 in value", 4),
        ("-value", 5),
    ],
)
def test_a_method_of_a_jitclass_is_called(statement, which, call):
    value = neighbours.Counter(np.zeros(6, np.int64))
    compiled(statement, "value", call)(X, value)
    assert value.log.tolist() == [int(i == which) for i in range(6)]


@pytest.mark.parametrize("call", ["", CALL])
def test_a_draw_whose_value_is_unused_advances_the_state(call):
    neighbours.seed(1)
    neighbours.draw()
    right = neighbours.draw()
    neighbours.seed(1)
    compiled("np.random.random()", "value", call)(X, 0)
    assert neighbours.draw() == right


@pytest.mark.parametrize(
    "call", ["splitjit.split(x, 0)", "splitjit.split_into(x, (x, x), num_splits=2)"]
)
@pytest.mark.parametrize("options", [{}, {"parallel": True}], ids=str)
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
def test_a_call_whose_value_is_unused_is_refused(call, options):
    # Numba inlines the closure, and then removes dead code itself.
    closure = "def inner(n):\n    return n + 1\ninner(value)"
    with pytest.raises(splitjit.SplitError):
        compiled(closure, "value", call, **options)(X, 1)


def test_registering_the_overloads_leaves_numba_as_it_is():
    """Only templates of `split` and `split_into` are new: no option, pass or hook of Numba."""
    code = """
import warnings
import numba
from numba.core import config, ir_utils, lowering
from numba.parfors import array_analysis, parfor

def state():
    hooks = [(name, len(value)) for module in (ir_utils, lowering, array_analysis, parfor)
             for name, value in vars(module).items()
             if isinstance(value, (dict, list)) and not name.startswith("__")]
    options = {name: str(value) for name, value in vars(config).items() if name.isupper()}
    return hooks, options, list(warnings.filters)

before = state()
from splitjit import _njit
_njit.init()
assert state() == before
"""
    python("-c", code)


@pytest.mark.parametrize("first", range(0, FUNCTIONS, 50))
def test_generated_functions_keep_their_meaning(first):
    # 50 functions take up to a minute, far less than the timeout of a test.
    last = min(first + 50, FUNCTIONS)
    # Without optimization by LLVM, which sees no statements, functions compile four times as fast.
    settings = {"NUMBA_OPT": "0", "NUMBA_NUM_THREADS": "1"}
    printed = python("-m", "tests.neighbours", first, last, **settings)
    assert printed.startswith(f"{last - first} functions, 0 differ")
