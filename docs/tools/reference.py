"""Write the tables of docs/reference.md, which say what each public name is.

To add a name, write its row, such as ``| [`split`]() | |``. ``python docs/tools/reference.py``
fills in the link to its source and its description. The site has a page for each name instead.
"""

from __future__ import annotations

import inspect
import os
import re
from importlib import import_module
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

PAGE = Path(__file__).parents[1] / "reference.md"
TABLE = re.compile(r"^\| name \| in `(\S+)` \|\n\|.*\n((?:\|.*\n)+)", re.M)
NAME = re.compile(r"^\| \[`(\w+)`\]", re.M)


def source(found: object) -> str:
    """Return the file of a definition. Some classes say that they are of the public module."""
    methods = filter(inspect.isfunction, vars(found).values() if inspect.isclass(found) else ())
    files = map(inspect.getsourcefile, [found, *methods])
    own = [file for file in files if file and not file.endswith((f"{os.sep}__init__.py", ">"))]
    return [*own, inspect.getsourcefile(found)][0]


def row(module: str, name: str) -> list[str]:
    """Return a name, with a link to its source, and the first sentence of its description."""
    found = getattr(import_module(module), name)
    text = inspect.getdoc(found)
    if isinstance(found, list):  # described by the docstring below its definition
        found = import_module(f"{module}.reference")
        text = "\n".join(ModuleAnalyzer.for_module(found.__name__).find_attr_docs()["", name])
    link = Path(os.path.relpath(source(found), PAGE.parent)).as_posix()
    summary = re.match(r".*?\.(?=\s|$)", " ".join(text.split()))[0]
    return [f"[`{name}`]({link})", summary.replace("``", "`")]


def written(page: str) -> str:
    """Return the page with the links and the descriptions of its names."""

    def table(found: re.Match[str]) -> str:
        module, names = found[1], NAME.findall(found[2])
        rows = [["name", f"in `{module}`"], ["---"] * 2, *[row(module, name) for name in names]]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)

    return TABLE.sub(table, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
