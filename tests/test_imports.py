"""The direction of imports: a module imports only modules of earlier layers.

The checks read the source. They count all imports: at module level, inside functions, and for
type checkers only. The one exception: `_copy` loads compiled kernels inside functions, so that
``import splitjit`` does not import Numba.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import splitjit

PACKAGE = Path(splitjit.__file__).parent
TESTS = Path(__file__).parent
BENCHMARKS = TESTS.parent / "benchmarks"
CONTRIBUTING = TESTS.parent / "CONTRIBUTING.md"

# One layer per line, the lowest first; modules of one layer do not import each other either.
# The name of a folder stands for its modules that have no line of their own.
LAYERS = """
errors _plan _inputs _copy _api
_plan.cache _plan.protocols _plan.rules _plan.dtypes _plan.classes
_plan.arguments
_plan.sizes
_plan.plan
_plan.drawing _inputs.arrays _inputs.reach
_inputs.input
_inputs.foreign _inputs.owners
_inputs.memory
_inputs.structs
_inputs.tensors
_inputs.adapt
_copy.events
_copy.addresses _copy.frames _copy.builtins _copy.cores _copy.structs
_copy.overlap _copy.cache_folder _copy.imports
_copy.object_files
_copy.loading
_copy.crossovers
_copy.outputs _copy.layout _copy.objects
_copy.buffers
_copy.threads
_copy.slices _copy.compiled
_copy.recipe _copy.warmup
_api.adapted _api.tensors
_api.lazy
_api.run
_api.binding _api.explanation
_api.plan
_api.split _api.explain
_operators
_planes
onnx openvino numpy torch dask
files.signals files.disk
files.places files.staging_folder
files.staging
files.formats
files.patterns
files.plan
files.tiles
files.splitting
files.joining
checkpoints.ask_transformers checkpoints.presets checkpoints.quantised checkpoints.siblings
checkpoints.tensor_parallel checkpoints.index
checkpoints.record checkpoints.naming
checkpoints.splitting checkpoints.joining
checkpoints.described
checkpoints.verbs
checkpoints
files
splitjit
_njit
_cli
__main__ _pyinstaller
"""
LAYER_OF = {name: i for i, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def modules_of(folder):
    """Return the files of a package by the names of their modules."""
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in sorted(folder.rglob("*.py"))
    }


MODULES = modules_of(PACKAGE)
KERNELS = [module for module in MODULES if module.startswith("splitjit._kernels")]


def name_called(call):
    """Return the last name of what is called: `import_module` of ``importlib.import_module``."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def imported_by(module, modules=MODULES):
    """Return the modules of the package that a module imports, and those in functions alone."""
    tree = ast.parse(modules[module].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {node for function in functions for node in ast.walk(function)}
    package = module.split(".")[0]
    found = {True: set(), False: set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports of the package are absolute"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in full]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and name_called(node) in ("import_module", "__import__"):
            constants = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            names = [name for name in constants if isinstance(name, str)]
        else:
            continue
        found[node in inside] |= {name for name in names if name.split(".")[0] == package}
    return found[True] | found[False], found[True] - found[False]


def name_in_layers(module):
    name = module.removeprefix("splitjit.")
    while name not in LAYER_OF and "." in name:
        name = name.rpartition(".")[0]
    assert name in LAYER_OF, f"LAYERS has no line for {module}: choose one"
    return name


@pytest.mark.parametrize("module", [module for module in MODULES if module not in KERNELS])
def test_a_module_imports_only_earlier_layers(module):
    own = name_in_layers(module)
    imported, in_functions = imported_by(module)
    for name in sorted(imported):
        if name in KERNELS:
            plain = ("splitjit._kernels.table", "splitjit._kernels.overlap")  # import no Numba
            assert name in plain or name in in_functions
            continue
        other = name_in_layers(name)
        earlier = LAYER_OF[other] < LAYER_OF[own]
        message = f"{module} imports {name}, which is not in an earlier layer"
        assert earlier or other == own, message


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("splitjit.files.")])
def test_files_know_nothing_of_checkpoints(module):
    names = imported_by(module)[0]
    assert not [name for name in names if name.startswith("splitjit.checkpoints")]
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not called & {"import_module", "importlib.import_module", "__import__"}


def test_importing_files_does_not_import_checkpoints():
    modules = [m for m in MODULES if m.startswith("splitjit.files")]
    code = f"import sys, {', '.join(modules)}\nassert 'splitjit.checkpoints' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", KERNELS)
def test_kernels_import_only_kernels(module):
    assert imported_by(module)[0] <= {*KERNELS, "splitjit._plan.rules"}  # which imports nothing


@pytest.mark.parametrize("folder", [PACKAGE, BENCHMARKS], ids=lambda folder: folder.name)
def test_no_module_imports_itself_by_way_of_others(folder):
    modules = modules_of(folder)
    left = {module: imported_by(module, modules)[0] & {*modules} - {module} for module in modules}
    while free := [module for module, imported in left.items() if not imported & {*left}]:
        for module in free:
            del left[module]
    assert modules
    assert not left


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_read_in_one_sitting(module):
    assert MODULES[module].read_text(encoding="utf-8").count("\n") <= 400


def rows_of_the_map():
    """Return the rows of the table of modules: the paths of the first column, and the tests."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    table = text.partition("<!-- modules -->\n")[2].partition("<!-- end of modules -->")[0]
    rows = []
    for line in table.splitlines()[2:]:
        modules, _, tests = line.strip("| ").split(" | ")
        paths, folder = [], ""
        for name in re.findall("`(.+?)`", modules):  # a name without a folder is in the last one
            if "/" in name:
                folder = name.rpartition("/")[0] + "/"
            paths.append(name if "/" in name else folder + name)
        rows.append((paths, re.findall("`(.+?)`", tests)))
    return rows


def test_the_map_has_each_module_once():
    named = [path for paths, _ in rows_of_the_map() for path in paths]
    assert sorted(set(named)) == sorted(named)
    assert not [path for path in named if not (PACKAGE / path).exists()]
    for module, path in MODULES.items():
        if len(ast.parse(path.read_text(encoding="utf-8")).body) < 2:  # a docstring alone
            continue
        file = path.relative_to(PACKAGE)
        places = {file.as_posix(), *[f"{folder.as_posix()}/" for folder in file.parents]}
        assert places & {*named}, f"the table of modules has no row for {module}"


def test_the_map_names_tests_that_exist():
    for modules, tests in rows_of_the_map():
        assert tests, f"no tests for {modules}"
        assert not [test for test in tests if not (TESTS / test).is_file()]


@pytest.mark.parametrize("package", ["dask", "numba", "onnx"])
def test_importing_splitjit_does_not_import(package):
    code = f"import sys, splitjit; assert {package!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
