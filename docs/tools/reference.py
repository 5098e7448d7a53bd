"""Write the tables of docs/reference.md, which say what each public name is.

``python docs/tools/reference.py`` writes them for readers of the repository, with links to the
source. The site has a page for each name instead.
"""

from __future__ import annotations

import inspect
import os
import re
from importlib import import_module
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

PAGE = Path(__file__).parents[1] / "reference.md"
BLOCK = re.compile(r"(?<=<!-- in the repository -->\n).*?\n(<!-- on the site:\n.*?-->)", re.S)
NAME = re.compile(r"^(?:   |\.\. data:: )(\w+)$", re.M)


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
    """Return the page with tables of the names that the site lists."""
    module = ""

    def block(found: re.Match[str]) -> str:
        nonlocal module
        module = (re.findall(r"module:: (\S+)", found[1]) or [module])[0]
        rows = [["name", f"in `{module}`"], ["---"] * 2]
        rows += [row(module, name) for name in NAME.findall(found[1])]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + f"\n\n{found[1]}"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
