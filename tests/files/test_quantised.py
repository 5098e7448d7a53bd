"""Quantised checkpoints: the parts of a layer, dequantised, are the parts of its weight."""

import json
from functools import partial

import numpy as np
import pytest

import splitjit
from splitjit import files
from splitjit.files.checkpoints import quantised, tensor_parallel
from tests.files.folders import assert_joined, assert_patterns_do_the_same, contents, split_refused
from tests.files.test_checkpoints import forget

st = pytest.importorskip("safetensors.numpy")

# Style, output features, input features.
LAYERS = {"self_attn.q_proj": ("colwise", 256, 128), "self_attn.k_proj": ("colwise", 128, 128)}
LAYERS |= {"self_attn.o_proj": ("rowwise", 128, 256), "mlp.up_proj": ("colwise", 512, 128)}
LAYERS |= {"mlp.down_proj": ("rowwise", 128, 512), "mlp.gate": ("replicate", 32, 128)}
BLOCK = 16
GROUP = 32
RNG = np.random.default_rng(5)


def pack(values, bits, axis):
    """Pack unsigned values along an axis, the first one into the lowest bits of an int32."""
    values = np.moveaxis(values, axis, -1)
    shifted = np.unpackbits(values[..., None].astype("u1"), axis=-1, bitorder="little")[..., :bits]
    stream = shifted.reshape(*values.shape[:-1], -1)
    words = np.packbits(stream, axis=-1, bitorder="little").view("<i4")
    return np.ascontiguousarray(np.moveaxis(words, -1, axis))


def unpack(words, bits, axis):
    words = np.ascontiguousarray(np.moveaxis(words, axis, -1))
    stream = np.unpackbits(words.view("u1"), axis=-1, bitorder="little")
    stream = stream.reshape(*words.shape[:-1], -1, bits)
    values = np.packbits(stream, axis=-1, bitorder="little")[..., 0]
    return np.moveaxis(values.astype("i4"), -1, axis)


def numbers(bits, *shape):
    return RNG.integers(0, 1 << bits, shape).astype("u1")


def scales(*shape):
    return RNG.normal(size=shape).astype("f4")


def make_fp8(m, n):
    weight = RNG.integers(-99, 99, (m, n)).astype("i1")  # as many bits as float8
    return {"weight": weight, "weight_scale_inv": scales(-(-m // BLOCK), -(-n // BLOCK))}


def read_fp8(held):
    scale = held["weight_scale_inv"].repeat(BLOCK, 0).repeat(BLOCK, 1)
    weight = held["weight"].astype("f4")
    return weight * scale[: weight.shape[0], : weight.shape[1]]


def make_per_tensor(m, n):
    held = make_fp8(m, n)
    return {**held, "weight_scale_inv": np.float32(2), "activation_scale": np.float32(3)}


def read_per_tensor(held):
    return held["weight"].astype("f4") * held["weight_scale_inv"]


def make_fbgemm(m, n):
    return {"weight": make_fp8(m, n)["weight"], "weight_scale": scales(m, 1)}


def make_scaled(m, n):
    return {"weight": make_fp8(m, n)["weight"], "weight_scale": scales(1)}


def read_scaled(held):
    return held["weight"].astype("f4") * held["weight_scale"]


def make_gptq(m, n, bits=4, group=GROUP, shuffle=False):
    groups = 1 if group < 0 else n // group
    g_idx = np.arange(n, dtype="i4") // (n // groups)
    if shuffle:
        RNG.shuffle(g_idx)
    return {
        "qweight": pack(numbers(bits, n, m), bits, 0),
        "qzeros": pack(numbers(bits, groups, m), bits, 1),
        "scales": scales(groups, m),
        "g_idx": g_idx,
    }


def read_gptq(held, bits=4, group=GROUP, shuffle=False):
    g_idx = held["g_idx"] if shuffle else held["g_idx"] - held["g_idx"][0]
    zeros, scale = unpack(held["qzeros"], bits, 1)[g_idx], held["scales"][g_idx]
    return ((unpack(held["qweight"], bits, 0) - zeros) * scale).T


def make_awq(m, n):
    return {
        "qweight": pack(numbers(4, n, m), 4, 1),
        "qzeros": pack(numbers(4, n // GROUP, m), 4, 1),
        "scales": scales(n // GROUP, m),
    }


def read_awq(held):
    zeros, scale = (x.repeat(GROUP, 0) for x in (unpack(held["qzeros"], 4, 1), held["scales"]))
    return ((unpack(held["qweight"], 4, 1) - zeros) * scale).T


def make_packed(m, n, groups=True):
    count = n // GROUP if groups else 1
    held = {
        "weight_packed": pack(numbers(4, m, n), 4, 1),
        "weight_scale": scales(m, count),
        "weight_shape": np.array([m, n]),
    }
    return held | ({"weight_zero_point": pack(numbers(4, m, count), 4, 0)} if groups else {})


def read_packed(held, groups=True):
    zero, scale = 8, held["weight_scale"]
    if groups:
        zero = unpack(held["weight_zero_point"], 4, 0).repeat(GROUP, 1)
        scale = scale.repeat(GROUP, 1)
    return (unpack(held["weight_packed"], 4, 1) - zero) * scale


def compressed(form, **weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", **weights}}
    config = {"quant_method": "compressed-tensors", "format": form}
    return {**config, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def gptq(bits, group_size=GROUP, desc_act=False):
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, "desc_act": desc_act}


FP8 = {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
PACKED = compressed("pack-quantized", strategy="group", group_size=GROUP, symmetric=False)
PACKED_CHANNELS = compressed("pack-quantized", strategy="channel")
FLOAT_CHANNELS = compressed("float-quantized", strategy="channel")
FLOAT_TENSOR = compressed("float-quantized", strategy="tensor")
IN_ORDER = gptq(4, desc_act=True)
METHODS = {
    # the configuration, how a layer is made and how it is dequantised, and options of both
    "fp8": (FP8, make_fp8, read_fp8, {}),
    "fp8 per tensor": ({"quant_method": "fp8"}, make_per_tensor, read_per_tensor, {}),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, make_fbgemm, read_scaled, {}),
    "gptq": (gptq(4), make_gptq, read_gptq, {}),
    "gptq of 3 bits": (gptq(3), make_gptq, read_gptq, {"bits": 3}),
    "gptq per channel": (gptq(8, -1), make_gptq, read_gptq, {"bits": 8, "group": -1}),
    "gptq in order of activations": (IN_ORDER, make_gptq, read_gptq, {"shuffle": True}),
    "awq": (AWQ, make_awq, read_awq, {}),
    "packed": (PACKED, make_packed, read_packed, {}),
    "packed per channel": (PACKED_CHANNELS, make_packed, read_packed, {"groups": False}),
    "float per channel": (FLOAT_CHANNELS, make_fbgemm, read_scaled, {}),
    "float per tensor": (FLOAT_TENSOR, make_scaled, read_scaled, {}),
}


def save(folder, monkeypatch, method, layers=LAYERS):
    """Save a quantised model, and let the plan be that of a model with these layers."""
    config, make, _, options = METHODS[method]
    folder.mkdir()
    held, plan = {}, {}
    for name, (style, m, n) in layers.items():
        made = {"weight": np.ones((m, n), "f4")} if name == "mlp.gate" else make(m, n, **options)
        held |= {f"layers.0.{name}.{kind}": np.asarray(x) for kind, x in made.items()}
        plan[f"layers.0.{name}.weight"] = (style, [m, n])
        if name == "self_attn.q_proj":
            held[f"layers.0.{name}.bias"] = np.arange(m, dtype="f4")
            plan[f"layers.0.{name}.bias"] = (style, [m])
    st.save_file(held, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    own, heads = {name: ([name], []) for name in (*held, *plan)}, {"": (16, 4)}
    model = tensor_parallel.ModelPlan("Model", "model", plan, heads, own, quantization=config)
    monkeypatch.setattr(tensor_parallel, "load", lambda path, names: model)
    return held


def of(held, layer):
    prefix = f"layers.0.{layer}."
    return {name.removeprefix(prefix): x for name, x in held.items() if name.startswith(prefix)}


def check(ranks, whole, read):
    """Check that what the parts of each layer stand for is the part of its weight."""
    for i, rank in enumerate(ranks):
        held = st.load_file(rank / "model.safetensors")
        for layer, (style, _, _) in LAYERS.items():
            if style != "replicate":
                expected = read(of(whole, layer))
                expected = np.split(expected, len(ranks), 0 if style == "colwise" else 1)[i]
                np.testing.assert_array_equal(read(of(held, layer)), expected)
        bias = np.split(whole["layers.0.self_attn.q_proj.bias"], len(ranks))[i]
        np.testing.assert_array_equal(held["layers.0.self_attn.q_proj.bias"], bias)


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_parts_of_the_weight(tmp_path, monkeypatch, method):
    whole = save(tmp_path / "model", monkeypatch, method)
    _, _, read, options = METHODS[method]
    ranks = {}
    for count in (2, 4):
        out = tmp_path / str(count)
        how = {"tp_plan": True, "layout": "ranks", "out": out}
        done = files.split_files(tmp_path / "model", num_splits=count, **how)
        assert done.warnings == ()
        assert_patterns_do_the_same(done, tmp_path / "model", num_splits=count, **how)
        ranks[count] = [out / f"rank-{i}" for i in range(count)]
        check(ranks[count], whole, partial(read, **options))
    assert_joined(ranks[4][::-1], tmp_path / "model")
    files.reshard_files(ranks[2], num_splits=4, out=tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "4")
    for rank in ranks[4]:
        forget(rank)
    files.join_files(ranks[4], tmp_path / "joined", tp_plan=True, config=tmp_path / "model")
    held = st.load_file(tmp_path / "joined" / "model.safetensors")
    assert held.keys() == whole.keys()
    assert all(np.array_equal(held[name], x) for name, x in whole.items())


REFUSED = [
    ("fp8", ("colwise", 48, 128), r"its 3 blocks of 16 output features \(weight_b"),
    ("fp8", ("colwise", 40, 128), "its 1 sections of 40 features that are not whole blocks of 16"),
    ("fp8", ("rowwise", 128, 16), r"its 1 blocks of 16 input features \(weight_block_size 16\) do"),
    ("gptq", ("colwise", 24, 128), "its 3 blocks of 8 output .*4-bit values pack"),
    ("gptq", ("rowwise", 128, 96), r"its 3 blocks of 32 input features \(.*group_size 32"),
    ("awq", ("colwise", 24, 128), r"its 3 blocks of 8 output features \(4-bit values packed"),
    ("packed", ("rowwise", 128, 32), "its 1 blocks of 32 input features"),
    ("packed", ("colwise", 8, 128), "its 1 blocks of 8 output features"),
]


@pytest.mark.parametrize(("method", "layer", "message"), REFUSED)
def test_cuts_through_blocks(tmp_path, monkeypatch, method, layer, message):
    save(tmp_path / "model", monkeypatch, method, {"mlp.up_proj": layer})
    for rule in ({"num_splits": 2}, {"num_outputs": 2}):
        split_refused(tmp_path / "model", rf"up_proj\.\w+: .*{message}", tp_plan=True, **rule)


@pytest.mark.parametrize("layer", [("colwise", 88, 128), ("rowwise", 128, 88)])
def test_a_single_rank_of_a_weight_that_is_not_whole_blocks(tmp_path, monkeypatch, layer):
    """Nothing is cut, so the one part is a copy. Two parts would be cut through a block."""
    whole = save(tmp_path / "model", monkeypatch, "fp8", {"mlp.up_proj": layer})
    options = {"tp_plan": True, "layout": "ranks", "out": tmp_path / "out"}
    for rule in ("num_splits", "num_outputs"):
        files.split_files(tmp_path / "model", **{rule: 1}, force=True, **options)
        held = st.load_file(tmp_path / "out" / "rank-0" / "model.safetensors")
        assert held.keys() == whole.keys()
        assert all(np.array_equal(held[name], x) for name, x in whole.items())
    assert_joined([tmp_path / "out" / "rank-0"], tmp_path / "model")
    with pytest.raises(splitjit.SplitError, match="into 2 parts whole"):
        files.reshard_files([tmp_path / "out"], num_splits=2, out=tmp_path / "again")


def test_heads_that_are_shorter_than_blocks(tmp_path, monkeypatch):
    """Two ranks would share a block of four key heads of length 4, of which each needs two."""
    layers = {"self_attn.k_proj": ("colwise", 16, 128)}
    save(tmp_path / "model", monkeypatch, "fp8", layers)
    for count in (2, 8):
        says = "k_proj.*blocks of 16 .*heads of 4"
        split_refused(tmp_path / "model", says, tp_plan=True, num_splits=count)


UNKNOWN_LAYOUTS = [
    {"quant_method": "bitsandbytes"},
    {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "marlin"},
    {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
    compressed("nvfp4-pack-quantized", strategy="tensor_group"),
    compressed("marlin-24", strategy="group"),
    {"quant_method": "compressed-tensors", "config_groups": {}},
]


def make_nf4(m, n):
    return {
        "weight": numbers(8, m * n // 2, 1),
        "weight.absmax": scales(m * n // 64),
        "weight.quant_map": scales(16),
        "weight.quant_state.bitsandbytes__nf4": numbers(8, 80),
    }


def make_torchao(m, n):
    return {"_weight_qdata": numbers(8, m, n), "_weight_scale": scales(m, 1)}


def make_hqq(m, n):
    return {"W_q": numbers(8, m // 2, n), "scale": scales(m, 1), "zero": scales(m, 1)}


def make_nvfp4(m, n):
    scale = {"weight_scale": numbers(8, m, n // 16), "weight_global_scale": scales(1)}
    return {"weight_packed": numbers(8, m, n // 2), **scale, "input_global_scale": scales()}


THIS = r"proj\.\w+\S*: splitjit does not know this tensor of"
UNKNOWN = [
    *[(config, make_gptq, THIS) for config in UNKNOWN_LAYOUTS],
    (UNKNOWN_LAYOUTS[3], make_nvfp4, r"patterns for weight_packed, weight_scale of .*up_proj$"),
    ({"quant_method": "bitsandbytes"}, make_nf4, f"{THIS} the quantization 'bitsandbytes'"),
    (None, make_nf4, f"{THIS} an unnamed quan"),
    ({"quant_method": "torchao"}, make_torchao, "the tensors of the quantization 'torchao'"),
    ({"quant_method": "hqq"}, make_hqq, "patterns for the tensors of the quantization 'hqq'"),
]


@pytest.mark.parametrize(("config", "make", "message"), UNKNOWN)
def test_unknown_layouts_need_patterns(tmp_path, monkeypatch, config, make, message):
    monkeypatch.setitem(METHODS, "unknown", (config, make, None, {}))
    held = save(tmp_path / "model", monkeypatch, "unknown", {"mlp.up_proj": ("colwise", 64, 64)})
    options = {"num_splits": 2, "tp_plan": True, "out": tmp_path / "out"}
    with pytest.raises(splitjit.SplitError, match=message):
        files.split_files(tmp_path / "model", **options)
    patterns = [f"{name}=0" for name, x in held.items() if x.size > 1]  # others can only be copied
    files.split_files(tmp_path / "model", tensors=patterns, **options)


def test_a_tensor_of_another_shape(tmp_path, monkeypatch):
    held = save(tmp_path / "model", monkeypatch, "fp8", {"mlp.up_proj": ("colwise", 64, 64)})
    held["layers.0.mlp.up_proj.weight_scale_inv"] = scales(2, 2)
    st.save_file(held, tmp_path / "model" / "model.safetensors")
    says = r"scale_inv, of shape \(2, 2\): must have length 4"
    split_refused(tmp_path / "model", says, tp_plan=True)


def test_the_group_of_a_module():
    """compressed-tensors names modules by class, by name, or by a regular expression."""
    groups = {
        "a": {"targets": ["re:.*up_proj"], "weights": {"num_bits": 8, "strategy": "channel"}},
        "b": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "tensor"}},
        "c": {"targets": ["x.o_proj"], "weights": {"num_bits": 8, "strategy": "channel"}},
        "d": {"targets": ["Linear"], "weights": None},
    }
    config = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    config["config_groups"] = groups
    split = [
        quantised.layouts(config, f"{name}.weight", 0)["weight_scale"] is not None
        for name in ("x.up_proj", "x.o_proj", "x.q_proj")
    ]
    assert split == [True, True, False]
