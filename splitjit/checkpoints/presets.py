"""Tensor-parallel plans of families for which transformers has no plan, as data.

Each family is named as ``model_type`` in its config.json. The sources are the modules of
transformers in ``models/FAMILY/modeling_FAMILY.py``: the projections in and out of each
attention, and the two layers of each feed-forward network. Embeddings, norms and heads are
copied. The tests compute each family from the parts of two and of four ranks.

Beside the styles of transformers, these are used:

==================  ================================================================
``conv1d_colwise``  as colwise, for a Conv1D, whose columns are the output features
``conv1d_rowwise``  as rowwise, for a Conv1D
``conv1d_qkv``      as conv1d_colwise, with query, key and value fused
``fused_groups``    as colwise, with the query, key and value heads of each group of
                    queries side by side; a group of one key head is split, and each
                    rank holds the key and the value
``channels``        the first axis: channels of a convolution or of a state space
==================  ================================================================
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

_BART = (
    *[(f"*attn.{name}_proj", "colwise") for name in "qkv"],
    ("*attn.out_proj", "rowwise"),
    ("*.fc1", "colwise"),
    ("*.fc2", "rowwise"),
)

_MAMBA = (
    ("*.mixer.in_proj", "packed_colwise"),
    ("*.mixer.conv1d", "channels"),
    ("*.mixer.x_proj", "rowwise"),
    ("*.mixer.dt_proj", "colwise"),
    ("*.mixer.A_log", "channels"),
    ("*.mixer.D", "channels"),
    ("*.mixer.out_proj", "rowwise"),
)

PRESETS: dict[str, tuple[tuple[str, str], ...]] = {
    "bert": (
        *[(f"*.attention.self.{name}", "colwise") for name in ("query", "key", "value")],
        ("*.intermediate.dense", "colwise"),
        ("*.output.dense", "rowwise"),
    ),
    "bloom": (
        ("*.self_attention.query_key_value", "colwise"),
        ("*.self_attention.dense", "rowwise"),
        ("*.mlp.dense_h_to_4h", "colwise"),
        ("*.mlp.dense_4h_to_h", "rowwise"),
    ),
    "clip": _BART,
    "falcon": (
        ("*.self_attention.query_key_value", "fused_groups"),
        ("*.self_attention.dense", "rowwise"),
        ("*.mlp.dense_h_to_4h", "colwise"),
        ("*.mlp.dense_4h_to_h", "rowwise"),
    ),
    "falcon_mamba": _MAMBA,
    "gpt2": (
        ("*.attn.c_attn", "conv1d_qkv"),
        ("*.attn.c_proj", "conv1d_rowwise"),
        ("*.mlp.c_fc", "conv1d_colwise"),
        ("*.mlp.c_proj", "conv1d_rowwise"),
    ),
    "mamba": _MAMBA,
    "opt": _BART,
    "t5": (
        *[(f"*Attention.{name}", "colwise") for name in "qkv"],
        ("*Attention.o", "rowwise"),
        ("*.relative_attention_bias", "embedding_colwise"),
        *[(f"*.DenseReluDense.{name}", "colwise") for name in ("wi", "wi_0", "wi_1")],
        ("*.DenseReluDense.wo", "rowwise"),
    ),
    "whisper": _BART,
}
"""For each family, patterns for the names of modules or parameters, and the style of each."""

REASONS = {
    "mamba2": "each rank needs its share of the gates, inputs and time steps in in_proj, but the "
    "whole B and C between them"
}
"""Why a family has no preset."""


def styles(family: str, parameters: Mapping[str, list[int]]) -> dict[str, tuple[str, list[int]]]:
    """Return the style and the shape of each parameter that a preset splits.

    Parameters
    ----------
    family : str
    parameters : mapping of str to list of int
        The shapes of the parameters of the model.

    Examples
    --------
    >>> styles("gpt2", {"h.0.mlp.c_fc.bias": [48], "h.0.ln_1.bias": [12]})
    {'h.0.mlp.c_fc.bias': ('conv1d_colwise', [48])}
    """
    found = {}
    for name, shape in parameters.items():
        module = name.rpartition(".")[0]
        for pattern, style in PRESETS.get(family, ()):
            if any(fnmatch.fnmatchcase(f".{one}", pattern) for one in (module, name)):
                found[name] = style, shape
                break
    return found
