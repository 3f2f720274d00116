"""What leaves in another tool's format comes back as it was."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clawpipe.cli.main import _outcome as main
from clawpipe.core.config import NightConfig
from clawpipe.core.store.datasets import find_dataset, publish_dataset, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import StepResult
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.learn.evaluation.heldout.holding import hold_out
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import entry, read_status, write_status
from clawpipe.serve.export.datasets import export_dataset

TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": [2, "drei \\"é\\""]}'}}
SPOKEN = [
    {"role": "system", "content": "Use tools."},
    {"role": "user", "content": "1 + 2?\n<b>&"},
    {"role": "assistant", "content": "<think>\neasy\n</think>\n", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sum": 3}', "tool_call_id": "call-1", "name": "add"},
    {"role": "assistant", "content": "3"},
]
ROWS = [
    {"messages": SPOKEN, "tools": [TOOL], "session_id": "s1", "user_id": "ann", "reward": 0.5},
    {"messages": SPOKEN[1:2] + SPOKEN[4:], "session_id": "s2"},
]
GROUP = {
    "tokens": [[7, 8, 9, 20, 2], [7, 8, 9, 21, 2]],
    "masks": [[-100, -100, -100, 20, 2], [-100, -100, -100, 21, 2]],
    "inference_logprobs": [[1.0, 1.0, 1.0, -0.5, -0.25], [1.0, 1.0, 1.0, -0.5, -0.125]],
    "scores": [1.0, -1.0],
    "messages": [SPOKEN[1:2] + SPOKEN[4:]] * 2,
    "generation_params": {"temperature": 1.0},
}
PAIRS = [
    {"prompt": "Is it?", "chosen": "It is.", "rejected": "It is not.", "session_id": "s1"},
    {"prompt": "Was it?", "chosen": "It was.", "rejected": "No.", "tools": [{"name": "look"}], "votes": {"yes": 3}},
]
PROMPTS = [{"prompt": "What is the time?", "user_id": "ann"}]


class Desk:
    """A home into which rows were read."""

    def __init__(self, folder: Path, rows: list[dict] | bytes, **said) -> None:
        self.home, file = Home(folder / "home"), folder / "rows.jsonl"
        folder.mkdir()
        file.write_bytes(rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        self.done = ingest(self.home, [str(file)], Options(policy_version="p1", **said))
        self.store = open_store(self.home)

    def exported(self, name: str, form: str) -> tuple[bytes, Counter[str]]:
        stream = io.BytesIO()
        done = export_dataset(self.store, self.done.datasets[name], form, stream)  # type: ignore[arg-type]
        assert done.rows + done.filtered.total() == self.done.datasets[name].rows
        return stream.getvalue(), done.filtered

    def rows(self, name: str, *columns: str) -> list[dict]:
        return read_dataset(self.store, self.done.datasets[name], list(columns)).to_pylist()


def without_ids(rows: list[dict]) -> list[dict]:
    """ShareGPT has no place for the ids of calls: what reads it makes them up, and answers by them."""
    for message in (message for row in rows for message in row["messages"]):
        message["tool_call_id"] = message["tool_call_id"] and "made up"
        message["tool_calls"] = [call | {"id": "made up"} for call in message["tool_calls"]]
    return rows


@pytest.mark.parametrize("form", ["chat", "sharegpt"])
def test_conversations_survive_a_round_trip_with_all_fields(tmp_path, form):
    before = Desk(tmp_path / "a", ROWS)
    after = Desk(tmp_path / "b", before.exported("trajectories", form)[0])
    whose = ("session_id", "user_id") if form == "chat" else ("session_id",)
    columns = ("messages", "tools", *whose)
    assert after.done.refused == {}
    if form == "chat":
        assert after.rows("trajectories", *columns) == before.rows("trajectories", *columns)
    else:
        assert without_ids(after.rows("trajectories", *columns)) == without_ids(before.rows("trajectories", *columns))
    assert [row["value"] for row in after.rows("scores", "value")] == [0.5]


def test_groups_come_back_with_tokens_scores_and_logprobs(tmp_path):
    before = Desk(tmp_path / "a", [GROUP])
    lines, filtered = before.exported("trajectories", "atropos")
    assert (len(lines.splitlines()), filtered) == (1, {})
    written = json.loads(lines)
    assert {name: written[name] for name in ("tokens", "masks", "scores", "inference_logprobs")} == {
        name: GROUP[name] for name in ("tokens", "masks", "scores", "inference_logprobs")
    }
    after = Desk(tmp_path / "b", lines)
    columns = ("messages", "token_ids", "loss_mask", "logprobs")
    assert after.rows("trajectories", *columns) == before.rows("trajectories", *columns)


def test_an_exported_group_says_its_temperature(tmp_path):
    """Atropos' rows have no other place for it, and no ratio can be taken without it."""
    group = {name: value for name, value in GROUP.items() if name != "generation_params"}
    desk = Desk(tmp_path / "a", [group], temperature=0.7, logprobs="tempered")
    assert json.loads(desk.exported("trajectories", "atropos")[0])["generation_params"] == {"temperature": 0.7}


LOOK = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TURNS = [*SPOKEN[1:2], {"role": "assistant", "content": "3"}, {"role": "user", "content": "And?"}, *SPOKEN[4:]]
UNSAID = {name: value for name, value in GROUP.items() if name not in ("inference_logprobs", "generation_params")}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"inference_logprobs": None, "ref_logprobs": None, "overrides": None, "group_overrides": None},
        {"inference_logprobs": [[1.0] * 5, [1.0, 1.0, 1.0, -0.5, -0.125]]},
        {"overrides": [{"set_advantage_to_zero": True}, {}], "group_overrides": {"group_size": 2}, "env_id": 3},
        {"advantages": [[0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, -0.5, -0.5]]},
        {"images": [["AA=="], None]},
        {"images": "AA=="},
        {"masks": [[7, 8, 9, 20, 2], [-100] * 5]},
        {"messages": [SPOKEN, TURNS], "masks": [[-100, 8, -100, 20, 2], [-100, -100, 9, -100, 2]]},
        {"messages": [[{"role": "user", "content": [{"type": "text", "text": "See?"}, LOOK]}, SPOKEN[4]], TURNS]},
        {"distill_token_ids": [[[1]] * 5] * 2, "distill_logprobs": [[[-0.1]] * 5] * 2},
        {name: [value[0]] for name, value in UNSAID.items()},
    ],
)
def test_groups_without_logprobs_come_back_as_they_were(tmp_path, fields):
    """Of what `process` writes no row had come back: tokens without log-probs were no tokens."""
    group = UNSAID | fields
    lines, filtered = Desk(tmp_path / "a", [group]).exported("trajectories", "atropos")
    [written] = [{name: value for name, value in json.loads(line).items() if value is not None} for line in lines.splitlines()]
    assert filtered == {}
    assert written == {name: value for name, value in group.items() if value is not None}


def test_what_has_no_tokens_or_no_score_is_filtered_and_counted(tmp_path):
    lines, filtered = Desk(tmp_path / "a", [*ROWS, GROUP]).exported("trajectories", "atropos")
    assert filtered == {"no recorded tokens": 2}
    assert len(json.loads(lines)["tokens"]) == 2


@pytest.mark.parametrize("form", ["chat", "sharegpt"])
def test_preference_pairs_come_back(tmp_path, form):
    before = Desk(tmp_path / "a", PAIRS)
    after = Desk(tmp_path / "b", before.exported("preference_pairs", form)[0])
    columns = ("prompt", "chosen", "rejected", "session_id", "tools", "extra")
    assert after.rows("preference_pairs", *columns) == before.rows("preference_pairs", *columns)


def test_prompts_come_back(tmp_path):
    before = Desk(tmp_path / "a", PROMPTS)
    after = Desk(tmp_path / "b", before.exported("task_items", "chat")[0])
    assert after.rows("task_items", "item_id", "messages", "user_id") == before.rows("task_items", "item_id", "messages", "user_id")


def test_tables_are_read_by_their_own_libraries(tmp_path):
    desk = Desk(tmp_path / "a", ROWS)
    ref = desk.done.datasets["trajectories"]
    export_dataset(desk.store, ref, "parquet", tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet").num_rows == 2
    export_dataset(desk.store, ref, "hf", tmp_path / "hf")
    from datasets import load_from_disk

    assert [row["session_id"] for row in load_from_disk(str(tmp_path / "hf"))] == ["s1", "s2"]


def test_what_is_there_stays_and_what_has_no_such_form_is_told(tmp_path):
    desk = Desk(tmp_path / "a", ROWS)
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ConfigError, match="there already"):
        export_dataset(desk.store, desk.done.datasets["trajectories"], "chat", tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"
    with pytest.raises(ConfigError, match="scores cannot be written as chat"):
        export_dataset(desk.store, desk.done.datasets["scores"], "chat", tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_a_dataset_is_found_by_digest_prefix_or_name(tmp_path):
    desk = Desk(tmp_path / "a", ROWS)
    ref = desk.done.datasets["trajectories"]
    for word in (ref.digest, ref.digest[:8], f"trajectories/{ref.digest[:6]}", "trajectories"):
        assert find_dataset(desk.store, word).digest == ref.digest
    for word in (ref.digest[:5], "samples", f"scores/{ref.digest[:8]}"):
        with pytest.raises(NotFoundError):
            find_dataset(desk.store, word)


def test_an_ingest_with_nothing_new_is_not_the_newest(tmp_path):
    desk = Desk(tmp_path / "a", ROWS)
    ref = desk.done.datasets["trajectories"]
    empty = ingest(desk.home, [str(tmp_path / "a/rows.jsonl")], Options(policy_version="p1")).datasets["trajectories"]
    assert empty.rows == 0
    assert find_dataset(desk.store, "trajectories") == ref
    assert find_dataset(desk.store, empty.digest) == empty
    nothing = Desk(tmp_path / "b", [])
    assert find_dataset(nothing.store, "trajectories") == nothing.done.datasets["trajectories"]


def test_a_name_alone_means_no_held_out_rows_and_no_shard(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path / "a", [row | {"user_id": f"{number}"} for number in range(10) for row in ROWS[1:]])
    split = hold_out(desk.store, desk.done.datasets["trajectories"], 0.5)
    kept, apart = split.dataset, split.extra("heldout")
    shard = publish_dataset(desk.store, "trajectories", [read_dataset(desk.store, apart).slice(0, 1)])
    answers = publish_dataset(desk.store, "trajectories", [read_dataset(desk.store, apart)], parents=[shard.digest])
    tried = StepResult(output=answers, extras={"trajectories": answers})
    night = create_record(desk.home, NightConfig(night="a"), None).night
    steps = [entry("hold_out", False, 1, None, split), entry("evaluate/base", False, 1, None, tried)]
    write_status(read_status(desk.home, night).model_copy(update={"steps": steps}))
    monkeypatch.setenv("CLAWPIPE_HOME", str(desk.home.root))
    assert main(["export", "trajectories"]) == 0
    assert f"trajectories {kept.digest[:12]}: {kept.rows} of {kept.rows} rows" in capsys.readouterr().err
    assert main(["datasets", "show", apart.digest, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == apart.digest


def test_the_command_line_lists_shows_and_exports(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path / "a", [*ROWS, {"messages": []}])
    monkeypatch.setenv("CLAWPIPE_HOME", str(desk.home.root))
    assert main(["datasets", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["datasets"]
    assert {(one["name"], one["rows"], one["ingested"]) for one in listed} == {
        ("trajectories", 2, True),
        ("scores", 1, True),
        ("quarantine", 1, True),
    }
    assert main(["datasets", "show", "trajectories", "--json", "-l", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["columns"]["tokens"] == {"none": 2}
    assert shown["columns"]["messages"] == {"min length": 2, "median length": 3.5, "max length": 5}
    assert shown["beside"] == [f"quarantine/{desk.done.datasets['quarantine'].digest}"]
    assert [row["session_id"] for row in shown["samples"]] == ["s1"]
    assert main(["datasets", "show", "quarantine"]) == 0
    told = capsys.readouterr().out
    assert "rows.jsonl:3" in told
    assert main(["datasets", "show", "trajectories"]) == 0
    assert "1 + 2?" in capsys.readouterr().out
    assert main(["export", "trajectories", "--output", str(tmp_path / "x.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 2
