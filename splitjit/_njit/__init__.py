"""`split` and `split_into` inside users' own ``@njit`` code.

Numba calls `init` through the entry point ``numba_extensions`` before it compiles anything. The
functions of this package apply the rules of `splitjit._plan.rules` to values that are known only
when compiled code runs. They copy on the thread that calls, because compiled code may already run
in a parallel region.

A call must not change the meaning of the statements around it. So nothing here is inlined into the
function of the user: when Numba inlines a call, it afterwards removes statements of the whole
function whose values are unused, with their effects and errors. The price is that a refusal leaves
a compiled function as an error of a callee, and then Numba does not free the arrays of the callers.

overloads.py   what Numba calls for `split` and `split_into`: checks of types, and refusals
rules.py       from the types of the arguments to the kind of a rule, and the texts of its faults
calls.py       the instructions of a call: they fill a record, and call a function of the table
functions.py   the table: the addresses of functions that are compiled once, and never again
"""


def init() -> None:
    """Register the overloads with Numba, and the table of the functions that they call."""
    import splitjit._njit.overloads  # noqa: F401
    from splitjit._njit.functions import register

    register()
