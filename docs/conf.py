"""Sphinx settings: ``sphinx-build -W -b html docs docs/_build/html``."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import splitjit

sys.path.insert(0, str(Path(__file__).parent))
import pictures  # beside this file

project = "splitjit"
author = copyright = "The splitjit developers"
version = release = splitjit.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "site_pages",
]
highlight_language = "none"  # for code blocks that name no language
exclude_patterns = ["_build", "_made", "**/sg_execution_times.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
default_role = "autolink"  # names of public objects in docstrings become links
nitpicky = True
nitpick_ignore = [("py:obj", "split")]  # the parameter, or an input of a node
nitpick_ignore_regex = [("py:.*", r"(collections|typing)\..*")]

myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline", "colon_fence"]
suppress_warnings = ["myst.header"]  # the pages are also read as plain files in the repository

# The few names of other projects that pages link to. The site builds without a network, and a
# project that moves a page breaks no build.
INVENTORIES = Path(__file__).with_name("inventories")
intersphinx_mapping = {
    name: (url, str(INVENTORIES / f"{name}.inv"))
    for name, url in {
        "numpy": "https://numpy.org/doc/stable/",
        "numba": "https://numba.readthedocs.io/en/stable/",
        "dask": "https://docs.dask.org/en/stable/",
        "onnx": "https://onnx.ai/onnx/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "  # copy what a reader types, without the output
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"\.py$",  # run all of them
    "download_all_examples": False,
    "default_thumb_file": str(Path(__file__).parent / "_static" / "example.svg"),
    "show_memory": False,
    "min_reported_time": 1e9,  # times of a build say nothing about the package
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

shutil.rmtree(Path(__file__).with_name("reference"), ignore_errors=True)  # pages of old names
autosummary_generate = True
autosummary_context = {  # the public members of classes that also have private ones
    "public": {
        "splitjit.files.SplitFiles": "targets, nbytes, share_split",
        "splitjit.files.FilePlan": "part_nbytes",
        "splitjit.files.TensorPlan": "name, shape, dtype, part_shapes",
    }
}
autodoc_typehints = "none"  # numpydoc sections already give the types
numpydoc_show_class_members = False
# All checks except these. GL01 wants the summary below the opening quotes.
numpydoc_validation_checks = {"all", "ES01", "EX01", "GL01", "PR04", "PR06", "PR08", "SA01"}
numpydoc_validation_exclude = {  # the base classes of the first two have the documentation
    r"\.SplitTypeError$",
    r"\.supports_device$",
    r"\.reference_ops$",  # a list
}

html_theme = "pydata_sphinx_theme"
html_title = "splitjit"
html_theme_options = {
    "logo": {
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "text": f"splitjit {version}",
        "alt_text": "",
    },
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],  # the search field is too wide for the bar
    "navigation_with_keys": False,
    "article_footer_items": ["run-examples"],
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        "index": [],
        "conformance": [],
        "performance": [],
        "results": [],
    },
}
pyproject = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8"))
repository = pyproject["project"].get("urls", {}).get("Repository")
if repository:
    html_theme_options["icon_links"] = [
        {"name": "Repository", "url": repository, "icon": "fa-solid fa-code-branch"}
    ]
html_sidebars = {"*": []}  # only the how-to pages have siblings to list; tables need the width
html_show_sourcelink = False
html_domain_indices = False  # the reference lists the modules
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/example.svg"
html_context = {"default_mode": "auto"}  # the theme logs an error if there is none

# The package writes the help texts and the plan that pages show, so they are never out of date.
MADE = Path(__file__).with_name("_made")
MADE.mkdir(exist_ok=True)
for name, arguments in {
    "splitjit": [],
    "split": ["split"],
    "join": ["join"],
    "reshard": ["reshard"],
    "info": ["info"],
    "check": ["check"],
    "warmup": ["warmup"],
}.items():
    command = [sys.executable, "-m", "splitjit", *arguments, "--help"]
    printed = subprocess.check_output(command, env={**os.environ, "COLUMNS": "80"})
    (MADE / f"{name}.txt").write_bytes(printed)
plan = splitjit.plan_split((4096, 6144), [4096, 1024, 1024], axis=1)
(MADE / "plan.html").write_text(f"<figure>{plan._repr_html_()}</figure>", "utf-8")
(MADE / "split.html").write_text(f'<figure class="hero">{pictures.picture()}</figure>', "utf-8")
(MADE / "chart.html").write_text(pictures.chart(), "utf-8")


def publish_history(app, error):
    """Let asv write its pages, with the committed results, beside the pages of the site."""
    root = Path(__file__).parents[1]
    if error is None and app.builder.name == "html" and (root / ".git").exists():
        settings = (root / "asv.conf.json").read_text("utf-8")
        # asv reads paths from the folder of its settings.
        for name, old, new in [
            ("repo", ".", ""),
            ("benchmark_dir", "benchmarks", "benchmarks"),
            ("results_dir", ".asv/results", "benchmarks/results"),
        ]:
            settings = settings.replace(
                f'"{name}": "{old}"', f'"{name}": "{(root / new).as_posix()}"'
            )
        (MADE / "asv.conf.json").write_text(settings, "utf-8")
        command = [sys.executable, "-m", "asv", "--config", MADE / "asv.conf.json", "publish"]
        pages = Path(app.outdir, "asv")
        subprocess.run(
            [*command, "--html-dir", pages], cwd=root, check=True, stdout=subprocess.DEVNULL
        )


def setup(app):
    """Connect the functions of this file to Sphinx."""
    app.connect("build-finished", publish_history)
