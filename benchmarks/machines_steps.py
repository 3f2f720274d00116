"""What machines.py lets workers do: chunks without rollouts, and chunks whose environment keeps the policy waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence

from clawpipe.core.config.night import Generation, Played, Runtime
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.rollouts.generate import Chunk
from tasks.rollouts import generate_chunk
from tasks.step import step

SLEEP = 20.0  # seconds of an answer


@step(anywhere=True)
def empty_chunk(
    items: DatasetRef, policy: ModelRef, environment: Played, config: Generation, chunk: Chunk, seed: int, runtime: Runtime
) -> StepResult:
    """Generate no rollouts. Its key is made of all that a chunk's key is made of: the code, the environment, the settings."""
    if chunk.together:
        return generate_chunk.function(items, policy, environment, config, chunk, seed, runtime)
    return StepResult()


def nothing(arguments: dict) -> StepResult:
    """What an engine is given for comparison, with the same arguments."""
    return StepResult()


class SlowLetters(LettersEnvironment):
    """The letters, asked by somebody who takes his time."""

    name = "slow-letters"

    def start(self, item: TaskItem) -> SlowEpisode:
        return SlowEpisode()


class SlowEpisode:
    """An episode of one answer that is waited for."""

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        time.sleep(SLEEP)
        return None
