"""The direction of imports: a module imports only its own package, and packages before it.

All imports count: also those inside functions, and those for type checkers only.
"""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

import splitjit
from tests.conftest import ROOT
from tests.processes import python

PACKAGE = Path(splitjit.__file__).parent
BENCHMARKS = ROOT / "benchmarks"
ORDER = (
    "errors", "_plan", "_abi", "_kernels", "_runtime", "_inputs", "_copy", "_api", "splitjit",
    "_njit", "files", "files.checkpoints", "_cli",
)  # fmt: skip
"""The packages, the lowest first; "splitjit" stands for all other public modules."""


def modules_of(folder):
    """Return the files of a package by the names of their modules."""
    files = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path
    return files


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


MODULES = modules_of(PACKAGE)
PUBLIC = {
    f"splitjit.{alias.name}": node.module
    for node in ast.walk(tree_of(MODULES["splitjit"]))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The modules that define the public names: importing such a name imports its module."""

KERNELS = [module for module in MODULES if module.startswith("splitjit._kernels")]
FILES = [module for module in MODULES if module.startswith("splitjit.files")]


def name_called(call):
    """Return the last name of what is called: `import_module` of ``importlib.import_module``."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def imported_by(module, modules=MODULES):
    """Return the modules of the package that a module imports, and those in functions alone."""
    tree = tree_of(modules[module])
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {node for function in functions for node in ast.walk(function)}
    package = module.split(".")[0]
    found = {True: set(), False: set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports of the package are absolute"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else PUBLIC.get(name, node.module) for name in full]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and name_called(node) in ("import_module", "__import__"):
            constants = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            names = [name for name in constants if isinstance(name, str)]
        else:
            continue
        found[node in inside] |= {name for name in names if name.split(".")[0] == package}
    return found[True] | found[False], found[True] - found[False]


def place_of(module):
    """Return where in the order a module is."""
    name = module.removeprefix("splitjit.")
    if name in ("__main__", "_pyinstaller"):
        return ORDER.index("_cli")
    found = [place for place in ORDER if f"{name}.".startswith(f"{place}.")]
    return ORDER.index(max(found, key=len, default="splitjit"))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_packages_before_its_own(module):
    imported, in_functions = imported_by(module)
    if module in ("splitjit", "splitjit.files"):  # these import packages above on first use
        imported -= {*FILES}
    for name in sorted(imported):
        assert place_of(name) <= place_of(module), f"{module} imports {name}, which is above it"
        if name in KERNELS and module not in KERNELS:
            assert name in in_functions, f"{module} imports {name}, and so Numba"


@pytest.mark.parametrize("module", FILES)
def test_files_import_only_public_names_and_plans_of_the_core(module):
    for node in ast.walk(tree_of(MODULES[module])):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "splitjit":
            known = re.fullmatch(r"splitjit(|\.errors|\._plan\..+|\.files(\..+)?)", node.module)
            assert known, f"{module} imports {node.module}"
        elif isinstance(node, ast.Import):
            assert not [one.name for one in node.names if one.name.startswith("splitjit")]
        elif isinstance(node, ast.Call):
            assert name_called(node) not in ("import_module", "__import__")


@pytest.mark.parametrize("module", KERNELS)
def test_kernels_import_only_kernels_and_the_contract(module):
    shared = {name for name in MODULES if name.startswith("splitjit._abi")}
    assert imported_by(module)[0] <= {*KERNELS, *shared, "splitjit._plan.rules"}


@pytest.mark.parametrize("folder", [PACKAGE, BENCHMARKS], ids=lambda folder: folder.name)
def test_no_module_imports_itself_by_way_of_others(folder):
    modules = modules_of(folder)
    assert modules
    others = {module: {*modules} - {module} for module in modules}
    imported = {module: imported_by(module, modules)[0] & others[module] for module in modules}
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_read_in_one_sitting(module):
    assert MODULES[module].read_text(encoding="utf-8").count("\n") <= 400


BELOW_CHECKPOINTS = [name for name in FILES if "checkpoints" not in name]
NOT_IMPORTED = {
    # what a program does: the modules that this does not import
    "pass": "dask numba onnx logging splitjit.dask splitjit.files splitjit.onnx",
    "splitjit.split([1, 2], 1); splitjit.plan_split((6,), 2)(np.arange(6))": "dask numba onnx",
    "splitjit.split(np.arange(10**6), 2**18, copy=False)": "numba onnx",
    "splitjit.onnx.Split, splitjit.openvino.Split": "ml_dtypes numba onnx openvino",
    "splitjit.numpy.split, splitjit.files.split_files": "numba safetensors torch transformers",
    f"import {', '.join(BELOW_CHECKPOINTS)}": "splitjit.files.checkpoints",
    "import splitjit._tensor_types as t; t.tensor_type(np.dtype('f4'))": "ml_dtypes",
}


@pytest.mark.parametrize("code", NOT_IMPORTED)
def test_what_is_not_imported(code):
    names = {*NOT_IMPORTED[code].split()}
    code = f"import sys, numpy as np, splitjit; {code}\nassert not {names} & {{*sys.modules}}"
    python("-c", code)
