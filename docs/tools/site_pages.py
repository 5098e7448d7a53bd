"""What Sphinx does for this site only: pictures, signs, bars and cards of tables, commands.

The pages are also read as plain files in the repository. ``site.toml`` says what only the site
shows, and where.
"""

import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pictures
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

import splitjit

PACKAGE = Path(splitjit.__file__).parent
SIGNS = {"✓": "agrees", "✗": "differs"}

ONLY_HERE = tomllib.loads(Path(__file__).with_name("site.toml").read_text("utf-8"))
"""The pieces for each page, by its name."""

TABLE_OF_NAMES = re.compile(r"^\| name \| in `(\S+)` \|\n\|.*\n((?:\|.*\n)+)", re.M)
"""A table of public names of a module, on the page of the reference."""

ALIASES = {"splitjit.openvino.Unknown": "The class `splitjit.onnx.Unknown`."}
"""Names without a page of their own."""


def insert_what_only_the_site_shows(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pieces of site.toml into a page; let the reference list a page for each name."""
    text = source[0]
    for piece in ONLY_HERE.get(docname, ()):
        shown = _as_directive(app, piece["show"])
        if words := piece.get("instead") or piece.get("before"):
            found = re.compile("^" * ("before" in piece) + re.escape(words), re.M)
            if len(found.findall(text)) != 1:
                raise ExtensionError(f"{docname} must have these words of site.toml once: {words}")
            kept = f"\n\n{words}" if "before" in piece else ""
            text = found.sub(lambda _, new=shown + kept: new, text)
        else:
            text = f"{text.rstrip()}\n\n{shown}\n"
    source[0] = with_summaries(text) if docname == "reference" else text


def _as_directive(app: Sphinx, shown: str) -> str:
    """Return the Markdown for a file of HTML, for a part of another page, or for Markdown."""
    file, name = re.fullmatch(r"(?:(\S+\.(?:html|md))(?:, (.+))?)?.*", shown, re.S).groups()
    if file is None:
        return shown
    if name is None:
        return f"```{{raw}} html\n{Path(app.srcdir, file).read_text('utf-8')}\n```"
    options = f":start-after: <!-- {name} -->\n:end-before: <!-- end of {name} -->"
    return f"```{{include}} {file}\n{options}\n```"


def with_summaries(text: str, folder: str = "reference") -> str:
    """Turn the tables of public names into lists of Sphinx, with a page for each name.

    `folder` is where these pages are, from the folder of the text.
    """
    declared: set[str] = set()

    def summary(found: re.Match[str]) -> str:
        module, rows = found.groups()
        lines = [] if module in declared else [f".. module:: {module}", ""]
        declared.add(module)
        names = re.findall(r"^\| \[`(\w+)`\]", rows, re.M)
        aliases = [name for name in names if f"{module}.{name}" in ALIASES]
        lines += [".. autosummary::", f"   :toctree: {folder}", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in names if name not in aliases]
        for name in aliases:
            lines += ["", f".. data:: {name}", "", f"   {ALIASES[f'{module}.{name}']}"]
        listed = "\n".join(lines)
        return f"```{{eval-rst}}\n{listed}\n```\n"

    return TABLE_OF_NAMES.sub(summary, text)


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
