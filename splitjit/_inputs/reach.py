"""Whether kernels may read a tensor of torch: the one place that asks torch.

Whoever owns the memory makes the parts. If a kernel reads the memory of a tensor, torch does not
know of it. So kernels copy only tensors whose memory holds all that torch knows of them. For other
tensors, torch makes the parts by its own operators, see `splitjit._inputs.foreign`.

====================================  ==========================================================
question                              what a kernel would miss
====================================  ==========================================================
class other than Tensor, Parameter    a subclass computes in its own way: FakeTensor, DTensor
mode of ``__torch_dispatch__``        ``make_fx`` and FakeTensorMode record each operator
mode of ``__torch_function__``        ``make_fx(pre_dispatch=True)``, and modes of users
transform of functorch                ``vmap``, ``grad``, ``jvp``, ``functionalize``: wrappers,
                                      whose memory is not their own
``torch.jit.trace``                   it records each operator: a copy would be a constant
level of forward-mode AD              a dual tensor has a tangent beside its memory
``Tensor.numpy`` refuses              gradients, devices, lazy conjugates, quantized tensors
address 0, but elements               functional tensors, and storages that were freed
====================================  ==========================================================

`torch.compiler.is_compiling` comes before all of these, because torch.compile cannot trace them.
Most of these questions are functions of ``torch._C``: the public ones take three times as long.
If a version of torch lacks one, torch makes all parts, which is right, but slower.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


@functools.cache
def reach_of_kernels() -> Callable[[Any], bool]:
    """Return the function that tells whether kernels may read a tensor.

    Kernels may read the tensor if also ``x.numpy()`` accepts it, at an address other than 0.
    """
    torch = sys.modules["torch"]
    tensor, parameter = torch.Tensor, torch.nn.Parameter
    forward_ad = torch.autograd.forward_ad
    try:
        is_tracing = torch._C._is_tracing
        in_function_mode = torch._C._is_torch_function_mode_enabled
        count_dispatch_modes = torch._C._len_torch_dispatch_stack
        in_functorch = torch._C._are_functorch_transforms_active
        forward_ad._current_level  # noqa: B018
    except AttributeError:
        return lambda _: False

    def reach(x: Any) -> bool:
        kind = type(x)
        return not (
            (kind is not tensor and kind is not parameter)
            or count_dispatch_modes()
            or in_functorch()
            or is_tracing()
            or forward_ad._current_level >= 0
            or (in_function_mode() and not _only_sets_device())
        )

    return reach


def _only_sets_device() -> bool:
    """Return whether the modes only choose the device of new tensors (`set_default_device`)."""
    torch = sys.modules["torch"]
    try:
        modes = torch.overrides._get_current_function_mode_stack()
        device_context = torch.utils._device.DeviceContext
    except AttributeError:
        return False
    return all(type(mode) is device_context for mode in modes)
