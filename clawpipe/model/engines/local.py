"""A model in this process with the interface of a chat endpoint: it returns text, and records no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from transformers import PreTrainedTokenizerFast

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Engine, Sampling, open_engine
from clawpipe.model.engines.chat import Reply
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.vocabulary import load_tokenizer


@dataclass(frozen=True)
class LocalModel:
    """A model on the embedded engine, in float32.

    Attributes:
        temperature, max_tokens: of one reply.
    """

    engine: Engine
    tokenizer: PreTrainedTokenizerFast
    renderer: Renderer
    temperature: float
    max_tokens: int

    @classmethod
    def at(cls, name: str, temperature: float, max_tokens: int, device: str = "auto") -> Self:
        """Load a model.

        Args:
            name: a directory, a built-in name or a hub id.

        Raises:
            NotFoundError, ConfigError: there is no such model, or it cannot be used.
            DataError: one of its files has changed since it was resolved.
        """
        base = resolve_base(name).path
        spec = PolicySpec(base=str(base), adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="")
        tokenizer = load_tokenizer(base)
        return cls(open_engine(EngineSpec(), spec, device), tokenizer, Renderer(tokenizer, "pythonic", ()), temperature, max_tokens)

    def ask(self, messages: Sequence[Message], seeds: Sequence[int]) -> list[Reply]:
        """Return a reply for each seed, sampled side by side; equal messages and seeds give equal replies.

        Keys and values are held of these replies alone. Messages that fill the model's context get empty ones.
        """
        prompt = self.renderer.prompt(messages)
        room = min(self.max_tokens, self.engine.context - len(prompt))
        if room < 1:
            return [Reply(Message("assistant", ""), "length", 0, 0) for _ in seeds]
        sampling = Sampling(self.temperature, room, self.renderer.stop_ids)
        turns = self.engine.begin([prompt] * len(seeds)).sample(dict(enumerate(seeds)), sampling)
        replies = [(turns[row], str(self.tokenizer.decode(turns[row].ids, skip_special_tokens=True))) for row in range(len(seeds))]
        return [Reply(Message("assistant", text), turn.finish_reason, len(prompt), len(turn.ids)) for turn, text in replies]
