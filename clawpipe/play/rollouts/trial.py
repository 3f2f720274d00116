"""Try an environment with a model on a few items, to see within a minute what a night would find."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.engine import KEYS, EngineSpec
from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.config.model import Model
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.data.importers.message import write_chat
from clawpipe.model.engines.chat import ChatModel, functions
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import COLUMNS, Ending, messages_of
from clawpipe.play.environments.several import World, open_world
from clawpipe.play.workers.chats import ChatEpisode, chat_episodes, verified
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ShardRequest

_SEED = 0
_TEMPERATURE = 0.8
_CONCURRENCY = 8  # requests to an endpoint at once


@dataclass(frozen=True)
class Limits:
    """Limits of a trial: the number of items, the episodes of each, and the length of an episode."""

    items: int
    samples: int
    max_turns: int
    max_new_tokens: int


class Task(NamedTuple):
    """How the episodes of one item went: how many succeeded, and the value of each; None where it could not be verified."""

    episodes: int
    correct: int
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Trial:
    """Figures of one model; None where there is no episode to count.

    Attributes:
        parsed: share of episodes without a malformed call.
        success, value: of the episodes that the environment could verify.
        errors: episodes whose verification raised.
        tasks: one for each item.
    """

    model: str
    episodes: int
    parsed: float | None
    success: float | None
    value: float | None
    errors: int
    first_error: str
    seconds: float
    tasks: tuple[Task, ...]


def try_environment(
    environment: EnvironmentSpec, model: str, limits: Limits, output: Path | None, key: str = KEYS["openai"]
) -> Trial:
    """Run episodes of the first train items, verify them, and count.

    Args:
        model: a base model, or NAME@URL, a model at an endpoint.
        output: file for the episodes, JSON Lines.
        key: environment variable with the key of an endpoint.

    Raises:
        ClawpipeError: the environment, the model or the endpoint cannot be used.
    """
    with open_world(environment, None) as world:
        items = world.items("train", limits.items, _SEED)
        begun = time.monotonic()
        endpoint = "@" in model
        episodes = _over_endpoint(world, items, model, limits, key) if endpoint else _with_engine(environment, items, model, limits)
        judged = [verified(world, episode) for episode in episodes]
        if output:
            _write(output, model, world, judged)
        return _counted(model, judged, time.monotonic() - begun)


def file_for(folder: Path, model: str) -> Path:
    """Return the file of a model's episodes in a directory of several."""
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', model)}.jsonl"


def _over_endpoint(world: World, items: Sequence[TaskItem], model: str, limits: Limits, key: str) -> list[ChatEpisode]:
    served, _, url = model.rpartition("@")
    server = EngineSpec(name="openai", url=(url,), model=served, concurrency=_CONCURRENCY)
    tasks = [(item, index) for item in items for index in range(limits.samples)]
    with ChatModel.at(server, _TEMPERATURE, limits.max_new_tokens, key) as there:
        return list(chat_episodes(there, world, tasks, limits.max_turns))


def _with_engine(environment: EnvironmentSpec, items: Sequence[TaskItem], model: str, limits: Limits) -> list[ChatEpisode]:
    request = ShardRequest(
        policy=untrained_spec(Model(base=model)),
        environment=environment.name,
        options=environment.options,
        call_timeout=environment.call_timeout,
        python=environment.python,
        items=[item.as_row() for item in items],
        group_size=limits.samples,
        temperature=_TEMPERATURE,
        max_new_tokens=limits.max_new_tokens,
        max_turns=limits.max_turns,
        seed=_SEED,
    )
    with tempfile.TemporaryDirectory() as scratch, WorkerPool(Runtime(workers=1), Path(scratch)) as pool:
        pool.run(Job(request=request, output=f"{scratch}/episodes"))
        columns = ["item_id", "rollout_index", "messages", "finish_reason", *COLUMNS]
        rows = pq.read_table(f"{scratch}/episodes", columns=columns).to_pylist()
    known = {item.item_id: item for item in items}
    return [_episode(known[row["item_id"]], row) for row in rows]


def _episode(item: TaskItem, row: Row) -> ChatEpisode:
    messages, ending = tuple(messages_of(row)), Ending.from_row(row)
    return ChatEpisode(item, row["rollout_index"], messages, row["finish_reason"], ending=ending)


def _counted(model: str, episodes: Sequence[ChatEpisode], seconds: float) -> Trial:
    errors = [episode.error for episode in episodes if episode.error]
    good = [episode for episode in episodes if episode.success is not None]
    return Trial(
        model=model,
        episodes=len(episodes),
        parsed=fmean(not episode.malformed for episode in episodes) if episodes else None,
        success=fmean(bool(episode.success) for episode in good) if good else None,
        value=fmean(episode.value or 0.0 for episode in good) if good else None,
        errors=len(errors),
        first_error=errors[0] if errors else "",
        seconds=round(seconds, 1),
        tasks=tuple(_tasks(episodes)),
    )


def _tasks(episodes: Sequence[ChatEpisode]) -> Iterator[Task]:
    by_item: dict[str, list[ChatEpisode]] = {}
    for episode in episodes:
        by_item.setdefault(episode.item.item_id, []).append(episode)
    for group in by_item.values():
        correct = sum(bool(episode.success) for episode in group)
        yield Task(len(group), correct, tuple(None if episode.success is None else episode.value for episode in group))


def line_of(episode: ChatEpisode, model: str, tools: Sequence[ToolSpec]) -> JsonObject:
    """Return an episode as a line that `clawpipe ingest` reads."""
    row: JsonObject = {"session_id": f"{episode.item.item_id}/{episode.index}", "model": model}
    row |= {"messages": write_chat(episode.messages), "finish_reason": episode.finish_reason}
    row |= {"tools": functions(tools)} if tools else {}
    return row | ({"success": episode.success, "reward": episode.value} if episode.success is not None else {})


def _write(file: Path, model: str, world: World, episodes: Sequence[ChatEpisode]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    tools = world.tools()
    file.write_text("".join(f"{json.dumps(line_of(episode, model, tools), ensure_ascii=False)}\n" for episode in episodes), "utf-8")
