"""What is forgotten is nowhere: rows of every dataset, files of every kind, the registry's database."""

from __future__ import annotations

import datetime
import errno
import json

import pyarrow.parquet as pq
import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_ref, read_dataset
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.records import find_record
from clawpipe.core.store.refs import StepResult
from clawpipe.data.curation.measures import measured
from clawpipe.data.curation.runner import wants
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.forgotten.tombstones import read_tombstones
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.judge_prompt import turn_prompt
from clawpipe.play.judging.votes import Vote, VoteStore
from clawpipe.record.lineage.exposure import exposure, exposure_lines
from clawpipe.record.removal.forget import forget
from clawpipe.record.reviews.open import every_decision, open_decisions

DAY = datetime.date(2031, 5, 4)
ANN, SESSION = Subject(user="ann"), Subject(session="sess-a")
EACH = {
    "trajectories": ["b1", "b2", "x1"],
    "scores": ["b1"],
    "samples": ["b1", "x1"],
    "eval_results": [],
    "task_items": ["item-both", "item-b1"],
    "preference_pairs": ["pair-b"],
    "token_scores": ["pair-b"],
    "quarantine": ["b9"],
}
KEY = {"task_items": "item_id", "preference_pairs": "pair_id", "token_scores": "row_id", "quarantine": "row_id"}


def left(filled):
    return {name: [row[KEY.get(name, "trajectory_id")] for row in filled.rows(name)] for name in EACH}


def test_every_dataset_loses_a_users_rows_and_keeps_the_others(filled):
    [result] = forget(filled.home, ANN, today=DAY)
    assert left(filled) == EACH
    assert result.trajectories == 5  # four of hers and the rollout of what she had asked
    assert {one.name: (one.rows, one.of) for one in result.datasets} == {
        "trajectories": (5, 8),
        "scores": (1, 2),
        "samples": (2, 4),
        "eval_results": (1, 1),
        "task_items": (1, 3),
        "preference_pairs": (1, 2),
        "token_scores": (1, 2),
        "quarantine": (3, 4),
    }


def test_forgetting_a_user_removes_prompts_and_their_rollouts(filled):
    whose = {
        **{"p-a": ("sess-a3", "ann"), "p-a2": ("sess-a2", None), "p-both": (None, "ann"), "item-both": ("sess-a", "ann")},
        **{"p-b": ("sess-b", "ben"), "p-s": ("sess-a2", "ben"), "p-x": (None, None)},
    }
    filled.publish("task_items", [filled.prompt(name, *who, f"What about {name}?") for name, who in whose.items()])
    filled.publish("task_items", [filled.prompt("p-both", None, "ben", "What about both?")])
    filled.publish(
        "trajectories", [filled.imported(f"r-{item}", None, None, "?", 1, item) | {"source": "rollout"} for item in whose]
    )
    forget(filled.home, ANN, today=DAY)
    assert sorted(left(filled)["task_items"]) == sorted([*EACH["task_items"], "p-b", "p-both", "p-s", "p-x"])
    kept = {"r-p-both", "r-item-both", "r-p-b", "r-p-s", "r-p-x"}
    assert set(left(filled)["trajectories"]) == {*EACH["trajectories"], *kept}
    assert read_tombstones(filled.home).covers("sess-a3", None)


def test_a_prompt_of_a_session_goes_with_it(filled):
    prompts = [filled.prompt(name, session, "ann", filled.ann) for name, session in (("p-a", "sess-a"), ("p-b", "sess-b"))]
    ref = filled.publish("task_items", prompts)
    [result] = forget(filled.home, SESSION, today=DAY)
    assert {one.digest: one.rows for one in result.datasets}[ref.digest] == 1
    assert "p-b" in left(filled)["task_items"]


def vote(number: int, trajectory: str, subject: str, raw: str) -> Vote:
    return Vote(f"vote-{number}", "judge", "1", number, subject, trajectory, raw, 1, (raw,), 1, 1, 0.0)


def test_what_judges_said_of_forgotten_turns_goes(filled):
    of = {row["trajectory_id"]: row for row in filled.rows("trajectories")}
    known = turn_prompt(exchanges_of(of["a1"])[0]).subject
    votes = VoteStore.of(filled.home)
    votes.add(vote(0, "b9\na2", "turn of hers", "She keeps a Brontosaurus"))
    votes.add(vote(1, "a shorter version of a1", known, "It ignored her Brontosaurus"))
    votes.add(vote(2, "b1", "turn of his", "He keeps a Velociraptor"))
    dry, _ = forget(filled.home, ANN, dry_run=True, today=DAY), votes.close()
    assert dry[0].votes == 2
    assert len(filled.holding("a Brontosaurus", "her Brontosaurus")) >= 1
    assert forget(filled.home, ANN, today=DAY)[0].votes == 2
    assert filled.holding("a Brontosaurus", "her Brontosaurus") == []
    assert [one.raw for one in VoteStore.of(filled.home).every()] == ["He keeps a Velociraptor"]


def test_what_was_said_of_turns_with_failed_calls_goes(filled):
    """Judges are shown which results their record marks as failed, so that the turn is another one without the marks."""
    row = filled.imported("a9", "sess-a", "ann", filled.ann, 9) | {"extra": '{"failed_results": {"2": true}}'}
    row["kinds"], row["messages"] = ["main"], [*row["messages"], row["messages"][0] | {"role": "tool"}]
    filled.publish("trajectories", [row])
    [turn] = exchanges_of(row)
    votes = VoteStore.of(filled.home)
    votes.add(vote(0, "a shorter version of a9", turn_prompt(turn).subject, "It lost her Brontosaurus"))
    votes.close()
    assert forget(filled.home, ANN, today=DAY)[0].votes == 1


def test_measures_of_what_is_forgotten_go_as_well(filled):
    [old] = measured(filled.store, [filled.refs["trajectories"]], wants(Curation(), "grpo"))
    assert filled.holding('"a2"', '"sess-a2"')
    forget(filled.home, ANN, today=DAY)
    assert not filled.store.path(old).exists()
    assert [row["trajectory_id"] for row in filled.rows("measures")] == EACH["trajectories"]
    assert filled.holding('"sess-a2"', '"ann"') == []
    raw = dataset_ref(filled.store, "trajectories", filled.refs["trajectories"].digest)
    again = read_dataset(filled.store, *measured(filled.store, [raw], wants(Curation(), "grpo")))
    assert again["trajectory_id"].to_pylist() == EACH["trajectories"]
    assert list(zip(again["file"].to_pylist(), again["row"].to_pylist(), strict=True)) == places_in(filled, raw)


def places_in(filled, ref):
    """File and row of each trajectory."""
    files = dataset_files(filled.store, ref)
    return [(number, row) for number, file in enumerate(files) for row in range(pq.read_metadata(file).num_rows)]


def test_a_session_is_forgotten_without_the_other_one(filled):
    forget(filled.home, SESSION, today=DAY)
    assert [row["trajectory_id"] for row in filled.rows("trajectories")] == ["b1", "a2", "a3", "b2", "x1"]
    assert [row["row_id"] for row in filled.rows("quarantine")] == ["a2", "b9"]
    assert left(filled)["preference_pairs"] == ["pair-a", "pair-b"]


def test_a_session_with_another_users_rows_does_not_go_along(filled):
    both = [filled.imported(name, "sess-both", user, f"{user} in both", 9) for name, user in (("c1", "ann"), ("c2", "ben"))]
    filled.publish("trajectories", both)
    log = filled.home.root / "logs" / "gateway.log"
    log.parent.mkdir()
    log.write_text("sess-both: an answer\nsess-a2: an answer\n")
    [result] = forget(filled.home, ANN, today=DAY)
    assert (result.sessions, result.shared) == (["sess-a", "sess-a2"], ["sess-both"])
    assert [row["trajectory_id"] for row in filled.rows("trajectories")].count("c2") == 1
    assert "c1" not in [row["trajectory_id"] for row in filled.rows("trajectories")]
    assert log.read_text() == "sess-both: an answer\n"
    assert "sessions with rows of other users, which stay: sess-both" in list(exposure_lines(result))


@pytest.mark.slow
def test_the_bytes_are_gone_from_the_whole_home(filled, tracking):
    samples, pairs = filled.refs["samples"], filled.refs["preference_pairs"]
    first = filled.night("first", samples, filled.base)
    filled.register(tracking, "first", first, samples)
    filled.night("second", pairs, first)
    assert len(filled.holding(filled.ann)) > 10
    [result] = forget(filled.home, ANN, today=DAY)
    assert filled.holding(filled.ann, "sess-a2", '"ann"') == []
    assert result.still_held == []
    assert filled.holding(filled.ben)  # the search finds what is there
    assert sorted(result.reports) == sorted(filled.nights.values())
    for night in filled.nights.values():
        assert "<html" in (filled.home.runs / night / "report.html").read_text()
        assert (filled.home.runs / night / "logs" / "worker-0.log").read_text() == "begin\nend\n"
    assert not filled.home.work.exists()


@pytest.mark.slow
def test_a_registered_version_is_marked_with_count_and_date(filled, tracking):
    samples = filled.refs["samples"]
    first = filled.night("first", samples, filled.base)
    clean = filled.publish("samples", [row for row in filled.rows("samples") if row["trajectory_id"] == "b1"])
    version = filled.register(tracking, "first", first, samples)
    untouched = filled.register(tracking, "first", filled.night("clean", clean, filled.base), clean)
    after = filled.register(tracking, "first", filled.night("after", clean, first), clean)  # goes on from the first
    [result] = forget(filled.home, ANN, today=DAY)
    assert {model.version: model.rows for model in result.models} == {version: 2, after: 2}
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)
    marks = {
        number: client.get_model_version("agent", number).tags.get("clawpipe.forgotten") for number in (version, untouched, after)
    }
    assert marks == {version: "2 rows, 2031-05-04", untouched: None, after: "2 rows, 2031-05-04"}
    assert forget(filled.home, ANN, today=DAY)[0].models == result.models  # known from then on, though the rows are gone
    assert {model.uri for model in exposure(filled.home, ANN).models} == {model.uri for model in result.models}


def test_an_old_digest_stands_for_what_took_its_place(filled):
    old = filled.refs["trajectories"]
    forget(filled.home, SESSION, today=DAY)
    forget(filled.home, ANN, today=DAY)  # replaced twice
    new = dataset_ref(filled.store, "trajectories", old.digest)
    assert read_dataset(filled.store, new, ["trajectory_id"])["trajectory_id"].to_pylist() == EACH["trajectories"]
    assert not filled.store.intact(old)
    memory = json.loads((filled.home.root / "ingest" / "log.json").read_text())
    assert memory["datasets"] == {"trajectories": [new.digest]}
    assert list(memory["files"]) == ["/logs/all.jsonl"]  # a path that holds the id goes


def test_a_step_that_made_such_rows_runs_again(filled):
    filled.night("first", filled.refs["samples"], filled.base)
    kept = filled.publish("scores", [])
    filled.write_step("score-none", StepResult(output=kept))
    assert find_record(filled.home, "curate-first") is not None
    forget(filled.home, ANN, today=DAY)
    assert find_record(filled.home, "curate-first") is None
    assert find_record(filled.home, "score-none") is not None


def test_what_was_forgotten_is_recognised_and_nobody_else(filled):
    forget(filled.home, ANN, today=DAY)
    stones = read_tombstones(filled.home)
    assert stones.covers("sess-new", "ann")
    assert stones.covers("sess-a2", None)  # hers, in a row that does not say so
    assert not stones.covers("sess-a2", "ben")
    assert not stones.covers("sess-b", None)
    assert not stones.covers(None, None)
    forget(filled.home, Subject(session="sess-b"), today=DAY)
    assert read_tombstones(filled.home).covers("sess-b", "ben")


@pytest.mark.slow
def test_a_dry_run_tells_the_same_and_touches_nothing(filled, tracking):
    filled.register(tracking, "first", filled.night("first", filled.refs["samples"], filled.base), filled.refs["samples"])
    before = {path: data for path, data in filled.bytes() if path.suffix not in {".db", ".lock"}}
    [planned] = forget(filled.home, ANN, dry_run=True)
    assert {path: data for path, data in filled.bytes() if path.suffix not in {".db", ".lock"}} == before
    [done] = forget(filled.home, ANN, today=DAY)
    assert (planned.datasets, planned.models, planned.adapters) == (done.datasets, done.models, done.adapters)
    assert planned.origins == done.origins
    assert done.origins[0].lines == [1, 3, 4, 5]


def test_a_try_that_was_killed_is_finished_by_the_next(filled, monkeypatch):
    class KilledError(BaseException):
        """No handler of errors may see it, as none sees SIGKILL."""

    def die(name, detail=""):
        if name == "forget.before_removal":
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("clawpipe.core.system.faults.kill_point", die)
        with pytest.raises(KilledError):
            forget(filled.home, ANN, today=DAY)
    assert read_tombstones(filled.home).covers(None, "ann")  # it is not read in again meanwhile
    old = filled.refs["trajectories"].digest
    assert dataset_ref(filled.store, "trajectories", old).rows == 3
    forget(filled.home, ANN, today=DAY)
    assert left(filled) == EACH
    assert filled.holding(filled.ann) == []


def test_a_kill_when_the_rows_are_gone_leaves_nothing_else(filled, monkeypatch):
    """Only the rows say which lines of logs, votes and decisions are theirs."""
    votes, decisions = VoteStore.of(filled.home), open_decisions(filled.home)
    votes.add(vote(0, "a2", "turn of hers", "She keeps a Brontosaurus"))
    decisions.decide("a2", "rejected", "bob", seen=0, reason="her Brontosaurus again")
    votes.close()
    decisions.close()
    log = filled.home.root / "logs" / "judge.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(f"begin\n{filled.ann}\n")

    def die(name, detail=""):
        if name == "forget.after_removal":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("clawpipe.core.system.faults.kill_point", die)
        with pytest.raises(KeyboardInterrupt):
            forget(filled.home, ANN, today=DAY)
    forget(filled.home, ANN, today=DAY)
    assert filled.holding(filled.ann, "Brontosaurus") == []
    assert every_decision(filled.home) == []


def test_a_damaged_dataset_is_removed(filled):
    [file] = (filled.home.store / "scores").glob("*/part-00000.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    [result] = forget(filled.home, ANN, today=DAY)
    assert result.damaged == [f"scores/{filled.refs['scores'].digest}"]
    assert not Store(filled.home.store).path(filled.refs["scores"]).exists()


@pytest.mark.parametrize("place", ["artifacts.sha256_once", "artifacts.read_manifest"])
def test_what_this_user_may_not_read_is_not_taken_for_damaged(filled, monkeypatch, place):
    """After `sudo clawpipe ingest`, say."""

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(f"clawpipe.core.store.{place}", refused)
    with pytest.raises(PermissionError):
        forget(filled.home, ANN, today=DAY)
    monkeypatch.undo()
    assert len(filled.rows("trajectories")) == 8


def test_homes_of_sweeps_forget_as_well(filled):
    inner = filled.home.root / "sweeps" / "s-0123456789" / "home-0"
    inner.mkdir(parents=True)
    for part in ("store", "ingest", "work"):
        (filled.home.root / part).rename(inner / part)
    results = forget(filled.home, ANN, today=DAY)
    assert [result.trajectories for result in results] == [0, 5]
    assert filled.holding(filled.ann) == []


def test_links_to_another_disk_hide_nothing(filled, tmp_path):
    (tmp_path / "fast").mkdir()
    for part in ("work", "notes"):
        (filled.home.root / part).mkdir(exist_ok=True)
        (filled.home.root / part / "more").mkdir()
        (filled.home.root / part / "more" / "said.txt").write_text(filled.ann)
        (filled.home.root / part).rename(tmp_path / "fast" / part)
        (filled.home.root / part).symlink_to(tmp_path / "fast" / part)
    (tmp_path / "fast" / "notes" / "round").symlink_to(filled.home.root)  # which no search may follow for ever
    [result] = forget(filled.home, ANN, today=DAY)
    assert list((tmp_path / "fast" / "work").iterdir()) == []
    assert [file.rpartition("/")[2] for file in result.still_held] == ["said.txt"]


def test_nothing_is_forgotten_while_a_night_runs(filled):
    with exclusive(filled.home.locks / "night.lock", "the home"), pytest.raises(BusyError):
        forget(filled.home, ANN, today=DAY)
    assert len(filled.rows("trajectories")) == 8


def test_an_unknown_id_is_noted_and_changes_no_dataset(filled):
    [result] = forget(filled.home, Subject(session="sess"), today=DAY)
    assert (result.trajectories, result.datasets, result.replaced) == (0, [], {})
    assert read_tombstones(filled.home).covers("sess", "ann")


@pytest.mark.parametrize("ids", [{}, {"session": "s", "user": "u"}, {"session": ""}, {"session": "", "user": "u"}])
def test_one_thing_has_to_be_named(ids):
    with pytest.raises(ConfigError, match="has to be named"):
        Subject(**ids)


@pytest.mark.parametrize("odd", ['q"uo\\te', "ü/ä", "a.b+c", "o'neill"])
def test_odd_ids_are_found_in_text_as_json_writes_them(filled, odd):
    texts = json.dumps([odd]), json.dumps([odd], ensure_ascii=False)[:-1], json.dumps([f"x{odd}"])
    aside = {"dataset": "trajectories", "reasons": ["odd"]}
    ref = filled.publish("quarantine", [aside | {"row_id": str(number), "row": text} for number, text in enumerate(texts)])
    [result] = forget(filled.home, Subject(session=odd), today=DAY)
    assert {one.digest: one.rows for one in result.datasets} == {ref.digest: 2}
