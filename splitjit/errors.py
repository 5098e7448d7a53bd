"""The refusals of splitjit: what was asked, what was received, which rule it broke."""

import re
import reprlib
from typing import Self


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes no decimals that long
            return f"<int of {x.bit_length()} bits>"


_SHORT = _Short()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxarray = 8
_SHORT.maxlong = 80
_SHORT.maxother = _SHORT.maxstring = 120


def shorten(value: object) -> str:
    """Return a value's repr, abbreviated where it is long."""
    try:
        return _SHORT.repr(value)
    except Exception:  # reprlib goes by names, and a foreign class may be called "array"
        return object.__repr__(value)


def reason(error: Exception) -> str:
    """Return what an error says, or of what class it is if that cannot be said."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def describe(**values: object) -> str:
    """Name the values received, long ones abbreviated.

    Parameters
    ----------
    **values : object
        The values by the names under which they were passed.

    Returns
    -------
    str

    Examples
    --------
    >>> describe(axis=3, shape=(2, 3))
    'axis=3, shape=(2, 3)'
    """
    return ", ".join(f"{name}={shorten(value)}" for name, value in values.items())


class SplitError(ValueError):
    """A split that was refused; nothing was written.

    Raised where the size or the combination of values is wrong. Its message
    names the operator, the values received and the rule that they broke.

    Parameters
    ----------
    operator : str
        The operator, and its version where it has one.
    received : str
        The offending values, by name.
    rule : str
        The rule that they broke.
    *values : int
        Where `received` has a ``%d``: compiled code knows values, but would take
        long to compile were it to write them out.

    Attributes
    ----------
    operator, received, rule : str
        The parameters above.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((7,), num_splits=2)
    Traceback (most recent call last):
        ...
    splitjit.errors.SplitError: split: num_splits=2, axis=0, shape=(7,): \
the axis length 7 must be a multiple of 2
    """

    def __init__(self, operator: str, received: str, rule: str, *values: int) -> None:
        if values:
            received %= values
        super().__init__(operator, received, rule)
        self.operator = operator
        self.received = received
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.operator}: {self.received}: {self.rule}"

    def named(self, operator: str, **names: str) -> Self:
        """Return the same refusal in the name of another operator.

        Parameters
        ----------
        operator : str
            The operator that the user called.
        **names : str
            What it calls the values received: ``x="input"``.

        Returns
        -------
        SplitError
            A new error of the same class.
        """
        received = self.received
        for ours, theirs in names.items():
            received = re.sub(rf"\b{ours}(?==|\[| of )", theirs, received)
        return type(self)(operator, received, self.rule)


class SplitTypeError(SplitError, TypeError):
    """A refused value of the wrong kind: no integer, no array, no such dtype.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((7,), split=2.0)
    Traceback (most recent call last):
        ...
    splitjit.errors.SplitTypeError: split: split=2.0: must be an integer, \
a sequence of integers or a 1-D integer array
    """
