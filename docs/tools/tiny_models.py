"""Tiny models of the families of transformers, made from the defaults of their configurations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

SIZES: dict[str, int] = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "embed_dim", "out_hidden_size"], 64),
    **dict.fromkeys(
        ["intermediate_size", "ffn_dim", "ffn_hidden_size", "intermediate_size_mlp"], 96
    ),
    **dict.fromkeys(["moe_intermediate_size", "shared_expert_intermediate_size"], 32),
    **dict.fromkeys(["expert_ffn_hidden_size", "expert_ffn_size"], 32),
    **dict.fromkeys(["num_hidden_layers", "num_layers", "n_layer", "depth"], 2),
    **dict.fromkeys(["encoder_layers", "decoder_layers", "num_codebooks", "altup_num_inputs"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "num_heads", "mamba_n_heads"], 8),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 8),
    **dict.fromkeys(["num_key_value_heads", "num_global_key_value_heads"], 4),
    **dict.fromkeys(["head_dim", "global_head_dim", "index_head_dim"], 8),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"], 8),
    **dict.fromkeys(["q_lora_rank", "kv_lora_rank", "o_lora_rank", "sliding_window"], 16),
    **dict.fromkeys(["vocab_size", "vocab_size_per_layer_input"], 128),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["moe_num_experts", "index_n_heads", "index_topk", "linear_num_key_heads"], 4),
    **dict.fromkeys(["num_experts_per_tok", "moe_k", "moe_topk", "o_groups", "eos_token_id"], 2),
    **dict.fromkeys(["n_group", "topk_group", "n_shared_experts", "bos_token_id"], 1),
    **dict.fromkeys(["linear_key_head_dim", "linear_value_head_dim", "linear_num_value_heads"], 8),
    **dict.fromkeys(["mamba_d_state", "hidden_size_per_layer_input", "patch_size"], 8),
    **{"mamba_d_head": 16, "first_k_dense_replace": 1, "pad_token_id": 0, "image_size": 32},
    **{"projection_dim": 64, "max_position_embeddings": 64},
}
"""Small values of the fields of configurations that give sizes."""

_PER_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type", "indexer_types")
_MAPPINGS = (
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_MAPPING_NAMES,
)
_MORE = (
    *("aya_vision", "got_ocr2", "idefics3", "internvl", "llava", "llava_next", "llava_onevision"),
    *("mistral3", "paligemma", "qwen2_audio", "smolvlm", "voxtral"),
)
"""Families whose text model is of another family that has a plan."""

_MOST = 5_000_000
"""The most parameters of a model."""


def families() -> Iterator[str]:
    """Yield the types of models for which transformers has a tensor-parallel plan."""
    for family in configuration_auto.CONFIG_MAPPING_NAMES:
        made = configuration_auto.CONFIG_MAPPING[family]
        inner = (getattr(made, "sub_configs", None) or {}).values()
        planned = any(getattr(one, "base_model_tp_plan", None) for one in (made, *inner))
        if (planned or family in _MORE) and _architecture(family):
            yield family


def _architecture(family: str) -> str | None:
    found = next((held[family] for held in _MAPPINGS if family in held), None)
    name = found if found is None or isinstance(found, str) else found[0]
    return name if name and hasattr(transformers, name) else None


def _small(kind: type) -> Any:
    """Return a configuration with small sizes."""
    default = vars(kind())
    fields: dict[str, Any] = {}
    for key, size in SIZES.items():
        value = default.get(key)
        if type(value) is int:
            fields[key] = size
        elif isinstance(value, list) and value and type(value[0]) is int:
            fields[key] = [size] * 2
    for key in _PER_LAYER:
        held = default.get(key)
        if isinstance(held, (list, tuple)) and held and "num_hidden_layers" in fields:
            kinds = list(dict.fromkeys(held))
            fields["num_hidden_layers"] = max(fields["num_hidden_layers"], len(kinds))
            fields[key] = kinds
    for key in set(fields) & set(_PER_LAYER):
        count = fields["num_hidden_layers"]
        fields[key] = (fields[key] + [fields[key][-1]] * count)[:count]
    if "kv_lora_rank" in default:  # each head has a key of its own
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    if "sliding_attention" in fields.get("layer_types", ()):
        fields["sliding_window"] = SIZES["sliding_window"]
    if "vl" in kind.model_type or "glm" in kind.model_type:
        rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
        if "rope_parameters" in default:
            fields["rope_parameters"] = rope
    for key in getattr(kind, "sub_configs", None) or {}:
        inner = default.get(key)
        if inner is not None:
            fields[key] = _small(type(inner)).to_dict()
    return kind(**fields)


def save(family: str, folder: Path) -> str:
    """Save a model with random weights; return the name of its class.

    Raises
    ------
    ValueError
        If the model would be large.
    """
    config = _small(configuration_auto.CONFIG_MAPPING[family])
    kind = getattr(transformers, _architecture(family) or "")
    with torch.device("meta"):
        count = sum(one.numel() for one in kind._from_config(config).parameters())
    if count > _MOST:
        raise ValueError(f"{count} parameters")
    torch.manual_seed(1)
    model = kind._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return kind.__name__
