"""The errors of splitjit: they name the operator, the values received and the broken rule."""

import re
import reprlib
from collections.abc import Callable, Collection, Sequence
from typing import Self


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()  # a user may limit how many digits Python converts, to 640 at least
        return super().repr_int(x, level) if bits < 2000 else f"<int of {bits} bits>"

    def repr_instance(self, x: object, level: int) -> str:
        """Write an array or a tensor with its dtype and its items.

        This looks only at attributes, so that no array library is imported.
        """
        dtype, shape = (getattr(x, name, None) for name in ("dtype", "shape"))
        if dtype is None or shape is None or not hasattr(type(x), "__len__"):  # a NumPy scalar
            return super().repr_instance(x, level)
        name = type(x).__name__
        name = next((word for word in ("array", "tensor") if word in name.lower()), name)
        shape_text = "" if len(shape) == 1 else f" shape {tuple(shape)},"
        items = " ".join(str(x).split())
        items = re.sub(r"^tensor\((.*)\)$", r"\1", items)  # str of a torch tensor
        text = f"{name} of {str(dtype).removeprefix('torch.')},{shape_text} {items}"
        if len(text) > self.maxother:
            text = f"{text[: self.maxother - 23]}...{text[-20:]}"
        return text


_SHORT = _Short()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxarray = 8
_SHORT.maxlong = 80
_SHORT.maxother = _SHORT.maxstring = 120


def shorten(value: object) -> str:
    """Return the repr of a value, abbreviated if it is long.

    Parameters
    ----------
    value : object
        Any value. This function does not raise, even if methods of `value` do.

    Returns
    -------
    str
        Arrays and tensors are written with their dtype.

    Examples
    --------
    >>> import numpy as np
    >>> shorten(np.ones(2)), shorten(range(3))
    ('array of float64, [1. 1.]', 'range(0, 3)')
    """
    try:
        return _SHORT.repr(value)
    except Exception:  # a method of a foreign class raised
        return object.__repr__(value)


def kind_of(value: object) -> str:
    """Return the name of the type of a value, and the dtype if it has one.

    Parameters
    ----------
    value : object
        Any value. This function does not raise, even if methods of `value` do.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> kind_of(np.ones(2)), kind_of({})
    ('ndarray and dtype float64', 'dict')
    """
    name = type(value).__name__
    try:
        dtype = getattr(value, "dtype", None)
        return name if dtype is None else f"{name} and dtype {dtype}"
    except Exception:  # a foreign class may raise anything
        return name


def reason(error: Exception) -> str:
    """Return the message of an error, or the name of its class if `str` fails."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


_WORDS_OF_OTHERS = {
    "dim": "axis",
    "chunks": "num_outputs",
    "sections": "num_sections",
    "indices_or_sections": "num_splits num_sections indices",
    "num_or_size_splits": "num_splits split",
    **dict.fromkeys(("lengths", "sizes", "split_size", "split_sizes"), "split"),
    **dict.fromkeys(("split_size_or_sections", "split_lengths"), "split"),
}
"""Parameters of other libraries, and ours with the same meaning."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return a question that names the nearest known word, or an empty string.

    Parameters
    ----------
    word : str
        The word received.
    known : collection of str
        The words that would be right.

    Returns
    -------
    str

    Examples
    --------
    >>> did_you_mean("num_output", ["num_outputs", "num_splits"])
    '; did you mean num_outputs?'
    """
    import difflib

    ours = [one for one in _WORDS_OF_OTHERS.get(word, "").split() if one in known]
    meant = ours or difflib.get_close_matches(word, known, 1, cutoff=0.7)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def describe(**values: object) -> str:
    """Format the values received by name, and abbreviate long ones.

    Parameters
    ----------
    **values : object
        The values by the names under which they were passed.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> describe(axis=3, shape=(2, 3))
    'axis=3, shape=(2, 3)'
    >>> describe(split=np.array([[2, 4]]))
    'split=array of int64, shape (1, 2), [[2 4]]'
    """
    return ", ".join([f"{name}={shorten(value)}" for name, value in values.items()])


# ---- refusals ----------------------------------------------------------------------------


def param(text: str) -> str:
    """Mark a parameter, or its value as in ``axis=1``, in a refusal, by null characters.

    Operators and the command have other names for it, see `in_words`. No value and no path
    contains the mark.
    """
    return f"\0{text}\0"


X, OUT = param("x"), param("out")


def pairs(**values: object) -> str:
    """Mark the values received, as `describe` formats them, for `SplitError`.

    The values are put into words here: they may be large, change later, or not be picklable.
    """
    return ", ".join([param(describe(**{name: value})) for name, value in values.items()])


Named = tuple[str, str]
"""The name of a parameter, and the text that follows."""


def in_words(text: str, say: Callable[[str, str, str], str]) -> str:
    """Put a text into the words of an operator.

    Parameters
    ----------
    text : str
    say : callable
        Gets the name of a parameter, ``"="`` or ``""``, and its value, and returns the words.

    Returns
    -------
    str

    Examples
    --------
    >>> in_words(f"pass {param('axis=1')}", lambda name, equals, value: f"--{name} {value}")
    'pass --axis 1'
    """
    pieces = enumerate(text.split("\0"))
    return "".join([say(*piece.partition("=")) if i % 2 else piece for i, piece in pieces])


class SplitError(ValueError):
    """A split was refused, and nothing was written.

    splitjit raises this error if the size or the combination of values is wrong.
    The message names the operator, the values received and the rule that the
    values break, in this order.

    Parameters
    ----------
    operator : str
        The operator, with its version if the operator has versions.
    received : str, or sequence of (str, str)
        The offending values, by name. Each pair is the name of a parameter and the text
        that follows.
    rule : str
        The rule that the values break.
    *fault : int
        Only compiled code passes these numbers: the number of a fault, then the
        values for the fields ``{0}``, ``{1}``, … of its text. ``received`` is then
        empty, and ``rule`` has one line for each fault: fault 1 is the first line. A line
        consists of the values received, a colon, and the rule.
    hint : str, default ""
        A likely fix. The message ends with it.

    Attributes
    ----------
    operator, received, rule, hint : str
        The parameters above, in words. They cannot be set.
    texts : tuple of str
        ``received``, ``rule`` and ``hint`` with marks around parameters.

    See Also
    --------
    SplitTypeError : A value has the wrong type.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((7,), num_splits=2)
    Traceback (most recent call last):
        ...
    splitjit.errors.SplitError: split: num_splits=2, axis=0, shape=(7,): \
the axis length 7 must be a multiple of 2; num_outputs=2 allows a shorter last part
    """

    _where = ""

    def __init__(
        self, operator: str, received: str | Sequence[Named], rule: str, *fault: int, hint: str = ""
    ) -> None:
        if fault:
            number, *values = fault
            text = rule.split("\n")[number - 1].format(*values)
            received, rule = text.split(": ", 1)
        if not isinstance(received, str):
            received = ", ".join([param(name) + rest for name, rest in received])
        self._put(operator, received, rule, hint)

    def _put(self, operator: str, *texts: str) -> None:
        self.texts = texts
        received, rule, _ = [text.replace("\0", "") for text in texts]
        self.args = operator, received, rule  # torch.compile cannot trace `super().__init__`

    @classmethod
    def of(cls, received: str | Sequence[Named], rule: str, hint: str = "") -> Self:
        """Return a refusal in the name of `split`. Other operators call `named`."""
        return cls("split", received, rule, hint=hint)

    @property
    def operator(self) -> str:
        """The operator, with its version if the operator has versions."""
        return str(self.args[0])

    @property
    def received(self) -> str:
        """The offending values, by name."""
        return str(self.args[1])

    @property
    def rule(self) -> str:
        """The rule that the values break."""
        return str(self.args[2])

    @property
    def hint(self) -> str:
        """A likely fix, or an empty string."""
        return self.texts[2].replace("\0", "")

    def __str__(self) -> str:
        message = f"{self.operator}: {self.received}: {self.rule}"
        return f"{message}; {self.hint}" if self.hint else message

    def named(
        self, operator: str, where: str = "", *, keeps_hint: bool = False, **names: str
    ) -> Self:
        """Put this refusal into the words of another operator, and return it.

        Parameters
        ----------
        operator : str
            The operator that the user called.
        where : str, default ""
            What the operator was at work on; it follows the name of the operator, and of
            those that `named` gives later.
        keeps_hint : bool, default False
            Whether the hint is a fix for the other operator, too. Otherwise it is dropped
            if the name changes, because a hint may name a parameter that the other
            operator lacks.
        **names : str
            The name of each parameter in that operator: ``x="input"``.

        Returns
        -------
        SplitError
            This error.
        """

        def say(name: str, equals: str, value: str) -> str:
            return param(names.get(name, name) + equals + value)

        received, rule, hint = [in_words(text, say) for text in self.texts]
        self._where = where or self._where
        operator += self._where
        keeps_hint |= operator == self.operator
        self._put(operator, received, rule, hint if keeps_hint else "")
        return self


class SplitTypeError(SplitError, TypeError):
    """A value of the wrong kind was refused: not an integer, not an array, or a refused dtype.

    See Also
    --------
    SplitError : A value is wrong.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((7,), split=2.0)
    Traceback (most recent call last):
        ...
    splitjit.errors.SplitTypeError: split: split=2.0: must be an integer, \
a sequence of integers or a 1-D integer array; convert floats by int(), or divide integers by //
    """
