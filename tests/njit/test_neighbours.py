"""A call of `split` changes no other statement of the function in which it stands.

If Numba inlined it, it would drop unused statements of the whole function, with their effects.
``python -m tests.neighbours 17 18`` runs one generated function.
"""

import os

import numpy as np
import pytest
from numba import njit

import splitjit
from tests.conftest import needs_kernels
from tests.processes import python

pytestmark = [needs_kernels, pytest.mark.slow]

FUNCTIONS = int(os.environ.get("SPLITJIT_NJIT_FUNCTIONS", "10"))


def unused_split(x):
    # Numba inlines the closure, and then removes dead code itself.
    def inner(n):
        return n + 1

    inner(1)
    splitjit.split(x, 0)


def unused_split_into(x):
    def inner(n):
        return n + 1

    inner(1)
    splitjit.split_into(x, (x, x), num_splits=2)


@pytest.mark.parametrize("function", [unused_split, unused_split_into])
@pytest.mark.parametrize("options", [{}, {"parallel": True}], ids=str)
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
def test_a_call_whose_value_is_unused_is_refused(function, options):
    with pytest.raises(splitjit.SplitError):
        njit(**options)(function)(np.arange(24.0).reshape(4, 6))


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
