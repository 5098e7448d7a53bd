"""The examples of the documentation run, and print the output that the pages show."""

import doctest
import re
import shlex
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from splitjit._cli.main import main
from splitjit._cli.parser import make_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {
    "checkpoints.md": "safetensors",
    "compiled.md": "numba",
    "dask.md": "dask.array",
    "models.md": "onnx",
    "operators.md": "onnx",
    "transforms.md": "torch jax",
    "tutorial.md": "safetensors",
}

pytestmark = pytest.mark.skipif(not PAGES[0].exists(), reason="needs a checkout of the repository")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.name == "compiled.md")) for page in PAGES],
    ids=lambda page: page.name,
)
def test_examples(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # the width of drawings of plans
    for module in NEEDS.get(page.name, "numpy").split():
        pytest.importorskip(module)
    text = page.read_text("utf-8").replace("\\\n", "")
    examples = re.sub("^ *```.*", "", text, flags=re.M)  # a blank line ends the expected output
    command = re.compile(r"^\$ python -m splitjit (.*)", re.M)
    examples = command.sub(lambda found: f">>> run({shlex.split(found[1])})", examples)
    names = {"run": lambda arguments: main(arguments) or None}
    test = doctest.DocTestParser().get_doctest(examples, names, page.name, str(page), 0)
    failed, tried = doctest.DocTestRunner().run(test)
    assert failed == 0
    assert tried == sum(line.lstrip().startswith((">>> ", "$ ")) for line in text.splitlines())


def test_commands_are_those_of_the_parser():
    text = "\n".join(page.read_text("utf-8") for page in PAGES).replace("\\\n", " ")
    commands = re.findall(r"python -m splitjit ([^`\n]*)", text)
    assert len(commands) > 3
    for command in commands:
        make_parser().parse_args(shlex.split(command, comments=True))


@pytest.mark.parametrize(
    "module",
    [
        "splitjit",
        "splitjit.files",
        "splitjit.numpy",
        "splitjit.onnx",
        "splitjit.openvino",
        "splitjit.torch",
    ],
)
def test_the_reference_has_everything_public(module):
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    section = text.split(f".. module:: {module}\n")[1].split(".. module::")[0]
    names = re.findall(r"^(?:   |\.\. data:: )(\w+)$", section, re.M)
    assert sorted(names) == sorted(import_module(module).__all__)


@pytest.mark.parametrize(
    "inventory", sorted((ROOT / "docs" / "inventories").glob("*.inv")), ids=lambda file: file.stem
)
def test_names_of_other_libraries_exist(inventory):
    pytest.importorskip(inventory.stem)
    lines = inventory.read_text("utf-8").splitlines()
    for name in [line.split()[0] for line in lines if not line.startswith("#")]:
        assert resolve_name(name)


def test_pre_commit_runs_the_linters_of_ci():
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = {hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]}
    steps = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert hooks == {step.split()[0] for step in steps if re.match("ruff|mypy|basedpyright", step)}
