"""A model's tokenizer and the token ids that it knows. Imports no heavy library before a tokenizer is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import verify_base

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load_tokenizer(base: Path) -> PreTrainedTokenizerFast:
    """Load a model's tokenizer. Raises DataError if one of its files has changed since the model was resolved."""
    from transformers import AutoTokenizer  # takes a second, and a night whose steps are cached needs none

    verify_base(Path(base), weights=False)
    return AutoTokenizer.from_pretrained(base, trust_remote_code=False)


def require_one_vocabulary(student: Path, teacher: Path, *, where: str) -> None:
    """Raise unless the tokenizers in two models' directories have the same tokens with the same ids.

    Raises:
        ConfigError: they differ, or a model has no tokenizer.json.
    """
    if student != teacher and _tokens(student) != _tokens(teacher):
        raise ConfigError(
            "the teacher's vocabulary is not the student's, so it cannot score the student's tokens",
            where,
            "use start, base, champion, or another size of the student's model family",
        )


def vocabulary_size(model: Path) -> int:
    """Return how many token ids the model in a directory can read; all ids are below that number.

    Raises:
        ConfigError: its config.json does not say.
    """
    try:
        config = json.loads((model / "config.json").read_bytes())
        return int(config["vocab_size"] if "vocab_size" in config else config["text_config"]["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "use a model whose config.json names vocab_size"
        raise ConfigError(f"the size of the model's vocabulary cannot be read: {error}", str(model), fix) from None


def _tokens(model: Path) -> dict[str, int]:
    """Return a map of token to id."""
    try:
        tokenizer = json.loads((model / "tokenizer.json").read_bytes())
        return _model_tokens(tokenizer["model"]["vocab"]) | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "use a model that ships tokenizer.json"
        raise ConfigError(f"the model's tokenizer cannot be read: {error}", str(model), fix) from None


def _model_tokens(vocabulary: dict[str, int] | list[Any]) -> dict[str, int]:
    """Return a map of token to id; a unigram model lists (token, score) in the order of ids, other kinds store the map."""
    if isinstance(vocabulary, dict):
        return vocabulary
    return {token: index for index, (token, _) in enumerate(vocabulary)}
