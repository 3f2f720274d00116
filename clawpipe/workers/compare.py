"""Compare the log-probs that an engine gives for what it samples with the model's own forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from clawpipe.engines.base import Conversations, Engine, HoldsModel, Sampling, Scores
from clawpipe.policy.agreement import Agreement, agreement
from clawpipe.policy.probe import Probe, forward_logprobs

_COOL = 0.7  # so far from 1 that log-probs of another temperature are off by more than bfloat16 explains
_SAMPLING = Sampling(temperature=_COOL, max_new_tokens=12)  # no token stops a turn
_MUCH_CLOSER = 0.1


def compare_engine(engine: Engine, model: Any, probe: Probe) -> Agreement:
    """Sample two turns, as rollouts do, and compare their log-probs with plain forward passes of `model`; and a row's scores, where
    the engine scores."""
    rows = _sampled(engine, probe)
    layout = engine.layout if isinstance(engine, HoldsModel) else "apart"
    recorded = [logprob for row in rows for logprob in row.recorded.values()]
    cool, plain = (_forward(model, rows, temperature) for temperature in (_COOL, 1.0))
    scored = engine.score(rows[0].ids, 1) if isinstance(engine, Scores) else []
    own = forward_logprobs(model, [rows[0].ids])[0] if scored else []
    found = agreement("engine", layout, [*recorded, *scored], [*cool, *own])
    raw = agreement("engine", layout, recorded, plain)
    return found.model_copy(update={"kind": "raw"}) if raw.mean < _MUCH_CLOSER * found.mean else found


class _Row:
    """The tokens of a conversation so far, and the log-prob of each sampled one by its position."""

    def __init__(self, prompt: list[int]) -> None:
        self.ids, self.recorded = list(prompt), dict[int, float]()


def _sampled(engine: Engine, probe: Probe) -> list[_Row]:
    conversations = engine.begin(probe.prompts)
    rows = [_Row(prompt) for prompt in probe.prompts]
    _turn(conversations, rows, range(len(rows)))
    answered: dict[int, Sequence[int]] = {row: reply for row, reply in enumerate(probe.replies) if reply}
    conversations.extend(answered)
    for row, reply in answered.items():
        rows[row].ids += reply
    _turn(conversations, rows, answered)
    return rows


def _turn(conversations: Conversations, rows: list[_Row], going: Iterable[int]) -> None:
    for number, turn in conversations.sample({row: row for row in going}, _SAMPLING).items():
        row = rows[number]
        row.recorded |= dict(enumerate(turn.logprobs, start=len(row.ids)))
        row.ids += turn.ids


def _forward(model: Any, rows: Sequence[_Row], temperature: float) -> list[float]:
    """Return the log-probs of the sampled tokens of all rows, by the model's plain forward."""
    own = forward_logprobs(model, [row.ids for row in rows], temperature)
    return [own[number][place - 1] for number, row in enumerate(rows) for place in row.recorded]
