"""Waves: parts of a shard that take turns, so that one generates while the environment answers another."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Generation, Model
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.digests import canonical
from clawpipe.model.engines.base import open_engine
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.letters import LettersEnvironment, LettersEpisode
from clawpipe.play.workers.episodes import EpisodeLimits, Rollout, run_episodes

LIMITS = EpisodeLimits(temperature=1.0, max_new_tokens=4, max_turns=2, max_tokens=512)
SECONDS = 30.0


@pytest.fixture(scope="module")
def base() -> Path:
    return Path(untrained_spec(Model(base="random")).base)


@pytest.fixture(scope="module")
def engine(base: Path) -> EmbeddedEngine:
    return open_engine(EngineSpec(), untrained_spec(Model(base="random")), "cpu")  # type: ignore[return-value]


class Waiting(LettersEnvironment):
    """An environment whose first answers take until another wave is generated, or half a minute at most."""

    def __init__(self, generated: threading.Semaphore) -> None:
        super().__init__()
        self.generated, self.waited = generated, list[bool]()

    def start(self, item: TaskItem) -> WaitingEpisode:  # type: ignore[override]
        return WaitingEpisode(self)


class WaitingEpisode(LettersEpisode):
    def __init__(self, environment: Waiting) -> None:
        super().__init__()
        self._environment = environment

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        self._environment.waited.append(self._environment.generated.acquire(timeout=SECONDS))
        return super().respond(messages)


class Telling:
    """The embedded engine, which lets answers go on whenever it has generated a second wave."""

    def __init__(self, engine: EmbeddedEngine, tell: threading.Semaphore, rows: int) -> None:
        self._engine, self._tell, self._rows, self._turns = engine, tell, rows, 0
        self.context = engine.context

    def begin(self, prompts: Sequence[Sequence[int]]):
        talks = self._engine.begin(prompts)
        sample = talks.sample

        def counted(seeds, sampling):
            turns = sample(seeds, sampling)
            self._turns += 1
            if self._turns % 2 == 0:  # both waves have this turn
                self._tell.release(2 * self._rows)
            return turns

        talks.sample = counted  # type: ignore[method-assign]
        return talks


def rolled(engine, base: Path, environment, items: Sequence[TaskItem], waves: int) -> list[Rollout]:
    renderer = Renderer(load_tokenizer(base), "pythonic", environment.tools())
    return run_episodes(engine, renderer, environment, items, 2, LIMITS, 5, waves=waves)


def test_the_environment_answers_while_a_wave_is_generated(engine, base):
    generated = threading.Semaphore(0)
    environment = Waiting(generated)
    items = environment.items("train", 4, 0)
    found = rolled(Telling(engine, generated, 4), base, environment, items, waves=2)
    assert environment.waited == [True] * 16  # none had to give up waiting for a wave that waited for it
    assert [(rollout.item.item_id, rollout.index) for rollout in found] == [
        (item.item_id, index) for item in items for index in (0, 1)
    ]


def test_a_wave_is_generated_as_if_it_were_alone(engine, base):
    environment = LettersEnvironment()
    items = environment.items("train", 4, 0)
    together = rolled(engine, base, environment, items, waves=2)
    apart = [rollout for part in (items[:2], items[2:]) for rollout in rolled(engine, base, environment, part, waves=1)]
    assert [(rollout.token_ids, rollout.logprobs) for rollout in together] == [
        (rollout.token_ids, rollout.logprobs) for rollout in apart
    ]


def test_more_waves_than_rollouts_and_a_failing_environment(engine, base):
    class Broken(LettersEnvironment):
        def start(self, item: TaskItem) -> LettersEpisode:
            episode = super().start(item)
            episode.respond = lambda messages: 1 / 0  # type: ignore[assignment,method-assign,return-value]
            return episode

    items = LettersEnvironment().items("train", 1, 0)
    assert len(rolled(engine, base, LettersEnvironment(), items, waves=7)) == 2
    broken = rolled(engine, base, Broken(), items, waves=2)
    assert [(one.play.ending.reason, "division by zero" in one.play.ending.error) for one in broken] == [("error", True)] * 2


def test_one_wave_changes_no_key():
    assert canonical(Generation(waves=1)) == canonical(Generation())
    assert "waves" not in canonical(Generation())
    assert canonical(Generation(waves=2)) != canonical(Generation())
