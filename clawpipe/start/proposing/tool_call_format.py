"""Propose how a model writes its tool calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from clawpipe.core.conversation.messages import WrittenFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_FAMILIES = {  # parts of models' names, and how the models write tool calls; the first that fits counts
    "qwen3-coder": "qwen3-coder",
    "qwen3.": "qwen3-coder",
    "qwen": "hermes",
    "hermes": "hermes",
    "llama-3": "llama3",
    "mistral": "mistral",
}


def proposed_format(model: str) -> tuple[str, str]:
    """Return how a model writes tool calls, and why: what its own chat template writes, else what models of its name write."""
    name = Path(model).name.lower()
    of_family = cast(WrittenFormat, next((known for part, known in _FAMILIES.items() if part in name), "pythonic"))
    tokenizer = _tokenizer(model)
    if tokenizer is None:
        return of_family, ""
    from clawpipe.model.policy.own_template import difference, own_format
    from clawpipe.model.policy.template import unfaithful

    if (refused := unfaithful(tokenizer, with_tools=True)) is None:
        return "own", "tool_call_format: the model's own chat template writes all; it was tried on generated calls"
    found = own_format(tokenizer)
    wrong = difference(tokenizer, found or of_family)
    if found is None:
        return of_family, f"tool_call_format: by the model's name; no format reads its chat template ({wrong})"
    limit = ", whose turns have one call at most" if wrong else ""
    reads = f"tool_call_format: reads all calls that the model's own chat template writes{limit}"
    return found, f"{reads}; the template itself cannot be used ({refused})"


def _tokenizer(model: str) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of a model directory if it has a chat template, else None."""
    directory = Path(model).expanduser()
    if not directory.is_dir():
        return None
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError):
        return None  # what a night says of this directory is clearer
    return tokenizer if tokenizer.chat_template else None
