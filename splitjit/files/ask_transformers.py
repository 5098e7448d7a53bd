"""A program that prints the tensor-parallel plan of a model in transformers, as JSON.

`tensor_parallel` runs it as a process of its own, because transformers and torch keep
300 MB of memory, and because torch starts threads. It makes the model without data.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from typing import Any


def main(path: str) -> None:
    """Print the plan of the model that a ``config.json`` describes."""
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
    heads = text.num_attention_heads
    parameters = dict(model.named_parameters(remove_duplicate=False))
    styles = {
        parameter: [style, list(tensor.shape)]
        for parameter, tensor in parameters.items()
        if (style := style_of(parameter, model.tp_plan or {}))
    }
    holders = collections.Counter(map(id, parameters.values()))
    plan: dict[str, Any] = {
        "model": name,
        "styles": styles,
        "heads": heads,
        "tied": [name for name, tensor in parameters.items() if holders[id(tensor)] > 1],
        "key_value_heads": getattr(text, "num_key_value_heads", None) or heads,
    }
    print(json.dumps(plan))


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
        main(sys.argv[1])
    except ModuleNotFoundError as error:
        sys.exit(f"needs the package {error.name}: pip install splitjit[transformers]")
    except Exception as error:
        sys.exit(" ".join(f"{error}".split()) or type(error).__name__)
