"""Where torch tensors lie in memory, and which of them kernels may read.

====================================  ==========================================================
question                              what a kernel would miss
====================================  ==========================================================
class other than Tensor, Parameter    a subclass computes in its own way: FakeTensor, DTensor
``__torch_dispatch__`` mode           ``make_fx`` and FakeTensorMode record each operator
``__torch_function__`` mode           ``make_fx(pre_dispatch=True)``, user modes, default devices
functorch transform                   ``vmap``, ``grad``, ``jvp``, ``functionalize``: wrappers,
                                      whose memory is not their own
``torch.jit.trace``                   it records each operator: a copy would be a constant
forward-mode AD level                 a dual tensor has a tangent beside its memory
``Tensor.numpy`` refuses              gradients, devices, lazy conjugates, quantized tensors
address 0, but not empty              functional tensors, and storages that were freed
====================================  ==========================================================

`torch.compiler.is_dynamo_compiling` comes before all of these, because torch.compile cannot trace
them. Most of these checks call ``torch._C``: the public functions take longer. If a version of
torch lacks one, torch makes all parts, which is correct but slower.
"""

import contextlib
import functools
import math
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from splitjit._abi.thresholds import FROM_SYSTEM, LONG_RUN, THRESHOLDS
from splitjit._inputs.torch.foreign import shape_of
from splitjit._plan.plan import Plan

TORCH: Any = SimpleNamespace(kinds=(), in_reach=lambda x: False)
"""What `look_up` has found in torch, once a tensor has been split.

Attributes
----------
kinds : tuple of type
    Tensor and Parameter.
is_traced : callable
    Tells whether torch.compile is tracing.
split_copy : callable
    Torch's operator ``split_with_sizes_copy``.
in_reach : callable
    Tells whether kernels may read a tensor: it is of these kinds, and torch does nothing else with
    operators now than to carry them out. The tensor must also pass ``x.numpy()``, and have an
    address other than 0.
"""


@functools.cache
def look_up() -> None:
    """Look up in torch what each split needs, which costs as much as the checks."""
    torch = sys.modules["torch"]
    forward_ad = torch.autograd.forward_ad
    TORCH.split_copy = torch.split_with_sizes_copy
    TORCH.is_traced = is_traced = torch.compiler.is_dynamo_compiling
    TORCH.kinds = kinds = torch.Tensor, torch.nn.Parameter  # other threads ask `is_traced` next
    try:
        is_tracing = torch._C._is_tracing
        in_function_mode = torch._C._is_torch_function_mode_enabled
        count_dispatch_modes = torch._C._len_torch_dispatch_stack
        in_functorch = torch._C._are_functorch_transforms_active
        forward_ad._current_level  # noqa: B018
    except AttributeError:
        return

    def in_reach(x: Any) -> bool:
        if is_traced() or type(x) not in kinds or count_dispatch_modes() or in_functorch():
            return False
        return not (is_tracing() or forward_ad._current_level >= 0 or in_function_mode())

    TORCH.in_reach = in_reach


@functools.cache
def words() -> dict[Any, Any]:
    """Map each dtype that NumPy lacks to an integer dtype of equal size.

    Quantized dtypes are left out: their tensors hold more than their items.
    """
    torch = sys.modules["torch"]
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    dtypes = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in dtypes}
    return {
        dtype: integers[dtype.itemsize]
        for dtype, name in names.items()
        if not (hasattr(np, name) or name.startswith(("qint", "quint")))
    }


def array_of(x: Any) -> np.ndarray | None:
    """Return the memory of a tensor as an array, or None if it is not the whole tensor."""
    word = words().get(x.dtype)
    try:
        if x.requires_grad and sys.modules["torch"].is_grad_enabled():
            return None
        x = x.detach()  # a new tensor, which no other thread can change by `set_` or `resize_`
        # `numpy` refuses other devices and lazy conjugates, and fixes the size of the storage.
        array: np.ndarray = (x if word is None else x.view(word)).numpy()
    except MemoryError:
        raise
    except Exception:
        return None
    return array if not array.size or (x.data_ptr() and lies_in_storage(x)) else None


def lies_in_storage(x: Any) -> bool:
    """Return whether a non-empty tensor fits in its storage, which may have been shrunk."""
    nbytes = int(x.nbytes) if x.is_contiguous() else _span_of(x)
    start = int(x.storage_offset()) * int(x.element_size())
    return start + nbytes <= int(x.untyped_storage().nbytes())


def _span_of(x: Any) -> int:
    """Return the bytes from the first item of a non-empty tensor to the end of its last one."""
    steps = zip(x.shape, x.stride(), strict=True)  # torch has no negative strides
    return (1 + sum([(int(n) - 1) * int(step) for n, step in steps])) * int(x.element_size())


def _quiet(x: Any) -> Any:
    """Silence torch's warnings about addresses of fake tensors and numbers in a trace."""
    torch = sys.modules["torch"]
    if type(x) in (torch.Tensor, torch.nn.Parameter) and not torch.jit.is_tracing():
        return contextlib.nullcontext()
    return warnings.catch_warnings(action="ignore")


def _address_of(x: Any) -> int:
    """Return the address of a tensor, or 0 for tracers and wrappers, which have no memory."""
    try:
        with _quiet(x):
            return int(x.data_ptr()) if x.untyped_storage().data_ptr() else 0
    except (NotImplementedError, RuntimeError):
        return 0


def places_of(tensors: list[Any]) -> list[np.ndarray]:
    """Return arrays that overlap exactly as the tensors do. Nothing may read or write them.

    A tensor without CPU memory gets an address that no program can have, one for each storage.
    """
    storages: dict[int, int] = {}
    return [_place_of(x, storages) for x in tensors]


def _place_of(x: Any, storages: dict[int, int]) -> np.ndarray:
    address = _address_of(x) if x.device.type == "cpu" else 0
    with _quiet(x):
        size = x.element_size()
        if not address:
            try:
                key, offset = x.untyped_storage()._cdata, int(x.storage_offset()) * size
            except (AttributeError, NotImplementedError, RuntimeError):  # a wrapper has no storage
                key, offset = id(x), 0
            address = storages.setdefault(key, _NOWHERE + _ROOM * len(storages)) + offset
        interface = {
            "data": (address, False),
            "shape": shape_of(x),
            "strides": tuple([int(n) * size for n in x.stride()]),
            "typestr": np.dtype((np.void, size)).str,
            "version": 3,
        }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


_NOWHERE = 1 << 57
"""Above any address of a program."""

_ROOM = 1 << 44
"""Larger than any storage."""


def has_lost_memory(x: Any) -> bool:
    """Return whether a tensor does not fit in its storage. Operators of torch would crash on it.

    Tracers, wrappers and zero tensors have no memory to lose: their storages say the right size.
    """
    torch, x = sys.modules["torch"], unwrapped(x)
    if x.is_nested or x.layout is not torch.strided:
        return False
    if _address_of(x):
        with _quiet(x):
            return bool(int(x.numel())) and not lies_in_storage(x)
    if x.device.type not in _WITH_STORAGES or torch._is_functional_tensor(x):
        return False
    try:
        nbytes = x.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):  # a wrapper has no storage
        return False
    return type(nbytes) is int and nbytes == 0 and bool(x.numel())


def unwrapped(x: Any) -> Any:
    """Return the tensor that functorch has wrapped, for example in a ``vmap``."""
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        x = functorch.get_unwrapped(x)
    return x


_WITH_STORAGES = ("cpu", "cuda", "mps", "xpu")
"""Devices whose tensors keep their memory in a storage. On others it may have 0 bytes."""


def tensors_over(parts: list[np.ndarray], dtype: Any) -> list[Any]:
    """Return arrays as tensors of a dtype; see `array_of`.

    Each tensor has its own storage, so `torch.save` writes no other part.
    """
    from_numpy = sys.modules["torch"].from_numpy
    if dtype not in words():
        return list(map(from_numpy, parts))
    return [from_numpy(part).view(dtype) for part in parts]


# ---- torch's own operator, ``split_with_sizes_copy`` -----------------------------------------
#
# It is for small tensors, since adapting one for kernels takes longer than copying it, and for long
# runs: in a torch program, torch's threads are awake, and ours are not. Kernels take short runs,
# strided and transposed tensors, and all tensors of 32 MB and more.


@functools.cache
def operator_for(dtype: Any, is_small: bool) -> Any:
    """Return how a plan splits its next tensor at once, after the operator has split one.

    What a plan and a dtype decide in `suits_operator` is not checked again. Beside large tensors,
    each check has to fetch its code and data into the cache first, and takes ten times as long.
    """

    def at_once(plan: Plan, x: Any, out: Any) -> list[Any] | None:
        if not TORCH.in_reach(x) or x.dtype is not dtype:
            return None
        targets = own_list(out)
        try:
            if targets is not None:
                fits = _surely_fit(x, plan, targets)
            else:
                fits = _is_plain(x) and x.shape == plan.shape and (is_small or x.is_contiguous())
            return split_by_operator(x, plan, targets) if fits else None
        except RuntimeError:  # torch refuses the layout or the storage, or has no memory
            return None

    return SimpleNamespace(at_once=at_once)


def own_list(out: Any) -> Any:
    """Return a list or tuple as a new list, which nobody else changes, and other objects as is."""
    return list(out) if type(out) in (list, tuple) else out


def split_by_operator(x: Any, plan: Plan, targets: list[Any] | None) -> list[Any]:
    """Return the parts that the operator makes, or writes to tensors."""
    parts = TORCH.split_copy(x, plan.sizes, plan.axis, out=targets)
    return list(parts) if targets is None else targets


def suits_operator(x: Any, plan: Plan, targets: Any) -> bool:
    """Return whether the operator splits a tensor that kernels could reach.

    False if kernels are faster, or if the operator may do anything but what `split` promises.
    """
    if not _is_plain(x) or not _is_known(x.dtype):
        return False
    # It joins the gradients of the parts; our own backward takes longer.
    needs_grad = x.requires_grad and sys.modules["torch"].is_grad_enabled()
    is_faster = needs_grad or _suits_runs([x], plan)
    return is_faster and (targets is None or _surely_fit(x, plan, targets))


def _is_plain(x: Any) -> bool:
    """Return whether CPU memory holds the values of a tensor.

    Torch reads lazy conjugates and negatives without looking at the bounds of the storage.
    """
    return x.is_cpu and not x.is_conj() and not x.is_neg()


def _suits_runs(tensors: list[Any], plan: Plan) -> bool:
    """Return whether torch copies the whole or its parts: small ones, and larger ones of long runs.

    Kernels copy those for which torch would need new memory from the system.
    """
    nbytes = sum([int(x.nbytes) for x in tensors])
    runs = len(plan) * math.prod(plan.shape[: plan.axis])
    is_long = LONG_RUN * runs <= nbytes < FROM_SYSTEM
    return nbytes < THRESHOLDS.large or (is_long and all(x.is_contiguous() for x in tensors))


def _surely_fit(x: Any, plan: Plan, parts: Any, joins: bool = False) -> bool:
    """Return whether torch may copy between a tensor and its parts: they fit, and are apart.

    Those that are written must be contiguous: the parts or, if the parts are joined, `x`. Torch
    would resize an output of another shape, and write to one that records a gradient. It does not
    notice an output that shares memory, or a tensor that reaches beyond its storage.
    """
    if type(parts) is not list or len(parts) != len(plan.sizes):
        return False
    has_versions = not sys.modules["torch"].is_inference_mode_enabled()
    try:  # in the order in which most tensors fail
        kinds, dtype, ranges = TORCH.kinds, x.dtype, []
        itemsize, is_complex = dtype.itemsize, dtype.is_complex
        # `strict=True` would take 0.3 us; the numbers are equal.
        for t, shape in zip((x, *parts), (plan.shape, *plan.output_shapes)):  # noqa: B905
            if type(t) not in kinds or t.dtype is not dtype or t.shape != shape:
                return False
            if not t.is_cpu or t.requires_grad or t.is_neg():
                return False
            if (is_complex and t.is_conj()) or (has_versions and t._version < 0):
                return False  # to read the version of an inference tensor is an error
            start, nbytes = t.data_ptr(), t.nbytes
            if nbytes and not t.is_contiguous():
                is_written = (t is x) == joins
                if is_written:
                    return False
                nbytes = _span_of(t)
            if t.storage_offset() * itemsize + nbytes > len(t.untyped_storage()):  # in bytes
                return False
            ranges.append((start, start + nbytes))
    except (RuntimeError, AttributeError):  # a nested or sparse tensor, or another object
        return False
    if joins:  # parts that are only read may share memory
        start, stop = ranges[0]
        return not [1 for low, high in ranges[1:] if low < stop and start < high]
    ranges.sort()
    return not [1 for i in range(1, len(ranges)) if ranges[i][0] < ranges[i - 1][1]]


def join_at_once(parts: list[Any], plan: Plan, out: Any) -> Any:
    """Return what torch makes of the parts of a plan, or None if they need a closer look."""
    try:
        if parts[0].is_quantized or not _suits_runs(parts, plan):
            return None
        if out is not None:
            fits = _surely_fit(out, plan, parts, joins=True)
        else:  # torch would convert dtypes, skip empty tensors of rank 1, and read past a storage
            fits = [x.shape for x in parts] == [*plan.output_shapes]
            fits = fits and all(x.dtype is parts[0].dtype and lies_in_storage(x) for x in parts)
        return joined(parts, plan.axis, out, False) if fits else None
    except RuntimeError:  # torch refuses the shapes, or lacks the dtype
        return None


def joined(parts: list[Any], axis: int, out: Any, stacks: bool) -> Any:
    """Return the contiguous tensor that torch makes of parts, or writes to `out`."""
    torch = sys.modules["torch"]
    is_compiling = torch.compiler.is_compiling()
    # A program may have replaced the public functions; then torch.compile knows no others.
    own = torch.ops.aten if is_compiling else torch._C._VariableFunctions
    join = own.stack if stacks else own.cat
    if out is None:
        return join(parts, axis).contiguous()
    target = out
    if not is_compiling and type(out) in TORCH.kinds and 1 in out.shape and out.is_contiguous():
        # Torch divides by the stride of the axis, which may be 0 if the axis has length 1.
        target = out.view(-1).view(out.shape)
    join(parts, axis, out=target)
    return out


@functools.cache
def _is_known(dtype: Any) -> bool:
    """Return whether the operator knows a dtype."""
    with contextlib.suppress(RuntimeError):
        x = sys.modules["torch"].empty(1, dtype=dtype, device="cpu")
        return bool(TORCH.split_copy(x, [1]))
    return False
