"""Conversations on which log-probs of engine and trainer are compared with the model's own forward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig

from clawpipe.errors import ClawpipeError, DataError
from clawpipe.model.policy.agreement import OTHER_MODEL, Part
from clawpipe.model.policy.forward import as_loaded
from clawpipe.model.policy.vocabulary import load_tokenizer

_TEXT = """A customer asks whether the iron kettle is still in stock, what it costs, and when it could arrive in Lisbon. Before you
answer, look up the item, count what is left on the shelf, and add the fee for delivery: 14.50 for the kettle and 3.20 for the
parcel. If there are fewer than two, say so plainly and offer the copper one instead. The last order of this kind took four days;
rain had closed the road near the harbour, and nobody had written to the people who waited. Be brief, be kind, and do not promise
what the timetable does not show. Thank you. I will check the stock first, then the price, and come back to you."""
_NEAR = 256  # tokens; prompts are made long enough for sliding windows up to this size


class Probe(NamedTuple):
    """Conversations to compare: prompts of different lengths with a common beginning, and a reply to each; an empty reply ends it.

    Two prompts are equal, and one adds a single token to the common beginning.
    """

    prompts: list[list[int]]
    replies: list[list[int]]


def probe_of(ids: Sequence[int], window: int | None = None) -> Probe:
    """Build a probe from `ids`, repeated as needed; the prompts exceed a sliding window of `window` tokens if it is small."""
    common = window + 8 if window is not None and window <= _NEAR else 24
    stream = (list(ids) * math.ceil((common + 200) / len(ids)))[: common + 200]
    start, tail = stream[:common], stream[common:]
    ends = [tail[:9], tail[:9], tail[20:45], tail[50:51]]
    return Probe([start + end for end in ends], [tail[60:63], tail[70:79], tail[90:101], []])


def probe_for(model: Any, base: Path) -> Probe:
    """Build a probe of English text in the tokens of the model at `base`, long enough for a small sliding window.

    Args:
        model: anything with the model's config.
    """
    config = model.config.get_text_config()
    return probe_of(load_tokenizer(base)(_TEXT, add_special_tokens=False)["input_ids"], getattr(config, "sliding_window", None))


def probe_at(base: Path) -> Probe:
    """Build the same for the model whose config and tokenizer are in a directory, without loading it."""
    return probe_for(SimpleNamespace(config=AutoConfig.from_pretrained(base, trust_remote_code=False)), base)


def forward_logprobs(model: Any, rows: Sequence[Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
    """Return natural log-probs of each row's tokens from its second on, by the model's plain forward, one row at a time."""
    with as_loaded(model):
        return [_row_logprobs(model, row, temperature) for row in rows]


def likeliest(model: Any, ids: Sequence[int], temperature: float, count: int) -> dict[int, float]:
    """Return the log-probs of the `count` likeliest tokens after `ids`, by the model's plain forward."""
    with as_loaded(model):
        logits = model(input_ids=torch.tensor([list(ids)], device=model.device), use_cache=False).logits[0, -1].float()
    found = (logits / temperature).log_softmax(-1)
    best = found.topk(min(count, len(found)))
    return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _row_logprobs(model: Any, row: Sequence[int], temperature: float) -> list[float]:
    ids = torch.tensor([row], device=model.device)
    logprobs = (model(input_ids=ids, use_cache=False).logits[0, :-1].float() / temperature).log_softmax(-1)
    return logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()


@contextmanager
def runs(part: Part, base: str) -> Iterator[None]:
    """Turn an error of a model's own code into a DataError that names the part which ran it.

    Raises:
        DataError: the code failed, other than by an error of clawpipe's or a lack of memory.
    """
    try:
        yield
    except (ClawpipeError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "DefaultCPUAllocator" in str(error):
            raise
        message = str(error).partition("\n")[0] or "no message"
        raise DataError(f"the {part} cannot run this model: {type(error).__name__}: {message}", base, OTHER_MODEL) from error
