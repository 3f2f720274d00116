"""Play the episodes of a shard by programs, side by side, with one policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Described, Engine, Scores
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.ragged import restored_linears
from clawpipe.play.environments.agent import AgentEnvironment, text_of
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.labelled import LabelledEnvironment
from clawpipe.play.environments.play import Plays
from clawpipe.play.workers.episodes import EpisodeLimits, derive_seed
from clawpipe.play.workers.request import ShardRequest
from clawpipe.serve.programs.endpoint import Endpoint
from clawpipe.serve.programs.episode import Episode, Sampled
from clawpipe.serve.programs.remote import remote_sampler
from clawpipe.serve.programs.rows import Kept, failure_of, rows_of
from clawpipe.serve.programs.run import Place, run_program
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.sampler import Sampler
from clawpipe.serve.serving.served import BASE, Served

MODEL = "policy"  # what programs are told that they ask
_AT_ONCE = 64  # programs


class _Task(NamedTuple):
    """An episode to be played, and the text of its task."""

    item: TaskItem
    number: int  # among those of its item
    prompt: str


def play(request: ShardRequest, environment: Plays, engine: Engine) -> list[Row]:
    """Return the rows of a shard, in the order of its items.

    Raises:
        ConfigError, BusyError, NotFoundError: a sandbox cannot be started.
        Exception: whatever the engine raised.
    """
    inner = environment.environment if isinstance(environment, LabelledEnvironment) else environment
    assert isinstance(inner, AgentEnvironment)
    program, version = inner.program, request.policy.policy_version
    limits = EpisodeLimits(request.temperature, request.max_new_tokens, request.max_turns, engine.context)
    described = engine.described if isinstance(engine, Described) else None
    kept = Kept(Sampled(MODEL, version), f"program/{request.policy.tool_call_format}", request.temperature, described)

    def episode_rows(task: _Task) -> list[Row]:
        seed = derive_seed(request.seed, task.item.item_id, task.number)
        episode = Episode(task.item, task.number, seed, limits, program.tokens, policy.ends)
        endpoint.admit(episode)
        place = Place(endpoint.port, MODEL, endpoint.path)
        ran = run_program(program, episode, task.prompt, place, request.call_timeout)
        found = list(rows_of(episode, ran, kept))
        if failure := failure_of(episode, ran, found[0]):
            print(failure, file=sys.stderr, flush=True)  # into the worker's log: it may name ports and folders, which no row may
        return found

    with _sampler(request, engine) as sampler:
        served = Served(MODEL, BASE, version, request.policy)
        policy = ServedPolicy(served, sampler=sampler)
        with Endpoint(policy, isinstance(engine, EmbeddedEngine)) as endpoint, ThreadPoolExecutor(_AT_ONCE) as threads:
            rows = [row for found in threads.map(episode_rows, _tasks(request)) for row in found]
        policy.batch.keep_ended(False)  # of what the programs said nothing goes on
        if endpoint.failure:
            raise endpoint.failure
    return _scored(rows, engine) if request.policy.dtype == "float32" else rows


def _tasks(request: ShardRequest) -> list[_Task]:
    shown = request.prompts or [row["messages"] for row in request.items]
    prompts = [[Message.from_dict(message) for message in prompt] for prompt in shown]
    texts = [text_of(prompt) for prompt in prompts]
    items = [TaskItem.from_row(row) for row in request.items]
    return [_Task(item, index, text) for item, text in zip(items, texts, strict=True) for index in range(request.group_size)]


@contextmanager
def _sampler(request: ShardRequest, engine: Engine) -> Iterator[Sampler]:
    """Yield what samples with an engine; afterwards an embedded one computes as before."""
    if isinstance(engine, EmbeddedEngine):
        with restored_linears(engine.model):
            yield Sampler.of(engine)
        return
    with remote_sampler(engine, Path(request.policy.base), request.engine) as sampler:
        yield sampler


def _scored(rows: Sequence[Row], engine: Engine) -> list[Row]:
    """Return rows with the log-probs of a pass of each row alone, where the engine computes them: those of a shared pass are the
    same but for rounding, which depends on who shared it. So equal episodes are equal rows."""
    if not isinstance(engine, Scores):
        return list(rows)
    score = engine.score_rest if isinstance(engine, EmbeddedEngine) else engine.score
    recorded = [place for place, row in enumerate(rows) if row["tokens"] == "recorded"]
    alike = sorted(recorded, key=lambda place: rows[place]["token_ids"][: rows[place]["prompt_tokens"]])
    found = {place: _alone(rows[place], score) for place in alike}
    return [found.get(place, row) for place, row in enumerate(rows)]


def _alone(row: Row, score: Callable[[list[int], int, float], list[float]]) -> Row:
    mask, start = row["loss_mask"], row["prompt_tokens"]
    found = [0.0] * start + score(row["token_ids"], start, row["temperature"] or 1.0)
    return row | {"logprobs": [value if sampled else 0.0 for value, sampled in zip(found, mask, strict=True)]}
