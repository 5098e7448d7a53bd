"""Split tensors into contiguous parts, at the speed of memory.

>>> import numpy as np
>>> import splitjit
>>> q, k, v = splitjit.split(np.zeros((16, 2304), np.float32), num_splits=3, axis=1)
>>> q.shape, q.flags.c_contiguous
((16, 768), True)
"""

from splitjit.buffers import set_buffer_limit
from splitjit.errors import SplitError, SplitTypeError
from splitjit.execution import split, warmup
from splitjit.planner import SplitPlan, plan_split

__all__ = [
    "SplitError",
    "SplitPlan",
    "SplitTypeError",
    "plan_split",
    "set_buffer_limit",
    "split",
    "warmup",
]
__version__ = "0.1.0.dev0"
