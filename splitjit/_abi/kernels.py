"""The kernels by name, the sizes in bytes for which they have code, and the processor."""

import os

LINE = 64
"""A cache line, and the widest vector. Shorter runs share their lines with other runs."""

PAGE = 1 << 12
"""A page. A store across a page boundary is much slower."""

TILE = 16
"""Bytes of each step of a tile, which the transpose loop turns into cache lines."""

BLOCK = 1 << 17
"""Source bytes that stay in a core's L2 cache while each part takes its runs from them."""

INTERLEAVED = tuple(
    (parts, itemsize)
    for parts in (2, 3, 4, 8)
    for itemsize in (1, 2, 4)
    if (parts, itemsize) != (8, 4)  # the transpose loop is faster
)
"""The numbers of parts and the item sizes for which the deinterleave loop has code."""

LOOPS = ("plain", "stream", "deinterleave", "transpose")
"""The names of the loops. Each loop is compiled on its own, when a layout first needs it."""

JOIN_LOOPS = ("join_plain", "join_stream", "interleave", "join_transpose")
"""The same loops in the other direction, in the same order; all in one object file, "join"."""

METH_O, METH_FASTCALL = 0x8, 0x80
BUILTINS = {"fresh": METH_O, "into": METH_FASTCALL, "lease": METH_O}
"""The functions that Python calls as builtin functions, and whether with ``(record, x)`` or with
``(record, array of arguments, count)``. All others are called by their addresses."""

KERNELS: dict[str, dict[str, tuple[str, ...]]] = {
    "core": {
        "core.layouter": ("lay_out",),
        "core.apart": ("find_shared",),
        "core.entry": ("fresh", "into"),
        "core.team": ("share", "serve"),
        "core.blocks": ("lease", "take_block", "free_block", "clear", "give_back"),
    },
    **{loop: {f"loops.{loop}": (loop,)} for loop in LOOPS},
    "join": {"loops.join": JOIN_LOOPS},
    "njit_split": {"njit_split": ("measure", "copy_parts")},
}
"""The object files, the modules of `splitjit._kernels` in each, and the C functions that these
modules export."""


def processor() -> tuple[str, str]:
    """Return the processor that kernels are compiled for: its name and features, as in LLVM.

    Like Numba, this obeys ``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES`` and ``NUMBA_ENABLE_AVX``, so
    that an image for several kinds of processors can be built on one. It asks the environment
    rather than Numba, because processes that only load kernels do not import Numba.
    """
    import llvmlite.binding as llvm

    name, given = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on all processors
        features = llvm.FeatureMap()
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        features.update({name: False for name in features if name.startswith("avx")})
    if given is None:
        given = "" if name and name.lower() == "generic" else features.flatten()
    elif name is None:
        # A virtual machine may lack features that LLVM expects of a processor with this name.
        lacking = [feature for feature in features.flatten().split(",") if feature.startswith("-")]
        given = ",".join([*lacking, given])
    return llvm.get_host_cpu_name() if name is None else name, given
