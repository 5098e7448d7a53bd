"""Rules in compiled code: from argument types to the kind of a rule and its faults.

The checks of all argument types are here, too.

At compile time, wrong types are refused with a `SplitTypeError`. Numba buries the message of a
`TypingError` under a list of candidates, but passes on errors of other classes.
"""

from numba import types
from numba.core.errors import TypingError

from splitjit._abi.calls import OUTS_FAULT, RULE_FAULT
from splitjit._plan import rules
from splitjit.errors import SplitError, SplitTypeError, did_you_mean

# ---- which types may be compiled --------------------------------------------------------


def refuse(operator, rule, **kinds):
    """Refuse the types of some arguments at compile time."""
    received = [f"{name} of type {kind}" for name, kind in kinds.items()]
    raise SplitTypeError(operator, ", ".join(received), rule)


def is_given(kind):
    return kind != types.none


def without_none(kind):
    """Return the type of an argument if it is not None."""
    if isinstance(kind, types.Optional):
        if not kind.type.is_precise():
            raise TypingError(f"{kind} is not inferred yet")  # Numba tries again later
        return kind.type
    return kind


def is_integer(kind):
    return isinstance(types.unliteral(kind), types.Integer)


def items_of(kind):
    """Return the types of a tuple's or a list's items, or None for other types."""
    if isinstance(kind, types.BaseTuple):
        return [*kind]
    return [kind.dtype] if isinstance(kind, types.List | types.ListType) else None


def _is_lengths(kind):
    is_array = isinstance(kind, types.Array) and kind.ndim == 1
    items = [kind.dtype] if is_array else items_of(kind)
    return items is not None and all(map(is_integer, items))


# ---- which rule they give ------------------------------------------------------------------


_OF_LENGTHS = {
    "split": "must be an integer, a tuple or list of integers or an integer array of rank 0 or 1",
    "indices": "must be a tuple or list of integers or a 1-D integer array",
}


def kind_of_rule(operator, kinds):
    """Return the kind of the rule, given the types of its parameters by name."""
    given = {name: kind for name, kind in kinds.items() if is_given(kind)}
    if len(given) != 1:
        received = [f"{name} of type {kind}" for name, kind in given.items()] or ["no rule"]
        raise SplitError(operator, ", ".join(received), rules.ONE_RULE)
    ((parameter, value),) = given.items()
    value = without_none(value)
    is_scalar = isinstance(value, types.Array) and value.ndim == 0 and is_integer(value.dtype)
    if parameter == "split" and (is_integer(value) or is_scalar):
        return rules.CHUNK
    rule = _OF_LENGTHS.get(parameter, f"{parameter} must be an integer")
    if not (_is_lengths if parameter in _OF_LENGTHS else is_integer)(value):
        refuse(operator, rule, **{parameter: value})
    return rules.PARAMETERS.index(parameter)


# ---- faults --------------------------------------------------------------------------------

_AXIS_FAULT = f"axis={{0}} of rank {{1}}: {rules.AXIS_FAULT}"
_OUTS_FAULTS = (
    "outs of {0} arrays: must have an array for each of {1} parts",
    "outs[{0}] of length {2} along axis {1}: part {0} has length {3}",
    "outs[{0}] and x: must not share memory; pass arrays whose memory is apart",
    "outs[{0}] and outs[{1}]: must not share memory; pass arrays whose memory is apart",
    f"outs[{{0}}]: {rules.OVERLAP_FAULT}",
)
_NONE_FAULTS = {
    "x": "x=None: x must be an array of rank 1 or more",
    "axis": "axis=None: axis must be an integer",
    "rule": f"no rule: {rules.ONE_RULE}",
    "outs": "outs of None: outs must be a tuple or a list of arrays",
}
"""For arguments that are None when compiled code runs."""


def none_fault(name):
    """Return the number of the fault for an argument that compiled code finds to be None."""
    return OUTS_FAULT + len(_OUTS_FAULTS) + list(_NONE_FAULTS).index(name)


def faults(kind):
    """Return the texts of a rule's faults, one per line; see `SplitError`."""
    of_many = {rules.LENGTHS: "split of {2} lengths", rules.INDICES: "indices of {2} parts"}
    received = of_many.get(kind, f"{rules.PARAMETERS[kind]}={{0}}")
    texts = [rules.FAULTS[kind].get(fault, "") for fault in range(1, OUTS_FAULT - RULE_FAULT)]
    of_rule = [f"{received}, axis length {{1}}: {text}" for text in texts]
    return "\n".join([_AXIS_FAULT, *of_rule, *_OUTS_FAULTS, *_NONE_FAULTS.values()])


# ---- the arguments of a call ------------------------------------------------------------------


def check_arguments(operator, x, axis, by_position, **others):
    """Check all arguments but the outputs; return the kind of the rule."""
    x = without_none(x)
    if not isinstance(x, types.Array) or x.ndim == 0:
        refuse(operator, x=x, rule="x must be an array of rank 1 or more")
    if by_position:
        refuse(operator, argument=by_position[0], rule="rules after axis must be given by name")
    if not is_integer(without_none(axis)):
        refuse(operator, axis=axis, rule="axis must be an integer")
    for name in others.keys() - rules.NAMES:
        hint = did_you_mean(name, (*rules.NAMES, "axis"))
        refuse(operator, f"there is no parameter {name}{hint}", **{name: others[name]})
    return kind_of_rule(operator, others)


def check_outs(x, outs):
    """Check the types of the outputs of `split_into`."""
    x, outs = without_none(x), without_none(outs)
    parts = items_of(outs)
    if parts is None or not all(isinstance(part, types.Array) for part in parts):
        refuse("split_into", outs=outs, rule="outs must be a tuple or a list of arrays")
    for i, part in enumerate(parts):
        name = f"outs[{i}]" if isinstance(outs, types.BaseTuple) else "each of outs"
        if not part.mutable:
            refuse("split_into", rule="must be writeable", **{name: part})
        if part.dtype != x.dtype:
            refuse("split_into", x=x, rule="must have the dtype of x", **{name: part})
        if part.ndim != x.ndim:
            rule = "must have the rank of x; a plane needs the axis, as in plane[..., None]"
            refuse("split_into", x=x, rule=rule, **{name: part})
