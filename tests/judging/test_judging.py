import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.contracts import schema_of
from clawpipe.core.contracts.schema import conformed
from clawpipe.core.contracts.validate import validate
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem
from clawpipe.play.environments.item_rows import ItemRows
from clawpipe.play.judging.base import Score
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer


class Echo:
    """An environment in which the right answer is the item's truth."""

    name = "echo"
    kind = "chat"

    def tools(self):
        return []

    def preamble(self):
        return []

    def items(self, split, count, seed):
        message = Message("user", "say it")
        return [TaskItem(f"i{n}", f"id{n}", "echo", "chat", split, "all", (message,), json.dumps(n), n) for n in range(count)]

    def start(self, item):
        raise NotImplementedError

    def verify(self, item, messages):
        said = int(messages[-1].content)
        right = said == json.loads(item.truth)
        return Outcome(float(right), right, "equal" if right else "other", {"said": said, "calls": len(messages[-1].tool_calls)})


@dataclass
class Steps:
    """A judge that scores every turn."""

    name: str = "a judge"
    origin: Any = "judge"

    def score(self, item, trajectory):
        assert "token_ids" not in trajectory
        return [Score(0.5, turn=turn) for turn in range(len(trajectory["turns"]))]


@dataclass
class Raises:
    error: Exception
    name: str = "broken"
    origin: Any = "custom"

    def score(self, item, trajectory):
        if trajectory["trajectory_id"] == "t1":
            raise self.error
        return [Score(0.0)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def trajectory(number: int, item: str, answer: str, environment: str = "echo") -> dict[str, Any]:
    call = {"id": "c", "name": "think", "arguments": "{}", "malformed": False}
    messages = [Message("user", "say it").as_dict(), Message("assistant", answer).as_dict() | {"tool_calls": [call]}]
    fields = {"trajectory_id": f"t{number}", "item_id": item, "group_id": f"{item}/p", "rollout_index": 0, "split": "train"}
    fields |= {"environment": environment, "source": "rollout", "policy_version": "p", "renderer_digest": "r", "messages": messages}
    fields |= {"token_ids": [1, 2], "loss_mask": [False, True], "logprobs": [0.0, -1.0], "prompt_tokens": 1, "temperature": 1.0}
    turn = {"start": 1, "end": 2, "kind": "main", "finish_reason": "stop"}
    return fields | {"turns": [turn], "seed": 0, "finish_reason": "stop", "tokens": "recorded"}


def publish(store, name, *parts):
    return publish_dataset(store, name, [pa.Table.from_pylist(part, schema=schema_of(name)) for part in parts])


def items(store, count=3):
    return publish(store, "task_items", [item.as_row() for item in Echo().items("train", count, 0)])


def rows(store, result):
    return read_dataset(store, result.output).to_pylist()


def test_the_verifier_scores_the_whole_trajectory(store):
    trajectories = publish(store, "trajectories", [trajectory(0, "i2", "2")], [trajectory(1, "i1", "7")])
    result = score_dataset(store, trajectories, items(store), [VerifierScorer(Echo())])
    common = {"turn": None, "scorer": "verifier/echo", "origin": "verifier", "hints": None, "demonstration": None}
    assert rows(store, result) == [
        common | {"trajectory_id": "t0", "value": 1.0, "success": True, "reason": "equal", "evidence": '{"calls": 1, "said": 2}'},
        common | {"trajectory_id": "t1", "value": 0.0, "success": False, "reason": "other", "evidence": '{"calls": 1, "said": 7}'},
    ]
    assert (result.rows_in, result.rows_out, result.filtered, result.extras) == (2, 2, {}, {})
    assert validate(store, result.output, "scores").output == result.output


class KnowsBetter(Echo):
    """Has hindsight about every item but the first."""

    def hindsight(self, item, messages):
        right = Message("assistant", item.truth)
        return Hindsight((f"Say {item.truth}.",), (right,)) if item.ordinal else None


def test_hindsight_stands_beside_the_verdict_of_successes_too(store):
    said = [trajectory(0, "i2", "2"), trajectory(1, "i1", "7"), trajectory(2, "i0", "0")]
    result = score_dataset(store, publish(store, "trajectories", said), items(store), [VerifierScorer(KnowsBetter()), Steps()])
    told = {row["trajectory_id"]: (row["success"], row["hints"], row["demonstration"]) for row in rows(store, result)[1::2]}
    assert told == {
        "t0": (True, ["Say 2."], [Message("assistant", "2").as_dict()]),
        "t1": (False, ["Say 1."], [Message("assistant", "1").as_dict()]),
        "t2": (True, None, None),
    }
    assert {(row["hints"], row["demonstration"]) for row in rows(store, result)[::2]} == {(None, None)}
    assert validate(store, result.output, "scores").output == result.output


def test_scores_are_ordered_by_the_names_of_their_scorers(store):
    trajectories = publish(store, "trajectories", [trajectory(1, "i0", "0"), trajectory(0, "i0", "0")])
    result = score_dataset(store, trajectories, items(store), [VerifierScorer(Echo()), Steps()])
    told = [(row["trajectory_id"], row["scorer"], row["origin"], row["turn"]) for row in rows(store, result)]
    judge, verifier = ("a judge", "judge", 0), ("verifier/echo", "verifier", None)
    assert told == [("t1", *judge), ("t1", *verifier), ("t0", *judge), ("t0", *verifier)]
    said = {"a judge": {"turns": 2, "abstained": 0, "praised": 2}}
    assert result.details == {"scores": 4, "reward": {"n": 2, "mean": 1.0, "variance": 0.0}, "judges": said}
    again = score_dataset(store, trajectories, items(store), [Steps(), VerifierScorer(Echo())])
    assert again.output == result.output


def test_what_cannot_be_scored_is_filtered_and_counted(store):
    said = [trajectory(0, "i0", "0"), trajectory(1, "i1", "not a number"), trajectory(2, "nobody", "0"), trajectory(3, "i2", "2")]
    result = score_dataset(store, publish(store, "trajectories", said), items(store), [VerifierScorer(Echo()), Steps()])
    assert {row["trajectory_id"] for row in rows(store, result)} == {"t0", "t3"}
    assert result.filtered == {"scorer verifier/echo: ValueError": 1, "item unknown": 1}
    assert result.rows_in == result.rows_out + sum(result.filtered.values()) == 4
    quarantined = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert [(row["row_id"], row["reasons"]) for row in quarantined] == [
        ("t1", ["scorer verifier/echo: ValueError"]),
        ("t2", ["item unknown"]),
    ]
    assert json.loads(quarantined[0]["row"])["messages"][1]["content"] == "not a number"


def test_a_verifier_skips_trajectories_of_other_environments(store):
    row = Echo().items("train", 1, 0)[0].as_row() | {"environment": "shop"}
    others = publish(store, "task_items", [row])
    result = score_dataset(store, publish(store, "trajectories", [trajectory(0, "i0", "0")]), others, [VerifierScorer(Echo())])
    assert (rows(store, result), result.filtered) == ([], {"no scorer for it": 1})


def test_a_score_that_is_not_finite_is_a_fault_of_its_scorer(store):
    class Nan(Steps):
        def score(self, item, trajectory):
            return [Score(float("nan"))]

    result = score_dataset(store, publish(store, "trajectories", [trajectory(0, "i0", "0")]), items(store), [Nan()])
    assert result.filtered == {"scorer a judge: ValueError": 1}


@pytest.mark.parametrize("error", [BusyError("the judge is away"), ConfigError("the judge has no key")])
def test_what_is_no_fault_of_the_row_stops_the_step(error, store):
    trajectories = publish(store, "trajectories", [trajectory(1, "i0", "0")])
    with pytest.raises(type(error), match="the judge"):
        score_dataset(store, trajectories, items(store), [Raises(error)])


def test_a_scorer_that_raises_removes_all_scores_of_the_row(store):
    trajectories = publish(store, "trajectories", [trajectory(0, "i0", "0"), trajectory(1, "i0", "0")])
    result = score_dataset(store, trajectories, items(store), [Raises(KeyError("x")), Steps()])
    assert [(row["trajectory_id"], row["scorer"]) for row in rows(store, result)] == [("t0", "a judge"), ("t0", "broken")]
    assert result.filtered == {"scorer broken: KeyError": 1}


def test_a_verifiers_error_is_shown_and_logged_with_its_row(store, tmp_path):
    said = [trajectory(number, f"i{number}", word) for number, word in enumerate(("0", "not a number", "nor this"))]
    log = tmp_path / "logs" / "verify.log"
    result = score_dataset(store, publish(store, "trajectories", said), items(store), [VerifierScorer(Echo())], log)
    assert result.filtered == {"scorer verifier/echo: ValueError": 2}
    raised = result.details["raised"]
    assert raised.startswith("the environment raised on 2 rows: ValueError: invalid literal for int() with base 10: 'not a number'")
    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "said = int(" in text)
    assert raised.endswith(f"(test_judging.py, line {line})")
    written = log.read_text()
    assert written.count("Traceback (most recent call last)") == 2
    assert "ValueError: invalid literal for int() with base 10: 'nor this'" in written
    rows_ = [json.loads(text.removeprefix("row: ")) for text in written.splitlines() if text.startswith("row: ")]
    assert [row["messages"][-1]["content"] for row in rows_] == ["not a number", "nor this"]


def test_the_log_of_what_is_raised_does_not_grow_with_the_rows(store, tmp_path):
    said = [trajectory(number, "i0", "no number") for number in range(50)]
    log = tmp_path / "verify.log"
    result = score_dataset(store, publish(store, "trajectories", said), items(store), [VerifierScorer(Echo())], log)
    assert "50 rows" in result.details["raised"]
    assert log.read_text().count("Traceback") == 20


def test_scorers_need_different_names(store):
    trajectories = publish(store, "trajectories", [trajectory(0, "i0", "0")])
    with pytest.raises(ConfigError, match="different names"):
        score_dataset(store, trajectories, items(store), [Steps(), Steps()])


def test_no_trajectories_have_no_scores(store):
    result = score_dataset(store, publish(store, "trajectories", []), items(store), [VerifierScorer(Echo())])
    assert (result.rows_in, result.rows_out, rows(store, result)) == (0, 0, [])


def stored(number: int, source: str) -> dict[str, Any]:
    return trajectory(number, "nobody", "0", "imported") | {"source": source}


def test_judges_score_stored_trajectories_which_have_no_item(store):
    """They were skipped, so that nobody judged what was captured."""
    said = [trajectory(0, "i0", "0"), stored(1, "captured"), stored(2, "imported")]
    result = score_dataset(store, publish(store, "trajectories", said), items(store), [VerifierScorer(Echo()), Steps()])
    assert [(row["trajectory_id"], row["scorer"], row["turn"]) for row in rows(store, result)] == [
        ("t0", "a judge", 0), ("t0", "verifier/echo", None), ("t1", "a judge", 0), ("t2", "a judge", 0)
    ]  # fmt: skip
    assert (result.rows_out, result.filtered) == (3, {})


def test_a_custom_scorer_may_score_stored_trajectories(store):
    trajectories = publish(store, "trajectories", [stored(0, "captured")])
    silent, speaks = Steps("silent", "custom"), Steps("speaks", "custom")
    speaks.scores_stored = True  # type: ignore[attr-defined]
    scored = score_dataset(store, trajectories, items(store), [silent, speaks])
    assert [row["scorer"] for row in rows(store, scored)] == ["speaks"]


def test_a_stored_trajectory_without_a_score_is_kept(store):
    @dataclass
    class NullWatcher(Steps):
        def score(self, item, trajectory):
            return []

    result = score_dataset(store, publish(store, "trajectories", [stored(0, "captured")]), items(store), [NullWatcher()])
    assert (rows(store, result), result.rows_out, result.filtered) == ([], 1, {})


def test_a_judge_that_raises_on_a_stored_trajectory_rejects_it(store):
    trajectories = publish(store, "trajectories", [stored(0, "captured"), stored(1, "captured")])
    result = score_dataset(store, trajectories, items(store), [Raises(KeyError("x"), origin="judge")])
    assert [row["trajectory_id"] for row in rows(store, result)] == ["t0"]
    assert result.filtered == {"scorer broken: KeyError": 1}


def test_of_an_item_that_is_there_twice_the_last_counts(tmp_path):
    store = Store(tmp_path)
    rows = [{"item_id": name, "truth": str(place), "messages": []} for place, name in enumerate("abca")]
    items = ItemRows(store, publish_dataset(store, "task_items", [conformed(pa.Table.from_pylist(rows), schema_of("task_items"))]))
    assert [found and found["truth"] for found in map(items.get, ["a", "b", "b", "c", "a", "d", ""])] == [*"31123", None, None]
