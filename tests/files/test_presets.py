"""Presets for families without a plan in transformers: each rank is a thread with its own parts."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from splitjit import files
from tests.files.folders import assert_patterns_do_the_same
from tests.files.test_tensor_parallel import LARGE, _ask_here

__all__ = ["_ask_here"]  # a fixture

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5.0")
st = pytest.importorskip("safetensors.torch")

IN_CI = "GPT2LMHeadModel"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

IDS = torch.tensor([[5, 9, 2, 63, 17, 30]])
TEXT = {"input_ids": IDS}
SEQUENCES = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]}
PIXELS = {**TEXT, "pixel_values": torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)}
SOUND = {"input_features": torch.linspace(-1, 1, 128).reshape(1, 8, 16), "decoder_input_ids": IDS}

TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
BERT = {**TOWER, "num_attention_heads": 8, "vocab_size": 64, "max_position_embeddings": 32}
CLIP = {"text_config": {**BERT, "eos_token_id": 30}, "projection_dim": 16}
CLIP |= {"vision_config": {**TOWER, "num_attention_heads": 4, "image_size": 8, "patch_size": 4}}
OPT = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 8}
OPT |= {"vocab_size": 64, "max_position_embeddings": 32, "word_embed_proj_dim": 32}
WHISPER = {"d_model": 32, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16}
for side in ("encoder", "decoder"):
    WHISPER |= {f"{side}_layers": 1, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 48}
WHISPER |= {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WHISPER |= {"decoder_start_token_id": 1}
BLOOM = {"hidden_size": 32, "n_layer": 2, "n_head": 8, "vocab_size": 64}
T5 = {"d_model": 32, "d_kv": 4, "d_ff": 48, "num_layers": 2, "num_heads": 8, "vocab_size": 64}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 8, "vocab_size": 64, "n_positions": 32}
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 64}
FALCON |= {"bos_token_id": 1, "eos_token_id": 2, "bias": True}
GROUPS = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 4}
ALIBI = {**FALCON, "multi_query": False, "alibi": True, "parallel_attn": False}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "state_size": 8}
MAMBA |= {"time_step_rank": 4, "use_bias": True}

# The configuration, the inputs, and the attributes of attentions that count heads or features.
FAMILIES = {
    "BertModel": (BERT, TEXT, ["num_attention_heads", "all_head_size"]),
    "BloomForCausalLM": (BLOOM, TEXT, ["num_heads"]),
    "CLIPModel": (CLIP, PIXELS, ["num_heads", "embed_dim"]),
    "FalconForCausalLM": (FALCON, TEXT, ["num_heads"]),
    "FalconForCausalLM with groups": (GROUPS, TEXT, ["num_heads", "num_kv_heads"]),
    "FalconForCausalLM with alibi": (ALIBI, TEXT, ["num_heads", "num_kv_heads"]),
    "FalconMambaForCausalLM": ({**MAMBA, "mixer_rms_eps": 1e-6}, TEXT, ["intermediate_size"]),
    "MambaForCausalLM": (MAMBA, TEXT, ["intermediate_size"]),
    "GPT2LMHeadModel": (GPT2, TEXT, ["num_heads", "split_size", "embed_dim"]),
    "OPTForCausalLM": (OPT, TEXT, ["num_heads", "embed_dim"]),
    "T5ForConditionalGeneration": (T5, SEQUENCES, ["n_heads", "inner_dim"]),
    "WhisperForConditionalGeneration": (WHISPER, SOUND, ["num_heads", "embed_dim"]),
}


class Sum:
    """Adds up what all ranks compute."""

    def __init__(self, count):
        self.values = [None] * count
        self.barrier = threading.Barrier(count, timeout=60)

    def __call__(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        total = sum(self.values)
        self.barrier.wait()
        return total


def rank_model(model, held, rank, count, attributes, plans, total):
    """Give a copy of the model the parts of a rank, and let it add up partial results."""
    own = copy.deepcopy(model)
    for name, module in own.named_modules():
        for kind in ("A_log", "D"):
            if hasattr(module, kind):
                part = torch.nn.Parameter(held[f"{name}.{kind}"], requires_grad=False)
                setattr(module, kind, part)
        if {f"{name}.weight", f"{name}.bias"} & plans.keys():
            axis = plans[f"{name}.weight"].axis
            conv1d = type(module).__name__ == "Conv1D"
            for kind in ("weight", "bias"):
                if getattr(module, kind, None) is not None:
                    part = held[f"{name}.{kind}"]
                    setattr(module, kind, torch.nn.Parameter(part, requires_grad=False))
            if isinstance(module, torch.nn.Conv1d) and module.groups > 1:
                module.groups = len(module.weight)
            if conv1d:
                module.nf = module.weight.shape[1]
            if axis is not None and axis == (0 if conv1d else 1) and "relative" not in name:

                def compute(x, module=module, conv1d=conv1d):
                    y = total(rank, x @ (module.weight if conv1d else module.weight.T))
                    return y if module.bias is None else y + module.bias

                module.forward = compute
        if type(module).__name__ in ("BloomAttention", "FalconAttention"):
            # the slopes of heads are no parameters
            def take_slopes(module, arguments, keywords):
                if keywords["alibi"] is None:
                    return None
                alibi = keywords["alibi"]  # (heads, 1, length), and Falcon's a batch before them
                own = {"alibi": alibi.chunk(count, alibi.ndim - 3)[rank]}
                mask = keywords.get("attention_mask")
                if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:  # Falcon's, of heads
                    own["attention_mask"] = mask.chunk(count, 1)[rank]
                return arguments, {**keywords, **own}

            module.register_forward_pre_hook(take_slopes, with_kwargs=True)
        if type(module).__name__.lower().endswith(("attention", "mixer")):
            for key in attributes:
                if isinstance(getattr(module, key, None), int):
                    setattr(module, key, getattr(module, key) // count)
    return own


@torch.no_grad()
def run(models, inputs):
    """Run the model of each rank in a thread of its own; return the first output of each."""

    def start(model):
        with torch.no_grad():
            return model(**inputs)[0]

    with ThreadPoolExecutor(len(models)) as pool:
        return list(pool.map(start, models))


@pytest.mark.parametrize(
    "name", [name if name == IN_CI else pytest.param(name, marks=LARGE) for name in FAMILIES]
)
def test_ranks_compute_what_the_model_computes(tmp_path, name):
    config, inputs, attributes = FAMILIES[name]
    torch.manual_seed(1)
    kind = getattr(transformers, name.partition(" ")[0])
    made = kind.config_class(**config)
    model = kind._from_config(made, attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        expected = model(**inputs)[0]
    for count in (2, 4):
        out = tmp_path / f"out-{count}"
        options = {"num_splits": count, "tp_plan": True, "layout": "ranks", "out": out}
        planned = files.split_files(tmp_path / "model", **options)
        assert_patterns_do_the_same(planned, tmp_path / "model", **options)
        assert f"the preset of splitjit for {made.model_type} is used" in planned.notes[0]
        plans = {plan.name: plan for file in planned.files for plan in file.tensors}
        assert sum(plan.axis is not None for plan in plans.values()) >= 8
        total = Sum(count)
        ranks = []
        for rank in range(count):
            held = st.load_file(out / f"rank-{rank}" / "model.safetensors")
            ranks.append(rank_model(model, held, rank, count, attributes, plans, total))
        for result in run(ranks, inputs):
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)
