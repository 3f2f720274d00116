"""Turns with the tokens that an engine sampled, as columns of one row of `trajectories`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from clawpipe.core.basics.json_types import Row

PART = "part"  # in `extra` of a row: which of its episode's rows it is; the first one, which stands for the whole, has none
EPISODE = "episode"  # in `extra` of each row of an episode that left several: the id of the first one
FAILED = "failed"  # in the evidence of a program that ended with another exit code than 0, and not at a limit
_VERSION = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class SampledTurn(NamedTuple):
    """Token ids of a turn's whole prompt, those that were sampled, and the log-prob of each of the latter, in nats."""

    prompt: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str
    kind: str = "main"


def are_one_row(turns: Sequence[SampledTurn]) -> bool:
    """Whether each prompt begins with all tokens of the turn before; else it was tokenized anew, and one row cannot hold both."""
    return all(continues(before, after.prompt) for before, after in pairwise(turns))


def continues(before: SampledTurn, prompt: Sequence[int]) -> bool:
    """Whether a prompt begins with all tokens of a turn."""
    seen = [*before.prompt, *before.ids]
    return list(prompt[: len(seen)]) == seen


def token_columns(turns: Sequence[SampledTurn]) -> Row:
    """Return the columns of turns that are one row: its ids are those of the last prompt and of the last turn."""
    ids = [*turns[-1].prompt, *turns[-1].ids]
    mask, logprobs, spans = [False] * len(ids), [0.0] * len(ids), []
    for turn in turns:
        start, end = len(turn.prompt), len(turn.prompt) + len(turn.ids)
        mask[start:end], logprobs[start:end] = [True] * len(turn.ids), turn.logprobs
        spans.append({"start": start, "end": end, "kind": turn.kind, "finish_reason": turn.finish_reason})
    return {"token_ids": ids, "loss_mask": mask, "logprobs": logprobs, "turns": spans, "prompt_tokens": spans[0]["start"]}


def is_part(row: Row) -> bool:
    """Whether a row of `trajectories` is a further one of an episode that another row stands for."""
    return bool(row["extra"]) and PART in json.loads(row["extra"])


def sampled_by_episode(rows: Iterable[Row]) -> Counter[str]:
    """Return the number of sampled tokens of each episode, by the id of its first row."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[json.loads(row["extra"] or "{}").get(EPISODE, row["trajectory_id"])] += sum(row["loss_mask"])
    return counts


def version_of(named: str | None, model: str | None) -> str:
    """Return the policy version of sampled tokens: the one that the engine named, else one made of its model's name."""
    version = named or f"model:{model}"
    return version if _VERSION.fullmatch(version) else "unnamed"


def failed_with(row: Row) -> int | None:
    """Return the exit code of the program of a recorded episode, if it failed by itself after it was answered."""
    verdict = row.get("verdict") or ""
    said = json.loads(verdict) if f'"{FAILED}"' in verdict else {}
    return said["exit"] if said.get(FAILED) is True and isinstance(said.get("exit"), int) else None
