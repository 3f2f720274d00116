"""Tables are read like lines: Parquet files, data sets saved to disk, and folders by the name of a data set."""

import json
from decimal import Decimal

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.sources.lines import Place
from clawpipe.errors import NotFoundError
from tests.importers.reading import read_files

CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
PAIR = {"prompt": "p", "chosen": "good", "rejected": "bad"}


def test_rows_of_a_parquet_file_have_their_numbers(tmp_path):
    rows = [{"prompt": "p", "truth": str(number)} for number in range(200)] + [{"prompt": None, "truth": "none"}]
    file = str(tmp_path / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=70)
    reading = read_files([str(tmp_path)])
    assert [prompt.extra["truth"] for prompt in reading.prompts] == [str(number) for number in range(200)]
    assert [prompt.origin.line for prompt in reading.prompts] == list(range(1, 201))
    [refused] = reading.refused
    assert (refused.line, refused.offset, refused.reason) == (201, 200, "no known format")
    assert json.loads(refused.data) == rows[-1]
    [last, _] = read_stream([file], after={file: Place(199, 199)})
    assert last.extra["truth"] == "199"


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("column", "scores", "refused"),
    [
        (pa.array([1.0, NAN, INFINITE, None, -INFINITE, 0.5]), [1.0, 0.5], 3),
        (pa.array([1.0, NAN, None], pa.float16()), [1.0], 1),
        (pa.array([Decimal("0.25"), Decimal("1.00"), None]), [0.25, 1.0], 0),
        (pa.array([Decimal(3), None], pa.decimal128(5, 0)), [3.0], 0),
        (pa.array([{"a": 1.0}, {"a": NAN}]), [], 1),
        (pa.array([[0.5, 1.0], [INFINITE, 1.0]]), [], 1),
    ],
    ids=["doubles", "halves", "decimals", "whole decimals", "nested", "lists"],
)
def test_a_number_that_is_not_finite_refuses_its_row(tmp_path, column, scores, refused):
    table = pa.table({"prompt": ["p"] * len(column), "completion": ["a"] * len(column), "reward": column})
    pq.write_table(table, tmp_path / "rows.parquet")
    datasets.Dataset(table).save_to_disk(tmp_path / "saved")
    for name in ("rows.parquet", "saved"):
        reading = read_files([str(tmp_path / name)])
        assert [judged.value for one in reading.conversations for judged in one.judgements] == scores
        assert reading.reasons() == ({"NaN or an infinite number": refused} if refused else {})
        assert reading.lines == len(column)


_BAD_TEXT = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff\xfe", b"c"], pa.binary()).buffers())


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (_BAD_TEXT, "not UTF-8"),
        (pa.array([0, 2**62, 0], pa.timestamp("us")), "a value of a column cannot be read"),
        (pa.array([Decimal(1), Decimal(2**80), Decimal(3)], pa.decimal128(38, 0)), "integer beyond 64 bits"),
    ],
    ids=["text", "time", "decimal"],
)
def test_a_row_that_cannot_be_converted_is_refused_alone(tmp_path, column, reason):
    table = pa.table({"prompt": ["p"] * 3, "completion": ["a", "b", "c"], "beside": column})
    pq.write_table(table, tmp_path / "rows.parquet")
    datasets.Dataset(table).save_to_disk(tmp_path / "saved")
    for name in ("rows.parquet", "saved"):
        reading = read_files([str(tmp_path / name)])
        assert [one.messages[-1].content for one in reading.conversations] == ["a", "c"]
        assert [(one.line, one.reason) for one in reading.refused] == [(2, reason)]
        assert (reading.lines, reading.accepted) == (3, 2)


def _logged(*choices):
    asked = {"messages": [{"role": "user", "content": "q"}]}
    return [{"request": asked, "response": {"model": "m", "choices": [choice]}} for choice in choices]


_SAID = {"message": {"role": "assistant", "content": "a"}}


_OPENAI = {"index": 0, "logprobs": None} | _SAID


@pytest.mark.parametrize(
    "choices",
    [
        [_SAID | {"finish_reason": None}, _SAID | {"finish_reason": "stop"}],
        [_OPENAI | {"finish_reason": None}, _OPENAI | {"finish_reason": "length"}],
        [_OPENAI | {"finish_reason": "stop"}, _SAID],  # another program's, which never says why an answer ended
    ],
    ids=["alike", "openai", "two shapes"],
)
def test_an_answer_that_never_ended_is_known_in_a_table(tmp_path, choices):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _logged(*choices)))
    pq.write_table(pa.Table.from_pylist(_logged(*choices)), tmp_path / "b.parquet")
    lines, rows = ([one.status for one in read_files([str(tmp_path / name)]).conversations] for name in ("a.jsonl", "b.parquet"))
    assert lines == rows


@pytest.mark.parametrize(("reason", "status"), [("stop", "completed"), (None, "aborted")])
def test_answers_of_two_programs_end_each_in_its_own_way(tmp_path, reason, status):
    """A table of both has the fields of both: the one of the other program is null."""
    ollama = {"model": "m", "message": {"role": "assistant", "content": "a"}, "done": True, "done_reason": reason}
    claude = {"id": "i", "model": "m", "role": "assistant", "content": "b", "stop_reason": "end_turn"}
    asked = {"messages": [{"role": "user", "content": "q"}]}
    pq.write_table(pa.Table.from_pylist([{"request": asked, "response": one} for one in (ollama, claude)]), tmp_path / "a.parquet")
    assert [one.status for one in read_files([str(tmp_path)]).conversations] == [status, "completed"]


def test_a_damaged_parquet_file_is_one_refusal(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    assert list(read_files([str(tmp_path)]).reasons()) == ["file cannot be read on: ArrowInvalid"]


def test_a_data_set_saved_to_disk(tmp_path):
    saved = datasets.DatasetDict({"train": datasets.Dataset.from_list([CHAT] * 3), "test": datasets.Dataset.from_list([PAIR])})
    saved.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "train" / "cache-1.arrow").write_bytes(b"left over")
    reading = read_files([str(tmp_path / "saved")])
    assert (len(reading.conversations), len(reading.preferences), reading.reasons()) == (3, 1, {})
    assert reading.conversations[0].extra == {}


def test_a_data_set_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    for split, rows in (("train", 2), ("test", 1)):
        (tmp_path / "set" / f"{split}.jsonl").write_text(f"{json.dumps(CHAT)}\n" * rows)
    name = f"hf:{tmp_path / 'set'}"
    reading = read_files([f"{name}:train"])
    assert len(reading.conversations) == 2
    assert reading.conversations[0].origin.file == f"{name}:train"
    with pytest.raises(NotFoundError, match="no split ''"):
        read_files([name])


def test_bytes_in_a_row_become_a_reference(tmp_path):
    image = {"type": "image", "image": {"bytes": b"\x89PNG", "path": None}}
    row = {
        "messages": [{"role": "user", "content": [image]}, {"role": "assistant", "content": [{"type": "text", "text": "a cat"}]}]
    }
    features = pa.Table.from_pylist([row])
    pq.write_table(features, tmp_path / "images.parquet")
    [conversation] = read_files([str(tmp_path)]).conversations
    assert conversation.messages[0].content.startswith("[image: sha256:")


def recorded():
    ends = [{"start": 2, "end": 4, "kind": "main", "finish_reason": "stop"}]
    call = {"id": "c", "name": "f", "arguments": "{", "malformed": True}
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    return {
        **dict.fromkeys(schema_of("trajectories").names),
        **{"trajectory_id": "t", "item_id": "i", "group_id": "i/p", "rollout_index": 0, "environment": "shop", "split": "train"},
        **{"source": "rollout", "policy_version": "p", "renderer_digest": "r", "messages": said, "token_ids": [5, 6, 7, 8]},
        **{"loss_mask": [False, False, True, True], "logprobs": [0.0, 0.0, -0.5, -0.1], "prompt_tokens": 2, "turns": ends},
        **{"temperature": 0.7, "seed": 3, "finish_reason": "stop", "tokens": "recorded", "extra": '{"colour": "red"}'},
    }


def test_what_clawpipe_exported_comes_back_as_it_left(tmp_path):
    table = pa.Table.from_pylist([recorded()], schema=schema_of("trajectories"))
    pq.write_table(table, tmp_path / "own.parquet")
    (tmp_path / "own.jsonl").write_text(json.dumps(table.to_pylist()[0]) + "\n")
    reading = read_files([str(tmp_path)])
    assert reading.formats == {"clawpipe": 2}
    for conversation in reading.conversations:
        assert pa.Table.from_pylist([dict(conversation.row)], schema=schema_of("trajectories")) == table
        assert list(conversation.tokens.ids) == [5, 6, 7, 8]
        assert (conversation.tokens.temperature, conversation.tokens.policy_version) == (0.7, "p")
        assert conversation.messages[1].tool_calls[0].malformed
        assert (conversation.kinds, conversation.extra, conversation.group) == (("main",), {"colour": "red"}, "i/p")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss_mask": [False]}, "streams differ in length"),
        ({"turns": [{"kind": "odd"}]}, "kinds: not one of main or side an assistant message"),
        ({"group_id": 3}, "group_id: not str"),
        ({"messages": [{"role": "user", "content": "q"}]}, "no assistant message"),
    ],
)
def test_a_row_that_is_no_trajectory_is_refused(tmp_path, change, reason):
    (tmp_path / "own.jsonl").write_text(json.dumps(recorded() | change) + "\n")
    assert read_files([str(tmp_path)]).reasons() == {reason: 1}
