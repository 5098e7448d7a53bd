"""Tensor-parallel plans, as data, for families without a plan in transformers.

Families are named after ``model_type`` in their config.json. The sources are the modules
``models/FAMILY/modeling_FAMILY.py`` of transformers: the projections in and out of each
attention, and the two layers of each feed-forward network. Embeddings, norms and heads are
copied. The tests run each family on two and on four ranks.

Besides the styles of transformers, these are used:

==================  ================================================================
``conv1d_colwise``  as colwise, for a Conv1D, whose columns are the output features
``conv1d_rowwise``  as rowwise, for a Conv1D
``conv1d_qkv``      as conv1d_colwise, with query, key and value fused
``fused_groups``    as colwise, with the query, key and value heads of each group of
                    queries side by side; if there is one group, its queries are split,
                    and each rank holds the key and the value
``channels``        the first axis: channels of a convolution or of a state space
==================  ================================================================
"""

import fnmatch
from collections.abc import Mapping

PRESETS = (
    ("bert", "colwise", "*.attention.self.[qkv]* *.intermediate.dense"),
    ("bert", "rowwise", "*.output.dense"),
    ("bloom", "colwise", "*.self_attention.query_key_value"),
    ("bloom falcon", "colwise", "*.mlp.dense_h_to_4h"),
    ("bloom falcon", "rowwise", "*.self_attention.dense *.mlp.dense_4h_to_h"),
    ("clip opt whisper", "colwise", "*attn.[qkv]_proj *.fc1"),
    ("clip opt whisper", "rowwise", "*attn.out_proj *.fc2"),
    ("falcon", "fused_groups", "*.self_attention.query_key_value"),
    ("falcon_mamba mamba", "packed_colwise", "*.mixer.in_proj"),
    ("falcon_mamba mamba", "colwise", "*.mixer.dt_proj"),
    ("falcon_mamba mamba", "rowwise", "*.mixer.x_proj *.mixer.out_proj"),
    ("falcon_mamba mamba", "channels", "*.mixer.conv1d *.mixer.A_log *.mixer.D"),
    ("gpt2", "conv1d_qkv", "*.attn.c_attn"),
    ("gpt2", "conv1d_colwise", "*.mlp.c_fc"),
    ("gpt2", "conv1d_rowwise", "*.attn.c_proj *.mlp.c_proj"),
    ("t5", "colwise", "*Attention.[qkv] *.DenseReluDense.wi *.DenseReluDense.wi_[01]"),
    ("t5", "rowwise", "*Attention.o *.DenseReluDense.wo"),
    ("t5", "embedding_colwise", "*.relative_attention_bias"),
)
"""Families, a style, and patterns for the names of the modules or parameters that have it.

In a family, no name matches the patterns of two styles.
"""


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
    rows = [(style, texts.split()) for names, style, texts in PRESETS if family in names.split()]
    found = {}
    for name, shape in parameters.items():
        tried = [f".{one}" for one in (name, name.rpartition(".")[0])]
        for style, patterns in rows:
            if any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns for one in tried):
                found[name] = style, shape
    return found
