"""torch's functions that split and join, with contiguous parts instead of views.

Port a program with one import: ``import splitjit.torch as st``, then ``st.split`` for
``torch.split``. Signatures, results and errors are torch's: tuples of tensors. If kernels
cannot reach the memory of a tensor, for example in a graph or on a device, torch splits and copies.

A program may also replace torch's own functions and methods, as in
``torch.Tensor.chunk = splitjit.torch.chunk``. These things differ from torch:

- The parts are not views. Writing to a part does not change the tensor.
- Parts of a lazy conjugate or negative are resolved.
- torch splits nested and sparse tensors, and copies the parts in their layout, if it can.
- ``torch.fx.symbolic_trace`` records a function that splits as one node. For a function that joins,
  it records torch's own.
- Joined tensors are contiguous. torch would keep the format ``channels_last``.
- The method ``torch.Tensor.split`` calls its lengths `split_size`. `split` does not know this name.
- ``torch.jit.script`` refuses to compile these functions.

As in torch, all but `split` also take NumPy's names: ``axis`` for ``dim``, and ``a``, ``x`` or
``x1`` for ``input``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

try:
    import torch
except ImportError as error:
    raise ImportError("splitjit.torch needs torch: python -m pip install torch") from error

import splitjit._api.join as joins
import splitjit._api.split as splits
from splitjit._api.protocols import Part, SupportsSlices
from splitjit._inputs.torch.memory import has_lost_memory
from splitjit._inputs.torch.tensors import in_reach, is_compiling, is_tensor
from splitjit._plan.arguments import Function
from splitjit._planes import split_planes, without_axis
from splitjit.errors import SplitError

__all__ = ["chunk", "dsplit", "hsplit", "split", "split_with_sizes"]
__all__ += ["tensor_split", "unbind", "vsplit"]
__all__ += ["cat", "concat", "concatenate", "stack"]

_ORIGINALS = {name: getattr(torch, name) for name in __all__}
"""torch's own functions; a program may replace them with ours."""

_SPLIT_METHOD: Any = torch.Tensor.split
"""The method that ``torch.split`` calls, which a program may replace, too."""

_END = 1 << 63
"""torch refuses integers from here on, and those below the negative."""


def _with_names_of_numpy(function: Function) -> Function:
    """Take NumPy's names of parameters, too, as torch's own functions do."""

    @functools.wraps(function)
    def renaming(*args: Any, **kwargs: Any) -> Any:
        for theirs, ours in ("axis", "dim"), ("a", "input"), ("x", "input"), ("x1", "input"):
            if theirs in kwargs and ours not in kwargs:
                kwargs[ours] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return cast(Function, renaming)


def split(
    tensor: SupportsSlices[Part], split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Part, ...]:
    """Split a tensor into parts of a length, or of given lengths; see ``torch.split``.

    Parameters
    ----------
    tensor : torch.Tensor
        The tensor to split.
    split_size_or_sections : int or list of int
        The length of each part, the last one smaller; or the lengths of all parts.
    dim : int, default 0
        The dimension along which to split.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    value = split_size_or_sections
    rule = {"split": value} if type(value) is int or isinstance(value, (list, tuple)) else None
    return _parts("split", rule, dim, tensor, split_size_or_sections, dim)


@_with_names_of_numpy
def split_with_sizes(
    input: SupportsSlices[Part], split_sizes: Sequence[int], dim: int = 0
) -> tuple[Part, ...]:
    """Split a tensor into parts of given lengths; see ``torch.split_with_sizes``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    split_sizes : sequence of int
        The length of each part.
    dim : int, default 0
        The dimension along which to split.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    rule = {"split": split_sizes} if isinstance(split_sizes, (list, tuple)) else None
    return _parts("split_with_sizes", rule, dim, input, split_sizes, dim)


@_with_names_of_numpy
def chunk(input: SupportsSlices[Part], chunks: int, dim: int = 0) -> tuple[Part, ...]:
    """Split a tensor into at most `chunks` parts of equal length; see ``torch.chunk``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    chunks : int
        The most parts to make. The last one is smaller if the length is not a multiple.
    dim : int, default 0
        The dimension along which to split.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    rule, rank = None, _rank(input)
    is_read = type(chunks) is int and 0 < chunks < _END // 2  # torch's own sum may overflow
    if is_read and type(dim) is int and -rank <= dim < rank:
        rule = {"split": -(-input.shape[dim] // chunks)}  # type: ignore[attr-defined]
    return _parts("chunk", rule, dim, input, chunks, dim)


@_with_names_of_numpy
def tensor_split(input: SupportsSlices[Part], *args: Any, **kwargs: Any) -> tuple[Part, ...]:
    """Split a tensor into parts that differ by one, or before indices; see ``torch.tensor_split``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    *args, **kwargs
        ``indices_or_sections, dim=0``. By name: `indices`, `sections` or
        `tensor_indices_or_sections`, as in torch.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    value, dim = None, None  # only torch can read some arguments
    if len(args) == 1 and [*kwargs] in ([], ["dim"]):
        value, dim = args[0], kwargs.get("dim", 0)
    elif len(args) == 2 and not kwargs:
        value, dim = args
    return _parts("tensor_split", _rule("num_sections", value), dim, input, *args, **kwargs)


@_with_names_of_numpy
def hsplit(input: SupportsSlices[Part], *args: Any, **kwargs: Any) -> tuple[Part, ...]:
    """Split a tensor along its second dimension, or its only one; see ``torch.hsplit``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    *args, **kwargs
        ``indices_or_sections``, or by name `indices` or `sections`, as in torch. A number of
        parts must divide the length.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    dim = 0 if _rank(input) == 1 else 1
    return _parts("hsplit", _rule("num_splits", *args, **kwargs), dim, input, *args, **kwargs)


@_with_names_of_numpy
def vsplit(input: SupportsSlices[Part], *args: Any, **kwargs: Any) -> tuple[Part, ...]:
    """Split a tensor of two or more dimensions along the first; see ``torch.vsplit``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    *args, **kwargs
        ``indices_or_sections``, or by name `indices` or `sections`, as in torch.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    dim = 0 if _rank(input) >= 2 else None
    return _parts("vsplit", _rule("num_splits", *args, **kwargs), dim, input, *args, **kwargs)


@_with_names_of_numpy
def dsplit(input: SupportsSlices[Part], *args: Any, **kwargs: Any) -> tuple[Part, ...]:
    """Split a tensor of three or more dimensions along the third; see ``torch.dsplit``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    *args, **kwargs
        ``indices_or_sections``, or by name `indices` or `sections`, as in torch.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    return _parts("dsplit", _rule("num_splits", *args, **kwargs), 2, input, *args, **kwargs)


@_with_names_of_numpy
def unbind(
    input: SupportsSlices[Part], dim: int = 0, *, out: Sequence[Any] | Any | None = None
) -> tuple[Part, ...]:
    """Split a tensor into tensors of one dimension less; see ``torch.unbind``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    dim : int, default 0
        The dimension along which to split.
    out : sequence of torch.Tensor, or torch.Tensor, optional
        The tensors to write the parts to, see `splitjit.unstack`. torch's function has no
        such parameter.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with the tensor, or the tensors of `out`, or
        views of the one tensor.

    See Also
    --------
    splitjit.unstack : The function of splitjit, also for arrays.
    """
    if out is not None:
        return tuple(split_planes("unbind", input, dim, out, x="input", axis="dim"))
    parts = _parts_of_split({"split": 1}, dim, input)
    return tuple(without_axis(list(parts), dim)) or _parts_of_torch("unbind", input, dim)


@_with_names_of_numpy
def cat(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Join tensors along a dimension; see ``torch.cat`` and `splitjit.join`."""
    return _joined("cat", tensors, dim, out)


concat = concatenate = cat  # torch has all three names, too


@_with_names_of_numpy
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    """Join tensors along a new dimension; see ``torch.stack`` and `splitjit.stack`."""
    return _joined("stack", tensors, dim, out)


def _joined(name: str, tensors: Any, dim: Any, out: Any) -> Any:
    """Join tensors by splitjit if it takes them, and otherwise by torch."""
    if type(tensors) in (list, tuple) and all(map(is_tensor, tensors)) and not is_compiling():
        try:
            return (joins.stack if name == "stack" else joins.join)(tensors, dim, out=out)
        except SplitError:
            if any(map(has_lost_memory, filter(is_tensor, [*tensors, out]))):
                raise  # torch would crash
    made = _ORIGINALS[name](tensors, dim, out=out)
    has_format = out is None and made.layout is torch.strided
    return made.contiguous() if has_format else made


def _parts(
    name: str, rule: dict[str, Any] | None, dim: Any, x: Any, /, *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """Split by `splitjit.split` if it takes the arguments, and otherwise by torch.

    Parameters
    ----------
    name : str
        The name of torch's function. It refuses, or makes parts that `splitjit.split` does not
        make: between descending indices, or one empty part of an axis of length 0.
    rule : dict or None
        The rule as an argument of `splitjit.split`, or None if only torch knows.
    dim, x
        The dimension of the rule, or None if torch refuses the tensor; and the tensor.
    *args, **kwargs
        The arguments of torch's function after the tensor.
    """
    return _parts_of_split(rule, dim, x) or _parts_of_torch(name, x, *args, **kwargs)


def _parts_of_split(rule: dict[str, Any] | None, dim: Any, x: Any) -> tuple[Any, ...]:
    """Return no parts if `splitjit.split` refuses, or if it would leave the tensor to torch."""
    if rule is None or not is_tensor(x) or is_compiling():
        return ()
    ((name, value),) = rule.items()
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    beyond = [n for n in numbers if type(n) is int and not -_END <= n < _END]
    arrays = [n for n in numbers if type(n) is not int and getattr(n, "ndim", False)]
    if beyond or arrays or (name == "split" and -1 in numbers):  # in torch, -1 is not the rest
        return ()
    try:
        return tuple(splits.split(x, axis=dim, **rule)) if in_reach(x) else ()
    except SplitError:
        return ()


def _parts_of_torch(name: str, x: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Split by torch, and copy the views. A symbolic trace records this module's own function."""
    if isinstance(x, torch.fx.Proxy):
        trace: Callable[..., tuple[Any, ...]] = torch.overrides.handle_torch_function
        return trace(globals()[name], (x,), x, *args, **kwargs)
    original = _SPLIT_METHOD if name == "split" and is_tensor(x) else _ORIGINALS[name]
    views = original(x, *args, **kwargs)
    dense = {"memory_format": torch.contiguous_format}  # sparse parts have no such format
    return tuple([view.clone(**(dense if view.layout is torch.strided else {})) for view in views])


def _rank(x: Any) -> int:
    """Return the rank of a tensor, or 0 for what only torch can split, trace or refuse."""
    return int(x.ndim) if is_tensor(x) and not x.is_nested else 0


def _rule(count: str, value: Any = None, /, *more: Any, **named: Any) -> dict[str, Any] | None:
    """Return the rule of a number of parts or of indices, or None if only torch knows."""
    if more or named:
        return None
    if type(value) is int:
        return {count: value}
    return {"indices": value} if isinstance(value, (list, tuple)) else None
