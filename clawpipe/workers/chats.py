"""Episodes with a model at an endpoint: messages alone are recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from clawpipe.engines.chat import ChatModel, functions
from clawpipe.environments.base import Environment, TaskItem
from clawpipe.importers.message import write_chat
from clawpipe.json_types import JsonObject, Row
from clawpipe.messages import Message, ToolSpec
from clawpipe.workers.episodes import derive_seed


@dataclass(frozen=True)
class ChatEpisode:
    """An episode that has ended. `error` is what the environment raised when it verified it, "" if nothing."""

    item: TaskItem
    index: int
    messages: tuple[Message, ...]
    finish_reason: str
    success: bool | None
    value: float | None
    error: str = ""

    @property
    def malformed(self) -> bool:
        """Whether a call could not be read."""
        return any(call.malformed for message in self.messages for call in message.tool_calls)

    def as_row(self, model: str, tools: Sequence[ToolSpec]) -> JsonObject:
        """Return a line that `clawpipe ingest` reads."""
        row: JsonObject = {"session_id": f"{self.item.item_id}/{self.index}", "model": model}
        row |= {"messages": write_chat(self.messages), "finish_reason": self.finish_reason}
        row |= {"tools": functions(tools)} if tools else {}
        return row | ({"success": self.success, "reward": self.value} if self.success is not None else {})


def chat_episodes(
    model: ChatModel,
    environment: Environment,
    tasks: Sequence[tuple[TaskItem, int]],
    max_turns: int,
    verify: bool = True,
    seed: int | None = None,
) -> Iterator[ChatEpisode]:
    """Run an episode for each item and its number, as many at a time as the model may be asked at once; yield them in order.

    Args:
        verify: whether the environment says how the episodes went.
        seed: of all draws; None: the endpoint draws its own.

    Raises:
        ConfigError, BusyError: see `ChatModel.reply`.
    """

    def run(task: tuple[TaskItem, int]) -> ChatEpisode:
        own = None if seed is None else derive_seed(seed, task[0].item_id, task[1])
        messages, reason = _talk(model, environment, task[0], max_turns, own)
        if not verify:
            return ChatEpisode(*task, tuple(messages), reason, None, None)
        return verified(environment, *task, messages, reason)

    with ThreadPoolExecutor(model.servers.concurrency) as threads:
        futures = [threads.submit(run, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _talk(
    model: ChatModel, environment: Environment, item: TaskItem, max_turns: int, seed: int | None
) -> tuple[list[Message], str]:
    preamble, messages, reason = environment.preamble(), list(item.messages), "max_turns"
    episode, tools = environment.start(item), environment.tools()
    try:
        for turn in range(max_turns):
            own = None if seed is None else derive_seed(seed, turn)
            reply, reason = model.reply([*preamble, *messages], tools, own)
            messages.append(reply)
            answer = episode.respond(messages)
            if answer is None:
                return messages, reason
            messages += answer
        return messages, "max_turns"
    finally:
        episode.close()


def verified(environment: Environment, item: TaskItem, index: int, messages: Sequence[Message], reason: str) -> ChatEpisode:
    """Return an episode that has ended for `reason`, with what the environment says of it."""
    try:
        outcome = environment.verify(item, messages)
    except Exception as error:  # a user's environment may raise anything, and one item must not end the others
        return ChatEpisode(item, index, tuple(messages), reason, None, None, f"{type(error).__name__}: {error}")
    return ChatEpisode(item, index, tuple(messages), reason, outcome.success, outcome.value)


def text_rows(episodes: Sequence[ChatEpisode], model: ChatModel, seed: int) -> Iterator[Row]:
    """Yield rows of the `trajectories` contract, without tokens: nobody here knows which policy answered."""
    for episode in episodes:
        item, own = episode.item, derive_seed(seed, episode.item.item_id, episode.index)
        yield {
            "trajectory_id": hashlib.sha256(f"{model.model}/{item.item_id}/{episode.index}/{own}".encode()).hexdigest()[:24],
            "item_id": item.item_id,
            "group_id": f"{item.item_id}/",
            "rollout_index": episode.index,
            "environment": item.environment,
            "split": item.split,
            "source": "rollout",
            "messages": [message.as_dict() for message in episode.messages],
            **dict.fromkeys(("token_ids", "loss_mask", "logprobs", "turns"), ()),
            "prompt_tokens": 0,
            "temperature": model.temperature,
            "seed": own,
            "finish_reason": episode.finish_reason if episode.finish_reason in ("length", "max_turns") else "stop",
            "tokens": "none",
            "logprobs_kind": "none",
            "kinds": ["main" for message in episode.messages if message.role == "assistant"],
            "model": model.model,
            "extra": json.dumps({"engine": {"name": "openai", "model": model.model}}),
        }
