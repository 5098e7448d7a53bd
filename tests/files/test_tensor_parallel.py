"""The tensor-parallel plans of transformers: tiny models, computed from the shards of ranks."""

import contextlib
import dataclasses
import io
import itertools
import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import splitjit
from splitjit import files
from splitjit._cli.main import main
from splitjit.files import patterns
from splitjit.files.checkpoints import tensor_parallel
from tests.files.folders import assert_joined, assert_patterns_do_the_same, refused, split_refused
from tests.files.test_checkpoints import load

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5.0")
st = pytest.importorskip("safetensors.torch")

LARGE = pytest.mark.skipif(
    "SPLITJIT_LARGE" not in os.environ, reason="takes long; nox -s large runs it"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # transformers warns of its own deprecations
]

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
SIZES |= {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}
SIZES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES |= {"max_position_embeddings": 32, "attn_implementation": "eager"}
IDS = torch.tensor([[5, 9, 2, 63, 17, 30]])


@pytest.fixture(autouse=True)
def _ask_here(monkeypatch):
    """Ask transformers for plans in this process, which has imported it; a test may undo this."""

    def run(command, **options):
        code = None
        monkeypatch.setattr(sys, "argv", command[-2:])
        monkeypatch.setattr(sys, "stdin", io.StringIO(options["input"]))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                runpy.run_path(command[-2], run_name="__main__")
            except SystemExit as error:
                code = error.code
        return subprocess.CompletedProcess(command, code is not None, printed.getvalue(), code)

    monkeypatch.setattr(tensor_parallel.subprocess, "run", run)


def make(name, folder, **sizes):
    """Save a model with random weights; return the model."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **sizes})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():  # also biases and norms, which are zeros and ones
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder, max_shard_size="20KB")
    return model


def shards(out, count):
    """Read the tensors of each rank by its index."""
    return [load(out / f"rank-{i}", st.load_file) for i in range(count)]


@pytest.mark.long
@torch.no_grad()
def test_transformers_loads_what_join_brings_back(tmp_path, monkeypatch, capsys):
    """The first user of `join` got weights that no program could load: config.json was missing."""
    model = make("Llama", tmp_path / "model")
    split = ["split", str(tmp_path / "model"), "--num-splits=4", "--layout=ranks"]
    split += [f"--out={tmp_path}/shards"]
    capsys.readouterr()
    assert main([*split, "--tp-plan", "--dry-run"]) == 0
    printed, patterns = capsys.readouterr().out.split("the same without --tp-plan:\n")
    assert main([*split, *shlex.split(patterns.replace("\\\n", "")), "--dry-run"]) == 0
    tensors = [line for line in printed.splitlines() if line.startswith("  ")]
    assert tensors == [one for one in capsys.readouterr().out.splitlines() if one[:2] == "  "]
    monkeypatch.undo()  # in another process, as for users
    assert main([*split, "--tp-plan"]) == 0
    assert main(["join", str(tmp_path / "shards"), f"--out={tmp_path}/joined"]) == 0
    again = f"--out={tmp_path}/again"
    assert main(["reshard", str(tmp_path / "shards"), "--num-splits=1", again]) == 0
    for folder in ("joined", "again/rank-0"):
        loaded = type(model).from_pretrained(tmp_path / folder, attn_implementation="eager")
        assert torch.equal(loaded.eval()(IDS).logits, model(IDS).logits)


@LARGE
@pytest.mark.parametrize(
    ("count", "sizes", "message"),
    [
        (3, {"vocab_size": 63}, r"self_attn\.\w_proj\.\w+: .*its [48] heads of length 8 do not go"),
        (16, {"num_key_value_heads": 8}, r"self_attn\.q_proj\.\w+: .*its 8 heads of length 8 do"),
        (4, {"num_attention_heads": 12, "num_key_value_heads": 3}, "its 3 heads of length 8 do"),
    ],
)
def test_heads_are_not_cut(tmp_path, count, sizes, message):
    make("Qwen2", tmp_path / "model", **sizes)
    split_refused(tmp_path / "model", message, num_splits=count, tp_plan=True)


@LARGE
def test_patterns_come_before_the_plan(tmp_path):
    make("Phi3", tmp_path / "model")
    patterns = ["*.qkv_proj.weight=0:64,32,32", "*.gate_up_proj.weight=0:48,48"]
    options = {"num_splits": 2, "layout": "ranks", "tensors": patterns}
    planned = files.plan_files(tmp_path / "model", tp_plan=True, **options)
    plans = {plan.name: plan for file in planned.files for plan in file.tensors}
    assert len(plans["model.layers.1.self_attn.qkv_proj.weight"].sections) == 3
    assert plans["model.layers.1.self_attn.o_proj.weight"].axis == 1
    assert plans["model.norm.weight"].axis is None


@LARGE
def test_a_checkpoint_that_is_not_of_the_model(tmp_path):
    folder = tmp_path / "model"
    make("Llama", folder)
    config = json.loads((folder / "config.json").read_text())
    for change, message in [
        ({"intermediate_size": 96}, r"proj\.weight, of shape .* has it with shape"),
        ({"num_hidden_layers": 3}, r"layers\.2\.\S+, missing"),
        ({"architectures": ["NoModel"]}, "no model class for NoModel"),
        ({"model_type": "none"}, "no tensor-parallel plan"),
    ]:
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        split_refused(folder, message, tp_plan=True)
    (folder / "config.json").write_text("no JSON")
    split_refused(folder, "no tensor-parallel plan", tp_plan=True)
    split_refused(folder, "number of ranks", 2, tp_plan=True)


def plan_of(**styles):
    own = {name: ([name], []) for name in styles}
    return tensor_parallel.ModelPlan("Model", "model", styles, {"": (8, 2)}, own)


STYLES = [("colwise", [8, 4], 0, (8,)), ("colwise", [8], 0, (8,)), ("colwise", [3, 8, 4], 1, (8,))]
STYLES += [("rowwise", [8, 4], 1, (4,)), ("rowwise", [8], None, None)]
STYLES += [("packed_colwise", [3, 8, 4], 1, (4, 4)), ("packed_rowwise", [3, 8, 4], 2, (2, 2))]
STYLES += [("embedding_rowwise", [8, 4], 0, (8,)), ("embedding_colwise", [8, 4], 1, (4,))]
STYLES += [("replicate", [8, 4], None, None)]


@pytest.mark.parametrize(("style", "shape", "axis", "sections"), STYLES, ids=str)
def test_styles(style, shape, axis, sections):
    made = tensor_parallel.choices(plan_of(x=(style, shape)), ["x"], lambda name: False)
    if axis is None:
        assert made == {}
    else:
        assert (made["x"].axis, made["x"].sections) == (axis, sections)


def test_unknown_styles_are_refused():
    with pytest.raises(splitjit.SplitError, match="x, style 'new'"):
        tensor_parallel.choices(plan_of(x=("new", [8, 4])), ["x"], lambda name: False)


def test_every_style_of_transformers_is_known():
    text = Path(transformers.__file__).parent.glob("models/*/configuration_*.py")
    known = {*tensor_parallel._STYLES} | tensor_parallel._WHOLE
    used = set()
    for path in text:
        body = path.read_text("utf-8").partition("base_model_tp_plan = {")[2].partition("}")[0]
        used |= {line.split('"')[3] for line in body.splitlines() if line.count('"') >= 4}
    assert used
    assert used <= known


CONVERTED = [
    # operations, number of tensors, shape, axis, sections; the axis, the sections and the head
    ([["MergeModulelist", 0], ["Concatenate", 1]], 1, [4, 8, 6], 1, (4, 4), (0, None, None)),
    ([["MergeModulelist", 0]], 1, [4, 8, 6], 2, None, (1, None, None)),
    ([["Transpose", 0, 1]], 1, [8, 6], 0, None, (1, None, None)),
    ([["Transpose", -1, -2]], 1, [4, 8, 6], 2, None, (1, None, None)),
    ([["Chunk", 0]], 3, [8, 6], 0, None, (0, (8, 8, 8), None)),
    ([["Chunk", 0]], 3, [8, 6], 1, None, (1, None, None)),
    ([["Concatenate", 0]], 1, [8, 6], 1, None, (1, None, None)),
    ([["Concatenate", 0]], 2, [8, 6], 1, (6,), (1, None, None)),  # the other may have length 4
    ([["Interleave", 1]], 1, [4, 8, 6], 2, None, (2, None, None)),
    # a part holds pairs of rows, so no cut goes through a pair
    ([["Interleave", 1]], 2, [4, 8, 6], 1, (4, 4), (1, None, 2)),
    ([["Interleave", 1]], 2, [4, 8, 6], 1, None, (1, None, 2)),
    ([["Interleave", 1], ["Chunk", 1]], 2, [4, 8, 6], 1, None, (1, None, 2)),
]


@pytest.mark.parametrize(
    ("operations", "count", "shape", "axis", "sections", "expected"), CONVERTED
)
def test_the_axis_before_a_conversion(operations, count, shape, axis, sections, expected):
    choice = patterns.Choice("x", axis, sections)
    made = tensor_parallel._before(choice, operations, count, shape)
    assert (made.axis, made.sections, made.head) == expected


def test_conversions_that_parts_cannot_follow():
    for operations in ([["PermuteForRope"]], [["MergeModulelist", 0]], [["InverseInterleave", 0]]):
        with pytest.raises(splitjit.SplitError, match="give a pattern"):
            tensor_parallel._before(patterns.Choice("x", 0), operations, 1, [4, 8, 6])


def test_parameters_of_one_tensor_that_are_split_differently():
    plan = plan_of(q=("colwise", [8, 4]), k=("replicate", [8, 4]))
    plan = dataclasses.replace(plan, origins={"qk": (["q", "k"], [["Chunk", 0]])})
    with pytest.raises(splitjit.SplitError, match="qk: .* makes q and k of it"):
        tensor_parallel.choices(plan, ["qk"], lambda name: False)


@pytest.mark.parametrize("names", [*itertools.permutations(["a.weight", "a.weight_scale_inv"])])
def test_a_pattern_may_stand_for_what_is_missing(names):
    plan = plan_of(**dict.fromkeys(["a.weight", "b.weight"], ("colwise", [8, 4])))
    plan.origins["a.weight_scale_inv"] = ["a.weight_scale_inv"], []
    file = SimpleNamespace(tensors=names, tensor=lambda name: SimpleNamespace(shape=(8, 4)))
    tensor_parallel.check_shapes(plan, {}, lambda name: name == "a.weight_scale_inv", [file])
    with pytest.raises(splitjit.SplitError, match=r"b\.weight, missing"):
        tensor_parallel.check_shapes(plan, {}, lambda name: False, [file])


def test_layers_with_different_numbers_of_heads():
    styles = {f"layers.{i}.self_attn.k_proj.weight": ("colwise", [32, 4]) for i in range(2)}
    heads = {"layers.0": (8, 4), "layers.1": (8, 2)}
    plan = dataclasses.replace(plan_of(**styles), heads=heads)
    made = tensor_parallel.choices(plan, [*styles], lambda name: False)
    assert [choice.head for choice in made.values()] == [8, 16]


def test_experts_by_name(tmp_path):
    """The checkpoint has a tensor for each expert, and the model one for all of them."""
    folder, out = tmp_path / "model", tmp_path / "out"
    model = make("Mixtral", folder, num_local_experts=4)
    how = {"num_splits": 2, "layout": "ranks", "out": out}
    assert_patterns_do_the_same(files.split_files(folder, tp_plan=True, **how), folder, **how)
    assert_joined(sorted(out.iterdir(), reverse=True), folder)
    names = {name for name in shards(out, 2)[0] if "experts" in name}
    assert any(name.endswith(".experts.3.w2.weight") for name in names)
    whole = model.state_dict()
    halved = "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"
    for rank in range(2):
        config = json.loads((out / f"rank-{rank}" / "config.json").read_text())
        config |= {key: config[key] // 2 for key in halved}
        (out / f"rank-{rank}" / "config.json").write_text(json.dumps(config))
        own = type(model).from_pretrained(out / f"rank-{rank}").state_dict()
        for name, x in own.items():
            expected = whole[name]
            if "gate_up_proj" in name:
                expected = torch.cat([y.chunk(2, 1)[rank] for y in expected.chunk(2, 1)], 1)
            elif "down_proj" in name or "o_proj" in name:
                expected = expected.chunk(2, -1)[rank]
            elif "_proj" in name or "embed" in name or "lm_head" in name:
                expected = expected.chunk(2, 0)[rank]
            torch.testing.assert_close(x, expected, rtol=0, atol=0)


def test_names_with_another_prefix(tmp_path):
    """GPT-NeoX names its head embed_out; transformers calls it lm_head."""
    sizes = {"num_key_value_heads": None, "head_dim": None}
    make("GPTNeoX", tmp_path / "model", **sizes)
    out = tmp_path / "out"
    planned = files.plan_files(tmp_path / "model", num_splits=2, tp_plan=True, out=out)
    plans = {plan.name: plan for file in planned.files for plan in file.tensors}
    assert plans["embed_out.weight"].axis == 0
    with pytest.raises(splitjit.SplitError, match="num_outputs=3 allows a shorter last part"):
        files.plan_files(tmp_path / "model", num_splits=3, tensors=["embed_out.weight"], out=out)


@LARGE
@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_missing_packages_are_named_at_once(tmp_path, monkeypatch, capsys, missing):
    make("Llama", tmp_path / "model")
    error = f"raise ModuleNotFoundError('No module named {missing}', name='{missing}')"
    (tmp_path / f"{missing}.py").write_text(error)
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["split", f"{tmp_path}/model", "--num-splits=2", "--tp-plan"]) == 2
    assert 'needs transformers and torch: pip install ".[transformers]"' in capsys.readouterr().err


def test_a_quantised_checkpoint(tmp_path):
    """The plan names a weight, and the checkpoint holds it with scales or in another form."""
    folder = tmp_path / "model"
    sizes = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 16}
    make("Llama", folder, **sizes, num_hidden_layers=1)
    held = {}
    for path in folder.glob("*.safetensors*"):
        held |= st.load_file(path) if path.suffix == ".safetensors" else {}
        path.unlink()
    for name in [name for name in held if name.endswith("_proj.weight")]:
        rows, columns = held[name].shape
        held[name] = held[name].to(torch.float8_e4m3fn)
        held[f"{name}_scale_inv"] = torch.rand(rows // 32, columns // 32)
    st.save_file(held, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    (folder / "config.json").write_text(json.dumps(config))
    out = tmp_path / "out"
    done = files.split_files(folder, num_splits=2, tp_plan=True, layout="ranks", out=out)
    assert done.warnings == ()
    for rank in range(2):
        own = st.load_file(out / f"rank-{rank}" / "model.safetensors")
        for name in own:
            axis = 1 if "o_proj" in name or "down_proj" in name else 0
            expected = held[name] if "norm" in name else held[name].chunk(2, axis)[rank]
            assert torch.equal(own[name].float(), expected.float())
    assert_joined(sorted(out.iterdir(), reverse=True), folder)
    with refused(tmp_path, r"k_proj\S*: .*its 2 blocks of 32 .*into 4 parts"):
        files.plan_files(folder, num_splits=4, tp_plan=True)
