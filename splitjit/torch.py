"""torch's functions that split, with contiguous parts instead of views.

Move a program by one import: ``import splitjit.torch as st``, then ``st.split`` for
``torch.split``. Signatures, results and errors are those of torch: tuples of tensors. Where kernels
do not reach the memory of a tensor, such as in a graph or on a device, torch splits and copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from splitjit._api.split import split as split_by_rule
from splitjit._inputs.sources import SYMBOLIC_TRACE
from splitjit._inputs.tensors import TensorSource, is_compiling, is_tensor, tensor_source
from splitjit.errors import SplitError, SplitTypeError

__all__ = [
    "chunk",
    "dsplit",
    "hsplit",
    "split",
    "split_with_sizes",
    "tensor_split",
    "unbind",
    "vsplit",
]

_ORIGINALS: dict[str, Any] = {
    name: getattr(sys.modules.get("torch"), name, None) for name in __all__
}
"""torch's own functions, if torch is imported; a program may replace ``torch.split``."""


def split(
    tensor: Any, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Any, ...]:
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
        Contiguous tensors that share no memory with `tensor`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    return _parts(
        "split", {"split": split_size_or_sections}, tensor, dim, split_size_or_sections, dim
    )


def split_with_sizes(input: Any, split_sizes: Sequence[int], dim: int = 0) -> tuple[Any, ...]:
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
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    rule = {"split": split_sizes} if isinstance(split_sizes, (list, tuple)) else None
    return _parts("split_with_sizes", rule, input, dim, split_sizes, dim)


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """Split a tensor into at most so many parts of equal length; see ``torch.chunk``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    chunks : int
        The largest number of parts. The last part is smaller if the length is no multiple.
    dim : int, default 0
        The dimension along which to split.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    rule = None
    if type(chunks) is int and chunks > 0 and _reached(input) and -input.ndim <= dim < input.ndim:
        rule = {"split": -(-input.shape[dim] // chunks)}
    return _parts("chunk", rule, input, dim, chunks, dim)


def tensor_split(input: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
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
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    value, dim = _value_and_dim(args, kwargs, 0)
    return _parts("tensor_split", _rule("num_sections", value), input, dim, *args, **kwargs)


def hsplit(input: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Split a tensor along its second dimension, or a 1-D tensor along its only one.

    The same as ``torch.hsplit``: a number of parts must divide the length.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    *args, **kwargs
        ``indices_or_sections``, or by name `indices` or `sections`, as in torch.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    dim = 0 if getattr(input, "ndim", 0) == 1 else 1
    value, _ = _value_and_dim(args, kwargs, None)
    return _parts("hsplit", _rule("num_splits", value), input, dim, *args, **kwargs)


def vsplit(input: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
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
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    value, _ = _value_and_dim(args, kwargs, None)
    rule = _rule("num_splits", value) if getattr(input, "ndim", 0) >= 2 else None
    return _parts("vsplit", rule, input, 0, *args, **kwargs)


def dsplit(input: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
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
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    value, _ = _value_and_dim(args, kwargs, None)
    return _parts("dsplit", _rule("num_splits", value), input, 2, *args, **kwargs)


def unbind(input: Any, dim: int = 0) -> tuple[Any, ...]:
    """Split a tensor into tensors of one dimension less; see ``torch.unbind``.

    Parameters
    ----------
    input : torch.Tensor
        The tensor to split.
    dim : int, default 0
        The dimension that the parts do not have.

    Returns
    -------
    tuple of torch.Tensor
        Contiguous tensors that share no memory with `input`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.
    """
    if _reached(input):
        try:
            parts = split_by_rule(input, 1, axis=dim)
        except SplitError:
            pass
        else:
            return tuple([part.squeeze(dim) for part in parts])
    return _clones(_original("unbind")(input, dim))


def _torch() -> Any:
    return sys.modules.get("torch") or import_module("torch")


def _original(name: str) -> Callable[..., Any]:
    """Return a function of torch, also if a program has replaced it by ours."""
    original: Callable[..., Any] = _ORIGINALS.get(name) or getattr(_torch(), name)
    return original


def _reached(x: Any) -> bool:
    """Return whether kernels read the tensor, so that `splitjit.split` is faster than torch."""
    return is_tensor(x) and not is_compiling() and isinstance(tensor_source(x), TensorSource)


def _parts(
    name: str, rule: dict[str, Any] | None, x: Any, dim: Any, /, *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """Split by `splitjit.split` if it takes the arguments, and otherwise by torch.

    Parameters
    ----------
    name : str
        The name of torch's function. It refuses, or makes parts that `splitjit.split` does not
        make: between descending indices, or one empty part of an axis of length 0.
    rule : dict or None
        The rule as an argument of `splitjit.split`, or None if only torch knows.
    x, dim
        The tensor, and the dimension of the rule.
    *args, **kwargs
        The arguments of torch's function after the tensor.
    """
    if rule and _reached(x):
        (value,) = rule.values()
        if not (isinstance(value, (list, tuple)) and "split" in rule and -1 in value):
            try:
                parts = split_by_rule(x, axis=dim, **rule)
            except SplitError:
                parts = []
            if parts:
                return tuple(parts)
    return _clones(_original(name)(x, *args, **kwargs))


def _clones(views: Sequence[Any]) -> tuple[Any, ...]:
    if not isinstance(views, (tuple, list)):  # a proxy of torch.fx.symbolic_trace
        raise SplitTypeError("split", f"x of type {type(views).__name__}", SYMBOLIC_TRACE)
    contiguous = _torch().contiguous_format
    return tuple([view.clone(memory_format=contiguous) for view in views])


def _value_and_dim(args: tuple[Any, ...], kwargs: dict[str, Any], dim: int | None) -> Any:
    """Return the number or the indices, and the dimension; None if only torch can read them."""
    if len(args) == 1 and not kwargs:
        return args[0], dim
    if dim is not None and len(args) == 2 and not kwargs:
        return args
    if dim is not None and len(args) == 1 and kwargs.keys() == {"dim"}:
        return args[0], kwargs["dim"]
    return None, None


def _rule(count: str, value: Any) -> dict[str, Any] | None:
    if type(value) is int:
        return {count: value}
    return {"indices": value} if isinstance(value, (list, tuple)) else None
