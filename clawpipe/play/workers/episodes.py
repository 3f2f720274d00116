"""Run a policy in an environment: a batch of episodes side by side; every token is recorded as it was sampled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Completion, Engine, Sampling
from clawpipe.model.policy.renderer import Renderer
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.labelled import runs_apart
from clawpipe.play.environments.play import Play, Plays

_MOST_THREADS = 64
# The columns of tokens of a row without any.
TEXT: Row = {"tokens": "none", "logprobs_kind": "none", "prompt_tokens": 0} | dict.fromkeys(
    ("token_ids", "loss_mask", "logprobs", "turns"), ()
)

Submit = Callable[..., Future[Any]]  # runs a function with arguments


@dataclass(frozen=True)
class EpisodeLimits:
    """Limits of an episode. Temperature 0 is greedy; `max_tokens` is the policy's context."""

    temperature: float
    max_new_tokens: int
    max_turns: int
    max_tokens: int


@dataclass
class Rollout:
    """One running episode, with the messages and tokens so far."""

    item: TaskItem
    index: int
    seed: int
    play: Play
    messages: list[Message]
    token_ids: list[int]
    prompt_tokens: int
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[JsonObject] = field(default_factory=list)
    finish_reason: str = "stop"

    def add(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> None:
        """Record tokens: sampled ones with their log-probs, the environment's without."""
        self.token_ids += ids
        self.mask += [logprobs is not None] * len(ids)
        self.logprobs += logprobs if logprobs is not None else [0.0] * len(ids)

    def cut(self, limit: Literal["max_turns", "length"]) -> list[int]:
        """End the episode at a limit; return the tokens of the next turn, of which there are none."""
        self.finish_reason = limit
        self.play.end(limit)
        return []


def run_episodes(
    engine: Engine,
    renderer: Renderer,
    environment: Plays,
    items: Sequence[TaskItem],
    group_size: int,
    limits: EpisodeLimits,
    seed: int,
    prompts: Sequence[Sequence[Message]] | None = None,
    waves: int = 1,
) -> list[Rollout]:
    """Roll out each item `group_size` times; return rollouts in item order. Equal arguments give equal rollouts.

    Args:
        prompts: what the policy sees instead of each item's own messages, e.g. with a hint; the environment sees the latter.
        waves: parts that take turns: while one generates, the environment answers the others, an episode a thread. Who shares a
            forward pass depends on the part alone, never on timing. 1: all rollouts generate, then all are answered: one by one, or
            side by side where the environment runs in processes of its own.
    """
    shown = prompts or [item.messages for item in items]
    tasks = [(item, prompt, index) for item, prompt in zip(items, shown, strict=True) for index in range(group_size)]
    with _answering(len(tasks) if waves > 1 or runs_apart(environment) else 0) as submit:
        opening = [submit(_open, renderer, environment, *task, seed, limits) for task in tasks]
        rollouts: list[Rollout] = [rollout.result() for rollout in opening]
        bounds = [len(rollouts) * wave // waves for wave in range(waves + 1)]
        parts = [_Wave(engine, renderer, rollouts[start:end], limits) for start, end in pairwise(bounds) if start < end]
        try:
            for turn in range(limits.max_turns):
                for part in parts:
                    part.take_turn(turn, submit)
            for part in parts:
                part.await_answers()
        finally:
            for rollout in rollouts:
                rollout.play.close()
    return rollouts


class _Wave:
    """Rollouts that share forward passes."""

    def __init__(self, engine: Engine, renderer: Renderer, rollouts: Sequence[Rollout], limits: EpisodeLimits) -> None:
        self._renderer, self._rollouts, self._limits = renderer, rollouts, limits
        fitting = [rollout.token_ids for rollout in rollouts if len(rollout.token_ids) < limits.max_tokens]
        instead = fitting[0] if fitting else rollouts[0].token_ids[:1]  # of a prompt that the engine cannot hold
        held = (rollout.token_ids for rollout in rollouts)
        self._conversations = engine.begin([ids if len(ids) < limits.max_tokens else instead for ids in held])
        self._sampling = Sampling(limits.temperature, limits.max_new_tokens, renderer.stop_ids)
        self._active = [row for row, rollout in enumerate(rollouts) if not rollout.play.over]
        self._answers: dict[int, Future[list[int]]] = {}

    def take_turn(self, turn: int, submit: Submit) -> None:
        """Sample a turn of the episodes that go on, and let the environment answer."""
        self.await_answers()
        if not self._active:
            return
        seeds = {row: derive_seed(self._rollouts[row].seed, turn) for row in self._active}
        turns = self._conversations.sample(seeds, self._sampling)
        self._answers = {
            row: submit(_advance, self._rollouts[row], self._renderer, turns[row], turn, self._limits) for row in self._active
        }

    def await_answers(self) -> None:
        """Append the environment's answers to the last turn."""
        more = {row: answer.result() for row, answer in self._answers.items()}
        self._answers = {}
        self._conversations.extend({row: ids for row, ids in more.items() if ids})
        self._active = [row for row in self._active if more.get(row, True)]


@contextmanager
def _answering(threads: int) -> Iterator[Submit]:
    """Yield a function that runs the environment's answers: in `threads` threads, or directly if that is 0."""
    if not threads:
        yield _now
        return
    with ThreadPoolExecutor(min(threads, _MOST_THREADS)) as pool:
        try:
            yield lambda function, *arguments: pool.submit(function, *arguments)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _now(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(function(*arguments))
    return done


def _open(
    renderer: Renderer, environment: Plays, item: TaskItem, shown: Sequence[Message], index: int, seed: int, limits: EpisodeLimits
) -> Rollout:
    prompt = renderer.prompt([*environment.preamble(), *shown])
    own_seed = derive_seed(seed, item.item_id, index)
    fits = len(prompt) < limits.max_tokens
    too_long = "" if fits else f"the prompt has {len(prompt)} tokens, and the model's context holds {limits.max_tokens}"
    rollout = Rollout(item, index, own_seed, Play(environment, item, own_seed, too_long), list(item.messages), [], len(prompt))
    rollout.finish_reason = "stop" if fits else "length"
    rollout.add(prompt)
    return rollout


def _advance(rollout: Rollout, renderer: Renderer, completion: Completion, turn: int, limits: EpisodeLimits) -> list[int]:
    """Record a turn and the environment's answer; return the tokens that open the next turn, none if the episode is over."""
    start = len(rollout.token_ids)
    rollout.add(completion.ids, completion.logprobs)
    rollout.turns.append({"start": start, "end": len(rollout.token_ids), "kind": "main", "finish_reason": completion.finish_reason})
    rollout.messages.append(renderer.parse(completion.ids, turn))
    rollout.finish_reason = completion.finish_reason
    answer = rollout.play.answer(rollout.messages)
    rollout.messages += answer.messages
    if answer.done:
        rollout.play.end("length" if completion.finish_reason == "length" else "done")
        return []
    if turn + 1 == limits.max_turns:
        return rollout.cut("max_turns")
    ids = renderer.continuation(completion.finish_reason, answer.messages)
    if len(rollout.token_ids) + len(ids) + limits.max_new_tokens > limits.max_tokens:
        return rollout.cut("length")
    rollout.add(ids)
    return ids


def _streams(rollout: Rollout) -> Row:
    """Return the columns of tokens; of an episode that could not start, in which nothing was sampled, those of a row of text."""
    if not rollout.turns:
        return TEXT
    return {
        "token_ids": rollout.token_ids,
        "loss_mask": rollout.mask,
        "logprobs": rollout.logprobs,
        "prompt_tokens": rollout.prompt_tokens,
        "turns": rollout.turns,
        "tokens": "recorded",
        "logprobs_kind": "tempered",
    }


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed made of `parts`, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def trajectory_rows(
    rollouts: Sequence[Rollout], policy_version: str, renderer: str, temperature: float, engine: JsonObject | None = None
) -> Iterator[Row]:
    """Yield rows of the `trajectories` contract. `engine`: what sampled, where it is not the embedded engine."""
    extra = {"extra": json.dumps({"engine": engine}, sort_keys=True)} if engine else {}
    for rollout in rollouts:
        group = f"{rollout.item.item_id}/{policy_version}"
        yield {
            "trajectory_id": hashlib.sha256(f"{group}/{rollout.index}/{rollout.seed}".encode()).hexdigest()[:24],
            "item_id": rollout.item.item_id,
            "group_id": group,
            "rollout_index": rollout.index,
            "environment": rollout.item.environment,
            "split": rollout.item.split,
            "source": "rollout",
            "policy_version": policy_version,
            "renderer_digest": renderer,
            "messages": [message.as_dict() for message in rollout.messages],
            "temperature": temperature,
            "seed": rollout.seed,
            "finish_reason": rollout.finish_reason,
            **_streams(rollout),
            **rollout.play.ending.as_row(),
            **extra,
        }
