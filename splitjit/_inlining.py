"""Overloads that raise in the compiled function of the user, where nothing leaks.

If a compiled function raises, Numba frees the arrays of this function, but not the arrays of
the compiled functions that called it. So Numba inlines these overloads, with their raise
statements, into the function that calls them.
"""

from __future__ import annotations

import inspect

from numba import prange, types
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.errors import TypingError
from numba.core.typing.templates import infer, infer_global, make_overload_template
from numba.core.unsafe.eh import exception_check, mark_try_block


def overload_and_inline(function):
    """Register an overload as `numba.extending.overload` does; `_is_inlined` decides."""

    def register(typer):
        options = {"nopython": True, "no_cpython_wrapper": True}
        base = make_overload_template(function, typer, options, True, _is_inlined)
        signature = inspect.signature(typer)

        class Template(base):
            def generic(self, args, kws):
                # Numba loses keyword arguments if a function decides about inlining.
                try:
                    bound = signature.bind(*args, **kws)
                except TypeError as error:
                    raise TypingError(f"splitjit.{function.__name__}: {error}") from error
                bound.apply_defaults()
                values = bound.arguments.values()
                kinds = [v if isinstance(v, types.Type) else types.Omitted(v) for v in values]
                return super().generic(tuple(kinds), {})

        infer(Template)
        infer_global(function, types.Function(Template))
        return typer

    return register


def _is_inlined(call, caller, callee):
    """Return whether Numba inlines a call, and thereby the raise statements of the callee.

    Numba does not inline the call in these places of the caller:

    - In a ``try`` block, an inlined raise statement would leave the caller. There Numba frees
      the arrays of the caller, also if the callee raises.
    - In a ``prange`` loop, a raise statement would be a second exit, and Numba runs a loop
      with two exits on one thread.
    - In a function that writes to arrays or other objects. After it has inlined a call, Numba
      removes dead code, and takes a write to a row that a loop gets from an array for dead code.
    """
    blocks = caller.func_ir.blocks
    if any(_writes(caller, statement) for block in blocks.values() for statement in block.body):
        return False
    (label,) = [label for label, block in blocks.items() if call in block.find_exprs("call")]
    loops = compute_cfg_from_blocks(blocks).loops().values()
    entries = [blocks[entry] for loop in loops if label in loop.body for entry in loop.entries]
    called = [f for entry in entries for f in _called(caller, entry.find_exprs("call"))]
    return prange not in called and not _is_in_try(call, caller, blocks[label])


def _writes(caller, statement):
    """Return whether a statement changes an object."""
    if isinstance(statement, ir.Assign):
        value = statement.value
        return (
            isinstance(value, ir.Expr)
            and value.op == "inplace_binop"
            and not isinstance(caller.typemap[value.lhs.name], types.Number)
        )
    return isinstance(statement, (ir.SetItem, ir.StaticSetItem, ir.DelItem, ir.SetAttr))


def _is_in_try(call, caller, block):
    """Return whether the first mark of ``try`` that follows a call is a check for an error."""
    calls = list(block.find_exprs("call"))
    calls = calls[calls.index(call) + 1 :]
    while True:
        marks = [f for f in _called(caller, calls) if f in (mark_try_block, exception_check)]
        if marks or not isinstance(block.terminator, ir.Jump):
            return marks[:1] == [exception_check]
        block = caller.func_ir.blocks[block.terminator.target]
        calls = block.find_exprs("call")


def _called(caller, calls):
    """Return the functions that calls in the caller call."""
    return [getattr(caller.typemap[call.func.name], "typing_key", None) for call in calls]
