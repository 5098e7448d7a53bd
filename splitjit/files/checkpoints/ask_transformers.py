"""A program that prints the tensor-parallel plan of a model in transformers, as JSON.

`tensor_parallel` runs it in a separate process, because transformers and torch keep
much memory, and torch starts threads. It builds the model without data.
"""

import collections
import json
import re
import sys
from typing import Any


def main(path: str, names: list[str]) -> None:
    """Print the plan of the model that a ``config.json`` describes.

    Parameters
    ----------
    path : str
    names : list of str
        The tensors of the checkpoint, whose names may differ from those of the model.
    """
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    name = (getattr(config, "architectures", None) or ["no architecture"])[0]
    architecture = getattr(transformers, name, None)
    if architecture is None or not hasattr(architecture, "_from_config"):
        raise ValueError(f"transformers has no model class for {name}")
    with torch.device("meta"):
        model = architecture._from_config(config)
    text = config.get_text_config()
    heads = {}
    for key, own in vars(config).items():  # submodels with their own number of heads
        number = getattr(own, "num_attention_heads", 0)
        if key.endswith("_config") and own is not text and type(number) is int and number:
            heads[f"{key.removesuffix('config')}model"] = number, number
    try:
        heads[""] = heads_of(text)
    except RuntimeError:  # the layers of the model have different numbers of heads
        heads |= {f"layers.{i}": heads_of(one) for i, one in enumerate(text.per_layer_config)}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    shapes = {parameter: [*tensor.shape] for parameter, tensor in parameters.items()}
    styles = {parameter: style_of(parameter, model.tp_plan or {}) for parameter in parameters}
    holders = collections.Counter(map(id, parameters.values()))
    plan = {
        "model": name,
        "family": config.model_type,
        "styles": {key: [style, shapes[key]] for key, style in styles.items() if style},
        "heads": heads,
        "tied": [name for name, tensor in parameters.items() if holders[id(tensor)] > 1],
        "parameters": shapes,
        "origins": origins(model, names, parameters),
        "quantization": getattr(config, "quantization_config", None),
    }
    print(json.dumps(plan, default=str))


def heads_of(config: Any) -> tuple[int, int]:
    """Return the numbers of attention heads and of key-value heads."""
    heads = getattr(config, "num_attention_heads", None) or 0
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", 0):
        return heads, 1
    own = ("num_key_value_heads", "num_kv_heads")  # the latter in Falcon
    return heads, next((n for key in own if (n := getattr(config, key, None))), heads)


def origins(model: Any, names: list[str], parameters: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what each tensor of a checkpoint becomes when transformers loads it.

    Returns
    -------
    dict of str to list
        For each tensor: its parameters in the model, and the operations that make the
        parameters, with their dimensions. A tensor that belongs to no parameter, such
        as a scale, has the name that it would have in the model, and no operations.
    """
    from transformers import core_model_loading as loading
    from transformers.conversion_mapping import get_model_conversion_mapping

    mapping = get_model_conversion_mapping(model)
    renamings = [one for one in mapping if isinstance(one, loading.WeightRenaming)]
    converters = [one for one in mapping if isinstance(one, loading.WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    prefix, state = model.base_model_prefix, model.state_dict()
    found = {}
    for name in names:
        target, pattern = loading.rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = loading.rename_source_key(name, [], [], prefix, state)
        targets = [target]
        operations: list[list[Any]] = []
        if pattern is not None and target in parameters:
            converter = by_pattern[pattern]
            first = converter.target_patterns[0]
            targets = [target.replace(first, other) for other in converter.target_patterns]
            for one in converter.operations:
                if hasattr(one, "stack_dim") and hasattr(one, "concat_dim"):  # Ernie's experts
                    operations.append(["MergeModulelist", one.stack_dim])
                    operations.append(["Concatenate", one.concat_dim])
                    continue
                inverse = "Inverse" if getattr(one, "inverse", False) else ""
                dims = [getattr(one, key) for key in ("dim", "dim0", "dim1") if hasattr(one, key)]
                operations.append([inverse + type(one).__name__, *dims])
        found[name] = [targets, operations]
    return found


def style_of(parameter: str, plan: dict[str, str]) -> str | None:
    """Return the style of a parameter: the plan names the parameter, or its module.

    Examples
    --------
    >>> style_of("layers.3.q_proj.weight", {"layers.*.q_proj": "colwise"})
    'colwise'
    """
    name = re.sub(r"\.\d+(?=\.|$)", ".*", parameter)
    return plan.get(name) or plan.get(name.rpartition(".")[0])


if __name__ == "__main__":
    try:
        main(sys.argv[1], json.load(sys.stdin))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "transformers"):
            sys.exit('needs transformers and torch: pip install ".[transformers]"')
        sys.exit(" ".join(f"{error}".split()) or type(error).__name__)
