"""An engine that says what a script says, with the log-probs that the policy gives it: a random model calls no tool by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from clawpipe.core.config.quantization import Quantization
from clawpipe.model.engines.base import Completion, Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.vocabulary import load_tokenizer


class Scripted:
    """Answers by the number of assistant turns in the prompt: with the reply of that number, or the last one.

    Args:
        replies: what is said, without the end marker.
    """

    def __init__(
        self, base: Path, adapter: Path | None, dtype: str, device: str, quantization: Quantization, *, replies: Sequence[str]
    ) -> None:
        self._engine = EmbeddedEngine(base, adapter, device="cpu")
        self._tokenizer = load_tokenizer(base)
        self._replies = replies
        self._begins = self._tokenizer("<|im_start|>assistant")["input_ids"]
        self._lock = threading.Lock()

    @property
    def context(self) -> int:
        return self._engine.context

    def begin(self, prompts: Sequence[Sequence[int]]) -> _Talk:
        return _Talk(self, list(prompts[0]))

    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        with self._lock:
            return self._engine.score(ids, start, temperature)

    def distributions(self, ids: Sequence[int], positions: Sequence[int], temperature: float = 1.0):
        return self._engine.distributions(ids, positions, temperature)

    def complete(self, prompt: list[int], sampling: Sampling) -> Completion:
        turns = self._tokenizer.decode(prompt).count(self._tokenizer.decode(self._begins)) - 1
        said = self._tokenizer(self._replies[min(turns, len(self._replies) - 1)])["input_ids"]
        ids = [*said, self._tokenizer.eos_token_id][: sampling.max_new_tokens]
        logprobs = self.score([*prompt, *ids], len(prompt), sampling.temperature)
        return Completion(ids, logprobs, "stop" if len(ids) > len(said) else "length")


class _Talk:
    def __init__(self, engine: Scripted, prompt: list[int]) -> None:
        self._engine, self._prompt = engine, prompt

    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        return {row: self._engine.complete(self._prompt, sampling) for row in seeds}
