"""pyproject.toml, the conda recipe, CITATION.cff and the changelog agree about the release."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import splitjit
from tests.conftest import ROOT

RECIPE = ROOT / "conda" / "recipe.yaml"
CONDA_NAMES = {"dask": "dask-core", "torch": "pytorch"}  # names that differ from PyPI's

if not RECIPE.exists():
    pytest.skip("needs conda/ beside tests/", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recipe():
    """Read the recipe, and replace each ${{ name }} by its value in the recipe's context."""
    yaml = pytest.importorskip("yaml")
    text = RECIPE.read_text(encoding="utf-8")
    context = yaml.safe_load(text)["context"]
    return yaml.safe_load(
        re.sub(r"\$\{\{ (\w+) \}\}", lambda match: context.get(match[1], match[0]), text)
    )


def as_conda(requirements):
    """Return PyPI requirements as in the recipe; conda itself does what their markers say."""
    parsed = [Requirement(line) for line in requirements]
    return {f"{CONDA_NAMES.get(r.name, r.name)} {r.specifier}" for r in parsed if not r.marker}


def test_the_recipe_has_the_version_and_needs_of_the_project(recipe):
    project, needs = PROJECT["project"], recipe["requirements"]
    python = f"python {project['requires-python']}"
    assert set(needs["run"]) == as_conda(project["dependencies"]) | {python}
    assert set(needs["host"]) >= as_conda(PROJECT["build-system"]["requires"])
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    assert set(needs["run_constraints"]) == as_conda(extras)
    assert recipe["package"]["version"] == splitjit.__version__


def test_changelog_begins_with_this_version():
    versions = re.findall(r"^## (.+)$", CHANGES, re.MULTILINE)
    version = Version(splitjit.__version__)
    if version.is_devrelease:
        assert versions.pop(0) == "Unreleased"
    newest, date = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", versions[0]).groups()
    if version.is_devrelease:
        assert Version(newest) < version
    else:
        assert newest == splitjit.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {newest}\ndate-released: {date}\n" in citation
