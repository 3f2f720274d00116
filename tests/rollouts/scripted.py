"""A policy that says what a test tells it, as an engine and as a model at an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Completion
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.base import Environment, TaskItem
from clawpipe.play.workers.chats import ChatEpisode, chat_episodes, verified
from clawpipe.play.workers.episodes import EpisodeLimits, Rollout, run_episodes

LIMITS = EpisodeLimits(temperature=1.0, max_new_tokens=400, max_turns=3, max_tokens=4000)


class ScriptedEngine:
    """Says the n-th of `texts` in the n-th turn of each row; a text that ends with "..." is cut off there."""

    context = LIMITS.max_tokens

    def __init__(self, base: Path, texts: Sequence[str]) -> None:
        self.tokenizer, self._texts = load_tokenizer(base), texts
        self.seen: list[str] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> Any:
        self._turns = [0] * len(prompts)
        self.seen += map(self._text, prompts)
        return self

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        self.seen += map(self._text, tokens.values())

    def sample(self, seeds: dict[int, int], sampling: Any) -> dict[int, Completion]:
        return {row: self._completion(row, sampling.stop_ids[0]) for row in seeds}

    def _completion(self, row: int, end: int) -> Completion:
        text = self._texts[self._turns[row]]
        self._turns[row] += 1
        cut = text.endswith("...")
        ids = self.tokenizer.encode(text.removesuffix("..."), add_special_tokens=False) + ([] if cut else [end])
        return Completion(ids, [-0.5] * len(ids), "length" if cut else "stop")

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids)))


def play(
    base: Path, environment: Environment, texts: Sequence[str], items: int = 1, limits: EpisodeLimits = LIMITS
) -> tuple[list[Rollout], str]:
    """Return a rollout of each item, and every token that the policy was shown, as text."""
    engine = ScriptedEngine(base, texts)
    renderer = Renderer(engine.tokenizer, "pythonic", environment.tools())
    return run_episodes(engine, renderer, environment, environment.items("train", items, 0), 1, limits, 0), "".join(engine.seen)


def chat(
    environment: Environment, say: Callable[[Sequence[Message]], Message | str], items: int = 1, reason: str = "stop"
) -> tuple[list[ChatEpisode], list[Message]]:
    """Return a verified episode of each item with a model at an endpoint, and every message that the model was shown."""
    shown: list[Message] = []

    def ask(messages: Sequence[Message], *_: Any) -> Any:
        shown.extend(messages)
        said = say(messages)
        message = said if isinstance(said, Message) else Message("assistant", said)
        return SimpleNamespace(message=message, finish_reason=reason, sampled=None)

    model: Any = SimpleNamespace(ask=ask, servers=SimpleNamespace(concurrency=2))
    tasks: Iterator[TaskItem] = iter(environment.items("train", items, 0))
    played = chat_episodes(model, environment, [(item, 0) for item in tasks], LIMITS.max_turns)
    return [verified(environment, episode) for episode in played], shown
