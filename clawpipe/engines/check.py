"""Whether the engine's log-probs are the model's own, over two turns of conversations that begin alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clawpipe.engines.base import Conversations, Sampling
from clawpipe.engines.embedded import EmbeddedEngine
from clawpipe.policy.agreement import Agreement, agreement
from clawpipe.policy.probe import Probe, own_logprobs

_SAMPLING = Sampling(temperature=1.0, max_new_tokens=6, stop_id=-1)  # no token stops a turn


def compare_engine(engine: EmbeddedEngine, probe: Probe) -> Agreement:
    """Sample two turns, as rollouts do, and compare what was recorded, and a row's scores, with plain forward passes."""
    conversations = engine.begin(probe.prompts)
    rows = [_Row(prompt) for prompt in probe.prompts]
    _turn(conversations, rows, range(len(rows)))
    answered: dict[int, Sequence[int]] = {row: reply for row, reply in enumerate(probe.replies) if reply}
    conversations.extend(answered)
    for row, reply in answered.items():
        rows[row].ids += reply
    _turn(conversations, rows, answered)
    own = own_logprobs(engine.model, [row.ids for row in rows])
    pairs = [(logprob, own[number][place - 1]) for number, row in enumerate(rows) for place, logprob in row.recorded.items()]
    pairs += zip(engine.score(rows[0].ids, 1), own[0], strict=True)
    return agreement("engine", engine.layout, *zip(*pairs, strict=True))


class _Row:
    """A conversation so far, and the log-prob of each sampled token by its place."""

    def __init__(self, prompt: list[int]) -> None:
        self.ids, self.recorded = list(prompt), dict[int, float]()


def _turn(conversations: Conversations, rows: list[_Row], going: Iterable[int]) -> None:
    for number, turn in conversations.sample({row: row for row in going}, _SAMPLING).items():
        row = rows[number]
        row.recorded |= dict(enumerate(turn.logprobs, start=len(row.ids)))
        row.ids += turn.ids
