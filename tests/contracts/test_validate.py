import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts import contract_names, load_contract, schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import DataError

NAN, INF = float("nan"), float("inf")
PROMPT, SAMPLED = [0.0, 0.0, 0.0, 0.0], [-0.5, -1.5, 0.0, -2.5]
MASK = [False, False, False, False, True, True, False, True]
TURN = {"start": 4, "end": 6, "kind": "main", "finish_reason": "stop"}
LAST = {"start": 7, "end": 8, "kind": "main", "finish_reason": "stop"}


def message(role: str = "user", content: str | None = "x", calls: Any = ()) -> dict:
    return {"role": role, "content": content, "tool_calls": calls, "tool_call_id": None, "name": None}


def call(**fields: Any) -> dict:
    return {"id": "c", "name": "n", "arguments": "{}", "malformed": False} | fields


@pytest.mark.parametrize("contract", contract_names())
def test_rows_that_keep_their_contract_survive_a_round_trip(contract, store, valid, publish):
    ref = publish(contract, [valid(contract)])
    result = validate(store, ref, contract)
    assert result.output == ref
    assert (result.rows_in, result.rows_out, result.filtered, result.extras) == (1, 1, {}, {})
    assert read_dataset(store, ref).schema.equals(schema_of(contract))
    assert read_dataset(store, ref).to_pylist() == [valid(contract)]


FAULTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("task_items", {"item_id": None}, {"item_id: required"}),
    ("task_items", {"item_id": "../etc"}, {"item_id: malformed"}),
    ("task_items", {"item_id": "i0\nx"}, {"item_id: malformed"}),
    ("task_items", {"kind": "magic"}, {"kind: not allowed"}),
    ("task_items", {"ordinal": -1}, {"ordinal: below 0"}),
    ("task_items", {"identity": ""}, {"identity: shorter than 1"}),
    ("task_items", {"messages": []}, {"messages: shorter than 1"}),
    ("task_items", {"truth": "{"}, {"truth is no JSON"}),
    ("scores", {"value": NAN}, {"value: not finite"}),
    ("scores", {"value": INF}, {"value: not finite"}),
    ("scores", {"origin": "oracle"}, {"origin: not allowed"}),
    ("scores", {"turn": -1}, {"turn: below 0"}),
    ("scores", {"evidence": "because"}, {"evidence is no JSON"}),
    ("eval_results", {"success": None}, {"neither or both of outcome and error"}),
    ("eval_results", {"error": "boom"}, {"neither or both of outcome and error"}),
    ("samples", {"temperature": 0.0}, {"temperature: not above 0"}),
    ("samples", {"weight": -1.0}, {"weight: below 0"}),
    ("samples", {"loss_mask": [False] * 8}, {"nothing to train on", "not 0 where nothing is trained"}),
    ("samples", {"loss_mask": [True, *MASK[1:]]}, {"first token is trained"}),
    ("samples", {"advantages": [0.0] * 7}, {"streams differ in length"}),
    ("samples", {"rewards": [0.0] * 7}, {"streams differ in length"}),
    ("samples", {"rewards": [1.0] * 8}, {"not 0 where nothing is trained"}),
    ("samples", {"rewards": [NAN] * 8}, {"rewards[]: not finite", "not 0 where nothing is trained"}),
    ("preference_pairs", {"margin": -0.5}, {"margin: below 0"}),
    ("preference_pairs", {"tokens": "some"}, {"tokens: not allowed"}),
    ("preference_pairs", {"prompt": []}, {"prompt: shorter than 1"}),
    ("preference_pairs", {"rejected_id": "t0"}, {"both sides are one"}),
    ("preference_pairs", {"chosen_token_ids": [1, 2, 3, 4, 5]}, {"streams differ in length"}),
    ("preference_pairs", {"rejected_token_ids": [1, 2, 3, 5, 9]}, {"prompts differ"}),
    ("preference_pairs", {"prompt_tokens": 5}, {"prompts differ", "prompt is trained"}),
    ("preference_pairs", {"prompt_tokens": 2**31 - 1}, {"prompts differ", "prompt is trained"}),
    ("preference_pairs", {"rejected_loss_mask": [False] * 5}, {"nothing to train on"}),
    ("preference_pairs", {"rejected_loss_mask": [False, True, False, False, True]}, {"prompt is trained"}),
    ("preference_pairs", {"prompt_tokens": 0}, {"recorded without prompt, policy version, renderer or temperature"}),
    ("preference_pairs", {"temperature": 0.0}, {"recorded without prompt, policy version, renderer or temperature"}),
    ("preference_pairs", {"policy_version": None}, {"recorded without prompt, policy version, renderer or temperature"}),
    ("preference_pairs", {"tokens": "none"}, {"text only, but with streams"}),
    ("preference_pairs", {"tools": "{}"}, {"tools are no JSON array"}),
    ("token_scores", {"top_k": 0}, {"top_k: below 1", "compared tokens are incomplete"}),
    ("samples", {"turns": [{"turn": 0, "start": 4, "end": 9}]}, {"turn outside the tokens"}),
    ("trajectories", {"logprobs_kind": "guessed"}, {"logprobs_kind: not allowed"}),
    ("token_scores", {"hint": -1}, {"hint: below 0"}),
    ("token_scores", {"reference": [-0.5]}, {"streams differ in length"}),
    ("token_scores", {"teacher": [-INF, 0.0]}, {"teacher[]: not finite"}),
    ("token_scores", {"taught": [True]}, {"taught is not of the teacher's tokens"}),
    ("token_scores", {"top_k": 3}, {"compared tokens are incomplete"}),
    ("token_scores", {"top_k": 1}, {"compared tokens are incomplete"}),
    ("token_scores", {"top_k": None}, {"compared tokens are incomplete"}),
    ("token_scores", {"top_teacher": None}, {"compared tokens are incomplete"}),
    ("token_scores", {"top_teacher": [-0.5] * 3}, {"compared tokens are incomplete"}),
    ("quarantine", {"reasons": []}, {"reasons: shorter than 1"}),
    ("quarantine", {"reasons": [None]}, {"reasons[]: required"}),
    ("trajectories", {"seed": None}, {"seed: required"}),
    ("trajectories", {"trajectory_id": "t 0"}, {"trajectory_id: malformed"}),
    ("trajectories", {"split": "test"}, {"split: not allowed"}),
    ("trajectories", {"source": "heard"}, {"source: not allowed"}),
    ("trajectories", {"finish_reason": "tired"}, {"finish_reason: not allowed"}),
    ("trajectories", {"tokens": "some"}, {"tokens: not allowed"}),
    ("trajectories", {"rollout_index": -1}, {"rollout_index: below 0"}),
    ("trajectories", {"temperature": NAN}, {"temperature: not finite"}),
    ("trajectories", {"temperature": -0.1}, {"temperature: below 0"}),
    ("trajectories", {"messages": [None]}, {"messages[]: required"}),
    ("trajectories", {"messages": [message(role="robot")]}, {"messages[].role: not allowed"}),
    ("trajectories", {"messages": [message(content=None)]}, {"messages[].content: required"}),
    ("trajectories", {"messages": [message(calls=[None])]}, {"messages[].tool_calls[]: required"}),
    ("trajectories", {"messages": [message(calls=[call(name=None)])]}, {"messages[].tool_calls[].name: required"}),
    ("trajectories", {"token_ids": None}, {"token_ids: required"}),
    ("trajectories", {"token_ids": [1, 2, 3, 4, 5, -6, 7, 8]}, {"token_ids[]: below 0"}),
    ("trajectories", {"token_ids": [1, 2, 3, 4, 5, None, 7, 8]}, {"token_ids[]: required"}),
    ("trajectories", {"token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, {"streams differ in length"}),
    ("trajectories", {"loss_mask": [*MASK, False]}, {"streams differ in length"}),
    ("trajectories", {"logprobs": [*PROMPT, *SAMPLED, 0.0]}, {"streams differ in length"}),
    ("trajectories", {"logprobs": [*PROMPT, -0.5, None, 0.0, -2.5]}, {"logprobs[]: required"}),
    (
        "trajectories",
        {"logprobs": [*PROMPT, NAN, -1.5, 0.0, -2.5]},
        {"logprobs[]: not finite", "log-prob of a sampled token out of range"},
    ),
    (
        "trajectories",
        {"logprobs": [*PROMPT, -INF, -1.5, 0.0, -2.5]},
        {"logprobs[]: not finite", "log-prob of a sampled token out of range"},
    ),
    ("trajectories", {"logprobs": [*PROMPT, 2e-3, -1.5, 0.0, -2.5]}, {"log-prob of a sampled token out of range"}),
    ("trajectories", {"logprobs": [*PROMPT, -2e4, -1.5, 0.0, -2.5]}, {"log-prob of a sampled token out of range"}),
    ("trajectories", {"logprobs": [*PROMPT, -0.5, -1.5, -0.1, -2.5]}, {"log-prob of another token is not 0"}),
    ("trajectories", {"loss_mask": [True, *MASK[1:]]}, {"first token is sampled", "turns do not cover the mask"}),
    ("trajectories", {"turns": [TURN]}, {"turns do not cover the mask"}),
    ("trajectories", {"turns": [LAST, TURN]}, {"turns do not cover the mask"}),
    ("trajectories", {"turns": [TURN, TURN, LAST]}, {"turns do not cover the mask"}),
    ("trajectories", {"turns": [TURN | {"end": 7}, LAST]}, {"turns do not cover the mask"}),
    ("trajectories", {"turns": [TURN, LAST | {"end": 2**31 - 1}]}, {"turn outside the tokens"}),
    ("trajectories", {"turns": [TURN, {**LAST, "start": 6, "end": 6}, LAST]}, {"turn outside the tokens"}),
    (
        "trajectories",
        {"turns": [TURN | {"start": -(2**31)}, LAST]},
        {"turns[].start: below 0", "turn outside the tokens", "turns do not cover the mask"},
    ),
    ("trajectories", {"turns": [TURN | {"kind": "minor"}, LAST]}, {"turns[].kind: not allowed"}),
    ("trajectories", {"prompt_tokens": 5}, {"turn outside the tokens"}),
    ("trajectories", {"prompt_tokens": 9}, {"turn outside the tokens", "prompt longer than the tokens"}),
    ("trajectories", {"policy_version": None}, {"recorded without policy version"}),
    ("trajectories", {"renderer_digest": None}, {"recorded without policy version"}),
    ("trajectories", {"group_id": "i1/p0"}, {"group is not item and policy"}),
    (
        "trajectories",
        {"loss_mask": [False] * 8, "logprobs": [0.0] * 8, "turns": []},
        {"recorded, but nothing is sampled"},
    ),
    ("trajectories", {"tokens": "none"}, {"text only, but with streams"}),
    ("trajectories", {"status": "tired"}, {"status: not allowed"}),
    ("trajectories", {"kinds": ["minor"]}, {"kinds[]: not allowed"}),
    ("trajectories", {"tool_calls": -1}, {"tool_calls: below 0"}),
    ("trajectories", {"tools": "{}"}, {"tools are no JSON array"}),
    ("trajectories", {"tools": "[1"}, {"tools are no JSON array"}),
    ("trajectories", {"rendered_ids": [1]}, {"rendered streams differ in length"}),
    ("trajectories", {"rendered_ids": [1], "rendered_mask": [True, False]}, {"rendered streams differ in length"}),
    ("trajectories", {"origin": {"format": "chat", "file": "a", "line": 0}}, {"origin.line: below 1"}),
    ("trajectories", {"extra": "[]"}, {"extra: not a JSON object"}),
    ("trajectories", {"extra": "{"}, {"extra: not a JSON object"}),
    ("trajectories", {"trajectory_id": "../../x"}, {"an id is a path"}),
    ("trajectories", {"trajectory_id": "/etc/passwd"}, {"an id is a path"}),
    ("trajectories", {"item_id": "..", "group_id": "../p0"}, {"an id is a path"}),
    ("trajectories", {"session_id": "../../x"}, {"an id is a path"}),
    ("trajectories", {"session_id": "a\\..\\b"}, {"an id is a path"}),
    ("trajectories", {"user_id": "~root"}, {"an id is a path"}),
]


@pytest.mark.parametrize("contract", contract_names())
def test_planted_faults_are_rejected_with_their_reasons(contract, store, valid, publish):
    key = load_contract(contract).key[0] if load_contract(contract).key else "row_id"
    faults = [(fields, reasons) for name, fields, reasons in FAULTS if name == contract]
    bad = [valid(contract, **{key: f"bad{row}"} | fields) for row, (fields, _) in enumerate(faults)]
    good = [valid(contract, **{key: f"good{row}"}) for row in range(2)]
    result = validate(store, publish(contract, [good[0], *bad, good[1]]), contract)
    quarantined = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert [set(row["reasons"]) for row in quarantined] == [reasons for _, reasons in faults]
    assert result.filtered == Counter(row["reasons"][0] for row in quarantined)
    assert read_dataset(store, result.output).to_pylist() == good


SIDES = ("chosen_token_ids", "chosen_loss_mask", "rejected_token_ids", "rejected_loss_mask")
IMPORTED: dict[str, Any] = {
    "session_id": "agent:main/mail..box",
    "user_id": "bob@example.org",
    "model": "gpt/x",
    "status": "partial",
    "kinds": ["main", "side"],
    "tool_calls": 2,
    "tool_errors": 0,
    "tools": '[{"name": "stock"}]',
    "rendered_ids": [1, 2],
    "rendered_mask": [False, True],
    "origin": {"format": "chat", "file": "../logs/a.jsonl", "line": 1},
    "extra": '{"mood": null}',
}
UNUSUAL: list[tuple[str, dict[str, Any]]] = [
    ("trajectories", IMPORTED),
    ("trajectories", {"logprobs": [*PROMPT, 1e-3, -1e4, 0.0, -2.5]}),  # the bounds belong to the range
    ("trajectories", {"messages": [message(calls=None)]}),
    ("trajectories", {"turns": [TURN | {"kind": "side"}, LAST]}),
    (
        "trajectories",
        {"tokens": "none", "policy_version": None, "renderer_digest": None, "prompt_tokens": 0}
        | {"token_ids": [], "loss_mask": [], "logprobs": [], "turns": []},
    ),
    ("scores", {"hints": None, "demonstration": None}),
    ("samples", {"rewards": None}),
    ("preference_pairs", {"tokens": "none", "prompt_tokens": 0, "temperature": 0.0} | {side: [] for side in SIDES}),
    ("preference_pairs", dict.fromkeys(("margin", "policy_version", "renderer_digest")) | {"tokens": "none", "prompt_tokens": 0}
     | {side: [] for side in SIDES}),
    ("token_scores", dict.fromkeys(("teacher", "top_k", "top_tokens", "top_teacher", "hint", "taught"))),
    ("token_scores", dict.fromkeys(("reference", "proximal"))),
    ("token_scores", dict.fromkeys(("reference", "proximal", "teacher", "top_k", "top_tokens", "top_teacher", "hint", "taught"))),
]  # fmt: skip


@pytest.mark.parametrize(("contract", "fields"), UNUSUAL)
def test_what_is_unusual_but_allowed_is_accepted(contract, fields, store, valid, publish):
    assert validate(store, publish(contract, [valid(contract, **fields)]), contract).filtered == {}


def test_every_reason_is_listed_and_the_first_is_counted(store, valid, publish):
    row = valid("trajectories", trajectory_id=None, split="test", token_ids=[-1], temperature=-1.0)
    result = validate(store, publish("trajectories", [row]), "trajectories")
    [told] = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert told["reasons"] == [
        "trajectory_id: required",
        "split: not allowed",
        "token_ids[]: below 0",
        "temperature: below 0",
        "streams differ in length",
        "turn outside the tokens",
        "prompt longer than the tokens",
    ]
    assert result.filtered == {"trajectory_id: required": 1}
    assert told["row_id"] == "file 0 row 0"  # it has no key


def test_the_quarantine_holds_the_row_as_it_came(store, valid, publish):
    row = valid("trajectories", split="test")
    result = validate(store, publish("trajectories", [row]), "trajectories")
    [told] = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert (told["dataset"], told["row_id"]) == ("trajectories", "t0")
    assert json.loads(told["row"]) | {"temperature": 0.8} == row


def test_the_first_row_with_a_key_stays(store, valid, publish):
    parts = [
        [valid("trajectories", trajectory_id=name, seed=seed) for seed, name in part]
        for part in (((1, "a"), (2, "b")), ((3, "a"), (4, "a")))
    ]
    result = validate(store, publish("trajectories", *parts), "trajectories")
    assert result.filtered == {"trajectory_id: duplicate": 2}
    assert read_dataset(store, result.output)["seed"].to_pylist() == [1, 2]
    assert read_dataset(store, result.extras["quarantine"])["row_id"].to_pylist() == ["a", "a"]


def test_a_key_of_several_columns_is_unique_as_a_whole(store, valid, publish):
    rows = [valid("scores", turn=turn, scorer=scorer) for turn, scorer in ((None, "a"), (0, "a"), (None, "b"), (None, "a"))]
    result = validate(store, publish("scores", rows), "scores")
    assert result.filtered == {"trajectory_id, turn, scorer: duplicate": 1}
    assert read_dataset(store, result.output).to_pylist() == rows[:3]


def test_accepted_rows_keep_their_order_and_files(store, valid, publish):
    parts = [[valid("scores", trajectory_id=f"t{part}{row}", value=[1.0, NAN][row % 2]) for row in range(4)] for part in (2, 1, 0)]
    result = validate(store, publish("scores", *parts), "scores")
    assert read_dataset(store, result.output)["trajectory_id"].to_pylist() == ["t20", "t22", "t10", "t12", "t00", "t02"]
    assert result.filtered == {"value: not finite": 6}
    assert result.output.parents


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_result_is_the_same_on_every_number_of_threads(threads, store, valid, publish):
    rows = [valid("scores", trajectory_id=f"t{row % 4000}", value=NAN if row % 7 == 0 else 1.0) for row in range(6000)]
    ref = publish("scores", *[rows[start : start + 1500] for start in range(0, 6000, 1500)])
    result, again = (validate(store, ref, "scores", threads=count) for count in (threads, 1))
    assert result == again
    assert sum(result.filtered.values()) + result.rows_out == 6000


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, NAN]), st.sampled_from(["verifier", "x"])), max_size=12)


@given(rows=ROWS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_add_up(rows, store, valid, publish):
    ref = publish("scores", [valid("scores", trajectory_id=name, value=value, origin=origin) for name, value, origin in rows])
    result = validate(store, ref, "scores", threads=1)
    first = {name: index for index, (name, _, _) in reversed(list(enumerate(rows)))}
    kept = sum(value == 1.0 and origin == "verifier" and first[name] == index for index, (name, value, origin) in enumerate(rows))
    assert result.rows_out == kept
    assert result.rows_in == len(rows) == kept + sum(result.filtered.values())
    assert not result.filtered or result.extras["quarantine"].rows == sum(result.filtered.values())


def test_an_accepted_dataset_is_accepted_as_it_is(store, valid, publish):
    first = validate(store, publish("scores", [valid("scores"), valid("scores", trajectory_id="t1", value=NAN)]), "scores")
    assert validate(store, first.output, "scores").output == first.output


def _published(store, table: pa.Table):
    return publish_dataset(store, "scores", [table])


def test_a_missing_column_is_named(store, valid):
    table = pa.Table.from_pylist([valid("scores")], schema=schema_of("scores"))
    for column in ("value", "turn"):  # required, and a part of the key
        with pytest.raises(DataError, match=rf"scores/.*part-00000.parquet: column '{column}' is missing"):
            validate(store, _published(store, table.drop_columns([column])), "scores")


@pytest.mark.parametrize(("contract", "newer"), [("scores", ["hints", "demonstration"]), ("samples", ["rewards", "turns"])])
def test_columns_of_minor_versions_are_null_in_older_files(contract, newer, store, valid, publish):
    now = pa.Table.from_pylist([valid(contract, trajectory_id="t1")], schema=schema_of(contract))
    before = pa.Table.from_pylist([valid(contract)], schema=schema_of(contract)).drop_columns(newer)
    for parts in ([before], [before, now], [now, before]):
        result = validate(store, publish_dataset(store, contract, parts), contract)
        assert (result.rows_out, result.filtered) == (len(parts), {})
        rows = {row["trajectory_id"]: row for row in read_dataset(store, result.output).to_pylist()}
        assert rows["t0"] == valid(contract) | dict.fromkeys(newer)
        assert rows.get("t1", valid(contract, trajectory_id="t1")) == valid(contract, trajectory_id="t1")


def test_faults_of_older_files_are_found(store, valid):
    table = pa.Table.from_pylist(
        [valid("scores", origin="oracle"), valid("scores", trajectory_id="t1")], schema=schema_of("scores")
    )
    result = validate(store, _published(store, table.drop_columns(["hints", "demonstration"])), "scores")
    assert result.filtered == {"origin: not allowed": 1}
    assert read_dataset(store, result.output)["trajectory_id"].to_pylist() == ["t1"]


def test_an_unknown_column_is_named(store, valid):
    table = pa.Table.from_pylist([valid("samples")], schema=schema_of("samples")).append_column("mood", pa.array(["good"]))
    with pytest.raises(DataError, match=r"samples/.*part-00000.parquet: column 'mood' is not in the contract"):
        validate(store, publish_dataset(store, "samples", [table]), "samples")


@pytest.mark.parametrize(
    ("name", "column"), [("value", pa.array(["1.0"])), ("turn", pa.array([1], pa.int64())), ("success", pa.array([1]))]
)
def test_a_column_of_a_type_that_does_not_fit_is_named(name, column, store, valid):
    table = pa.Table.from_pylist([valid("scores")], schema=schema_of("scores"))
    with pytest.raises(DataError, match=f"column '{name}' is "):
        validate(store, _published(store, table.set_column(table.schema.get_field_index(name), name, column)), "scores")


def test_a_struct_without_a_field_does_not_fit(store, valid):
    table = pa.Table.from_pylist([valid("task_items")], schema=schema_of("task_items"))
    messages = pa.array([[{"role": "user", "content": "x"}]])
    with pytest.raises(DataError, match="column 'messages' is "):
        validate(store, publish_dataset(store, "task_items", [table.set_column(6, "messages", messages)]), "task_items")


def test_narrower_numbers_and_another_order_are_cast(store, valid):
    row = valid("scores", value=0.5, turn=1)
    columns = {name: pa.array([row[name]]) for name in reversed(schema_of("scores").names)}
    columns |= {
        "value": pa.array([0.5], pa.float32()),
        "turn": pa.array([1], pa.int16()),
        "reason": pa.array(["right"], pa.large_string()),
        "demonstration": pa.array([row["demonstration"]], schema_of("scores").field("demonstration").type),
    }
    result = validate(store, _published(store, pa.table(columns)), "scores")
    assert result.filtered == {}
    assert read_dataset(store, result.output).schema.equals(schema_of("scores"))
    assert read_dataset(store, result.output).to_pylist() == [row]


def test_an_empty_dataset_is_valid(store, publish):
    result = validate(store, publish("trajectories", []), "trajectories")
    assert (result.rows_in, result.rows_out, result.filtered) == (0, 0, {})


def test_a_damaged_dataset_is_refused(store, valid, publish):
    ref = publish("scores", [valid("scores")])
    (store.path(ref) / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="missing or damaged"):
        validate(store, ref, "scores")
