"""The rows of the training benchmark: files in the layouts of the contracts, which both sides read.

- demo groups: real rollouts of the demo (shop environment, base policy, 8 rollouts per item), recorded when the benchmark starts;
- demo pairs: first turns of such groups, the best rollout of an item against worse ones;
- long sessions: random tokens in the shape of captured agent sessions, either one row per turn with its whole history, as an
  OpenAI-compatible gateway captures them, or one row per session.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.workers.episodes import EpisodeLimits, Rollout, run_episodes

GROUP_SIZE, TEMPERATURE, NEW_TOKENS, TURNS = 8, 0.8, 24, 2  # as in configs/demo.yaml
_PAIRS_A_GROUP = 3


class Shape(NamedTuple):
    """Shape of the long sessions: each turn has `tokens / turns` tokens, the last `trained` of which are the policy's."""

    turns: int = 8
    tokens: int = 4096
    trained: int = 64


class Stream(NamedTuple):
    """The parallel streams [T] of a row."""

    ids: np.ndarray
    mask: np.ndarray
    logprobs: np.ndarray


def write_random_model(base: Path, output: Path) -> int:
    """Write a model of the shape of `base` with random weights, and its tokenizer. Returns the size of the vocabulary."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(base)
    AutoModelForCausalLM.from_config(config).save_pretrained(output)
    load_tokenizer(base).save_pretrained(output)
    return config.vocab_size


def record_demo_groups(base: Path, groups: int, output: Path, seed: int = 0) -> None:
    """Roll out 2 * `groups` items of the shop and keep `groups` of them, those whose rollouts differ in reward first.

    Curation drops the others; where too few differ (a random model never succeeds), rewards alternate between 1 and 0, so that
    every row has a loss.
    """
    environment = load_environment("shop", {})
    renderer = Renderer(load_tokenizer(base), "pythonic", environment.tools())
    engine = EmbeddedEngine(base, None, device="cpu")
    limits = EpisodeLimits(TEMPERATURE, NEW_TOKENS, TURNS, engine.context)
    items = environment.items("train", 2 * groups, seed)
    halves = [
        run_episodes(engine, renderer, environment, half, GROUP_SIZE, limits, seed) for half in (items[:groups], items[groups:])
    ]
    rollouts = [*halves[0], *halves[1]]
    parts = [rollouts[start : start + GROUP_SIZE] for start in range(0, len(rollouts), GROUP_SIZE)]
    outcomes = [[outcome_of(environment, row.item, row.messages, row.play.ending) for row in part] for part in parts]
    rewards = [np.array([outcome.value for outcome in part]) for part in outcomes]
    order = sorted(range(len(parts)), key=lambda index: rewards[index].std() == 0)
    _write("samples", (row for index in order[:groups] for row in _group(parts[index], rewards[index])), output)


def pair_first_turns(groups: Path, pairs: Path, scores: Path) -> None:
    """Write pairs of recorded first turns that differ, the highest advantage first, and their reference log-probs.

    Only first turns, because TRL's DPOTrainer trains every token after the prompt, including the environment's. The recorded
    log-probs stand for the reference's.
    """
    rows = pq.read_table(groups).to_pylist()
    made = [pair for start in range(0, len(rows), GROUP_SIZE) for pair in _pairs(rows[start : start + GROUP_SIZE])]
    _write("preference_pairs", (_pair_row(index, *pair) for index, pair in enumerate(made)), pairs)
    _write("token_scores", (row for index, pair in enumerate(made) for row in _pair_scores(index, *pair)), scores)


def write_long_sessions(shape: Shape, sessions: int, vocabulary: int, output: Path, by_turn: bool, seed: int = 0) -> None:
    """Write rows of random tokens below `vocabulary`; the recorded log-probs are those of an almost uniform policy."""
    generator = np.random.default_rng(seed)
    made = [_session(shape, vocabulary, generator) for _ in range(sessions)]
    _write("samples", (row for index, session in enumerate(made) for row in _session_rows(index, session, shape, by_turn)), output)


def _session(shape: Shape, vocabulary: int, generator: np.random.Generator) -> Stream:
    step = shape.tokens // shape.turns
    mask = np.arange(shape.tokens) % step >= step - shape.trained
    logprobs = generator.normal(-math.log(vocabulary), 0.1, shape.tokens)
    return Stream(generator.integers(0, vocabulary, shape.tokens), mask, np.where(mask, logprobs, 0.0))


def _session_rows(index: int, session: Stream, shape: Shape, by_turn: bool) -> Iterator[Row]:
    """Yield rows whose advantages go with the turns, from 1 down to -1, in either form."""
    step = shape.tokens // shape.turns
    advantages = np.repeat(np.linspace(1.0, -1.0, shape.turns), step)
    if not by_turn:
        yield _sample(f"session-{index}", 0, session, advantages, step - shape.trained, 1.0)
        return
    for turn in range(shape.turns):
        part = Stream(*(stream[: step * (turn + 1)] for stream in session))
        part = part._replace(mask=part.mask & (np.arange(len(part.mask)) >= step * turn))
        yield _sample(f"session-{index}", turn, part, advantages[: len(part.ids)], len(part.ids) - shape.trained, 1.0)


def _group(part: Sequence[Rollout], rewards: np.ndarray) -> Iterator[Row]:
    rewards = rewards if rewards.std() else np.resize([1.0, 0.0], len(part))
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    for row, advantage in zip(part, advantages, strict=True):
        stream = Stream(np.array(row.token_ids), np.array(row.mask), np.array(row.logprobs))
        yield _sample(row.item.item_id, row.index, stream, np.full(len(stream.ids), advantage), row.prompt_tokens, TEMPERATURE)


def _sample(group: str, index: int, stream: Stream, advantages: np.ndarray, prompt_tokens: int, temperature: float) -> Row:
    names = dict.fromkeys(("item_id", "group_id"), group) | dict.fromkeys(("policy_version", "renderer_digest"), "benchmark")
    streams = {"token_ids": stream.ids, "loss_mask": stream.mask, "logprobs": np.where(stream.mask, stream.logprobs, 0.0)}
    fields = {"rollout_index": index, "prompt_tokens": prompt_tokens, "temperature": temperature, "weight": 1.0}
    return names | {"trajectory_id": f"{group}/{index}"} | streams | {"advantages": np.where(stream.mask, advantages, 0.0)} | fields


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return pairs of the best row's first turn with those of the worst rows that differ from it."""
    turns = sorted((_first_turn(row) for row in rows), key=lambda turn: -turn["advantage"])
    others = [turn for turn in reversed(turns[1:]) if turn["ids"] != turns[0]["ids"]]
    return [(turns[0], other) for other in others[:_PAIRS_A_GROUP]]


def _first_turn(row: Row) -> Row:
    start = row["prompt_tokens"]
    end = start + [*row["loss_mask"][start:], False].index(False)
    return {
        "group": row["group_id"],
        "prompt": start,
        "advantage": row["advantages"][start],
        "ids": row["token_ids"][:end],
        "logprobs": row["logprobs"][start:end],
    }


def _pair_row(index: int, chosen: Row, rejected: Row) -> Row:
    sides = {"chosen": chosen, "rejected": rejected}
    return {
        "pair_id": f"{index:04}",
        **dict.fromkeys(("item_id", "group_id"), chosen["group"]),
        **dict.fromkeys(("policy_version", "renderer_digest"), "benchmark"),
        **{f"{side}_id": f"{index:04}/{side}" for side in sides},
        **{f"{side}_token_ids": turn["ids"] for side, turn in sides.items()},
        **{f"{side}_loss_mask": [place >= turn["prompt"] for place in range(len(turn["ids"]))] for side, turn in sides.items()},
        **{side: [] for side in ("prompt", "chosen", "rejected")},
        "strategy": "all-margin",
        "margin": chosen["advantage"] - rejected["advantage"],
        "prompt_tokens": chosen["prompt"],
        "temperature": 1.0,  # TRL's DPOTrainer supports no other
        "weight": 1.0,
        "tokens": "recorded",
    }


def _pair_scores(index: int, chosen: Row, rejected: Row) -> Iterable[Row]:
    sides = (("chosen", chosen), ("rejected", rejected))
    return [{"row_id": f"{index:04}/{side}", "reference": turn["logprobs"]} for side, turn in sides]


def _write(dataset: str, rows: Iterable[Row], output: Path) -> None:
    write_parquet(pa.Table.from_pylist(list(rows), schema=schema_of(dataset)), output)
