"""What samples the answers of a policy: the continuous batch of an embedded engine, or another batch."""

from __future__ import annotations

from dataclasses import dataclass

from clawpipe.model.engines.continuous import ContinuousBatch
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import cache_budget_tokens
from clawpipe.serve.serving.engine_thread import Batch


@dataclass(frozen=True)
class Sampler:
    """What samples the answers of a policy.

    Attributes:
        context: tokens of prompt and answer together.
        vocabulary: number of tokens that the model has logits for.
        ends: tokens that end an answer, as the model's generation settings name them.
    """

    batch: Batch
    context: int
    vocabulary: int
    ends: tuple[int, ...]

    @classmethod
    def of(cls, engine: EmbeddedEngine) -> Sampler:
        """Return the continuous batch of an embedded engine."""
        named = engine.model.generation_config.eos_token_id
        batch = ContinuousBatch(engine, cache_budget_tokens(engine))
        return cls(batch, engine.context, engine.model.config.get_text_config().vocab_size, end_tokens(named))


def end_tokens(named: int | list[int] | None) -> tuple[int, ...]:
    """Return the end markers that a model's generation settings name, of which there may be none, one or several."""
    return tuple(named) if isinstance(named, list) else () if named is None else (named,)
