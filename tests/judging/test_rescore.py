"""Stored rollouts are scored anew under a changed verifier; what other scorers said stays."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Outcome, TaskItem
from clawpipe.play.environments.labelled import LabelledEnvironment, labelled_item
from clawpipe.play.judging.base import Score
from clawpipe.play.judging.rescore import rescore
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer

ANSWERS = ["7", "7.", "8"]  # to three items whose answer is 7


class Sums:
    """The answer is 7. `lenient`: or begins with it; `strict`: what ends with a full stop raises."""

    name, kind = "sums", "chat"

    def __init__(self, how: str = "") -> None:
        self.how = how

    def verify(self, item: TaskItem, messages: Any, verdict: Any) -> Outcome:
        said = messages[-1].content
        if self.how == "strict" and said.endswith("."):
            raise ValueError("a full stop")
        right = said == "7" or (self.how == "lenient" and said.startswith("7"))
        if self.how == "world":
            right = verdict is not None and verdict.evidence["right"]
        return Outcome(float(right), right, self.how or "exact", {"reward": "mine"})


@dataclass
class Brevity:
    name: str = "brevity"
    origin: Any = "custom"

    def score(self, item: Any, trajectory: Any) -> list[Score]:
        return [Score(0.5), Score(0.25, turn=0)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def publish(store: Store, name: str, rows: list[dict[str, Any]]) -> DatasetRef:
    return publish_dataset(store, name, [pa.Table.from_pylist(rows, schema=schema_of(name))])


def items(store: Store) -> DatasetRef:
    made = [TaskItem(f"i{n}", f"i{n}", "sums", "chat", "train", "all", (Message("user", "3 + 4?"),), "7", n) for n in range(3)]
    return publish(store, "task_items", [item.as_row() for item in made])


def rollouts(store: Store, **fields: Any) -> DatasetRef:
    turn = {"start": 1, "end": 2, "kind": "main", "finish_reason": "stop"}
    common: dict[str, Any] = {
        "rollout_index": 0,
        "environment": "sums",
        "split": "train",
        "source": "rollout",
        "policy_version": "p",
    }
    common |= {"renderer_digest": "r", "token_ids": [1, 2], "loss_mask": [False, True], "logprobs": [0.0, -1.0], "prompt_tokens": 1}
    common |= {"turns": [turn], "temperature": 1.0, "seed": 0, "finish_reason": "stop", "tokens": "recorded"}
    rows = []
    for n, answer in enumerate(ANSWERS):
        own = {"trajectory_id": f"t{n}", "item_id": f"i{n}", "group_id": f"i{n}/p"}
        messages = [Message("user", "3 + 4?").as_dict(), Message("assistant", answer).as_dict()]
        rows.append(common | own | {"messages": messages, "verdict": json.dumps({"right": answer == "8"})} | fields)
    return publish(store, "trajectories", rows)


def scored(store: Store, how: str = "", **arguments: Any) -> DatasetRef:
    environment: Any = Sums(how)
    scorers = [VerifierScorer(environment), *arguments.pop("scorers", [])]
    return score_dataset(store, rollouts(store), items(store), scorers, **arguments).dataset


def verdicts(found: Any) -> list[tuple[str, float | None, float | None]]:
    return [(one.trajectory_id, *(side and side["value"] for side in (one.before, one.now))) for one in found]


def test_the_verdicts_that_changed_are_told(store):
    scored(store)
    environment: Any = Sums("lenient")
    done = rescore(store, rollouts(store), environment)
    assert verdicts(done.verdicts) == [("t0", 1.0, 1.0), ("t1", 0.0, 1.0), ("t2", 0.0, 0.0)]
    [changed] = done.changed
    assert changed.before == {"value": 0.0, "success": False, "reason": "exact"}
    assert changed.now == {"value": 1.0, "success": True, "reason": "lenient"}
    assert done.result.dataset == score_of(store, "lenient")
    assert validate(store, done.result.dataset, "scores").filtered == {}


def score_of(store: Store, how: str) -> DatasetRef:
    """What a night would store whose verifier is this one."""
    return scored(store, how)


def test_what_the_world_said_is_read_from_the_record(store):
    scored(store)
    environment: Any = Sums("world")
    assert verdicts(rescore(store, rollouts(store), environment).changed) == [("t0", 1.0, 0.0), ("t2", 0.0, 1.0)]


def test_other_scorers_and_their_part_of_the_reward_stay(store):
    scored(store, scorers=[Brevity()], weights={"brevity": 0.2})
    environment: Any = Sums("lenient")
    done = rescore(store, rollouts(store), environment)
    assert verdicts(done.changed) == [("t1", 0.0, 1.0)]  # the verifier's own values, without the part of another
    assert done.result.dataset == scored(store, "lenient", scorers=[Brevity()], weights={"brevity": 0.2})
    rows = [row for row in read_dataset(store, done.result.dataset).to_pylist() if row["trajectory_id"] == "t1"]
    assert [(row["scorer"], row["turn"], row["value"]) for row in rows] == [
        ("brevity", None, 0.5),
        ("brevity", 0, 0.25),
        ("verifier/sums", None, 1.1),
    ]


def test_another_change_is_compared_with_the_newest_scores(store):
    scored(store)
    lenient, strict = Sums("lenient"), Sums("strict")
    ref = rollouts(store)
    first = rescore(store, ref, lenient)  # type: ignore[arg-type]
    assert rescore(store, ref, lenient).changed == []  # type: ignore[arg-type]
    done = rescore(store, ref, strict)  # type: ignore[arg-type]
    assert verdicts(done.changed) == [("t1", 1.0, None)]
    assert done.result.filtered == {"scorer verifier/sums: ValueError": 1}
    assert "a full stop" in done.result.details["raised"]
    assert done.result.dataset != first.result.dataset


def test_rollouts_without_scores_and_without_items_are_told(store):
    environment: Any = Sums()
    nothing = rescore(store, rollouts(store), environment)
    assert nothing.result.filtered == {"item unknown": 3}
    assert verdicts(nothing.changed) == []
    items(store)
    assert verdicts(rescore(store, rollouts(store), environment).changed) == [
        ("t0", None, 1.0),
        ("t1", None, 0.0),
        ("t2", None, 0.0),
    ]


def test_an_evaluation_says_what_was_before_as_well(store):
    common = {"policy_version": "p", "slice": "all", "seed": 0}
    rows = [{"trajectory_id": "t0", "item_id": "i0", "success": False, "value": 0.0, "error": None}]
    rows.append({"trajectory_id": "t1", "item_id": "i1", "success": None, "value": None, "error": "ValueError: no"})
    publish(store, "eval_results", [common | row for row in rows])
    items(store)
    environment: Any = Sums()
    assert verdicts(rescore(store, rollouts(store), environment).changed) == [
        ("t0", 0.0, 1.0),
        ("t1", None, 0.0),
        ("t2", None, 0.0),
    ]


def test_what_cannot_be_rescored_is_refused(store):
    environment: Any = Sums()
    with pytest.raises(DataError, match=r"no rollouts of sums.*\n.*those of: shop"):
        rescore(store, rollouts(store, environment="shop"), environment)
    with pytest.raises(DataError, match="no rollouts of sums"):
        rescore(store, rollouts(store, source="imported"), environment)
    with pytest.raises(ConfigError, match="a dataset of task_items"):
        rescore(store, items(store), environment)


def test_the_other_environments_of_a_night_are_left(store):
    """Of several environments each has its own rescoring; rows name theirs, and its items lose their label before it is asked."""
    made = [labelled_item(TaskItem.from_row(row), "adds", "sums") for row in read_dataset(store, items(store)).to_pylist()]
    publish(store, "task_items", [item.as_row() for item in made])
    own, other = (read_dataset(store, rollouts(store, environment=name)).to_pylist() for name in ("adds", "shop"))
    own = [row | {"item_id": f"adds:{row['item_id']}"} for row in own]
    mixed = publish(store, "trajectories", [*own, *(row | {"trajectory_id": f"{row['trajectory_id']}s"} for row in other)])
    asked: list[TaskItem] = []

    class Telling(Sums):
        def verify(self, item: TaskItem, messages: Any, verdict: Any) -> Outcome:
            asked.append(item)
            return super().verify(item, messages, verdict)

    environment: Any = Telling()
    done = rescore(store, mixed, LabelledEnvironment(environment, "adds", "sums"))
    assert verdicts(done.verdicts) == [("t0", None, 1.0), ("t1", None, 0.0), ("t2", None, 0.0)]
    assert done.others == {"shop": 3}
    assert [(item.item_id, item.slice, item.environment) for item in asked] == [(f"i{n}", "all", "sums") for n in range(3)]
    assert {row["scorer"] for row in read_dataset(store, done.result.dataset).to_pylist()} == {"verifier/adds"}


def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that score the rollouts of a home anew."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    store = open_store(Home.from_env())
    scored(store)
    file = tmp_path / "mine.py"
    file.write_text(
        "from clawpipe.play.environments.base import Outcome\n"
        "from clawpipe.play.environments.letters import LettersEnvironment\n"
        "class Mine(LettersEnvironment):\n"
        "    name = 'sums'\n"
        "    def verify(self, item, messages):\n"
        "        right = messages[-1].content.startswith('7')\n"
        "        return Outcome(float(right), right, 'begins with 7', {})\n"
    )
    return ["rescore", rollouts(store).digest[:12], "--environment", f"{file}:Mine"]


def test_the_command_shows_the_changes(tmp_path, monkeypatch):
    words = command(tmp_path, monkeypatch)
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "before: 3 verdicts, 1 successes, mean value 0.333" in shown.output
    assert "now:    3 verdicts, 2 successes, mean value 0.667" in shown.output
    assert "1 of 3 verdicts changed" in shown.output
    listed = [line.split()[:2] for line in shown.output.splitlines() if line.startswith("t")]
    assert listed == [["trajectory", "item"], ["t1", "i1"]]
    again = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert (again["changed"], again["before"], again["now"]["value"]) == ([], again["now"], 2 / 3)


def test_gc_keeps_what_was_rescored_as_long_as_nights(tmp_path, monkeypatch):
    asked = json.loads(CliRunner().invoke(app, [*command(tmp_path, monkeypatch), "--json"]).output)
    store = open_store(Home.from_env())
    for path in [store.root, *store.root.rglob("*")]:
        os.utime(path, (time.time() - 7200,) * 2)
    assert CliRunner().invoke(app, ["gc"]).exit_code == 0
    assert {asked["scores"], asked["trajectories"]} <= {digest for _, digest in store.here()}
    assert CliRunner().invoke(app, ["gc", "--keep-nights", "0"]).exit_code == 0
    assert list(store.here()) == []
