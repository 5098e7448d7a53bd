"""Compile kernels to object files: Numba generates LLVM code, and one object holds a whole kernel.

By default, Numba compiles each function that a kernel calls as its own library, with a Python
wrapper and machine code that nobody calls, and optimizes it again in each caller. Here, a library
only holds LLVM code. `object_code` links a kernel's libraries, then optimizes and assembles them
once. The object exports C functions, which do not need Numba; see `splitjit._runtime.loading`.
"""

import contextlib
import copy
import functools
from importlib import import_module

from llvmlite import ir
from llvmlite.binding import create_pass_builder, create_pipeline_tuning_options
from numba import intp
from numba.core import config
from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUTarget, cpu_target
from numba.core.runtime import rtsys
from numba.core.types import unliteral

from splitjit._abi.kernels import KERNELS, processor
from splitjit._abi.structs import check_numba

_SETTINGS = dict.fromkeys(("DEBUGINFO_DEFAULT", "DEBUG_JIT", "EXTEND_VARIABLE_LIFETIMES"), 0)
_SETTINGS["OPT"] = type(config.OPT)(3)
"""Numba's settings that change the code of kernels, and the values for which kernels are made."""


@contextlib.contextmanager
def _own_settings():
    """Hide the user's settings of Numba's compiler: kernels are always the same code.

    Other processes use them, too. The caller holds Numba's lock, so that no other thread compiles.
    """
    config.reload_config()  # or the first compilation would overwrite our values
    before = {name: getattr(config, name) for name in _SETTINGS}
    try:
        vars(config).update(_SETTINGS)
        yield
    finally:
        vars(config).update(before)


class _Library(AOTCodeLibrary):
    """The code of one function, neither optimized nor assembled."""

    def add_ir_module(self, module):
        for function in module.functions:  # llvmlite before 0.45 cannot do so after parsing
            if not function.is_declaration and "noinline" not in function.attributes:
                function.attributes.add("alwaysinline")
        super().add_ir_module(module)

    def add_llvm_module(self, module):
        self._final_module.link_in(module)

    def add_linking_library(self, library):
        """Note that this library needs another one, and all that that one needs.

        Callers come first: in the other order, LLVM makes up to a tenth more code.
        """
        for needed in (library, *library._linking_libraries):
            if needed not in self._linking_libraries and needed is not rtsys.library:
                self._linking_libraries.append(needed)

    def finalize(self):
        self._finalized = True

    def assemble(self, exported):
        """Link all code that this library needs, optimize it, and return it as an object file."""
        module = self._final_module
        for library in self._linking_libraries:
            module.link_in(library._get_module_for_linking(), preserve=True)
        # The variables are Numba's environments, which no kernel uses.
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name not in exported:
                value.linkage = "internal"
        module.verify()
        # Kernels use vectors where these pay; LLVM's own would not pay.
        options = create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = False
        passes = create_pass_builder(self._codegen._tm, options)
        passes.getModulePassManager().run(module, passes)
        return self._codegen._tm.emit_object(module)


class _Codegen(AOTCPUCodegen):
    """Position-independent code for the processor that object files are named for."""

    _library_class = _Library

    def __init__(self):
        super().__init__("splitjit", processor()[0])

    def _customize_tm_features(self):
        return processor()[1]


_NEEDLESS = {
    "annotate_types",
    "dead_branch_prune",
    "find_literally",
    "generic_rewrites",
    "inline_closure_likes",
    "inline_inlinables",
    "inline_overloads",
    "ir_legalization",  # it marks where variables end, for reference counting
    "literal_unroll",
    "nopython_rewrites",
    "rewrite_semantic_constants",
    "with_lifting",
}
"""Numba's passes that change no kernel. No kernel has a closure, an overload in Python, an array
expression, a branch or a type that a literal decides, or an object that counts references. Without
these passes, compiling takes 0.9 times as long."""


class _Pipeline(CompilerBase):
    """Numba's passes, without the needless ones."""

    def define_pipelines(self):
        kernels = DefaultPassBuilder.define_nopython_pipeline(self.state)
        kernels.passes = [given for given in kernels.passes if given[0].name() not in _NEEDLESS]
        kernels.finalize()
        return [kernels]


class _Target(CPUTarget):
    """Numba's CPU target, with our code generator."""

    @functools.cached_property
    def typing_context(self):
        """Numba's types, which remember what a function returns for the types of its arguments.

        Kernels apply the same operators to integers thousands of times. Each time, Numba would try
        all that an operator may mean. With this memory, compiling takes 0.9 times as long.
        """
        context = copy.copy(cpu_target.typing_context)
        known = {}

        def resolve_function_type(function, args, keywords):
            key = function, args, *dict(keywords).items()
            if key not in known:
                known[key] = type(context).resolve_function_type(context, function, args, keywords)
            return known[key]

        context.resolve_function_type = resolve_function_type
        return context

    @functools.cached_property
    def target_context(self):
        # Importing a kernel's module gets here, and must not wait for Numba's lock: the thread that
        # has it may be importing the same module. So `object_code` makes the code generator.
        context = cpu_target.target_context.subtarget(cached_internal_func={})
        context.codegen = functools.cache(_Codegen)
        context.get_executable = lambda library, fndesc, env: fndesc  # nothing runs here
        return context


class _Function(Dispatcher):
    """A kernel function, compiled for the types of its arguments, but not for literal values."""

    targetdescr = _Target("cpu")

    def add_overload(self, cres):
        self.overloads[tuple(cres.signature.args)] = cres

    def get_call_template(self, args, kws):
        return super().get_call_template([unliteral(kind) for kind in args], kws)


def jit(function):
    """Make a function callable from kernels. LLVM inlines it unless it calls `out_of_line`."""
    flags = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    flags |= {"error_model": "numpy", "_nrt": False}
    return _Function(function, {}, flags, pipeline_class=_Pipeline)


def compile_kernel(name: str) -> bytes:
    """Compile one kernel of `splitjit._abi.kernels.KERNELS`; return its object file."""
    check_numba()
    return object_code(
        [
            getattr(import_module(f"splitjit._kernels.{module}"), function)
            for module, functions in KERNELS[name].items()
            for function in functions
        ]
    )


def object_code(functions):
    """Compile functions to one object file of C functions with the same names.

    Parameters
    ----------
    functions : list
        Functions made by `jit`. All arguments are machine integers, and so are results, if any.

    Returns
    -------
    bytes
    """
    context = _Function.targetdescr.target_context
    with global_compiler_lock, _own_settings():
        library = context.codegen().create_library("splitjit")
        for function in functions:
            kinds = (intp,) * function.py_func.__code__.co_argcount
            function.compile(kinds)
            compiled = function.overloads[kinds]
            library.add_linking_library(compiled.library)
            library.add_ir_module(_c_function(context, library, function.__name__, compiled))
        return library.assemble({function.__name__ for function in functions})


def _c_function(context, library, name, compiled):
    """Return the code of a C function that calls a compiled function, which never raises."""
    module = library.create_ir_module(name)
    kinds = compiled.signature.args
    result = compiled.signature.return_type
    kind = ir.FunctionType(context.get_value_type(result), [*map(context.get_value_type, kinds)])
    builder = ir.IRBuilder(ir.Function(module, kind, name).append_basic_block())
    callee = context.declare_function(module, compiled.fndesc)
    _, value = context.call_conv.call_function(
        builder, callee, result, kinds, builder.function.args
    )
    builder.ret(value)
    return module
