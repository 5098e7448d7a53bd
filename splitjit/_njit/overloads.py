"""The overloads that Numba calls when it compiles `split` or `split_into`.

An overload checks the types, and returns the implementation. This makes one intrinsic call, and
raises the refusals that depend on values. They are raised here because Numba frees the arrays of a
function that has a ``raise``. One raise statement serves all faults of a rule, which compiles
faster.
"""

import sys
import types as python
from collections.abc import Callable

from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

import splitjit
import splitjit.numpy
from splitjit._njit import calls
from splitjit._njit.rules import check_arguments, check_outs, faults, is_given, refuse
from splitjit.errors import SplitError, SplitTypeError

# ---- split, and split_into -------------------------------------------------------------

_TRUE = types.literal(True)


@overload(splitjit.split, strict=False)  # Numba compares no signatures
def _split(
    x, split=types.none, axis=types.intp, *by_position, out=types.none, copy=_TRUE, **others
):
    rule = check_arguments("split", x, axis, by_position, split=split, **others)
    texts = faults(rule)
    if is_given(out):
        refuse("split", out=out, rule="compiled code takes no out=; call splitjit.split_into")
    if copy != _TRUE:
        if copy == types.boolean:  # Numba tries literal types next, if any
            raise TypingError("splitjit.split: copy= must be the literal True")
        refuse("split", copy=copy, rule="compiled code takes no copy=; slice x for views")

    def implementation(
        x, split=None, axis=0, num_outputs=None, num_splits=None, indices=None,
        num_sections=None, out=None, copy=True,
    ):  # fmt: skip
        parts, fault, a, b, c, d = calls.split(
            rule, None, x, axis, split, num_outputs, num_splits, indices, num_sections
        )
        if fault > 0:
            raise SplitError("split", "", texts, fault, a, b, c, d)
        if fault < 0:
            raise MemoryError("splitjit.split: not enough memory for so many parts")
        return parts

    return implementation


@overload(splitjit.split_into, strict=False)
def _split_into(x, outs, split=types.none, axis=types.intp, *by_position, **others):
    rule = check_arguments("split_into", x, axis, by_position, split=split, **others)
    texts = faults(rule)
    check_outs(x, outs)

    def implementation(
        x, outs, split=None, axis=0, num_outputs=None, num_splits=None, indices=None,
        num_sections=None,
    ):  # fmt: skip
        _, fault, a, b, c, d = calls.split(
            rule, outs, x, axis, split, num_outputs, num_splits, indices, num_sections
        )
        if fault > 0:
            raise SplitError("split_into", "", texts, fault, a, b, c, d)
        if fault < 0:
            raise MemoryError("splitjit.split_into: not enough memory for so many parts")

    return implementation


# ---- other functions ---------------------------------------------------------------------------


def _refusal(name: str) -> Callable[..., None]:
    def refuse_call(*args, **kwargs):
        rule = "only splitjit.split and split_into work there"
        hint = "pass planes with the axis, as in plane[..., None]; to join, assign parts to slices"
        raise SplitTypeError(name, "a call in compiled code", rule, hint=hint)

    return refuse_call


_COMPILED = splitjit.split, splitjit.split_into

# splitjit.torch imports torch, which most programs do not need.
for _module in (splitjit, splitjit.numpy, sys.modules.get("splitjit.torch")):
    for _name in getattr(_module, "__all__", ()):
        _function = getattr(_module, _name)
        if isinstance(_function, python.FunctionType) and _function not in _COMPILED:
            overload(_function)(_refusal(_name))
