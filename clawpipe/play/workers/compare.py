"""Compare the log-probs that an engine gives for what it samples with the model's own forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clawpipe.model.engines.base import Conversations, Engine, HoldsModel, Rescores, Sampling
from clawpipe.model.policy.agreement import Agreement, EngineAgreement, Place, SampledRow, agreement
from clawpipe.model.policy.probe import Probe, forward_logprobs, likeliest

COOL = 0.7  # so far from 1 that log-probs of another temperature are off by more than bfloat16 explains
_TOKENS = 12  # of a turn; no token stops it
_MUCH_CLOSER = 0.1
_LIKELY = 256  # tokens of a place: nearly all that are ever drawn there


def compare_engine(engine: Engine, model: Any, probe: Probe, temperature: float = COOL) -> Agreement:
    """Sample two turns, as rollouts do, and compare their log-probs with plain forward passes of `model`; and a row's scores, where
    the engine scores."""
    rows = _sampled(engine, probe, temperature)
    layout = engine.layout if isinstance(engine, HoldsModel) else "apart"
    recorded = [logprob for row in rows for logprob in row.recorded.values()]
    cool, plain = (_forward(model, rows, each) for each in (temperature, 1.0))
    scored = engine.score(rows[0].ids, 1) if isinstance(engine, Rescores) else []
    own = forward_logprobs(model, [rows[0].ids])[0] if scored else []
    found = agreement("engine", layout, [*recorded, *scored], [*cool, *own])
    raw = agreement("engine", layout, recorded, plain)
    return found.model_copy(update={"kind": "raw"}) if raw.mean < _MUCH_CLOSER * found.mean else found


def places_of(model: Any, probe: Probe, temperature: float = COOL) -> tuple[Place, ...]:
    """Return the likeliest tokens after each prompt of the probe, by the model's plain forward: whoever holds it can be known by
    them."""
    prompts = list(dict.fromkeys(map(tuple, probe.prompts)))
    return tuple(Place(ids=ids, logprobs=likeliest(model, ids, temperature, _LIKELY), temperature=temperature) for ids in prompts)


def compare_with_itself(engine: Any, probe: Probe) -> EngineAgreement:
    """Sample two turns at temperature 1, and compare their log-probs with the engine's own scores of the same tokens."""
    rows = _sampled(engine, probe, 1.0)
    scores = [engine.score(row.ids, 1) for row in rows]
    found = [logprob for row in rows for logprob in row.recorded.values()]
    expected = [scores[number][place - 1] for number, row in enumerate(rows) for place in row.recorded]
    sampled = tuple(SampledRow(ids=tuple(row.ids), logprobs=row.recorded) for row in rows)
    return EngineAgreement(**agreement("engine", "apart", found, expected).model_dump(), sampled=sampled)


class _Row:
    """The tokens of a conversation so far, and the log-prob of each sampled one by its position."""

    def __init__(self, prompt: list[int]) -> None:
        self.ids, self.recorded = list(prompt), dict[int, float]()


def _sampled(engine: Engine, probe: Probe, temperature: float) -> list[_Row]:
    sampling = Sampling(temperature, max_new_tokens=_TOKENS)
    conversations = engine.begin(probe.prompts)
    rows = [_Row(prompt) for prompt in probe.prompts]
    _turn(conversations, rows, range(len(rows)), sampling)
    answered: dict[int, Sequence[int]] = {row: reply for row, reply in enumerate(probe.replies) if reply}
    conversations.extend(answered)
    for row, reply in answered.items():
        rows[row].ids += reply
    _turn(conversations, rows, answered, sampling)
    return rows


def _turn(conversations: Conversations, rows: list[_Row], going: Iterable[int], sampling: Sampling) -> None:
    for number, turn in conversations.sample({row: row for row in going}, sampling).items():
        row = rows[number]
        row.recorded |= dict(enumerate(turn.logprobs, start=len(row.ids)))
        row.ids += turn.ids


def _forward(model: Any, rows: Sequence[_Row], temperature: float) -> list[float]:
    """Return the log-probs of the sampled tokens of all rows, by the model's plain forward."""
    own = forward_logprobs(model, [row.ids for row in rows], temperature)
    return [own[number][place - 1] for number, row in enumerate(rows) for place in row.recorded]
