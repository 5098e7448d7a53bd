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
highlight_language = "none"  # of blocks that name no language
exclude_patterns = ["_build", "_made"]
default_role = "autolink"  # names in docstrings link to what they name, if it is public
nitpicky = True
nitpick_ignore = [("py:obj", "split")]  # the parameter, or an input of a node
nitpick_ignore_regex = [("py:.*", r"(numpy|collections|typing|dask)\..*")]

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]  # pages that also read well where they lie

autodoc_typehints = "none"  # numpydoc says what they mean
numpydoc_show_class_members = False
# All but these; "first line after the quotes" (GL01) is not our style.
numpydoc_validation_checks = {"all", "ES01", "EX01", "GL01", "PR04", "PR06", "PR08", "SA01"}
numpydoc_validation_exclude = {  # documented by their base classes
    r"\.SplitTypeError$",
    r"\.supports_device$",
}

html_theme = "pydata_sphinx_theme"
html_title = "splitjit"
html_theme_options = {
    "header_links_before_dropdown": 7,  # all of them
    "navbar_persistent": ["search-button"],  # without a field, so that they fit
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "conformance": [], "performance": []},
}
html_sidebars = {"*": []}  # only how-tos have pages beside them; tables need the room
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

# What pages show of the package itself is made by it, so that it is never out of date.
MADE = Path(__file__).with_name("_made")
MADE.mkdir(exist_ok=True)
for name, arguments in {"splitjit": [], "split": ["split"], "check": ["check"]}.items():
    command = [sys.executable, "-m", "splitjit", *arguments, "--help"]
    printed = subprocess.check_output(command, env={**os.environ, "COLUMNS": "80"})
    (MADE / f"{name}.txt").write_bytes(printed)
plan = splitjit.plan_split((4096, 6144), [4096, 1024, 1024], axis=1)
(MADE / "plan.html").write_text(f"<figure>{plan._repr_html_()}</figure>", "utf-8")
