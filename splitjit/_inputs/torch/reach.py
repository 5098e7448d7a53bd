"""Whether kernels may read a torch tensor: the one place that asks torch.

torch does not notice when a kernel reads memory. So kernels copy only tensors whose memory is all
there is to them. torch splits all others with its own operators; see `foreign.py`.

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

`torch.compiler.is_compiling` comes before all of these, because torch.compile cannot trace them.
Most of these checks call ``torch._C``: the public functions take longer. If a version
of torch lacks one, torch makes all parts, which is correct but slower.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


@functools.cache
def reach_of_kernels() -> Callable[[Any], bool]:
    """Return a function that tells whether kernels may read a tensor.

    The tensor must also pass ``x.numpy()``, and have an address other than 0.
    """
    torch = sys.modules["torch"]
    forward_ad = torch.autograd.forward_ad
    try:
        is_tracing = torch._C._is_tracing
        in_function_mode = torch._C._is_torch_function_mode_enabled
        count_dispatch_modes = torch._C._len_torch_dispatch_stack
        in_functorch = torch._C._are_functorch_transforms_active
        forward_ad._current_level  # noqa: B018
    except AttributeError:
        return lambda _: False
    plain = torch.Tensor, torch.nn.Parameter

    def in_reach(x: Any) -> bool:
        return type(x) in plain and not (
            count_dispatch_modes()
            or in_functorch()
            or is_tracing()
            or forward_ad._current_level >= 0
            or in_function_mode()
        )

    return in_reach
