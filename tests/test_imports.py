"""The direction of imports: a module imports only modules of earlier layers.

The checks read the source. They count the imports that run when a module is imported; an import
inside a function, or under ``if TYPE_CHECKING``, may go in any direction.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import splitjit

PACKAGE = Path(splitjit.__file__).parent

# One layer per line, the lowest first; modules of one layer do not import each other either.
# A folder whose modules are not listed stands for all of them.
LAYERS = """
errors _plan _inputs _copy _api
_plan.cache _plan.protocols _plan.rules _plan.dtypes
_plan.arguments
_plan.sizes
_plan.plan
_plan.drawing _inputs.arrays
_inputs.tensors _inputs.masked
_inputs.sources
_copy.addresses _copy.overlap
_copy.outputs
_copy.layout
_copy.buffers
_copy.loading
_copy.cores
_copy.governor
_copy.threads
_copy.objects
_copy.structs
_copy.entry
_copy.recipe _copy.warmup
_api.run
_api.binding
_api.plan
_api.split
splitjit
_operators _inlining _njit_rules
onnx openvino dask _njit
_files
files
_cli
__main__
"""
LAYER_OF = {name: i for i, line in enumerate(LAYERS.split("\n")) for name in line.split()}

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
KERNELS = [module for module in MODULES if module.startswith("splitjit._kernels")]


def imports(node, everywhere=False):
    """Yield the modules of the package that a syntax tree imports, by default at module level."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports of the package are absolute"
            full = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from [name if name in MODULES else child.module for name in full]
        elif isinstance(child, ast.Import):
            yield from [alias.name for alias in child.names]
        elif everywhere or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.If)):
            yield from imports(child, everywhere)
        elif isinstance(child, ast.If):
            typing = ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
            run = child.orelse if typing else child.body + child.orelse
            yield from imports(ast.Module(run, []))


def imported_by(module, everywhere=False):
    """Return the modules of the package that a module imports."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    return {name for name in imports(tree, everywhere) if name.split(".")[0] == "splitjit"}


def name_in_layers(module):
    name = module.removeprefix("splitjit.")
    if name not in LAYER_OF:
        name = name.split(".")[0]
    assert name in LAYER_OF, f"LAYERS has no line for {module}: choose one"
    return name


@pytest.mark.parametrize("module", [module for module in MODULES if module not in KERNELS])
def test_a_module_imports_only_earlier_layers(module):
    own = name_in_layers(module)
    for imported in imported_by(module):
        if imported in KERNELS:
            only = own.startswith("_copy.") and imported == "splitjit._kernels.table"
            assert only, f"{module} imports {imported} at module level"
            continue
        other = name_in_layers(imported)
        earlier = LAYER_OF[other] < LAYER_OF[own]
        message = f"{module} imports {imported}, which is not in an earlier layer"
        assert earlier or other == own, message


@pytest.mark.parametrize("module", KERNELS)
def test_kernels_import_only_kernels(module):
    assert imported_by(module, everywhere=True) <= {*KERNELS}


@pytest.mark.parametrize("package", ["dask", "numba", "onnx"])
def test_importing_splitjit_does_not_import(package):
    code = f"import sys, splitjit; assert {package!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
