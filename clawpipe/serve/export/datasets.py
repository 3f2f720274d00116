"""Export datasets in foreign formats, the same ones that clawpipe imports."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import orjson
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, stored_datasets
from clawpipe.core.store.duck import session
from clawpipe.core.store.permissions import give_to_user
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.importers.formats.atropos import tokens_of, write_atropos
from clawpipe.data.importers.formats.hermes import write_hermes
from clawpipe.data.importers.formats.huggingface import write_beside, write_preference
from clawpipe.data.importers.formats.native import read_native
from clawpipe.data.importers.message import write_chat
from clawpipe.data.importers.record import Conversation, Judgement, Preference
from clawpipe.errors import ConfigError

Form = Literal["chat", "sharegpt", "atropos", "parquet", "hf"]
LINES = ("chat", "sharegpt", "atropos")  # forms that are JSON Lines
_BATCH = 256
_NO_SCORE, _NO_TOKENS, _LONG = "no score", "no recorded tokens", "a side of more than one message"
_NO_SUCCESS = "no success"
# One score for each trajectory: its user's first, then a verifier's, then by the scorer's name. Those of single turns do not count.
_SCORES = """
    select trajectory_id, arg_min({'value': value, 'success': success}, (origin <> 'user', origin <> 'verifier', scorer))
    from read_parquet($files, union_by_name = true)
    where turn is null and value is not null group by trajectory_id"""


class Score(NamedTuple):
    """A trajectory's value, and whether that says success; None where nobody said."""

    value: float
    success: bool | None


@dataclass(frozen=True)
class Exported:
    """The counts of an export: rows + the sum of filtered = rows of the dataset. In a form with groups, `lines` counts groups."""

    rows: int
    lines: int
    filtered: Counter[str]


def export_dataset(store: Store, ref: DatasetRef, form: Form, out: Path | BinaryIO, successes: bool = False) -> Exported:
    """Write a dataset to a new file or directory, which appears when it is complete, or to a stream.

    Args:
        form: `chat`, `sharegpt` (as Hermes writes it) and `atropos` (groups) are JSON Lines; `parquet` is the files as they are
            stored; `hf` is a directory that `datasets.load_from_disk` reads.
        out: a path or, for JSON Lines, a stream.
        successes: write only trajectories whose score says success.

    Raises:
        ConfigError: the dataset has no such form, or the target exists.
        DataError: the dataset is missing or damaged.
    """
    if form not in LINES:
        if not isinstance(out, Path):
            raise ConfigError(f"{form} is no stream of lines", "--format", "name a directory with --output")
        return _whole(out, lambda target: _write_tables(store, ref, form, target))
    writer = _writer(ref, form)
    scores = _scores_of(store) if ref.name == "trajectories" else {}
    written = _successes(_rows(store, ref), scores, writer) if successes else writer(_rows(store, ref), scores)
    if isinstance(out, Path):
        return _whole(out, lambda target: _write_file(target, written))
    return _write_lines(out, written)


Line = JsonObject
Written = Iterator[tuple[Line | None, int, str]]  # a line or None, its number of rows, and the reason for None
Rows = Iterator[Row]


def _successes(rows: Rows, scores: Mapping[str, Score], writer: Callable[[Rows, Mapping[str, Score]], Written]) -> Written:
    """Yield what the writer makes of the rows whose score says success, and a reason for each other row."""
    for row in rows:
        score = scores.get(row.get("trajectory_id", ""))
        if score and score.success:
            yield from writer(iter([row]), scores)
        else:
            yield None, 1, _NO_SUCCESS


def _writer(ref: DatasetRef, form: Form) -> Callable[[Rows, Mapping[str, Score]], Written]:
    writers = {
        ("trajectories", "chat"): _chat,
        ("trajectories", "sharegpt"): _sharegpt,
        ("trajectories", "atropos"): _atropos,
        ("preference_pairs", "chat"): _chat_pairs,
        ("preference_pairs", "sharegpt"): _sharegpt_pairs,
        ("task_items", "chat"): _prompts,
    }
    if (ref.name, form) not in writers:
        known = ", ".join([*(kind for name, kind in writers if name == ref.name), "parquet", "hf"])
        raise ConfigError(f"{ref.name} cannot be written as {form}", "--format", f"one of {known}")
    return writers[ref.name, form]


def _chat(rows: Rows, scores: Mapping[str, Score]) -> Written:
    for row in rows:
        read = read_native(row)
        yield {"messages": write_chat(read.messages)} | _beside(row, read, scores), 1, ""


def _sharegpt(rows: Rows, scores: Mapping[str, Score]) -> Written:
    for row in rows:
        read = read_native(row)
        yield {"conversations": write_hermes(read.messages)} | _beside(row, read, scores), 1, ""


def _beside(row: Mapping[str, Any], read: Conversation, scores: Mapping[str, Score]) -> Line:
    """Return the fields of a row besides its messages, under names that the importers know."""
    score = scores.get(row["trajectory_id"])
    judged = {"reward": score.value, "success": score.success} if score else {}
    known = {"session_id": read.session, "user_id": read.user, "model": read.model, **judged}
    tools = {"tools": orjson.loads(read.tools)} if read.tools else {}
    return tools | {name: value for name, value in known.items() if value is not None}


def _atropos(rows: Rows, scores: Mapping[str, Score]) -> Written:
    """Yield groups of adjacent rows; datasets of rollouts and imports keep groups together."""
    for _, group in groupby(rows, key=lambda row: row["group_id"]):
        kept = []
        for row in group:
            read, score = read_native(row), scores.get(row["trajectory_id"])
            if (tokens := tokens_of(read)) is None or score is None:
                yield None, 1, _NO_SCORE if tokens else _NO_TOKENS
            else:
                kept.append(replace(read, judgements=(Judgement(score.value, "verifier"),)))
        if kept:
            yield write_atropos(kept), len(kept), ""


def _chat_pairs(rows: Rows, _scores: Mapping[str, Score]) -> Written:
    for row in rows:
        pair = _pair(row)
        yield write_preference(pair), 1, ""


def _sharegpt_pairs(rows: Rows, _scores: Mapping[str, Score]) -> Written:
    for row in rows:
        pair = _pair(row)
        sides = {name: write_hermes(getattr(pair, name)) for name in ("chosen", "rejected")}
        if any(len(side) > 1 for side in sides.values()):
            yield None, 1, _LONG
        else:
            line = {"conversations": write_hermes(pair.prompt)} | {name: side[0] for name, side in sides.items()}
            yield line | write_beside(pair), 1, ""


def _pair(row: Mapping[str, Any]) -> Preference:
    prompt, chosen, rejected = (_messages(row[name]) for name in ("prompt", "chosen", "rejected"))
    extra = orjson.loads(row.get("extra") or "{}")
    owner = {"session": row.get("session_id"), "user": row.get("user_id")}
    return Preference(prompt, chosen, rejected, row["margin"], row.get("tools"), extra, **owner)


def _prompts(rows: Rows, _scores: Mapping[str, Score]) -> Written:
    for row in rows:
        owner = {name: row[name] for name in ("session_id", "user_id") if row.get(name)}
        yield {"prompt": write_chat(_messages(row["messages"]))} | owner, 1, ""


def _messages(parts: Iterable[JsonObject] | None) -> tuple[Message, ...]:
    return tuple(Message.from_dict(part) for part in parts or ())


def _rows(store: Store, ref: DatasetRef) -> Rows:
    for file in dataset_files(store, ref):
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(_BATCH):
                yield from batch.to_pylist()


def _scores_of(store: Store) -> dict[str, Score]:
    """Return the score of each trajectory, from all scores of the store."""
    files = [file for ref in stored_datasets(store) if ref.name == "scores" for file in dataset_files(store, ref)]
    if not files:
        return {}
    with session(store, files) as duck:
        found = duck.execute(_SCORES, {"files": [str(file) for file in files]}).fetchall()
        return {name: Score(**score) for name, score in found}


def _write_file(target: Path, written: Written) -> Exported:
    with target.open("wb") as stream:
        return _write_lines(stream, written)


def _write_lines(stream: BinaryIO, written: Written) -> Exported:
    rows, lines, filtered = 0, 0, Counter[str]()
    for line, count, reason in written:
        if line is None:
            filtered[reason] += count
            continue
        stream.write(orjson.dumps(line) + b"\n")
        rows, lines = rows + count, lines + 1
    return Exported(rows, lines, filtered)


def _write_tables(store: Store, ref: DatasetRef, form: Form, target: Path) -> Exported:
    files = dataset_files(store, ref)
    target.mkdir()
    if form == "parquet":
        for file in files:
            shutil.copyfile(file, target / file.name)
    else:
        import pyarrow as pa
        from datasets import Dataset, disable_progress_bars

        disable_progress_bars()
        Dataset(pa.concat_tables([pq.read_table(file, memory_map=True) for file in files])).save_to_disk(str(target))
    return Exported(ref.rows, len(files), Counter())


def _whole(out: Path, write: Callable[[Path], Exported]) -> Exported:
    """Yield a temporary path, and rename it to the target when it is complete."""
    if out.exists():
        raise ConfigError("it is there already", str(out), "name something that does not exist")
    staging = out.with_name(f".{out.name}.partial")
    _remove(staging)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = write(staging)
        give_to_user(staging)
        os.replace(staging, out)
        return done
    finally:
        _remove(staging)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
