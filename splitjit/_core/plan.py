"""Rules to plans: where each part of an axis starts and how long it is.

Only shapes and Python integers live here. Lengths may come in as arrays, by
the protocols that all array libraries share (``__index__``, ``tolist``), but
none is imported, and no data is looked at.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, overload

from splitjit.errors import SplitError, SplitTypeError, describe, shorten

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

Shape = tuple[int, ...]
T = TypeVar("T")

Lengths = SupportsIndex | Sequence[SupportsIndex]
"""What `split` may be; to type checkers, integer arrays of any rank have ``__index__``, too."""

Scalar = TypeVar("Scalar", bound="np.generic")
"""The dtype of an array, as ``NDArray[Scalar]`` has it."""

MAX_PARTS = 2**31 - 1
"""The most outputs that the ONNX schemas of Split allow."""

FEW_PARTS = 1000
MANY_PLANS = 4
"""A plan takes some 200 bytes a part: of those with more than `FEW_PARTS`, so many are cached."""


@dataclass(frozen=True, slots=True, repr=False)
class SplitPlan:
    """Where the parts of an axis start and how long they are.

    Made by :func:`plan_split`. A plan is frozen and hashable, and fits every
    array of its shape, whatever the dtype: call it on one to split it, print
    it to see it. Notebooks show it as a picture.

    Parameters
    ----------
    shape : tuple of int
        Shape of the arrays to split, rank 1 or more.
    axis : int
        The axis along which to split, in ``[-rank, rank - 1]``.
    sizes : sequence of int
        Length of each part along the axis; they sum to ``shape[axis]``.

    Attributes
    ----------
    shape : tuple of int
    axis : int
        Counted from the front.
    sizes : tuple of int
    offsets : tuple of int
        Where each part starts along the axis, one entry a part.
    output_shapes : tuple of tuple of int
        Shape of each part.
    slices : tuple of tuple of slice
        The index that selects each part: ``x[plan.slices[i]]`` is a view of it.

    Raises
    ------
    SplitError
        If the sizes do not fit the shape.
    SplitTypeError
        If a value is no integer.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> plan = splitjit.plan_split((2, 7), axis=1, num_outputs=3)
    >>> plan
    SplitPlan(shape=(2, 7), axis=1, sizes=(3, 3, 1), output_shapes=((2, 3), (2, 3), (2, 1)))
    >>> print(plan)
    shape=(2, 7), axis=1, parts=3
    ┌───────────┬───────────┬───┐
    │     3     │     3     │ 1 │
    └───────────┴───────────┴───┘
    0           3           6   7
    >>> [part.shape for part in plan(np.zeros((2, 7)))]
    [(2, 3), (2, 3), (2, 1)]
    """

    shape: Shape
    axis: int
    sizes: Shape
    offsets: Shape = field(init=False, compare=False)
    output_shapes: tuple[Shape, ...] = field(init=False, compare=False)
    slices: tuple[tuple[slice, ...], ...] = field(init=False, compare=False)
    memo: dict[Any, Any] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        shape = _shape(self.shape)
        axis = normalize_axis(self.axis, shape)
        sizes = _lengths(integers("sizes", self.sizes), axis, shape)
        offsets = tuple(itertools.accumulate(sizes[:-1], initial=0)) if sizes else ()
        before, after = shape[:axis], shape[axis + 1 :]
        # One shape per distinct size, shared: a plan may have 100 000 parts.
        shape_of = {size: (*before, size, *after) for size in set(sizes)}
        whole = (slice(None),) * axis

        derived = {
            "memo": {},
            "shape": shape,
            "axis": axis,
            "sizes": sizes,
            "offsets": offsets,
            "output_shapes": tuple(map(shape_of.__getitem__, sizes)),
            "slices": tuple(
                [(*whole, slice(o, o + n)) for o, n in zip(offsets, sizes, strict=True)]
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.sizes)

    def __repr__(self) -> str:
        values = describe(
            shape=self.shape, axis=self.axis, sizes=self.sizes, output_shapes=self.output_shapes
        )
        return f"{type(self).__name__}({values})"

    def __str__(self) -> str:
        from splitjit._core.drawing import text

        return text(self)

    def _repr_html_(self) -> str:
        """Return a drawing for notebooks, which look for this name."""
        from splitjit._core.drawing import svg

        return svg(self)

    # A plan is also the handle by which users run it. Execution is imported
    # at the call, so that planning needs neither it nor an array library.

    @overload
    def empty(self, dtype: type[Scalar] | np.dtype[Scalar]) -> list[NDArray[Scalar]]: ...
    @overload
    def empty(self, dtype: DTypeLike) -> list[NDArray[Any]]: ...
    def empty(self, dtype: DTypeLike) -> list[np.ndarray]:
        """Allocate the parts, uninitialized: a fitting ``out=``.

        Parameters
        ----------
        dtype : dtype-like
            The dtype of the parts.

        Returns
        -------
        list of ndarray
            New C-contiguous arrays, 64-byte aligned in one allocation; arrays
            of objects are allocated one by one.

        Raises
        ------
        SplitTypeError
            If `dtype` is no dtype of items.
        SplitError
            If NumPy has no arrays of such a shape.
        MemoryError
            If there is not enough memory.

        Examples
        --------
        >>> import splitjit
        >>> [part.shape for part in splitjit.plan_split((5, 2), 3).empty("float32")]
        [(3, 2), (2, 2)]
        """
        from splitjit._core.buffers import empty_parts

        return empty_parts(self, dtype)

    @overload
    def __call__(
        self, x: NDArray[Scalar], out: None = None, copy: bool = True
    ) -> list[NDArray[Scalar]]: ...
    @overload
    def __call__(self, x: ArrayLike, out: None = None, copy: bool = True) -> list[NDArray[Any]]: ...
    @overload
    def __call__(
        self, x: ArrayLike, out: Sequence[NDArray[Scalar]], copy: Literal[True] = True
    ) -> list[NDArray[Scalar]]: ...
    def __call__(
        self, x: ArrayLike, out: Sequence[np.ndarray] | None = None, copy: bool = True
    ) -> list[np.ndarray]:
        """Split an array of this plan's shape.

        Parameters
        ----------
        x : array_like
            The array to split, of shape ``plan.shape``.
        out : sequence of ndarray, optional
            Where to write the parts, see :func:`splitjit.split`.
        copy : bool, default True
            False returns views of `x`, see :func:`splitjit.split`.

        Returns
        -------
        list of ndarray
            The parts: new memory, the arrays of `out`, or views of `x`.

        Raises
        ------
        SplitError
            If the shape of `x` is not the plan's, or `out` does not fit.
        """
        from splitjit._core.split import run_plan

        return run_plan(self, x, out, copy)


@overload
def plan_split(
    shape: Sequence[SupportsIndex], split: Lengths, *, axis: SupportsIndex = 0
) -> SplitPlan: ...
@overload
def plan_split(
    shape: Sequence[SupportsIndex], *, axis: SupportsIndex = 0, num_outputs: SupportsIndex
) -> SplitPlan: ...
@overload
def plan_split(
    shape: Sequence[SupportsIndex], *, axis: SupportsIndex = 0, num_splits: SupportsIndex
) -> SplitPlan: ...
def plan_split(
    shape: Sequence[SupportsIndex],
    split: Lengths | None = None,
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
) -> SplitPlan:
    """Plan the split of an axis by exactly one of three rules.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays to split, rank 1 or more.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        A sequence gives the length of each part: each >= 0, with the axis
        length as their sum (ONNX Split, OpenVINO VariadicSplit,
        ``torch.split``). An integer k >= 1 gives parts of length k, the last
        one smaller (ONNX SplitToSequence, ``torch.split``).
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs : int, optional
        n >= 1 parts of ceil(length / n), those at the end clamped to what is
        left: 5 into 4 is 2, 2, 1, 0 (ONNX Split-18).
    num_splits : int, optional
        n >= 1 equal parts; the axis length must be a multiple of n (OpenVINO
        Split-1).

    Returns
    -------
    SplitPlan
        Frozen and hashable; plans are cached, equal calls share one.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        or not exactly one rule is given.
    SplitTypeError
        If a value is no integer; bool and float are none.
    MemoryError
        If a plan of so many parts would not fit into half of the memory.

    See Also
    --------
    split : Plan and split in one call.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((16, 2304), [768, 768, 768], axis=-1).offsets
    (0, 768, 1536)
    >>> splitjit.plan_split((7,), 3).sizes
    (3, 3, 1)
    >>> splitjit.plan_split((5,), num_outputs=4).sizes
    (2, 2, 1, 0)
    """
    return cached_plan(_shape(shape), split, axis, num_outputs, num_splits)


def cached_plan(
    shape: Shape, split: Any, axis: Any, num_outputs: Any, num_splits: Any
) -> SplitPlan:
    """Plan as `plan_split` does, for a shape that is known to be one.

    The arguments are made plain integers here, on every call, because a cache
    cannot tell True and 1.0 from 1.
    """
    if type(axis) is not int:
        axis = integer("axis", axis)
    if type(split) is tuple or type(split) is list:
        split = integers("split", split, _KINDS_OF_SPLIT)
    elif split is not None and type(split) is not int:
        split = _split(split)
    if num_outputs is not None and type(num_outputs) is not int:
        num_outputs = integer("num_outputs", num_outputs)
    if num_splits is not None and type(num_splits) is not int:
        num_splits = integer("num_splits", num_splits)
    if split is None:
        count = num_outputs or num_splits or 0
    elif isinstance(split, tuple):
        count = len(split)
    else:
        try:
            count = shape[axis] // split
        except (IndexError, ZeroDivisionError):  # which the plan refuses
            count = 0
    plan = _plan_of_few if count <= FEW_PARTS else _plan_of_many
    return plan(shape, split, axis, num_outputs, num_splits)


def _plan(
    shape: Shape,
    split: int | Shape | None,
    axis: int,
    num_outputs: int | None,
    num_splits: int | None,
) -> SplitPlan:
    if (split is not None) + (num_outputs is not None) + (num_splits is not None) != 1:
        raise SplitError(
            "split",
            describe(split=split, num_outputs=num_outputs, num_splits=num_splits),
            "exactly one of the three must be given",
        )
    axis = normalize_axis(axis, shape)
    length = shape[axis]
    context = {"axis": axis, "shape": shape}
    if num_outputs is not None:
        _check_count("num_outputs", num_outputs, num_outputs, context)
        chunk = -(-length // num_outputs)
        sizes = _chunks(length, chunk)
        sizes += (0,) * (num_outputs - len(sizes))
    elif num_splits is not None:
        if num_splits > 0 and length % num_splits:
            raise SplitError(
                "split",
                describe(num_splits=num_splits, **context),
                f"the axis length {shorten(length)} must be a multiple of {shorten(num_splits)}",
            )
        _check_count("num_splits", num_splits, num_splits, context)
        sizes = (length // num_splits,) * num_splits
    elif isinstance(split, int):
        _check_count("split", split, -(-length // max(split, 1)), context)
        sizes = _chunks(length, split)
    else:
        assert split is not None
        sizes = split
    return SplitPlan(shape, axis, sizes)


_plan_of_few = functools.lru_cache(maxsize=512)(_plan)
_plan_of_many = functools.lru_cache(maxsize=MANY_PLANS)(_plan)


def cached_by_plan(function: Callable[..., T]) -> Callable[..., T]:
    """Keep the results of a function of a plan in the plan itself; they are freed with it."""

    @functools.wraps(function)
    def cached(plan: SplitPlan, *args: Any) -> T:
        key = (function, *args)
        try:
            result: T = plan.memo[key]
        except KeyError:
            if len(plan.memo) >= _RESULTS_KEPT:
                plan.memo.clear()
            result = plan.memo[key] = function(plan, *args)
        return result

    return cached


_RESULTS_KEPT = 64


def _chunks(length: int, chunk: int) -> Shape:
    """Cut a length into chunks, the last one smaller; nothing into none."""
    if length == 0:
        return ()
    whole, rest = divmod(length, chunk)
    return (chunk,) * whole + (rest,) * (rest > 0)


def _check_count(name: str, value: int, parts: int, context: dict[str, Any]) -> None:
    if value < 1:
        raise SplitError(
            "split", describe(**{name: value}, **context), f"{name} must be at least 1"
        )
    if parts > MAX_PARTS:
        raise SplitError(
            "split",
            describe(**{name: value}, **context),
            f"{shorten(parts)} parts are more than the {MAX_PARTS} that a split may have",
        )
    if parts > most_parts():
        raise MemoryError(f"split: {describe(**{name: value}, **context)}: no memory for the plan")


_MANY_PARTS = 10**6
_BYTES_PER_PART = 208  # of a plan, measured: its tuples, integers and slices


@functools.cache
def most_parts() -> int:
    """Return how many fill half of the memory, or a million.

    More would be begun, and gone on with until the system ends the process.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not known here
        memory = sys.maxsize
    return max(_MANY_PARTS, memory // 2 // _BYTES_PER_PART)


def _shape(shape: Sequence[SupportsIndex]) -> Shape:
    extents = integers("shape", shape)
    if extents and min(extents) < 0:
        raise SplitError("split", describe(shape=extents), "extents must be at least 0")
    return extents


def normalize_axis(axis: SupportsIndex, shape: Sequence[object]) -> int:
    """Count the axis from the front; of the shape, only the rank matters."""
    rank = len(shape)
    index = integer("axis", axis)
    if rank == 0:
        raise SplitError("split", describe(axis=axis, shape=shape), "rank 0 has no axis to split")
    if not -rank <= index < rank:
        raise SplitError(
            "split", describe(axis=axis, shape=shape), f"axis must be in [{-rank}, {rank - 1}]"
        )
    return index % rank


def _lengths(sizes: Shape, axis: int, shape: Shape) -> Shape:
    """Check that the lengths fit the axis."""
    received = functools.partial(describe, split=sizes, axis=axis, shape=shape)
    if sizes and min(sizes) < 0:
        raise SplitError(
            "split", received(), f"lengths must be at least 0, not {shorten(min(sizes))}"
        )
    if sum(sizes) != shape[axis]:
        raise SplitError(
            "split",
            received(),
            f"lengths must sum to the axis length {shorten(shape[axis])}, "
            f"not to {shorten(sum(sizes))}",
        )
    if len(sizes) > MAX_PARTS:
        raise SplitError("split", received(), f"at most {MAX_PARTS} parts")
    return sizes


def _split(split: Any) -> int | Shape:
    """Make plain integers of what `split` takes."""
    try:
        is_scalar = getattr(split, "ndim", 0) == 0 and hasattr(split, "__index__")
    except Exception:  # whatever a foreign class raises
        is_scalar = False
    read = integer if is_scalar else integers
    return read("split", split, _KINDS_OF_SPLIT)


_KINDS_OF_SPLIT = "must be an integer, a sequence of integers or a 1-D integer array"


def integers(name: str, values: Any, rule: str = "must be a sequence of integers") -> Shape:
    """Make plain integers of a sequence or an integer array; bool and float are none."""
    read = sequence(values, arrays=True)
    if read is None:
        raise SplitTypeError("split", describe(**{name: values}), rule)
    for value in read:
        if type(value) is not int:
            return tuple([integer(name, value, rule, values) for value in read])
    return read


def sequence(values: Any, arrays: bool = False) -> tuple[Any, ...] | None:
    """Read a sequence, or an integer array where that will do, once: it may give others next time.

    None stands for what is none, or cannot be read.
    """
    if type(values) is list or type(values) is tuple:
        return tuple(values)
    try:
        if arrays and hasattr(values, "tolist"):
            kind = getattr(getattr(values, "dtype", None), "kind", "i")
            values = values.tolist() if kind in "iu" else None
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray)):
            return None
        if len(values) > most_parts():
            raise MemoryError(f"split: {shorten(values)}: no memory for the plan")
        return tuple(values)
    except MemoryError:
        raise
    except Exception:  # whatever a foreign class raises
        return None


def integer(name: str, value: Any, rule: str = "must be an integer", received: Any = None) -> int:
    """Make a plain integer of what has `__index__`; bool and float have none."""
    if type(value) is int:
        return value
    try:
        plain = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(plain, bool) or getattr(value, "ndim", 0) != 0:
            raise TypeError  # torch has an __index__ for these
        return operator.index(value)
    except Exception:  # whatever the __index__ of a foreign class raises
        received = value if received is None else received
        raise SplitTypeError("split", describe(**{name: received}), rule) from None
