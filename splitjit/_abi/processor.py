"""The processor that kernels are compiled for."""

from __future__ import annotations

import os


def processor() -> tuple[str, str]:
    """Return the name and the features of the processor, as LLVM calls them.

    Like Numba, this obeys ``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES`` and ``NUMBA_ENABLE_AVX``, so
    that an image for several kinds of processors can be built on one. It asks the environment
    rather than Numba, because processes that only load kernels do not import Numba.
    """
    import llvmlite.binding as llvm

    name, given = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if given is None and (name is None or name.lower() != "generic"):
        given = _host_features()
    elif name is None:
        # A virtual machine may lack features that LLVM expects of a processor with this name.
        lacking = [feature for feature in _host_features().split(",") if feature.startswith("-")]
        given = ",".join([*lacking, given or ""])
    return llvm.get_host_cpu_name() if name is None else name, given or ""


def _host_features() -> str:
    import llvmlite.binding as llvm

    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on all processors
        return ""
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        features.update({name: False for name in features if name.startswith("avx")})
    flat: str = features.flatten()
    return flat
