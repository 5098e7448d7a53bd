"""The files beside the weights of a model that a program needs to load it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_NAMES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""Names that the libraries of Hugging Face give to configurations and tokenizers."""


def find(folder: Path, targets: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return the copies to make, and what they are copies of.

    Parameters
    ----------
    folder : Path
        The folder of the model.
    targets : sequence of Path
        The folders that each get copies.
    """
    found = [folder / name for name in _NAMES if (folder / name).is_file()]
    return [(target / path.name, path) for target in targets for path in found]
