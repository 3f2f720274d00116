"""Run episodes with a model at an endpoint, and record the messages, and the tokens where the endpoint returns them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.sampled import are_one_row, token_columns
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import Ending, Judges, outcome_of
from clawpipe.play.environments.play import Play, Plays
from clawpipe.play.workers.episodes import TEXT, derive_seed

if TYPE_CHECKING:
    from clawpipe.core.contracts.logprobs import Kind
    from clawpipe.model.engines.chat import ChatModel, Reply, SampledReply

_TOO_LONG = re.compile("context|model length|too long", re.IGNORECASE)  # how servers refuse what their context does not hold
_RENDERER = "endpoint/openai"  # tokens that the endpoint's own chat template made


@dataclass(frozen=True)
class ChatEpisode:
    """An episode that has ended. `error` says why the environment could not verify it, "" if it could."""

    item: TaskItem
    index: int
    messages: tuple[Message, ...]
    finish_reason: str
    success: bool | None = None
    value: float | None = None
    error: str = ""
    sampled: tuple[SampledReply, ...] = ()
    ending: Ending = field(default_factory=Ending)

    @property
    def malformed(self) -> bool:
        """Whether a call could not be read."""
        return any(call.malformed for message in self.messages for call in message.tool_calls)


def chat_episodes(
    model: ChatModel,
    environment: Plays,
    tasks: Sequence[tuple[TaskItem, int]],
    max_turns: int,
    seed: int | None = None,
) -> Iterator[ChatEpisode]:
    """Run an episode for each item and its number, as many at a time as the model may be asked at once; yield them in order.

    Args:
        seed: of all draws; None: the endpoint draws its own.

    Raises:
        ConfigError, BusyError: see `ChatModel.reply`.
    """

    def run(task: tuple[TaskItem, int]) -> ChatEpisode:
        own = None if seed is None else derive_seed(seed, task[0].item_id, task[1])
        return _talk(model, environment, *task, max_turns, own)

    with ThreadPoolExecutor(model.servers.concurrency) as threads:
        futures = [threads.submit(run, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _talk(model: ChatModel, environment: Plays, item: TaskItem, index: int, max_turns: int, seed: int | None) -> ChatEpisode:
    preamble, messages = environment.preamble(), list(item.messages)
    replies: list[Reply] = []
    play = Play(environment, item, derive_seed(0, item.item_id, index) if seed is None else seed)
    tools, reason = environment.tools(), "stop"
    try:
        for turn in range(max_turns if not play.over else 0):
            own = None if seed is None else derive_seed(seed, turn)
            try:
                replies.append(model.ask([*preamble, *messages], tools, own))
            except ConfigError as error:
                if not (replies and _TOO_LONG.search(error.what)):
                    raise
                play.end(reason := "length")  # the conversation has outgrown the context
                break
            messages.append(replies[-1].message)
            answer, reason = play.answer(messages), replies[-1].finish_reason
            messages += answer.messages
            if answer.done:
                play.end("length" if reason == "length" else "done")
                break
        reason = reason if play.over else "max_turns"
        play.end("max_turns")
    finally:
        play.close()
    sampled = tuple(reply.sampled for reply in replies if reply.sampled)
    return ChatEpisode(item, index, tuple(messages), reason, sampled=sampled, ending=play.ending)


def verified(environment: Judges, episode: ChatEpisode) -> ChatEpisode:
    """Return an episode with what the environment says of it."""
    try:
        outcome = outcome_of(environment, episode.item, episode.messages, episode.ending)
    except Exception as error:  # a user's environment may raise anything, and one item must not end the others
        return replace(episode, error=f"{type(error).__name__}: {error}")
    return replace(episode, success=outcome.success, value=outcome.value)


def endpoint_rows(episodes: Sequence[ChatEpisode], model: ChatModel, seed: int) -> Iterator[Row]:
    """Yield rows of the `trajectories` contract. One whose tokens are not those of one row, because a prompt was tokenized anew or
    another policy version took over, is text."""
    stated: set[Kind] = {reply.kind for episode in episodes for reply in episode.sampled}
    kinds: dict[Kind, Kind] = {kind: model.kind_of(kind) for kind in stated}
    for episode in episodes:
        item, own = episode.item, derive_seed(seed, episode.item.item_id, episode.index)
        tokens = _token_columns(episode.sampled, kinds)
        yield {
            "trajectory_id": hashlib.sha256(f"{model.model}/{item.item_id}/{episode.index}/{own}".encode()).hexdigest()[:24],
            "item_id": item.item_id,
            "group_id": f"{item.item_id}/{tokens.get('policy_version') or ''}",
            "rollout_index": episode.index,
            "environment": item.environment,
            "split": item.split,
            "source": "rollout",
            "messages": [message.as_dict() for message in episode.messages],
            "temperature": model.temperature,
            "seed": own,
            "finish_reason": episode.finish_reason if episode.finish_reason in ("length", "max_turns") else "stop",
            "kinds": ["main" for message in episode.messages if message.role == "assistant"],
            "model": model.model,
            "extra": json.dumps({"engine": {"name": "openai", "model": model.model}}),
            **tokens,
            **episode.ending.as_row(),
        }


def _token_columns(sampled: Sequence[SampledReply], kinds: Mapping[Kind, Kind]) -> Row:
    turns = [reply.turn for reply in sampled]
    if len({(reply.policy, reply.kind) for reply in sampled}) != 1 or not are_one_row(turns):
        return TEXT
    made = {"tokens": "recorded", "renderer_digest": _RENDERER}
    return made | token_columns(turns) | {"logprobs_kind": kinds[sampled[0].kind], "policy_version": sampled[0].policy}
