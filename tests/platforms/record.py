"""Write a row of the table of runs in docs/platforms.md: ``record.py WHAT [HOW]``.

The sessions of nox run this script after their tests, with the Python that ran them. WHAT names the
tests. HOW is "run", unless the system is simulated or emulated. A row of the same system, versions
of two numbers, and tests is replaced.
"""

import datetime
import os
import platform
import re
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "platforms.md"
BEGIN, END = "<!-- runs -->\n", "<!-- end of runs -->"


def row(what, how):
    """Return the row of this Python and today."""
    machine = {"AMD64": "x86-64", "x86_64": "x86-64", "arm64": "AArch64", "aarch64": "AArch64"}
    system = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    if simulated := os.environ.get("SPLITJIT_SYSTEM"):
        system, how = {"windows": "Windows", "macos": "macOS"}[simulated], f"simulated on {system}"
    threads = " without the GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    versions = [f"Python {platform.python_version()}{threads}"]
    versions += [f"{name} {version(name)}" for name in ("numba", "numpy")]
    kind = machine.get(platform.machine(), platform.machine())
    cells = [f"{system}, {kind}", ", ".join(versions), what, how, str(datetime.date.today())]
    return "| " + " | ".join(cells) + " |"


def key(line):
    """Return what rows of the same run have in common."""
    return re.sub(r"(\d+\.\d+)[.\w]*", r"\1", line.rpartition(" | ")[0])


def with_row(page, new):
    """Return the page with a row more, or with a row replaced."""
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    head, rows = table.splitlines()[:2], table.splitlines()[2:]
    rows = sorted([new, *[row for row in rows if key(row) != key(new)]])
    return before + BEGIN + "\n".join([*head, *rows]) + "\n" + END + after


if __name__ == "__main__":
    new = row(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "run")
    PAGE.write_text(with_row(PAGE.read_text(encoding="utf-8"), new), encoding="utf-8")
    print(new)
