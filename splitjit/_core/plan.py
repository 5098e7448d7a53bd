"""Plans: where each part of an axis starts and how long it is.

`plan_split` turns a shape, an axis and a rule into a `SplitPlan`. A plan knows shapes and
Python integers only: it needs no arrays and no data. Plans are cached.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar, overload

from splitjit._core.arguments import (
    Lengths,
    Shape,
    integer,
    integers,
    most_parts,
    normalize_axis,
    rule_of,
    shape_of,
)
from splitjit._core.keeping import FEW_PARTS, Keeper
from splitjit._core.rules import LENGTHS, Rule
from splitjit._core.sizes import TooManyPartsError, describe_rule, sizes_of
from splitjit.errors import describe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from splitjit._core.binding import Binding

run_plan: Any = None
"""Runs a plan. `splitjit._core.split` sets it, since this module imports no execution, and
an import inside of `SplitPlan.__call__` would cost more than a small copy."""

Scalar = TypeVar("Scalar", bound="np.generic")
"""The dtype of an array, as in ``NDArray[Scalar]``."""

MANY_PLANS = 4
"""A plan takes some 200 bytes per part, so few plans of more than `FEW_PARTS` are cached."""


@dataclass(frozen=True, slots=True, repr=False)
class SplitPlan(Keeper):
    """The plan of a split: where the parts of an axis start and how long they are.

    :func:`plan_split` makes plans. A plan is frozen and hashable, and fits every
    array of its shape, of any dtype. Call a plan on an array to split the array;
    print a plan to draw it. Notebooks show the drawing.

    Parameters
    ----------
    shape : tuple of int
        Shape of the arrays to split, rank 1 or more.
    axis : int
        The axis along which to split, in ``[-rank, rank - 1]``.
    sizes : sequence of int
        Length of each part along the axis. The lengths sum to ``shape[axis]``.

    Attributes
    ----------
    shape : tuple of int
    axis : int
        The axis, counted from the front.
    sizes : tuple of int
    offsets : tuple of int
        Where each part starts along the axis, one entry per part.
    output_shapes : tuple of tuple of int
        Shape of each part.
    slices : tuple of tuple of slice
        The index of each part: ``x[plan.slices[i]]`` is a view of part i of `x`.

    Raises
    ------
    SplitError
        If the sizes do not fit the shape.
    SplitTypeError
        If a value is not an integer.

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

    # Annotations use only built-in names: `typing.get_type_hints` looks names up in
    # `__module__`, which is "splitjit", see below.
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    offsets: tuple[int, ...] = field(init=False, compare=False)
    output_shapes: tuple[tuple[int, ...], ...] = field(init=False, compare=False)
    slices: tuple[tuple[slice, ...], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        shape = shape_of(self.shape)
        axis = normalize_axis(self.axis, shape)
        lengths = integers("sizes", self.sizes)
        self._set(shape, axis, sizes_of(shape, axis, (LENGTHS, lengths)))

    def _set(self, shape: Shape, axis: int, sizes: Shape) -> None:
        """Set all attributes. The caller has checked the values."""
        offsets = tuple(itertools.accumulate(sizes[:-1], initial=0)) if sizes else ()
        # Parts of equal size share one shape tuple: a plan may have 100 000 parts.
        shape_of_size = {n: (*shape[:axis], n, *shape[axis + 1 :]) for n in set(sizes)}
        whole = (slice(None),) * axis
        slices = [(*whole, slice(o, o + n)) for o, n in zip(offsets, sizes, strict=True)]
        values = {
            "_kept": {},
            "shape": shape,
            "axis": axis,
            "sizes": sizes,
            "offsets": offsets,
            "output_shapes": tuple(map(shape_of_size.__getitem__, sizes)),
            "slices": tuple(slices),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen

    def __reduce__(self) -> tuple[type[SplitPlan], tuple[Shape, int, Shape]]:
        """Pickle the arguments alone; the rest is derived from them."""
        return type(self), (self.shape, self.axis, self.sizes)

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
        """Return a drawing as SVG. Notebooks call a method of this name."""
        from splitjit._core.drawing import svg

        return svg(self)

    # Users run a plan by calling it. The methods below import the execution when they
    # are called, so that planning needs neither the execution nor an array library.

    @overload
    def empty(self, dtype: type[Scalar] | np.dtype[Scalar]) -> list[NDArray[Scalar]]: ...
    @overload
    def empty(self, dtype: DTypeLike) -> list[NDArray[Any]]: ...
    def empty(self, dtype: DTypeLike) -> list[np.ndarray]:
        """Allocate uninitialized arrays for the parts, to be passed as ``out=``.

        Parameters
        ----------
        dtype : dtype-like
            The dtype of the parts.

        Returns
        -------
        list of ndarray
            New C-contiguous arrays, one per part. All share one allocation, and
            each is aligned to 64 bytes. Arrays of objects are allocated one by one.

        Raises
        ------
        SplitTypeError
            If `dtype` is not a dtype, or its items are arrays.
        SplitError
            If NumPy cannot make arrays of such a shape.
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
            The array to split, of shape ``plan.shape`` and any dtype.
        out : sequence of ndarray, optional
            The arrays to write the parts to, see :func:`splitjit.split`.
        copy : bool, default True
            False returns views of `x`, see :func:`splitjit.split`.

        Returns
        -------
        list of ndarray
            The parts: new arrays, or the arrays of `out`, or views of `x`.

        Raises
        ------
        SplitError
            If the shape of `x` is not the shape of the plan, or `out` does not fit.
        """
        parts: list[np.ndarray] = run_plan(self, x, out, copy)
        return parts

    def bind(self, out: Sequence[NDArray[Scalar]]) -> Binding[Scalar]:
        """Check outputs once, and return a function that splits arrays into them.

        For inner loops that split array after array into the same outputs. A
        call of the function checks only the array to split. The function copies
        arrays of any size by compiled loops, so its first call loads Numba.

        Parameters
        ----------
        out : sequence of ndarray
            The arrays to write the parts to, see :func:`splitjit.split`.
            ``plan.empty(dtype)`` makes such arrays.

        Returns
        -------
        callable
            ``into(x) -> out``. `x` has the shape of the plan, the dtype of the
            arrays and any strides, and shares no element with the arrays. The
            result is a list of the arrays of `out`. The function keeps them alive.

        Raises
        ------
        SplitError, SplitTypeError
            If `out` does not fit. The function raises them if `x` does not fit,
            or if an array of `out` was resized in the meantime.

        Examples
        --------
        >>> import numpy as np
        >>> import splitjit
        >>> plan = splitjit.plan_split((2, 6), num_splits=2, axis=1)
        >>> into = plan.bind(plan.empty(np.float64))
        >>> for step in range(2):
        ...     left, right = into(np.full((2, 6), float(step)))
        >>> right
        array([[1., 1., 1.],
               [1., 1., 1.]])
        """
        from splitjit._core.binding import Binding

        return Binding(self, out)


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
    """Plan the split of an axis by exactly one rule.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays to split, rank 1 or more.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        A sequence gives the length of each part. Each length is >= 0, and
        they sum to the axis length (ONNX Split, OpenVINO VariadicSplit,
        ``torch.split``). An integer k >= 1 gives parts of length k, the last
        one smaller (ONNX SplitToSequence; also ``torch.split``, except that it
        gives one empty part if the axis length is 0, and this rule gives no part).
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs : int, optional
        n >= 1 parts of ceil(length / n). The last parts are clamped to the
        rest of the axis: 5 into 4 is 2, 2, 1, 0 (ONNX Split-18).
    num_splits : int, optional
        n >= 1 equal parts; the axis length must be a multiple of n (OpenVINO
        Split-1).

    Returns
    -------
    SplitPlan
        Frozen and hashable. Plans are cached: equal calls share one plan.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        or not exactly one rule is given.
    SplitTypeError
        If a value is not an integer. bool and float are not integers here.
    MemoryError
        If the plan would not fit into half of the memory.

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
    return cached_plan(shape_of(shape), axis, rule_of(split, num_outputs, num_splits))


SplitPlan.__module__ = "splitjit"  # pickles then name the public path
__test__ = {"SplitPlan": SplitPlan}  # doctest looks only for classes of this module


def cached_plan(shape: Shape, axis: SupportsIndex, rule: Rule) -> SplitPlan:
    """Plan the split of a shape of plain integers; equal calls share a plan."""
    if type(axis) is not int:
        axis = integer("axis", axis)
    try:
        return _plan_of_few(shape, axis, rule)
    except TooManyPartsError:
        pass
    try:
        return _plan_of_many(shape, axis, rule)
    except TooManyPartsError:
        received = describe_rule(shape, axis, rule)
        raise MemoryError(f"split: {received}: not enough memory for the plan") from None


@functools.lru_cache(maxsize=512)
def _plan_of_few(shape: Shape, axis: int, rule: Rule) -> SplitPlan:
    return _plan(shape, axis, rule, FEW_PARTS)


@functools.lru_cache(maxsize=MANY_PLANS)
def _plan_of_many(shape: Shape, axis: int, rule: Rule) -> SplitPlan:
    return _plan(shape, axis, rule, most_parts())


def _plan(shape: Shape, axis: int, rule: Rule, most: int) -> SplitPlan:
    axis = normalize_axis(axis, shape)
    plan = object.__new__(SplitPlan)  # no second check of the values
    plan._set(shape, axis, sizes_of(shape, axis, rule, most))
    return plan
