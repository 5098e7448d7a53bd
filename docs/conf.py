"""Sphinx settings: ``sphinx-build -W -b html docs docs/_build/html``."""

import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import splitjit

sys.path.insert(0, str(Path(__file__).with_name("tools")))
import pictures
import site_pages
import thumbnails

project = "splitjit"
author = copyright = "The splitjit developers"
version = release = splitjit.__version__

extensions = [
    "myst_nb",  # with the parser of MyST pages
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "site_pages",
]
highlight_language = "none"  # for code blocks that name no language
exclude_patterns = ["_build", "_made", "**/sg_execution_times.rst", "sg_execution_times.rst"]
exclude_patterns += ["gallery/*.ipynb"]  # downloads of the gallery, whose pages are .rst files
templates_path = ["_templates"]
default_role = "autolink"  # names of public objects in docstrings become links
nitpicky = True
nitpick_ignore = [("py:obj", "split")]  # the parameter, or an input of a node
nitpick_ignore_regex = [("py:.*", r"(collections|typing)\..*")]

nb_execution_mode = "off"  # a test runs the notebook, and compares the outputs that it keeps
myst_heading_anchors = 3
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

# The build runs an example only if the packages that the example needs are installed. The pages of
# the other examples have no output. Workers that are new processes cannot import an example out of
# this build.
runs = {path.stem + "[.]py" for path in Path(__file__).parents[1].glob("examples/*.py")}
if not importlib.util.find_spec("torch"):
    runs -= {"data_loader[.]py", "torch_module[.]py"}
    autodoc_mock_imports = ["torch"]  # for the pages of splitjit.torch
elif multiprocessing.get_start_method() != "fork":
    runs -= {"data_loader[.]py"}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",  # GALLERY_HEADER.txt is preferred to README.md
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": "|".join(runs),
    "download_all_examples": False,
    "default_thumb_file": str(Path(__file__).parent / "_static" / "example.svg"),
    "show_memory": False,
    "min_reported_time": 1e9,  # times of a build say nothing about the package
    "abort_on_example_error": True,
    "remove_config_comments": True,
}

shutil.rmtree(Path(__file__).with_name("reference"), ignore_errors=True)  # pages of old names
autosummary_generate = ["_made/reference.rst"]  # the lists that site_pages makes of tables
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
    r"\.(numpy|torch)\.(cat|concat|concatenate|stack)$",  # the pages of the library do, and `join`
    r"\.(split|reshard|plan)_files$",  # they describe the items of `**rule` as parameters
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
    "header_links_before_dropdown": 7,  # up to the rules
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
urls = pyproject["project"].get("urls", {})  # the only place of the project's addresses
if "Repository" in urls:
    html_theme_options["icon_links"] = [
        {"name": "Repository", "url": urls["Repository"], "icon": "fa-solid fa-code-branch"}
    ]
if "Documentation" in urls:  # each version of the site is a folder there, named by the version
    site = urls["Documentation"].rstrip("/")
    html_theme_options["logo"]["text"] = "splitjit"  # the switcher shows the version
    html_theme_options |= {
        "navbar_start": ["navbar-logo", "version-switcher"],
        "switcher": {"json_url": f"{site}/switcher.json", "version_match": version},
        "check_switcher": False,  # it may not be published yet
    }
html_sidebars = {"*": []}  # only the how-to pages have siblings to list; tables need the width
html_show_sourcelink = False
html_domain_indices = False  # the reference lists the modules
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/example.svg"
html_context = {"default_mode": "auto"}  # the theme logs an error if there is none

# The help texts and plans that pages show come from the package, so they are never out of date.
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
    "cache": ["cache"],
}.items():
    command = [sys.executable, "-m", "splitjit", *arguments, "--help"]
    printed = subprocess.check_output(command, env={**os.environ, "COLUMNS": "80"})
    (MADE / f"{name}.txt").write_bytes(printed)
(MADE / "split.html").write_text(f'<figure class="hero">{pictures.picture()}</figure>', "utf-8")
(MADE / "chart.html").write_text(pictures.chart(), "utf-8")
reference = Path(__file__).with_name("reference.md").read_text("utf-8")
(MADE / "reference.rst").write_text(site_pages.with_summaries(reference, "../reference"), "utf-8")
(MADE / "rules.html").write_text(pictures.rules(), "utf-8")
for name, drawing in pictures.tutorial().items():
    (MADE / f"tutorial-{name}.html").write_text(drawing, "utf-8")
thumbnails.write(MADE / "thumbnails")


def publish_history(app, error):
    """Let asv write its pages, with the kept results, beside the pages of the site."""
    root = Path(__file__).parents[1]
    if error is None and app.builder.name == "html" and (root / ".git").exists():
        script = root / "docs" / "tools" / "asv_pages.py"
        subprocess.run([sys.executable, script, Path(app.outdir, "asv")], check=True)


def write_versions(app, error):
    """Write the list of versions for the switcher: this one, and each tag of a release."""
    if error is None and app.builder.name == "html" and "Documentation" in urls:
        command = ["git", "tag", "--list", "v*", "--sort=-version:refname"]
        tags = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        names = dict.fromkeys([version, *[tag.removeprefix("v") for tag in tags]])
        entries = [{"version": name, "url": f"{site}/{name}/"} for name in names]
        Path(app.outdir, "switcher.json").write_text(json.dumps(entries), "utf-8")


def setup(app):
    """Connect the functions of this file to Sphinx."""
    app.connect("build-finished", write_versions)
    app.connect("build-finished", publish_history)
