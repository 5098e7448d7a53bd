"""How many parts a plan may have on this machine."""

import os
import sys

_MANY_PARTS = 10**6
_BYTES_PER_PART = 208  # measured size of the tuples, integers and slices of a plan


def _memory() -> int:
    """Return this machine's memory in bytes, or 0 if the system does not report it."""
    try:
        if sys.platform == "win32":
            import ctypes

            status = (ctypes.c_uint64 * 8)(64)  # a MEMORYSTATUSEX; its first field is its length
            done = ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
            return status[1] if done else 0
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ImportError, OSError, ValueError):
        return 0


def _limit_on_parts() -> int:
    return max(_MANY_PARTS, _memory() // 2 // _BYTES_PER_PART)


MOST_IN_MEMORY = _limit_on_parts()
"""The most parts allowed: enough to fill half of memory, but at least a million.

Beyond that, the system could kill the process.
"""
