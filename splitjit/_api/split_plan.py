"""`SplitPlan`: a plan with public methods. Equal calls share one plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from splitjit._api.protocols import Lazy, Part, Scalar, Source, SupportsSlices
from splitjit._copy.buffers import POOL, empty_parts
from splitjit._copy.how import FIRST
from splitjit._copy.outputs import check_apart, check_fit, views_of
from splitjit._copy.run import run
from splitjit._inputs.input import Request, by_plan
from splitjit._inputs.torch import tensors
from splitjit._inputs.torch.memory import TORCH
from splitjit._plan.arguments import Shape, listed
from splitjit._plan.plan import Plan, PlanCache
from splitjit._plan.rules import Rule

if TYPE_CHECKING:
    from splitjit._copy.explanation import Explanation


class SplitPlan(Plan):
    """The plan of a split: where the parts of an axis start and how long they are.

    :func:`plan_split` makes plans. A plan is frozen and hashable, and fits every
    array of its shape, of any dtype. Call a plan on an array to split the array;
    print a plan to draw it. ``len(plan)`` is the number of parts; iterating a plan
    gives the offset and the size of each part.

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

    See Also
    --------
    plan_split : Make a plan.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> plan = splitjit.plan_split((2, 7), axis=1, num_outputs=3)
    >>> plan
    SplitPlan(shape=(2, 7), axis=1, sizes=(3, 3, 1), output_shapes=((2, 3), (2, 3), (2, 1)))
    >>> print(plan)
    shape=(2, 7), axis=1, parts=3
    +-----------------+-----------------+-----+
    |        3        |        3        |  1  |
    +-----------------+-----------------+-----+
    0                 3                 6     7
    >>> [part.shape for part in plan(np.zeros((2, 7)))]
    [(2, 3), (2, 3), (2, 1)]
    >>> list(plan)
    [(0, 3), (3, 3), (6, 1)]
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[type[SplitPlan], tuple[Shape, int, Shape]]:
        """Pickle only the arguments; the rest is derived from them."""
        return SplitPlan, (self.shape, self.axis, self.sizes)

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
            each is aligned to 64 bytes. Arrays of objects are allocated one by one. For a
            dtype of torch, torch allocates tensors.

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
        if tensors.is_dtype(dtype):
            return tensors.empty(self, dtype)
        return empty_parts(self, dtype)

    @overload
    def __call__(self, x: Lazy, out: None = None, copy: bool = True) -> list[Lazy]: ...
    @overload
    def __call__(self, x: Source[Part], out: None = None, copy: bool = True) -> list[Part]: ...
    @overload
    def __call__(
        self,
        x: ArrayLike | SupportsSlices[Any],
        out: Sequence[SupportsSlices[Part]],
        copy: Literal[True] = True,
    ) -> list[Part]: ...
    def __call__(self, x: Any, out: Sequence[Any] | None = None, copy: bool = True) -> list[Any]:
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
        # torch.compile cannot trace the builtin functions that the plan keeps for arrays.
        is_array = type(x) is np.ndarray
        if copy is True and (is_array or (type(x) in TORCH.kinds and not TORCH.is_traced())):
            parts: list[Any] | None = (self._how or FIRST).at_once(self, x, out)
            if parts is not None:
                return parts
        return run(x, by_plan(self), out, copy)

    def bind(self, out: Sequence[SupportsSlices[Part]]) -> Callable[[Any], list[Part]]:
        """Check outputs now, and return a function that splits arrays into them.

        For inner loops that split array after array into the same outputs. A
        call ``into(x)`` is ``plan(x, out=out)``.

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
            or `out` no longer does.

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
        outputs = listed(out)
        _check_bound(self, outputs)
        return functools.partial(self, out=outputs)

    def join(self, parts: Sequence[SupportsSlices[Part]] | Part, out: Part | None = None) -> Part:
        """Join parts of this plan's shapes; the inverse of calling the plan.

        Parameters
        ----------
        parts : sequence of array
            The parts, see :func:`splitjit.join`: part i has the shape ``plan.output_shapes[i]``.
        out : array, optional
            The array to write to, see :func:`splitjit.join`.

        Returns
        -------
        array
            A new array of shape ``plan.shape``, or `out`.

        Raises
        ------
        SplitError, SplitTypeError
            If a part has another shape, or in the same cases as :func:`splitjit.join`.

        Examples
        --------
        >>> import numpy as np
        >>> import splitjit
        >>> plan = splitjit.plan_split((2, 3), [1, 2], axis=1)
        >>> plan.join([np.zeros((2, 1)), np.ones((2, 2))])
        array([[0., 1., 1.],
               [0., 1., 1.]])
        """
        from splitjit._copy.join import join_arrays

        joined: Part = join_arrays("join", parts, self.axis, out, self)
        return joined

    def explain(self, x: Any, out: Sequence[Any] | None = None, copy: bool = True) -> Explanation:
        """Say how this plan would split an array now: strategy, loop, threads, bytes, and why.

        Parameters
        ----------
        x : array_like
            The array to split, of shape ``plan.shape``. Nothing is copied.
        out : sequence of ndarray, optional
            The arrays to write the parts to, see :func:`splitjit.split`.
        copy : bool, default True
            False explains views.

        Returns
        -------
        Explanation
            Print it, or read its attributes, or call ``.as_dict()``.

        Raises
        ------
        SplitError, SplitTypeError
            If the plan would refuse to split with the same arguments.

        See Also
        --------
        splitjit.explain : The same without a plan.

        Examples
        --------
        >>> import numpy as np
        >>> import splitjit
        >>> plan = splitjit.plan_split((4, 6), num_splits=2)
        >>> plan.explain(np.zeros((4, 6)), copy=False).strategy
        'views'
        """
        from splitjit._copy.explanation import explain_object

        return explain_object(x, by_plan(self), out, copy)


SplitPlan.__module__ = "splitjit"  # so that pickles name the public path
__test__ = {"SplitPlan": SplitPlan}  # doctest skips classes of other modules


def _check_bound(plan: Plan, out: list[Any]) -> None:
    """Refuse outputs to which the parts of no array can be written."""
    first: Any = out[0] if out else None
    if tensors.is_tensor(first):
        if tensors.tensor_input(first).array is None:
            return  # torch writes to it, and each call checks it
        out = tensors.out_arrays(out, first.dtype)[1]
    parts = views_of(out)
    check_fit(plan, parts[0].dtype if parts else np.dtype(np.uint8), parts)
    check_apart(parts, plan.axis)


PLANS = PlanCache(SplitPlan)


def by_rule(axis: SupportsIndex, rule: Rule) -> Request:
    """Return the request of a call to `split` with a rule."""
    return Request(axis, rule, lambda shape: PLANS.plan(shape, axis, rule))


def clear_caches() -> None:
    """Free all memory that splitjit keeps to make later calls faster.

    This drops cached plans with their layouts, and memory blocks that no part uses. Compiled
    code stays loaded. Both caches are bounded anyway: up to about 1000 recently used plans are
    kept (fewer if they have many parts, and none of more than 4096 parts), and
    `set_buffer_limit` limits the blocks.

    See Also
    --------
    set_buffer_limit : Limit the memory kept for reuse.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.clear_caches()
    """
    PLANS.clear()
    POOL.clear()
