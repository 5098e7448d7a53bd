"""The commands for the cache of compiled kernels: ``warmup`` and ``cache``."""

from __future__ import annotations

import os
import time
from typing import Any

import splitjit
from splitjit._abi.kernels import KERNELS
from splitjit._cli.lines import number_of, print_json, printable, say
from splitjit._cli.report import amount
from splitjit._runtime import kernel_files
from splitjit._runtime.loading import LOADER, never_compiles

_FIRST_TIME = (
    "; the first time on this machine, splitjit compiles this version of them, which takes 5 to "
    "10 s on a quiet machine"
)


def announce() -> dict[str, bool]:
    """Say that kernels are loaded now; return for each kernel whether its file is whole."""
    names = [] if never_compiles() else list(KERNELS)
    whole = {name: kernel_files.read(name) is not None for name in names}
    say(f"loading the kernels{'' if all(whole.values()) else _FIRST_TIME}")
    return whole


def not_loaded() -> str:
    """Say which kernels are not loaded, and why; return an empty text if all are."""
    missing = ", ".join([name for name in KERNELS if name not in LOADER.loaded])
    reason = "NUMBA_DISABLE_JIT is set" if never_compiles() else "the log says why"
    return missing and f"kernels not loaded: {missing}; {reason}, and NumPy copies instead"


def warmup(check: bool) -> int:
    """Load or compile all kernels; with `check`, also say which ones were missing."""
    began = time.perf_counter()
    whole = announce()
    splitjit.warmup()
    if missing := not_loaded():
        say(missing)
        return 2
    print(f"All kernels are loaded; this took {time.perf_counter() - began:.1f} s.")
    for name in whole if check else []:
        was = "whole" if whole[name] else "missing or damaged"
        is_new = not whole[name] and kernel_files.read(name) is not None
        print(f"{name}: {was}{', compiled now' if is_new else ''}")
    return int(check and not all(whole.values()))


def cache(clear: bool, as_json: bool) -> int:
    """Print the folders of the cache and their sizes, or remove the files in them."""
    files = kernel_files.remove(older=False) if clear else kernel_files.files()
    left = kernel_files.files() if clear else {}
    found: list[dict[str, Any]] = []
    for folder in kernel_files.folders():
        sizes = [size for path, size in files.items() if os.path.dirname(path) == folder]
        found.append({"path": folder, "files": len(sizes), "bytes": sum(sizes)})
    if as_json:
        print_json({"cleared": clear, "folders": found})
    for row in [] if as_json else found:
        what = f"{number_of(row['files'], 'file')}, {amount(row['bytes'])}"
        print(f"{printable(row['path'])}: {'removed ' if clear else ''}{what}")
    for path in left:
        say(f"cannot remove {path}")
    return 2 if left else 0
