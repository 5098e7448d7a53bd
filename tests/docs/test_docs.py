"""The examples of the documentation run, and print the output that the pages show."""

import ast
import doctest
import re
import shlex
from importlib import import_module

import pytest

import splitjit
from splitjit._cli.main import main
from splitjit._cli.parser import make_parser
from splitjit._plan.rules import PARAMETERS
from tests.conftest import ROOT, load_module

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples/README.md"]
NEEDS = {"checkpoints.md": "safetensors", "tutorial.md": "safetensors", "compiled.md": "numba"}
NEEDS |= {"models.md": "onnx", "operators.md": "onnx"}
NEEDS |= {"columns.md": "polars pyarrow pandas"}
NEEDS |= {"dask.md": "dask.array", "transforms.md": "torch jax"}

pytestmark = pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="needs a checkout")


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.name == "compiled.md")) for page in PAGES],
    ids=lambda page: page.name,
)
def test_examples(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
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
    blocks = "".join(re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.M | re.S))
    commands = re.findall(r"(?:python -m |`)splitjit ([a-z-][^`\n]*)", text)
    commands += re.findall(r"^(?:RUN .* && )?splitjit ([^>\n]*)", blocks, re.M)
    assert len(commands) > 20
    for command in commands:
        make_parser().parse_args(shlex.split(command, comments=True))


@pytest.mark.parametrize("module", ["", ".files", ".numpy", ".onnx", ".openvino", ".torch"])
def test_the_reference_has_everything_public(module):
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    if module == ".torch":
        pytest.importorskip("torch")
    tables = re.findall(rf"^\| name \| in `splitjit{module}` \|\n((?:\|.*\n)+)", text, re.M)
    names = re.findall(r"^\| \[`(\w+)`\]", "".join(tables), re.M)
    assert sorted(names) == sorted(import_module(f"splitjit{module}").__all__)


def without_code(page):
    """Return the text of a page without blocks of code and other literals."""
    return re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)


def anchors(page):
    """Return the anchors of a page: its headings as GitHub and Sphinx spell them."""
    titles = re.findall(r"^#+ (.*)$", without_code(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^()\s]+)\)", without_code(page))
    for path, _, anchor in [link.partition("#") for link in links if "://" not in link]:
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    text = page.read_text("utf-8")
    names = re.findall(r"\b(?:splitjit|tests|docs|benchmarks|examples)/[\w./-]*\w\.\w+", text)
    names += [f"tests/{name}" for name in re.findall(r"`((?:\w+/)?test_\w+\.py)`", text)]
    assert not [name for name in names if not (ROOT / name).exists()]


def test_the_table_of_rules_shows_what_the_rules_give():
    pictures = load_module(ROOT / "docs" / "tools" / "pictures.py")
    shown = [row["7 into 3 gives"] for row in pictures.table("rules")]
    assert len(shown) == len(PARAMETERS)
    for cell in shown:
        rule, parts = cell.removeprefix("`").split("`: ")
        keyword, _, value = rule.rpartition("=")
        arguments = {keyword or "split": ast.literal_eval(value)}
        if parts == "an error":
            with pytest.raises(splitjit.SplitError):
                splitjit.plan_split((7,), **arguments)
        else:
            sizes = splitjit.plan_split((7,), **arguments).sizes
            assert parts == ", ".join(map(str, sizes))


def test_pages_show_what_was_measured():
    from benchmarks import documentation

    measured = ROOT / "benchmarks" / "measured"
    for page, text in documentation.pages(documentation.Measured(measured)).items():
        assert text == page.read_text("utf-8"), f"{page} has other figures than {measured}"
