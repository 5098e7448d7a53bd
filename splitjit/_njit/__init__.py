"""`split` and `split_into` inside users' own ``@njit`` code.

Numba calls `init` through the entry point ``numba_extensions`` before it compiles anything. The
functions of this package apply the rules of `splitjit._plan.rules` to values that are known only
when compiled code runs, and share large copies with the helpers. Only Numba calls this package;
users call `splitjit.split` in compiled code.

A call must not change the meaning of the statements around it. So nothing here is inlined into the
user's function: after inlining a call, Numba removes statements with unused values from the whole
function, along with their side effects and errors. The price is that a refusal is an error raised
in a callee, and then Numba does not free the callers' arrays.

overloads.py   the overloads of `split` and `split_into`
rules.py       checks of argument types, the kind of a rule, and the texts of its faults
calls.py       the instructions of a call: they fill a record, and call a function of the table
functions.py   the table: the addresses of functions that are compiled only once
"""


def init() -> None:
    """Register the overloads with Numba."""
    from splitjit._abi.structs import check_numba
    from splitjit._runtime.loading import LOADER

    try:
        check_numba()
        import splitjit._njit.overloads  # noqa: F401
    except Exception as error:  # a private name of Numba is missing
        LOADER.give_up("njit_split", error)
