"""Sphinx settings: ``sphinx-build -W -b html docs docs/_build/html``."""

import os
import subprocess
import sys
from pathlib import Path

import splitjit

project = "splitjit"
author = copyright = "The splitjit developers"
version = release = splitjit.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
highlight_language = "none"  # for code blocks that name no language
exclude_patterns = ["_build", "_made"]
default_role = "autolink"  # names of public objects in docstrings become links
nitpicky = True
nitpick_ignore = [("py:obj", "split")]  # the parameter, or an input of a node
nitpick_ignore_regex = [("py:.*", r"(numpy|collections|typing|dask)\..*")]

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]  # the pages are also read as plain files in the repository

autodoc_typehints = "none"  # numpydoc sections already give the types
numpydoc_show_class_members = False
# All checks except these. GL01 wants the summary below the opening quotes.
numpydoc_validation_checks = {"all", "ES01", "EX01", "GL01", "PR04", "PR06", "PR08", "SA01"}
numpydoc_validation_exclude = {  # their base classes have the documentation
    r"\.SplitTypeError$",
    r"\.supports_device$",
}

html_theme = "pydata_sphinx_theme"
html_title = "splitjit"
html_theme_options = {
    "header_links_before_dropdown": 7,  # all of them
    "navbar_persistent": ["search-button"],  # the search field is too wide for the bar
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "conformance": [], "performance": []},
}
html_sidebars = {"*": []}  # only the how-to pages have siblings to list; tables need the width
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

# The package writes the help texts and the plan that pages show, so they are never out of date.
MADE = Path(__file__).with_name("_made")
MADE.mkdir(exist_ok=True)
for name, arguments in {"splitjit": [], "split": ["split"], "check": ["check"]}.items():
    command = [sys.executable, "-m", "splitjit", *arguments, "--help"]
    printed = subprocess.check_output(command, env={**os.environ, "COLUMNS": "80"})
    (MADE / f"{name}.txt").write_bytes(printed)
plan = splitjit.plan_split((4096, 6144), [4096, 1024, 1024], axis=1)
(MADE / "plan.html").write_text(f"<figure>{plan._repr_html_()}</figure>", "utf-8")


def publish_history(app, error):
    """Let asv write its pages, with the committed results, beside the pages of the site."""
    root = Path(__file__).parents[1]
    if error is None and app.builder.name == "html" and (root / ".git").exists():
        command = [sys.executable, "-m", "asv", "publish", "--html-dir", Path(app.outdir, "asv")]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def setup(app):
    """Connect the functions of this file to Sphinx."""
    app.connect("build-finished", publish_history)
