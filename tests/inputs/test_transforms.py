"""Tensors inside of transforms of torch: torch makes the parts, by the rules of splitjit."""

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError, plan_split, split, split_into
from splitjit._inputs.torch import tensors
from tests import processes
from tests.conftest import long
from tests.inputs.common import CALLS, RULES, calls, expected, operators, rules, writes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")
IS_OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6)
forward_ad = torch.autograd.forward_ad


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def same(parts, others):
    assert isinstance(parts, (list, tuple))
    assert len(parts) == len(others)
    for part, other in zip(parts, others, strict=True):
        assert part.shape == other.shape
        assert part.dtype == other.dtype
        assert torch.equal(part, other)
    return True


def total(parts):
    """Return a number whose derivative differs for each element."""
    return sum((part * (i + 1) * part).sum() for i, part in enumerate(parts))


# ---- traces -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "length"), [("num_outputs", 15), ("num_outputs", 5), ("rest", 8),
                                              ("num_splits", 9), ("num_sections", 11),
                                              ("chunk", 8)])  # fmt: skip
def test_a_trace_is_right_for_other_lengths(name, length):
    """The number of parts is given, so their lengths follow the input."""
    rule = RULES[name]
    traced = torch.jit.trace(lambda x: tuple(split(x, axis=1, **rule)), numbers(4, 6))
    assert same(traced(numbers(2, length)), expected(numbers(2, length), rule, 1))


@pytest.mark.parametrize(("name", "length"), [("lengths", 7), ("num_splits", 7), ("chunk", 9)])
def test_a_trace_refuses_other_lengths(name, length):
    """Those that the rule refuses, and those that have more parts than the example."""
    traced = torch.jit.trace(lambda x: tuple(split(x, axis=1, **RULES[name])), numbers(4, 6))
    with pytest.raises(RuntimeError):
        traced(numbers(4, length))


@rules
@calls
def test_traced_calls(call, rule):
    if call is not CALLS["plan"]:  # whose shape a trace would read
        traced = torch.jit.trace(lambda x: tuple(call(x * 1, rule)), numbers(4, 6))
        for rows in (4, 7):
            assert same(traced(numbers(rows, 6) * 2), expected(numbers(rows, 6) * 2, rule, 1))
    plan = plan_split((4, 6), axis=1, **rule)
    traced = torch.jit.trace(lambda x: tuple(plan(x)), numbers(4, 6), check_trace=False)
    assert same(traced(numbers(4, 6) * 2), expected(numbers(4, 6) * 2, rule, 1))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic", "pre_dispatch"])
@rules
def test_make_fx_records_nodes(rule, mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    options = {"pre_dispatch": True} if mode == "pre_dispatch" else {"tracing_mode": mode}
    graph = make_fx(lambda x: split(x, axis=1, **rule), **options)(numbers(4, 6))
    for rows in (4, 9) if mode == "symbolic" else (4,):
        assert same(graph(-numbers(rows, 6)), expected(-numbers(rows, 6), rule, 1))


# ---- wrappers of functorch --------------------------------------------------------------


@rules
@calls
def test_functionalize(call, rule):
    function = torch.func.functionalize(lambda x: call(x, rule))
    assert same(function(numbers(4, 6)), expected(numbers(4, 6), rule, 1))
    inner = torch._to_functional_tensor(numbers(4, 6))
    for part, other in zip(call(inner, rule), expected(numbers(4, 6), rule, 1), strict=True):
        torch._sync(part)
        assert torch.equal(torch._from_functional_tensor(part), other)


@rules
@calls
@pytest.mark.parametrize("batch", [0, 1])
def test_vmap(call, rule, batch):
    x = numbers(3, 4, 6)
    parts = torch.vmap(lambda x: tuple(call(x, rule)), in_dims=batch, out_dims=batch)(x)
    assert same(parts, expected(x, rule, 2))


@rules
@calls
def test_gradients(call, rule):
    x = numbers(4, 6)
    slices = total(expected(x.requires_grad_(), rule, 1))
    (wanted,) = torch.autograd.grad(slices, x)
    leaf = numbers(4, 6).requires_grad_()
    parts = call(leaf, rule)
    assert all(part.requires_grad for part in parts)
    total(parts).backward()
    assert torch.equal(leaf.grad, wanted)
    x = numbers(4, 6)
    assert torch.equal(torch.func.grad(lambda x: total(call(x, rule)))(x), wanted)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        made = jacobian(lambda x: tuple(call(x, rule)))(x)
        assert same(made, jacobian(lambda x: tuple(expected(x, rule, 1)))(x))
    hessian = torch.func.hessian(lambda x: total(call(x, rule)))(x)
    assert torch.equal(hessian, torch.func.hessian(lambda x: total(expected(x, rule, 1)))(x))


@rules
@calls
def test_forward_mode_keeps_the_tangent(call, rule):
    x, tangent = numbers(4, 6), numbers(4, 6) * 10
    parts, tangents = torch.func.jvp(lambda x: tuple(call(x, rule)), (x,), (tangent,))
    assert same(parts, expected(x, rule, 1))
    assert same(tangents, expected(tangent, rule, 1))
    with forward_ad.dual_level():
        parts = call(forward_ad.make_dual(x, tangent), rule)
        unpacked = [forward_ad.unpack_dual(part) for part in parts]
        assert same([part.tangent for part in unpacked], expected(tangent, rule, 1))
    assert same(call(x, rule), expected(x, rule, 1))


# ---- tensors without data, and of other classes -----------------------------------------


@rules
@calls
def test_meta_and_fake_tensors(call, rule):
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    shapes = [part.shape for part in expected(numbers(4, 6), rule, 1)]
    meta = torch.empty(4, 6, device="meta")
    parts = call(meta, rule)
    assert [part.shape for part in parts] == shapes
    assert all(part.is_meta for part in parts)
    for device in ("cpu", "cuda"):
        with FakeTensorMode():
            fake = torch.empty(4, 6, device=device)
            inside = call(fake, rule)
        for parts in (inside, call(fake, rule)):
            assert [part.shape for part in parts] == shapes
            assert all(isinstance(part, FakeTensor) for part in parts)
            assert all(part.device == fake.device for part in parts)


DEVICE = """
import numpy as np, torch, splitjit
from torch.utils import backend_registration

backend_registration._setup_privateuseone_for_python_backend("npu")
library = torch.library.Library("aten", "IMPL")

def tensor(values):
    x = torch._C._acc.create_empty_tensor(list(values.shape), torch.float32)
    x.values = values  # what the memory of the device holds
    return x

def views(x, sizes, axis=0):
    return [tensor(part) for part in np.split(x.values, np.cumsum(sizes)[:-1], axis)]

def write(x, values, non_blocking=False):
    x.values[...] = values.values
    return x

library.impl("split_with_sizes", views, "PrivateUse1")
library.impl("clone", lambda x, *, memory_format: tensor(x.values.copy()), "PrivateUse1")
library.impl("copy_", write, "PrivateUse1")
values = np.arange(24, dtype="f4").reshape(4, 6)
x = tensor(values)
assert type(x) is torch.Tensor
for copy in (True, False):
    left, right = splitjit.split(x, [2, -1], axis=1, copy=copy)
    assert left.device == x.device
    assert np.array_equal(right.values, values[:, 2:])
    assert np.shares_memory(right.values, values) != copy
out = [tensor(np.zeros((4, 3), "f4")) for _ in range(2)]
splitjit.plan_split((4, 6), 3, axis=1).bind(out)(x)
assert np.array_equal(out[1].values, values[:, 3:])
assert splitjit.torch.split_with_sizes(x, [2, 4], 1)[0].device == x.device
try:
    splitjit.split(torch.zeros(4, 6), 3, axis=1, out=out)
except splitjit.SplitTypeError as error:
    assert "must be a CPU tensor" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.long
def test_a_device_that_python_implements(tmp_path):
    """Its tensors are of the class Tensor, and their storages have no bytes."""
    registration = pytest.importorskip("torch.utils.backend_registration")
    if not hasattr(registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no devices in Python")
    processes.run(tmp_path, DEVICE)


@torch.fx.wrap
def divide(x):
    return split(x, num_splits=2)


def test_symbolic_traces_are_refused_with_the_fix():
    for function in (
        lambda x: split(x, 2),
        lambda x: plan_split((4,), 2)(x),
        lambda x: split_into(x, [torch.zeros(2)] * 2, 2),
    ):
        with pytest.raises(SplitTypeError, match=r"x of type Proxy: .*decorator torch.fx.wrap, or"):
            torch.fx.symbolic_trace(function)

    def difference(x):
        left, right = divide(x)
        return left - right

    graph = torch.fx.symbolic_trace(difference)
    for length in (4, 6):
        assert graph(torch.arange(length)).tolist() == [-length // 2] * (length // 2)


class Counted(torch.Tensor):
    """A subclass that sees each operator."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_makes_its_own_parts():
    plain = numbers(6, 4).T
    x = plain.as_subclass(Counted)
    for copy in (True, False):
        before = Counted.calls
        parts = split(x, 3, axis=1, copy=copy)
        assert [type(part) for part in parts] == [Counted] * 2
        assert Counted.calls > before
        assert same([torch.Tensor(part) for part in parts], list(torch.split(plain, 3, 1)))
        assert all(part.is_contiguous() == copy for part in parts)


def test_modes_leave_the_copy_to_torch():
    from splitjit._inputs.torch import memory

    x = numbers(4, 6)
    memory.look_up()
    assert memory.TORCH.in_reach(x)
    function_mode = torch.overrides.BaseTorchFunctionMode()
    for mode in torch.device("cpu"), torch.device("meta"), function_mode, forward_ad.dual_level():
        with mode:
            assert not memory.TORCH.in_reach(x)
            parts = split(x, 3, axis=1)
        assert same(parts, list(torch.split(x, 3, 1)))
    with torch.inference_mode(), torch.autocast("cpu"):
        assert memory.TORCH.in_reach(x)


def test_a_torch_without_these_functions_makes_all_parts(monkeypatch):
    from splitjit._inputs.torch import memory

    monkeypatch.delattr(torch._C, "_are_functorch_transforms_active")
    monkeypatch.setattr(memory.TORCH, "in_reach", lambda x: False)  # unless `look_up` sets it
    memory.look_up.__wrapped__()
    assert not memory.TORCH.in_reach(numbers(4))
    assert same(split(numbers(4), 2), list(torch.split(numbers(4), 2)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_join_compiles_in_torch(monkeypatch):
    compile(lambda a: torch.neg(a))(numbers(3))  # torch.compile lists torch's functions once
    monkeypatch.setattr(torch, "cat", splitjit.torch.cat)
    monkeypatch.setattr(torch, "split_with_sizes", splitjit.torch.split_with_sizes)
    a, b, plan = numbers(3, 4), numbers(3, 2), plan_split((3, 6), [4, 2], 1)
    for call in (lambda a, b: splitjit.join([a, b], 1)), (lambda a, b: plan.join([a, b])):
        assert torch.equal(compile(call)(a, b), torch.concat([a, b], 1))
    whole = torch.compile(lambda a, b: splitjit.join([a, b], 1), fullgraph=True, dynamic=True)
    assert all(torch.equal(whole(a[:n], b[:n]), torch.concat([a, b], 1)[:n]) for n in (3, 2))
    for x in a, a.clone().requires_grad_():  # a program has replaced torch's functions
        assert split(x, 2, 1, copy=False)[0].data_ptr() == x.data_ptr()
    for call, says in (
        (lambda a, b: splitjit.join([a, b.double()], 1), "the dtypes must be equal"),
        (lambda a, b: splitjit.join([a, b], True), "must be an integer"),
        (lambda a, b: splitjit.join([a, b], 2), "axis must be in"),
        (lambda a, b: splitjit.join([a[:, 0], a[:0]]), "must be equal in all axes but axis 0"),
        (lambda a, b: plan.join([b, a]), "part 0 has shape"),
        (lambda a, b: plan.join([a]), "the plan has 2 parts"),
    ):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=says):
            compile(call)(a, b)


def test_freed_memory_is_refused():
    """In each mode, transform and class: torch joins such tensors, and crashes."""
    x, cut = torch.ones(4, 4), torch.ones(4, 4)
    x.untyped_storage().resize_(0)
    cut.untyped_storage().resize_(8)

    def refused(given):
        fresh = torch.ones(given.shape)
        for x in (given, cut):
            for call in (lambda x: split(x, 2), lambda x: split(x, 2, copy=False),
                         lambda x: split(fresh, 4, out=[x]), lambda x: splitjit.stack([x, x]),
                         lambda x: splitjit.torch.cat([x, x])):  # fmt: skip
                with pytest.raises(SplitTypeError, match="its memory was freed|was resized to 8"):
                    call(x)
        return torch.zeros(())

    for transform in (lambda call: call), torch.vmap, torch.func.grad, torch.func.functionalize:
        transform(refused)(x)
    refused(x.as_subclass(Counted))
    with torch.device("cpu"):
        refused(x)


def test_torch_writes_to_no_freed_memory():
    """Torch itself does, if it copies what kernels cannot read, and crashes."""
    x, out = torch.ones(4, dtype=torch.complex64).conj(), torch.ones(4, dtype=torch.complex64)
    out.untyped_storage().resize_(0)
    for call in (split, lambda x, n, out: splitjit.join([x], out=out[0])):
        with pytest.raises(SplitTypeError, match=r"out.*its memory was freed"):
            call(x, 4, out=[out])


# ---- outputs ----------------------------------------------------------------------------


def doubled(write):
    """Return a function that writes parts to two buffers, and returns them."""

    def function(x):
        out = [torch.zeros(4, 3), torch.zeros(4, 3)]
        write(x, out)
        return tuple(part * 2 for part in out)

    return function


@writes
def test_outputs_inside_of_transforms(write):
    from torch.fx.experimental.proxy_tensor import make_fx

    function, x = doubled(write), numbers(4, 6)
    wanted = [part * 2 for part in torch.split(-x, 3, 1)]
    assert same(torch.jit.trace(function, x)(-x), wanted)
    assert same(make_fx(function)(x)(-x), wanted)
    assert same(torch.func.functionalize(function)(-x), wanted)
    _, tangents = torch.func.jvp(function, (x,), (-x,))
    assert same(tangents, wanted)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_split_a_parameter_without_its_gradient(dtype, copy):
    weight = torch.nn.Parameter(numbers(4, 6).to(dtype))
    out = [torch.zeros(4, 3, dtype=dtype) for _ in range(2)]
    with torch.no_grad():
        assert tensors.tensor_input(weight).array is not None
        parts = split(weight, num_splits=2, axis=1, copy=copy)
        split(weight, num_splits=2, axis=1, out=out)
    wanted = torch.split(numbers(4, 6).to(dtype), 3, 1)
    assert same(parts, wanted)
    assert same(out, wanted)
    assert [type(part) for part in parts] == [torch.Tensor] * 2
    assert not any(part.requires_grad for part in parts)
    assert (parts[0].data_ptr() == weight.data_ptr()) is not copy


@writes
def test_outputs_that_a_transform_cannot_write_are_refused(write):
    x, out = numbers(4, 6), [torch.zeros(4, 3), torch.zeros(4, 3)]
    with pytest.raises(SplitTypeError, match="records no gradient"):
        write(x.requires_grad_(), out)
    with pytest.raises(SplitTypeError, match="vmap writes no batch to a tensor without"):
        torch.vmap(lambda x: write(x, [torch.zeros_like(x[:, :3]), out[0]]))(numbers(2, 4, 6))
    meta = [torch.zeros(4, 3), torch.zeros(4, 3, device="meta")]
    for given in (meta, [torch.zeros(4, 3).requires_grad_()] * 2):
        with pytest.raises(SplitError, match=r"outs?\[[01]\].*device|gradient"):
            write(numbers(4, 6), given)
    assert not any(part.any() for part in out)


WRONG = [
    ([torch.zeros(4, 3, device="meta")], "out of 1 arrays: must have an array for each of 2"),
    ([torch.zeros(4, 2, device="meta")] * 2, r"out\[0\] of shape \(4, 2\): part 0 has shape"),
    ([torch.zeros(4, 3)] * 2, r"out\[0\] on the device cpu"),
    ([torch.zeros(4, 3, device="meta").double()] * 2, r"out\[0\] of dtype torch.float64"),
    ([np.zeros((4, 3), "f4")] * 2, r"out\[0\] of type ndarray .*must be a torch tensor"),
    (5, "out of type int"),
]


@pytest.mark.parametrize(("out", "says"), WRONG, ids=[says[:12] for _, says in WRONG])
def test_wrong_outputs_are_refused(out, says):
    with pytest.raises(SplitError, match=f"^split: {says}"):
        split(torch.zeros(4, 6, device="meta"), 3, axis=1, out=out)


# ---- refusals, and operators ------------------------------------------------------------


@pytest.mark.parametrize("rule", [
    {"split": [1, 2]}, {"split": [-1, 7]}, {"split": 0}, {"num_splits": 4}, {"num_outputs": 0},
    {"num_sections": -1}, {"indices": [4, 2]}, {"axis": 2, "split": 1},
], ids=str)  # fmt: skip
def test_refusals_are_those_of_arrays(rule):
    """A transform changes no word of a refusal, but for the type of the shape."""
    rule = {"axis": 1, **rule}
    with pytest.raises(SplitError) as of_arrays:
        split(np.ones((4, 6)), **rule)
    meta = torch.empty(4, 6, device="meta")
    for call in (
        lambda: split(meta, **rule),
        lambda: torch.jit.trace(lambda x: split(x, **rule), numbers(4, 6)),
        lambda: torch.vmap(lambda x: split(x, **rule))(numbers(2, 4, 6)),
    ):
        with pytest.raises(SplitError) as refusal:
            call()
        assert str(refusal.value) == str(of_arrays.value)
        assert type(refusal.value) is type(of_arrays.value)


def test_operators_inside_of_transforms():
    x = numbers(4, 6)
    wanted = list(torch.split(x, 2, 1))
    for operator in operators(axis=1):
        parts, tangents = torch.func.jvp(lambda x, run=operator: tuple(run(x)), (x,), (x,))
        assert same(parts, wanted)
        assert same(tangents, wanted)
        batch = torch.vmap(lambda x, run=operator: tuple(run(x)))(x[None])
        assert same([part[0] for part in batch], wanted)
        assert all(part.requires_grad for part in operator(numbers(4, 6).requires_grad_()))


# ---- exported and compiled --------------------------------------------------------------


class Split(torch.nn.Module):
    """A module that splits by several rules: one export takes seconds."""

    def __init__(self, *names):
        super().__init__()
        self.rules = [RULES[name] for name in names]

    def forward(self, x):
        return tuple(part for rule in self.rules for part in split(x * 2, axis=1, **rule))


def run_onnx(path, x):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path)
    (given,) = session.get_inputs()
    return [torch.from_numpy(part) for part in session.run(None, {given.name: x.numpy()})]


OTHER_LENGTHS = {
    "rest": (8, 3),
    "chunk": (8, 5),
    "num_outputs": (8, 5),
    "num_splits": (9,),
    "indices": (8,),
    "num_sections": (8, 9),
}
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*legacy TorchScript",
                                   "ignore:.*dynamic_axes.*", "ignore:.*LeafSpec",
                                   "ignore:.*param_schemas", "ignore:Graph break")  # fmt: skip


@quiet
@pytest.mark.parametrize("name", RULES)
def test_exported_by_the_tracer(name, tmp_path):
    onnx, path, rule = pytest.importorskip("onnx"), tmp_path / "model.onnx", RULES[name]
    for axes, lengths in (({0: "rows"}, (6,)),
                          ({0: "rows", 1: "length"}, OTHER_LENGTHS.get(name, (6,)))):  # fmt: skip
        torch.onnx.export(Split(name).eval(), (numbers(4, 6),), path, dynamo=False,
                          input_names=["x"], dynamic_axes={"x": axes})  # fmt: skip
        nodes = {node.op_type for node in onnx.load(path).graph.node}
        assert nodes & {"Split", "Slice", "SplitToSequence"}
        for length in lengths:
            x = numbers(9, length)
            if name == "chunk" and length != 6:
                with pytest.raises(Exception, match="Split"):
                    run_onnx(path, x)
            else:
                assert same(run_onnx(path, x), expected(x * 2, rule, 1))


def compile(function, backend="eager", fullgraph=True, **options):
    """Compile a function anew."""
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=fullgraph, **options)


unfinished = pytest.mark.skipif(IS_OLD, reason="this torch exports few models by dynamo=True")


@quiet
@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "axes"),
    [
        pytest.param(tuple(RULES), (0,), marks=pytest.mark.long),
        (tuple(n for n in OTHER_LENGTHS if n != "chunk"), (0, 1)),
    ],
)
@unfinished
def test_exported_by_dynamo(names, axes, tmp_path):
    pytest.importorskip("onnxscript")
    onnx, path = pytest.importorskip("onnx"), tmp_path / "model.onnx"
    shapes = dict.fromkeys(axes, torch.export.Dim.AUTO)
    torch.onnx.export(Split(*names).eval(), (numbers(4, 6),), path, dynamo=True,
                      verbose=False, dynamic_shapes=(shapes,))  # fmt: skip
    nodes = {node.op_type for node in onnx.load(path).graph.node}
    assert nodes == {"Mul", "Split"} if axes == (0,) else nodes > {"Slice", "Split"}
    for length in (6, 9) if 1 in axes else (6,):
        x = numbers(9, length)
        wanted = [part for name in names for part in expected(x * 2, RULES[name], 1)]
        assert same(run_onnx(path, x), wanted)
    if 1 in axes:  # a Split node refuses lengths that do not fit num_splits
        with pytest.raises(Exception, match="Split"):
            run_onnx(path, numbers(9, 8))


def export(module, strict, dims=None):
    """Export a module, and let dims of its input change."""
    options = {"dynamic_shapes": dims and (dims,), "strict": strict}
    return torch.export.export(module.eval(), (numbers(4, 6),), **options)


strictness = pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.long)])


@quiet
@pytest.mark.slow
@strictness
@pytest.mark.parametrize("name", RULES)
def test_export_for_other_lengths(name, strict):
    dim, rule = torch.export.Dim, RULES[name]
    try:
        program = export(Split(name), strict, {0: dim.AUTO, 1: dim.AUTO})
    except KeyError:
        assert IS_OLD
        pytest.skip("this torch fails at slices of computed lengths")
    run = program.module()
    for length in (6, 8, 9, 5, 3):  # refused, if the graph is not right for this length
        try:
            parts = run(numbers(9, length))
        except (SplitError, AssertionError, RuntimeError):
            assert length != 6
            continue
        assert same(parts, expected(numbers(9, length) * 2, rule, 1))


@quiet
@pytest.mark.slow
def test_compiled_without_a_break():
    splitjit.warmup(["float32"])
    plan = plan_split((4, 6), 3, axis=1)
    out = plan.empty(torch.float32)
    for _ in range(3):
        plan(numbers(4, 6).numpy())  # the plan now knows a builtin function for arrays
    into = plan.bind(plan.empty(torch.float32))
    operator = splitjit.openvino.VariadicSplit()

    def function(x):
        x = x * 2
        by_rule = [part for rule in RULES.values() for part in split(x, axis=1, **rule)]
        views = [part for rule in RULES.values() for part in split(x, axis=1, copy=False, **rule)]
        if IS_OLD:  # whose torch.compile cannot read plans
            return by_rule, views, operator(x, 1, [2, -1])
        return by_rule, views, operator(x, 1, [2, -1]), plan(x), plan(x, out), into(x)

    compiled = compile(function)
    for x in (numbers(4, 6), -numbers(4, 6)):
        by_rule, views, by_operator, *by_plan = compiled(x)
        wanted = [part for rule in RULES.values() for part in expected(x * 2, rule, 1)]
        assert same(by_rule, wanted)
        assert same(views, wanted)
        assert same(by_operator, list(torch.split(x * 2, [2, 4], 1)))
        for parts in by_plan:
            assert same(parts, list(torch.split(x * 2, 3, 1)))
    assert IS_OLD or all(a is b for a, b in zip(by_plan[1], out, strict=True))


@pytest.mark.filterwarnings("ignore::UserWarning")  # about what Dynamo does not trace
def test_arrays_are_joined_in_torch_compile():
    """Dynamo would make the whole in the native byte order, and loops fill it with bytes."""
    splitjit.warmup()
    for dtype in ">f4", "M8[s]":
        x = np.arange(24).reshape(4, 6).astype(dtype)
        made = compile(lambda x: splitjit.join([x, x], 1), fullgraph=False)(x)
        assert made.dtype == x.dtype
        assert (made == np.concatenate([x, x], 1)).all()


def test_joins_of_channels_last_are_contiguous():
    x = numbers(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    for name in "cat", "stack":
        join = getattr(splitjit.torch, name)
        for call in join, compile(lambda tensors, dim, join=join: join(tensors, dim)):
            made = call([x, x], 1)
            assert made.is_contiguous()
            assert torch.equal(made, getattr(torch, name)([x, x], 1))


@quiet
@pytest.mark.slow
def test_refusals_of_compiled_functions():
    compiled = compile(lambda x: split(x * 2, [1, 2], axis=1), fullgraph=False)
    with pytest.raises(SplitError, match=r"lengths must sum to the axis length 6, not to 3"):
        compiled(numbers(4, 6))
    layer = torch.nn.Linear(6, 6)  # in a graph of its own, torch traces the refusal
    compiled = compile(lambda x: split(layer(x), [1, 2], axis=1))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"SplitError\(.*, not to 3'"):
        compiled(numbers(4, 6))


def into(x, lengths):
    """Split into tensors of lengths 2 and 4."""
    out = [x.new_zeros(4, 2), x.new_zeros(4, 4)]
    splitjit.split_into(x, out, lengths, 1)
    return out


ONNX, SEQUENCE = splitjit.onnx.Split(axis=1), splitjit.onnx.SplitToSequence(axis=1)
VARIADIC = splitjit.openvino.VariadicSplit()
READ_AT_RUN_TIME = {
    "lengths": (lambda x, n: split(x, n.tolist(), 1), [[2, 4], [6, 0]], [[2, 5], [-1, 7]]),
    "a tensor": (lambda x, n: split(x, n, 1), [[2, 4], [1, 5]], [[2, 3]]),
    "views": (lambda x, n: split(x, n.tolist(), 1, copy=False), [[2, 4]], [[2, 3]]),
    "known": (lambda x, n: split(x, [n.tolist()[0], 4], 1), [[2]], [[3]]),
    "rest": (lambda x, n: split(x, [n.tolist()[0], -1], 1), [[2], [6]], [[7], [-2]]),
    "indices": (lambda x, n: split(x, indices=n.tolist(), axis=1),
                [[2, 4], [-4, 9], [3, 3]], [[4, 2], [5, -5]]),
    "into": (lambda x, n: into(x, n.tolist()), [[2, 4]], [[1, 5], [5, 1]]),
    "VariadicSplit": (lambda x, n: VARIADIC(x, 1, n), [[2, 4]], [[2, 3]]),
    "VariadicSplit of a list": (lambda x, n: VARIADIC(x, 1, [*n.tolist(), -1]), [[2, 3]], [[4, 3]]),
    "Split": (lambda x, n: ONNX(x, n), [[2, 4]], [[-1, 7]]),
    "Split of a list": (lambda x, n: ONNX(x, n.tolist()), [[2, 4]], [[-1, 7]]),
    "SplitToSequence": (lambda x, n: SEQUENCE(x, n), [[2, 4]], [[2, 3]]),
    "axis in lengths": (lambda x, n: split(n.nonzero(), [1, 2]), [[1, 0, 2, 3]], [[1, 0]]),
    "axis in equal parts": (lambda x, n: split(n.nonzero(), num_splits=2), [[1, 0, 2]], [[1, 0]]),
    "axis and rest": (lambda x, n: split(n.nonzero(), [1, -1]), [[1, 0, 2, 3]], [[0, 0]]),
    "axis at indices": (lambda x, n: split(n.nonzero(), indices=[1, -1]), [[1, 0, 2, 3]], []),
}  # fmt: skip
"""Splits by numbers that a compiled graph reads from a tensor: those that fit, and others."""
USUAL = ("lengths", "rest", "into", "Split")


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("name", long(*READ_AT_RUN_TIME, if_not=USUAL))
def test_compiled_for_numbers_in_a_tensor(name):
    """pytorch#122126: a graph is made without these numbers, and checks them when it runs."""
    if not hasattr(pytest.importorskip("torch.fx.experimental.symbolic_shapes"), "guard_or_false"):
        pytest.skip("this torch cannot say whether only run time will tell")
    function, right, wrong = READ_AT_RUN_TIME[name]
    compiled = compile(function)
    x, options = numbers(4, 6), ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
    with torch._dynamo.config.patch(dict.fromkeys(options, True)):
        for given in map(torch.tensor, right):
            assert same(compiled(x, given), function(x, given))
        for given in map(torch.tensor, wrong):
            with pytest.raises(Exception, match="Runtime assertion|torch._check|data-dependent"):
                compiled(x, given)
