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
rules.py       from the types of the arguments to functions that compute the sizes
outputs.py     `outs` of `split_into`: one type, the shapes, shared memory
copying.py     the copy, and when it bypasses the cache
"""


def init() -> None:
    """Register the overloads with Numba; the import does it."""
    import splitjit._njit.overloads  # noqa: F401
