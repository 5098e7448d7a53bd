"""What Sphinx does for this site only: pictures, signs, bars and cards of tables, commands.

The pages are also read as plain files in the repository, where Sphinx's directives stand as code.
So comments say what only the site shows:

- ``<!-- on the site: FILE -->``: a file of HTML;
- ``<!-- on the site: FILE, NAME -->``: another page, from ``<!-- NAME -->`` to its end;
- ``<!-- on the site:`` and lines that end with ``-->``: these lines.

What stands between ``<!-- in the repository -->`` and such a comment is not on the site.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pictures
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import splitjit

PACKAGE = Path(splitjit.__file__).parent
SIGNS = {"✓": "agrees", "✗": "differs"}


ONLY_HERE = re.compile(  # file, name, lines
    r"(?:<!-- in the repository -->.*?)?<!-- on the site:(?: (\S+?)(?:, (.*?))? |\n(.*?)\n)-->",
    re.S,
)


def insert_what_only_the_site_shows(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn the comments of a page into what they stand for."""

    def shown(found: re.Match[str]) -> str:
        file, name, lines = found.groups()
        if lines:
            return lines
        if not name:
            return f"```{{raw}} html\n{Path(app.srcdir, file).read_text('utf-8')}\n```"
        options = f":start-after: <!-- {name} -->\n:end-before: <!-- end of {name} -->"
        return f"```{{include}} {file}\n{options}\n```"

    source[0] = ONLY_HERE.sub(shown, source[0])


def color_conformance(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give cells and rows of the conformance tables classes, which site.css colors and filters."""
    if docname != "conformance":
        return
    for table in doctree.findall(nodes.tgroup):
        header, *rows = table.findall(nodes.row)
        if header.children[0].astext() != "case":
            continue
        rule = None
        for row in rows:
            kinds = {SIGNS.get(cell.astext()[:1], "") for cell in row.children}
            for cell in row.children:
                cell["classes"] += [kind for kind in [SIGNS.get(cell.astext()[:1])] if kind]
            if any(cell.astext() for cell in row.children[1:]):
                row["classes"].append("case")
            else:
                rule = row
                rule["classes"].append("rule")
            if "differs" in kinds:
                row["classes"].append("has-difference")
                if rule is not None and "has-difference" not in rule["classes"]:
                    rule["classes"].append("has-difference")


def draw_rules(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Draw a bar for each row of the table of rules."""
    if docname != "rules":
        return
    for table in doctree.findall(nodes.table):
        header, *rows = table.findall(nodes.row)
        column = [cell.astext() for cell in header.children].index("7 into 3 gives")
        for row in rows:
            cell = row.children[column]
            found = re.search(r": ([\d, ]+)$", cell.astext())
            if found:
                sizes = [int(size) for size in found[1].split(",")]
                cell += nodes.raw("", pictures.bar(sizes), format="html")


def make_cards(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let each row of a table with many columns become a card in a narrow window.

    The cells get the names of their columns, which site.css shows only on cards. The tables of
    conformance scroll instead.
    """
    for table in doctree.findall(nodes.table) if docname != "conformance" else ():
        header, *rows = table.findall(nodes.row)
        names = [cell.astext() for cell in header.children]
        if len(names) < 4 or not [*table.findall(nodes.thead)]:
            continue
        table["classes"] += ["cards", "wide"] if len(names) > 4 else ["cards"]
        for row in rows:
            for name, cell in zip(names[1:], row.children[1:], strict=False):
                if cell.children:
                    cell.children[0].insert(0, nodes.inline("", name, classes=["column"]))


def fit_drawings(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Tell the page how many columns a drawing in text has, so that it fits a narrow window."""
    blocks = list(doctree.findall(nodes.literal_block))  # a list, since the loop adds nodes
    for block in blocks:
        text = block.astext()
        if any(sign in text for sign in "┌│▼"):
            columns = max(map(len, text.splitlines()))
            opening = f'<div class="boxes" style="--columns: {columns}">'
            parent, place = block.parent, block.parent.index(block)
            parent.insert(place, nodes.raw("", opening, format="html"))
            parent.insert(place + 2, nodes.raw("", "</div>", format="html"))


def name_test_of_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Add the command that runs the examples of a page to its foot, for contributors."""
    if doctree is None or ">>> " not in doctree.astext():
        return
    source = Path(app.env.doc2path(pagename))
    if source.suffix == ".md":
        context["run_examples"] = f"python -m pytest tests/docs/test_docs.py -k {source.name}"
    elif pagename.startswith("reference/"):
        module, _, name = pagename.removeprefix("reference/").rpartition(".")
        file = inspect.getsourcefile(getattr(importlib.import_module(module), name))
        path = Path(file).relative_to(PACKAGE.parent).as_posix()
        context["run_examples"] = f"python -m pytest {path}"


def describe_data(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Describe `reference_ops` by the docstring below its definition, which is in a submodule."""
    if name == "splitjit.onnx.reference_ops":
        analyzer = ModuleAnalyzer.for_module("splitjit.onnx.reference")
        lines[:] = analyzer.find_attr_docs()["", "reference_ops"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the functions of this module."""
    app.connect("source-read", insert_what_only_the_site_shows)
    app.connect("doctree-resolved", color_conformance)
    app.connect("doctree-resolved", draw_rules)
    app.connect("doctree-resolved", make_cards)
    app.connect("doctree-resolved", fit_drawings)
    app.connect("html-page-context", name_test_of_page)
    app.connect("autodoc-process-docstring", describe_data, priority=1)
    return {"parallel_read_safe": True}
