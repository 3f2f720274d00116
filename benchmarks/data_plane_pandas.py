"""The benchmark's job in pandas, and in Hugging Face datasets row by row: both measure a row in plain Python."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from data_plane_job import ENDINGS, LENGTH_RATIO, MARGIN, MAX_TOKENS, MAX_TURNS, PAYLOAD, RESULT, Done, Job, pairs_in

from clawpipe.core.basics.json_types import Row

NARROW = ("trajectory_id", "item_id", "group_id", "rollout_index", "split", "tokens", "temperature", "status", "finish_reason")
WIDE = ("messages", "token_ids", "logprobs", "prompt_tokens", "turns")
_SPACE = re.compile(r"\s+")


def pandas_job(job: Job) -> Done:
    """Work file by file, because a whole dataset as Python objects takes many times its memory."""
    questions, heldout = heldout_of(_read(job.files["items"], ["item_id", "identity", "split", "messages"]))
    measures = [_measures(frame, questions) for frame in _frames(job.files["trajectories"], [*NARROW, *WIDE])]
    scores = _read(job.files["scores"], ["trajectory_id", "turn", "scorer", "origin", "value", "success"])
    pairs = choose(pd.concat(measures, ignore_index=True), scores, heldout)
    wanted = set(pairs["chosen_id"]) | set(pairs["rejected_id"])
    payload = pd.concat([f[f["trajectory_id"].isin(wanted)] for f in _frames(job.files["trajectories"], list(PAYLOAD))])
    for side in ("chosen", "rejected"):
        columns = {name: side if name == "messages" else f"{side}_{name}" for name in PAYLOAD[1:]}
        pairs = pairs.merge(payload.rename(columns=columns | {"trajectory_id": f"{side}_id"}), on=f"{side}_id")
    firsts = [first_reply(messages) for messages in pairs["chosen"]]
    pairs["prompt"] = [messages[:first] for messages, first in zip(pairs["chosen"], firsts, strict=True)]
    for side in ("chosen", "rejected"):
        pairs[side] = [messages[first:] for messages, first in zip(pairs[side], firsts, strict=True)]
    output = job.work / "pairs.parquet"
    pairs[RESULT.names].to_parquet(output, compression="zstd", compression_level=3, schema=RESULT, index=False)
    return Done(lambda: pairs_in([output]))


def datasets_job(job: Job) -> Done:
    """Run one pass of `map` over the rows, with as many processes as threads."""
    from datasets import Dataset, concatenate_datasets, disable_progress_bars

    disable_progress_bars()

    def load(name: str, columns: Sequence[str]) -> Dataset:
        return Dataset.from_parquet([str(file) for file in job.files[name]], cache_dir=str(job.work), columns=list(columns))

    questions, heldout = heldout_of(load("items", ("item_id", "identity", "split", "messages")).to_pandas())
    rows = load("trajectories", (*NARROW, *WIDE, "loss_mask"))
    measured = rows.map(
        describe, remove_columns=[*WIDE, "loss_mask"], fn_kwargs={"questions": questions}, num_proc=job.threads
    ).to_pandas()
    scores = load("scores", ("trajectory_id", "turn", "scorer", "origin", "value", "success")).to_pandas()
    pairs = choose(measured, scores, heldout)
    place = pd.Series(range(len(measured)), index=measured["trajectory_id"])
    sides = []
    for side in ("chosen", "rejected"):
        columns = {name: side if name == "messages" else f"{side}_{name}" for name in PAYLOAD[1:]}
        picked = rows.select(place[pairs[f"{side}_id"]].to_numpy()).select_columns(list(columns))
        sides.append(picked.rename_columns(columns))
    named = Dataset.from_pandas(pairs[["chosen_id", "rejected_id", "margin"]], preserve_index=False)
    whole = concatenate_datasets([named, *sides], axis=1).map(split_prompt, num_proc=job.threads)
    output = job.work / "pairs.parquet"
    whole.to_parquet(output)
    return Done(lambda: pairs_in([output]))


def describe(row: Mapping[str, Any], questions: frozenset[str]) -> Row:
    """Return the narrow columns of a row."""
    return measure_row(row["messages"], row["token_ids"], row["logprobs"], row["prompt_tokens"], row["turns"], questions)


def measure_row(
    messages: Iterable[Mapping[str, Any]],
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    prompt_tokens: int,
    turns: Iterable[Mapping[str, Any]],
    questions: frozenset[str],
) -> Row:
    main = [turn["end"] - turn["start"] for turn in turns if turn["kind"] == "main"]
    body, reply, asked = hashlib.md5(), hashlib.md5(), False
    for message in messages:
        role, content, calls = message["role"], message["content"], message["tool_calls"]
        body.update(f"{role}\x1f{content}\x1e".encode())
        for call in calls:
            body.update(f"{call['name']}\x1f{call['arguments']}\x1e".encode())
        if role == "assistant":
            reply.update(f"{plain(content)}\x1e".encode())
            for call in calls:
                reply.update(f"{call['name']}\x1f{plain(call['arguments'])}\x1e".encode())
        asked = asked or (role == "user" and plain(content) in questions)
    return {
        "body": body.digest(),
        "reply": reply.digest(),
        "asked": asked,
        "prompt": hashlib.md5(repr([int(token) for token in token_ids[:prompt_tokens]]).encode()).digest(),
        "length": len(token_ids),
        "finite": math.isfinite(sum(logprobs)),
        "main_turns": len(main),
        "trained": sum(main),
    }


def plain(text: str) -> str:
    return _SPACE.sub(" ", unicodedata.normalize("NFC", text).lower()).strip()


def heldout_of(items: pd.DataFrame) -> tuple[frozenset[str], set[str]]:
    """Return the questions of held-out items, and the ids of all items with their identities."""
    held = items[items["split"] == "heldout"]
    asked = [[message["content"] for message in messages if message["role"] == "user"][-1] for messages in held["messages"]]
    return frozenset(map(plain, asked)), set(items[items["identity"].isin(held["identity"])]["item_id"])


def choose(rows: pd.DataFrame, scores: pd.DataFrame, heldout: set[str]) -> pd.DataFrame:
    """Return the pairs: chosen_id, rejected_id, margin."""
    verdict = scores[scores["turn"].isna() & (scores["origin"] == "verifier")]
    verdict = verdict.sort_values(["scorer", "value", "success"], kind="stable").drop_duplicates("trajectory_id")
    rows = rows.merge(verdict[["trajectory_id", "value", "success"]], on="trajectory_id")
    ending = rows["status"].fillna(rows["finish_reason"].map({"stop": "completed"}).fillna("truncated"))
    fine = (rows["tokens"] == "recorded") & (rows["length"] <= MAX_TOKENS) & (rows["trained"] > 0) & (rows["temperature"] > 0)
    fine &= rows["finite"] & ending.isin(ENDINGS) & (rows["main_turns"] <= MAX_TURNS)
    fine &= (rows["split"] != "heldout") & ~rows["item_id"].isin(heldout) & ~rows["asked"]
    rows = rows[fine].sort_values(["success", "value", "trajectory_id"], ascending=[False, False, True])
    rows = rows.drop_duplicates(["group_id", "body"])
    won, lost = rows[rows["success"]], rows[~rows["success"].astype(bool)]
    pairs = won.merge(lost, on="group_id", suffixes=("_c", "_r"))
    pairs["margin"] = pairs["value_c"] - pairs["value_r"]
    ratio = pairs[["trained_c", "trained_r"]].max(axis=1) / pairs[["trained_c", "trained_r"]].min(axis=1)
    fine = (pairs["prompt_c"] == pairs["prompt_r"]) & (pairs["temperature_c"] == pairs["temperature_r"])
    fine &= (pairs["reply_c"] != pairs["reply_r"]) & (pairs["margin"].round(9) >= MARGIN) & (ratio.round(9) <= LENGTH_RATIO)
    pairs = pairs[fine]
    group = pairs.groupby("group_id")
    c, r = group["rollout_index_c"].rank("dense").astype(int), group["rollout_index_r"].rank("dense").astype(int)
    places = pd.DataFrame({"group_id": pairs["group_id"], "c": c, "r": r})
    longest = places.groupby("group_id")[["c", "r"]].transform("max").max(axis=1)
    pairs = pairs.assign(c=c, r=r, diagonal=(r - c + longest) % longest)
    pairs = pairs.sort_values(["margin", "diagonal", "c", "r"], ascending=[False, True, True, True]).drop_duplicates("group_id")
    pairs = pairs.sort_values("group_id", ignore_index=True)
    return pairs.rename(columns={"trajectory_id_c": "chosen_id", "trajectory_id_r": "rejected_id"})[
        ["chosen_id", "rejected_id", "margin"]
    ]


def first_reply(messages: Iterable[Mapping[str, Any]]) -> int:
    return next(index for index, message in enumerate(messages) if message["role"] == "assistant")


def split_prompt(row: Mapping[str, Any]) -> Row:
    first = first_reply(row["chosen"])
    return {"prompt": row["chosen"][:first], "chosen": row["chosen"][first:], "rejected": row["rejected"][first:]}


def _measures(frame: pd.DataFrame, questions: frozenset[str]) -> pd.DataFrame:
    made = [measure_row(*row, questions) for row in zip(*(frame[name] for name in WIDE), strict=True)]
    return pd.concat([frame[list(NARROW)], pd.DataFrame(made)], axis=1)


def _frames(files: Iterable[Path], columns: list[str]) -> Iterable[pd.DataFrame]:
    return (pd.read_parquet(file, columns=columns) for file in files)


def _read(files: Iterable[Path], columns: list[str]) -> pd.DataFrame:
    return pd.concat(_frames(files, columns), ignore_index=True)
