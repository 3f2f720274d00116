"""Input of the data plane benchmark: scored trajectories of a synthetic agent, written by clawpipe's writer into a store.

Memory is bounded by one part for any size; equal arguments give equal bytes on every machine. Words are drawn from a skewed
vocabulary and a word is a token, so text and tokens match. In every group of 8 rollouts of one item:

- rewards lie in 0..1 and items differ in difficulty, so that some groups have no success or no failure;
- one in 20 conversations is a copy of its neighbour, half of these with other call ids, and one in 100 a copy in capitals;
- one in 100 has no verifier's score, temperature 0, no regular end (aborted); one in 200 a log-prob that is NaN;
- lengths and turns spread, so that limits on them cut the tails;
- one item in 64 is held out, and one in 64 asks a held-out question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.parts import PART_ROWS
from clawpipe.core.store.refs import DatasetRef

GROUP = 8
POLICY = "benchmark-policy"
_GROUPS_A_PART = PART_ROWS // GROUP
_WORDS = 8192
_HELDOUT = 64  # one item in so many is held out
_TOOLS = ("search", "read_file", "write_file", "shell", "fetch", "calculate", "remember", "send")
_ARGUMENTS = 4096


class Shape(NamedTuple):
    """Least and most words (that is, tokens) of each part of a conversation."""

    preamble: int = 100
    question: tuple[int, int] = (8, 24)
    turns: tuple[int, int] = (2, 9)
    reply: tuple[int, int] = (10, 40)
    request: tuple[int, int] = (8, 30)

    @property
    def mean_turns(self) -> float:
        return sum(self.turns) / 2


SESSIONS = Shape()
SHORT = Shape(preamble=16, question=(8, 16), turns=(1, 3), reply=(14, 30), request=(6, 14))  # about 1 kB of payload per row


class Sources(NamedTuple):
    """The datasets of one benchmark input."""

    trajectories: DatasetRef
    scores: DatasetRef
    items: DatasetRef


class Rows(NamedTuple):
    """Properties of the `n` rows of a part."""

    source: np.ndarray  # [n] row whose conversation this one repeats; usually itself
    loud: np.ndarray  # [n] whether it repeats in capitals
    recalled: np.ndarray  # [n] whether its calls have other ids
    group: np.ndarray  # [n]
    reward: np.ndarray  # [n]
    success: np.ndarray  # [n]


class Segments(NamedTuple):
    """The segments of the rows' conversations, row by row: preamble, question, then replies and what they get in return."""

    row: np.ndarray  # [S]
    place: np.ndarray  # [S] position in the row
    start: np.ndarray  # [S] start of the segment's words in the pool
    words: np.ndarray  # [S]
    call: np.ndarray  # [S] whether it ends in a tool call


def write_sources(store: Store, rows: int, shape: Shape = SESSIONS, seed: int = 0) -> Sources:
    """Publish `rows` trajectories, rounded down to whole groups, with their scores and items."""
    groups = rows // GROUP
    sizes = [min(_GROUPS_A_PART, groups - first) for first in range(0, groups, _GROUPS_A_PART)]
    vocabulary = _vocabulary(seed)

    def publish(name: str, make: Callable[[int, int], pa.Table]) -> DatasetRef:
        return publish_dataset(store, name, (make(number, size) for number, size in enumerate(sizes)), parents=())

    return Sources(
        publish("trajectories", lambda number, size: _trajectories(number, size, shape, seed, vocabulary)),
        publish("scores", lambda number, size: _scores(number, size, seed)),
        publish("task_items", lambda number, size: _items(number, size, shape, seed, vocabulary)),
    )


def _random(seed: int, number: int, what: str) -> np.random.Generator:
    """Return a separate random stream for each purpose, so that datasets can be made independently."""
    return np.random.default_rng([seed, number, *what.encode()])


def _vocabulary(seed: int) -> pa.Array:
    """Return words followed by a space; the second half repeats the first in capitals."""
    random = _random(seed, 0, "vocabulary")
    letters = random.integers(97, 123, (_WORDS, 8), dtype=np.uint8)
    lengths = random.integers(2, 9, _WORDS)
    words = [bytes(letters[i, : lengths[i]]).decode() + " " for i in range(_WORDS)]
    return pa.array(words + [word.upper() for word in words])


def _digests(texts: Sequence[str], length: int) -> list[str]:
    return [hashlib.sha256(text.encode()).hexdigest()[:length] for text in texts]


def _item_ids(number: int, groups: int, seed: int) -> list[str]:
    return _digests([f"{seed}/{number}/{group}" for group in range(groups)], 16)


def _rows(number: int, groups: int, seed: int) -> Rows:
    random, n = _random(seed, number, "rows"), groups * GROUP
    lot = random.random(n)
    repeats, loud = lot < 0.06, (lot >= 0.05) & (lot < 0.06)
    repeats[::GROUP] = False
    source = np.arange(n) - repeats
    repeated = repeats & repeats[source]
    source[repeated] = np.arange(n)[repeated]  # no copies of copies
    success = random.random(n) < np.repeat(random.beta(0.6, 0.8, groups), GROUP)
    reward = np.where(success, random.integers(9, 11, n), random.integers(0, 9, n)) / 10
    group = np.repeat(np.arange(groups), GROUP)
    return Rows(source, loud & (source < np.arange(n)), lot < 0.025, group, reward, success)


def _ids(number: int, groups: int, seed: int) -> list[str]:
    return _digests([f"{item}/{index}" for item in _item_ids(number, groups, seed) for index in range(GROUP)], 32)


def _questions(number: int, groups: int, shape: Shape, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the words of all groups' questions, their starts and their lengths; a few repeat a held-out question."""
    random = _random(seed, number, "questions")
    words = random.integers(shape.question[0], shape.question[1] + 1, groups)
    start = np.cumsum(words) - words
    pool = _draw(random, int(words.sum()))
    same = np.arange(groups)
    same[_HELDOUT - 1 :: _HELDOUT] = np.arange(0, groups, _HELDOUT)[: len(same[_HELDOUT - 1 :: _HELDOUT])]
    return pool, start[same], words[same]


def _draw(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw words, some far more often than others."""
    return (_WORDS * random.random(count, dtype=np.float32) ** 3).astype(np.int32)


def _ragged(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return start[0], start[0] + 1 .. start[0] + length[0] - 1, start[1] ..."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def _segments(number: int, rows: Rows, shape: Shape, seed: int) -> tuple[np.ndarray, Segments]:
    """Return the pool of words and the segments of every row; a copy's segments are those of its source."""
    random, n = _random(seed, number, "segments"), len(rows.source)
    questions, question_start, question_words = _questions(number, n // GROUP, shape, seed)
    turns = random.integers(shape.turns[0], shape.turns[1] + 1, n)
    count = 1 + 2 * turns  # preamble, question, replies, and a response between replies
    place = _ragged(np.zeros(n, dtype=np.int64), count)
    row = np.repeat(np.arange(n), count)
    reply = (place >= 2) & (place % 2 == 0)
    words = np.where(reply, random.integers(*shape.reply, len(place)), random.integers(*shape.request, len(place)))
    words[place == 0], words[place == 1] = shape.preamble, question_words[rows.group]
    own = np.where(place >= 2, words, 0)
    start = shape.preamble + len(questions) + np.cumsum(own) - own
    start[place == 0], start[place == 1] = 0, shape.preamble + question_start[rows.group]
    call = reply & (random.random(len(place)) < 0.5) & (place < np.repeat(count - 1, count))
    preamble = _draw(_random(seed, 0, "preamble"), shape.preamble)
    pool = np.concatenate([preamble, questions, _draw(random, int(own.sum()))])
    copy = _ragged((np.cumsum(count) - count)[rows.source], count[rows.source])
    row = np.repeat(np.arange(n), count[rows.source])
    return pool, Segments(row, place[copy], start[copy], words[copy], call[copy])


def _offsets(counts: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def _text(words: np.ndarray, counts: np.ndarray, vocabulary: pa.Array) -> pa.Array:
    """Join consecutive words into strings of `counts` words each."""
    flat = vocabulary.take(pa.array(words))
    _, offsets, data = flat.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[np.concatenate([[0], np.cumsum(counts)])]
    return pa.StringArray.from_buffers(len(counts), pa.py_buffer(np.ascontiguousarray(ends)), data)


def _messages(pool: np.ndarray, segments: Segments, rows: Rows, vocabulary: pa.Array) -> pa.Array:
    after_preamble = segments.place > 0
    row, place, start, words, call = (field[after_preamble] for field in segments)
    text = pool[_ragged(start, words)] + np.repeat(np.where(rows.loud[row], _WORDS, 0), words)
    result = np.concatenate([[False], call[:-1]])
    tool = np.where(call | result, (start - np.where(result, 1, 0)) % len(_TOOLS), 0)
    tool[result] = tool[np.flatnonzero(result) - 1]
    id_ = np.where(result, place - 1, place) + np.where(rows.recalled[row], 100, 0)
    names = pa.array(_TOOLS).take(pa.array(tool))
    ids = pa.array([f"call_{k}_0" for k in range(200)]).take(pa.array(id_))
    arguments = pa.array([f'{{"query":"{k:x}","limit":{k % 50}}}' for k in range(_ARGUMENTS)]).take(pa.array(start % _ARGUMENTS))
    whole = {"id": ids, "name": names, "arguments": arguments, "malformed": pa.array(np.zeros(len(place), dtype=bool))}
    calls = pa.StructArray.from_arrays([column.filter(pa.array(call)) for column in whole.values()], names=list(whole))
    role = np.where(place % 2 == 0, 1, np.where(result, 2, 0))
    nothing = pa.scalar(None, pa.string())
    message = {
        "role": pa.array(["user", "assistant", "tool"]).take(pa.array(role)),
        "content": _text(text, words, vocabulary),
        "tool_calls": pa.ListArray.from_arrays(_offsets(call), calls),
        "tool_call_id": pc.if_else(pa.array(result), ids, nothing),
        "name": pc.if_else(pa.array(result), names, nothing),
    }
    flat = pa.StructArray.from_arrays(list(message.values()), names=list(message))
    return pa.ListArray.from_arrays(_offsets(np.bincount(row, minlength=len(rows.source))), flat)


def _streams(pool: np.ndarray, segments: Segments, n: int, random: np.random.Generator) -> dict[str, pa.Array]:
    """Return tokens with mask and log-probs, the turns' spans, and the prompts' lengths."""
    reply = (segments.place >= 2) & (segments.place % 2 == 0)
    length = np.bincount(segments.row, weights=segments.words, minlength=n).astype(np.int64)
    offsets, mask = _offsets(length), np.repeat(reply, segments.words)
    logprobs = np.where(mask, -random.standard_exponential(len(mask), dtype=np.float32), np.float32(0))
    poisoned = random.random(n) < 0.005
    logprobs[(np.cumsum(length) - 1)[poisoned]] = np.nan  # the last token is the policy's
    before = np.cumsum(segments.words) - segments.words
    start = before - (np.cumsum(length) - length)[segments.row]
    spans = {"start": start[reply].astype(np.int32), "end": (start + segments.words)[reply].astype(np.int32)}
    words = {"kind": "main", "finish_reason": "stop"}
    turns = [*map(pa.array, spans.values()), *(pa.repeat(word, int(reply.sum())) for word in words.values())]
    return {
        "token_ids": pa.ListArray.from_arrays(offsets, pa.array(pool[_ragged(segments.start, segments.words)])),
        "loss_mask": pa.ListArray.from_arrays(offsets, pa.array(mask)),
        "logprobs": pa.ListArray.from_arrays(offsets, pa.array(logprobs)),
        "prompt_tokens": pa.array(start[segments.place == 2].astype(np.int32)),
        "turns": pa.ListArray.from_arrays(
            _offsets(np.bincount(segments.row[reply], minlength=n)), pa.StructArray.from_arrays(turns, names=[*spans, *words])
        ),
    }


def _trajectories(number: int, groups: int, shape: Shape, seed: int, vocabulary: pa.Array) -> pa.Table:
    rows, n = _rows(number, groups, seed), groups * GROUP
    random = _random(seed, number, "streams")
    pool, segments = _segments(number, rows, shape, seed)
    group = pa.array(rows.group)
    item = pa.array(_item_ids(number, groups, seed)).take(group)
    lot = random.random(n)
    columns = {
        "trajectory_id": pa.array(_ids(number, groups, seed)),
        "item_id": item,
        "group_id": pc.binary_join_element_wise(item, POLICY, "/"),
        "rollout_index": pa.array(np.tile(np.arange(GROUP, dtype=np.int32), groups)),
        "environment": pa.repeat("benchmark", n),
        "split": pa.repeat("train", n),
        "source": pa.repeat("rollout", n),
        "policy_version": pa.repeat(POLICY, n),
        "renderer_digest": pa.repeat("benchmark-renderer", n),
        "messages": _messages(pool, segments, rows, vocabulary),
        **_streams(pool, segments, n, random),
        "temperature": pa.array(np.where(lot < 0.01, 0.0, 0.8)),
        "seed": pa.array(random.integers(0, 2**31, n)),
        "finish_reason": pa.repeat("stop", n),
        "tokens": pa.repeat("recorded", n),
        "status": pa.array(["completed", "aborted"]).take(pa.array(((lot >= 0.01) & (lot < 0.02)).astype(np.int8))),
    }
    return conformed(pa.table(columns), schema_of("trajectories"))


def _scores(number: int, groups: int, seed: int) -> pa.Table:
    """Return a verifier's verdict on nearly every row; one row in 10 also has a second verifier's and a judge's."""
    rows, n = _rows(number, groups, seed), groups * GROUP
    random, ids = _random(seed, number, "scores"), pa.array(_ids(number, groups, seed))
    kept = (np.flatnonzero(random.random(n) >= 0.01), *(np.flatnonzero(random.random(n) < 0.1) for _ in range(2)))
    who = (("verifier/benchmark", "verifier"), ("verifier/second", "verifier"), ("judge", "judge"))
    other = random.integers(0, 11, n) / 10
    parts = []
    for index, (which, (scorer, origin)) in enumerate(zip(kept, who, strict=True)):
        value, success = (other, other >= 0.5) if index else (rows.reward, rows.success)
        columns = {
            "trajectory_id": ids.take(pa.array(which)),
            "scorer": pa.repeat(scorer, len(which)),
            "origin": pa.repeat(origin, len(which)),
            "value": pa.array(value[which]),
            "success": pa.array(success[which]),
            "reason": pa.repeat("", len(which)),
            "evidence": pa.repeat("{}", len(which)),
        }
        parts.append(conformed(pa.table(columns), schema_of("scores")))
    return pa.concat_tables(parts)


def _items(number: int, groups: int, shape: Shape, seed: int, vocabulary: pa.Array) -> pa.Table:
    pool, start, words = _questions(number, groups, shape, seed)
    ids = _item_ids(number, groups, seed)
    question = _text(pool[_ragged(start, words)], words, vocabulary).to_pylist()
    asked = [[{"role": "user", "content": text, "tool_calls": [], "tool_call_id": None, "name": None}] for text in question]
    heldout = np.arange(groups) % _HELDOUT == 0
    columns = {
        "item_id": pa.array(ids),
        "identity": pa.array([f"benchmark/{item}" for item in ids]),
        "environment": pa.repeat("benchmark", groups),
        "kind": pa.repeat("tool-call", groups),
        "split": pa.array(["train", "heldout"]).take(pa.array(heldout.astype(np.int8))),
        "slice": pa.repeat("all", groups),
        "messages": pa.array(asked, type=schema_of("task_items").field("messages").type),
        "truth": pa.repeat("{}", groups),
        "ordinal": pa.array(np.arange(groups) + number * _GROUPS_A_PART),
        **{name: pa.nulls(groups, pa.string()) for name in ("session_id", "user_id")},
    }
    return conformed(pa.table(columns), schema_of("task_items"))
