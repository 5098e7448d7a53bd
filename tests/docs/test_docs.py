"""The examples of the documentation run, and print the output that the pages show."""

import doctest
import re
import shlex
from importlib import import_module
from pkgutil import resolve_name

import pytest

from splitjit._cli.main import main
from splitjit._cli.parser import make_parser
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


def test_the_reference_in_the_repository_describes_what_the_site_lists():
    for module in ("sphinx", "torch", "onnx", "dask.array"):
        pytest.importorskip(module)
    file = ROOT / "docs" / "tools" / "reference.py"
    reference = load_module(file)
    text = reference.PAGE.read_text("utf-8")
    assert reference.written(text) == text, f"python {file.relative_to(ROOT)} writes it"


def test_the_header_of_the_site_shows_the_reference():
    settings = (ROOT / "docs" / "conf.py").read_text("utf-8")
    count = int(re.search(r'"header_links_before_dropdown": (\d+)', settings)[1])
    site = (ROOT / "docs" / "tools" / "site.toml").read_text("utf-8")
    tree = site.split("{toctree}\n:hidden:\n\n")[1]
    assert "reference" in tree.splitlines()[:count]


@pytest.mark.parametrize(
    "inventory", sorted((ROOT / "docs" / "inventories").glob("*.inv")), ids=lambda file: file.stem
)
def test_names_of_other_libraries_exist(inventory):
    pytest.importorskip(inventory.stem, minversion={"numpy": "2.1"}.get(inventory.stem))
    lines = inventory.read_text("utf-8").splitlines()
    for name in [line.split()[0] for line in lines if not line.startswith("#")]:
        assert resolve_name(name)


def test_pre_commit_runs_the_linters_of_ci():
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = {hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]}
    steps = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert hooks == {step.split()[0] for step in steps if re.match("ruff|mypy|basedpyright", step)}


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
def test_pages_read_well_as_plain_files(page):
    """In the repository, directives of Sphinx would stand as code; comments are not shown."""
    shown = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.S)
    assert not re.findall(r"^ *(?:`{3,}|:{3,})\{.*|^\.\. .*|\{[\w:]+\}`.*", shown, re.M)


@pytest.mark.parametrize("folder", ["docs", "examples", "benchmarks", "splitjit"])
def test_extras_are_quoted(folder):
    """Some shells take brackets as a pattern of file names, and find none."""
    for file in {*PAGES, *ROOT.glob(f"{folder}/**/*.md"), *ROOT.glob(f"{folder}/**/*.py")}:
        text = file.read_text("utf-8")
        assert not re.findall(r"pip\s+install\s+(?:-\S+\s+)*[\w.]*\[", text), file


def test_readme_is_short():
    assert len(PAGES[0].read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    text = page.read_text("utf-8")
    names = re.findall(r"\b(?:splitjit|tests|docs|benchmarks|examples)/[\w./-]*\w\.\w+", text)
    names += [f"tests/{name}" for name in re.findall(r"`((?:\w+/)?test_\w+\.py)`", text)]
    assert not [name for name in names if not (ROOT / name).exists()]


def test_times_are_only_where_they_are_measured_again():
    """They would grow old in code and prose. Scripts write the tables of the documentation."""
    time = re.compile(r"^(?!\| ).*(?<![\w.])[\d.]*\d\s(µs|ms|s\b|seconds)", re.M)
    texts = [ROOT / name for name in ("README.md", "docs/index.md", "docs/performance.md")]
    files = [*(ROOT / "splitjit").rglob("*.py"), *texts]
    found = {file.name for file in files if time.search(file.read_text("utf-8"))}
    estimates = {"on_kernels.py"}  # for users who wait
    # The periods of a quota, and the figures that set the thresholds
    assert found <= estimates | {"threads.py", "thresholds.py"}


def test_pages_show_what_was_measured():
    from benchmarks import documentation

    measured = ROOT / "benchmarks" / "measured"
    for page, text in documentation.pages(documentation.Measured(measured)).items():
        assert text == page.read_text("utf-8"), f"{page} has other figures than {measured}"
