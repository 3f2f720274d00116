"""What stands in the queue, in which order, and what may be decided about it."""

import re

import pyarrow as pa
import pytest

from clawpipe.core.config import NightConfig
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import dataset_ref, publish_dataset, read_dataset, stored_datasets
from clawpipe.core.store.open import open_store
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.judging.spending import spent_in
from clawpipe.play.judging.votes import votes_file
from clawpipe.record.nights.files import night_id
from clawpipe.record.nights.status import NightStatus, StepEntry, write_status
from clawpipe.record.removal.forget import forget
from clawpipe.record.reviews.deciding import decide, edit
from clawpipe.record.reviews.edits import edited_rows
from clawpipe.record.reviews.open import open_decisions
from clawpipe.record.reviews.opinions import Opinion, uncertainty
from clawpipe.record.reviews.snapshot import reviews_of
from flows.datasets import NothingNewError, named_datasets, waiting_rows
from flows.review import review_queue
from tests.judging.fake_judge import fake_judge, verdict
from tests.reviews.conftest import ANSWERS, line

TONIGHT = NightConfig.model_validate(
    {"rollouts": None, "trajectories": ["new"], "scores": ["new"], "scorers": ["rules"], "environment": {"name": "conversations"}}
)
APPROVED = NightConfig.model_validate(TONIGHT.model_dump() | {"curation": {"approved_only": True}})


def by_session(queue):
    return {entry.session: entry for entry in queue.entries()}


def opinion(value, success=None, origin="judge", votes=()):
    return Opinion("s", origin, None, value, success, "", votes)


@pytest.mark.parametrize(
    ("opinions", "expected"),
    [
        ([], 1.0),
        ([opinion(1.0)], 0.0),
        ([opinion(-1.0)], 0.0),
        ([opinion(0.0)], 1.0),
        ([opinion(0.25)], 0.75),
        ([opinion(17.0)], 0.0),
        ([opinion(0.0, success=False, origin="verifier")], 0.0),  # a verifier's 0 is sure of a failure
        ([opinion(1.0, votes=(1, 1, -1))], 2 / 3),
        ([opinion(1.0, votes=(1, None, 1))], 0.0),
        ([opinion(1.0), opinion(-1.0, origin="user")], 1.0),
    ],
)
def test_the_uncertainty_of_a_row(opinions, expected):
    assert uncertainty(opinions) == pytest.approx(expected)


def test_the_most_uncertain_row_is_first_and_rules_speak_at_once(home):
    entries = review_queue(home, TONIGHT, ask_judges=False).entries()
    assert entries[0].session == "silent"
    assert {entry.session: [(one.value, one.reason) for one in entry.opinions] for entry in entries} == {
        "silent": [],
        "praised": [(1.0, "thanks")],
        "blamed": [(-1.0, "complaint")],
    }


def test_a_row_is_named_by_the_begin_of_its_id(home):
    queue = review_queue(home, None, ask_judges=False)
    name = queue.entries()[0].row_id
    assert queue.entry(name[:6]).row_id == name
    with pytest.raises(NotFoundError, match="no row of the queue"):
        queue.entry(name[:5])


def test_an_edit_holds_no_secret_and_must_say_something_else(home):
    queue = review_queue(home, TONIGHT, ask_judges=False)
    entry = by_session(queue)["silent"]
    for text, what in (("  ", "empty"), (" It has six of them. ", "what stands there")):
        with pytest.raises(ConfigError, match=what):
            edit(home, queue, entry, text, "ann", seen=0)
    made = edit(home, queue, entry, f"Eight. My key is ghp_{'a1B2' * 9}", "ann", seen=0)
    assert made.turn == 0
    assert re.fullmatch(r"Eight. My key is \[REDACTED:[\w-]+\]", made.text or "")


def test_a_decision_is_found_again_when_a_row_comes_again(home, tmp_path):
    """In another file, at another place, beside rows that were not there before."""
    queue = review_queue(home, TONIGHT, ask_judges=False)
    blamed = by_session(queue)["blamed"]
    decide(home, queue, blamed, "rejected", "ann", seen=0)
    file = tmp_path / "more.jsonl"
    rows = [line("other", "A new question, is it?", "Yes.", ""), line("blamed", *ANSWERS["blamed"])]
    file.write_text("\n".join(rows) + "\n")
    ingest(home, [str(file)], Options())
    again = by_session(review_queue(home, TONIGHT, ask_judges=False))
    assert (again["blamed"].row_id, again["blamed"].decided, again["other"].decided) == (blamed.row_id, True, False)


def test_a_night_takes_of_new_rows_those_that_are_decided(home):
    assert waiting_rows(home, APPROVED) == 3
    with pytest.raises(NothingNewError, match="3 new rows wait for a person's approval"):
        named_datasets(home, APPROVED)
    queue = review_queue(home, APPROVED, ask_judges=False)
    rows = by_session(queue)
    decide(home, queue, rows["praised"], "approved", "ann", seen=0)
    decide(home, queue, rows["blamed"], "rejected", "ann", seen=0)
    store, [digest] = open_store(home), named_datasets(home, APPROVED)["trajectories"]
    taken = read_dataset(store, dataset_ref(store, "trajectories", digest), ["session_id"])
    assert sorted(taken["session_id"].to_pylist()) == ["blamed", "praised"]
    assert (waiting_rows(home, APPROVED), waiting_rows(home, TONIGHT)) == (1, 0)


@pytest.mark.parametrize("subject", [Subject(session="silent"), Subject(text="Eight, says a person")])
def test_forgetting_takes_the_decision_along(home, subject):
    queue = review_queue(home, TONIGHT, ask_judges=False)
    edit(home, queue, by_session(queue)["silent"], "Eight, says a person.", "ann", seen=0)
    decide(home, queue, by_session(queue)["praised"], "approved", "ann", seen=0)
    store = open_store(home)
    snapshot = dataset_ref(store, "reviews", reviews_of(home, store, None, home) or "")
    edited_rows(store, queue.candidates.trajectories, snapshot)
    [found] = forget(home, subject)
    assert found.reviews == 1
    assert subject.text or not found.still_held  # the text goes with the edit; the question that was asked stays where it was
    assert [one.verdict for one in open_decisions(home).every()] == ["approved"]
    left = [row for ref in stored_datasets(store) if ref.name != "quarantine" for row in read_dataset(store, ref).to_pylist()]
    assert not any("says a person" in str(row) for row in left)
    assert [row["verdict"] for row in left if "verdict" in row and "row_id" in row] == ["approved"]


def test_the_queue_outlives_forgotten_rows_of_a_judged_night(home):
    """The night's record names scores that have others in their place; no command of `review` worked until the next night."""
    store, config = open_store(home), TONIGHT.model_copy(update={"scorers": ()})
    rows = {session: entry.row_id for session, entry in by_session(review_queue(home, config, ask_judges=False)).items()}
    said = {"scorer": "prm", "origin": "judge", "turn": None, "value": 0.5, "success": None, "reason": "", "evidence": "{}"}
    table = pa.Table.from_pylist([said | {"trajectory_id": row} for row in rows.values()], schema=schema_of("scores"))
    scores = publish_dataset(store, "scores", [table], schema_version=newest_version("scores"))
    made = {"rows_in": 3, "rows_out": 3, "filtered": {}, "key": None, "digest": scores.digest, "artifacts": {"output": scores}}
    lost = made | {"artifacts": {"output": scores.model_copy(update={"digest": "0" * 64})}}
    names = {"round-1/score": made, "round-2/score": lost}
    steps = [StepEntry.model_validate(one | {"name": name, "state": "ran", "seconds": 1.0}) for name, one in names.items()]
    folder = home.runs / night_id(config)
    folder.mkdir(parents=True)
    write_status(NightStatus(night=folder.name, steps=steps, run_dir=str(folder)))
    assert by_session(review_queue(home, config, ask_judges=False))["praised"].opinions[0].value == 0.5
    forget(home, Subject(session="silent"))
    found = by_session(review_queue(home, config, ask_judges=False))
    assert {session: len(entry.opinions) for session, entry in found.items()} == {"praised": 1, "blamed": 1}


def test_judges_are_asked_once_and_out_of_the_nights_budget(home):
    """The second look finds their votes, and the night that follows will."""
    with fake_judge(lambda system, document: verdict(system, 1 if "perfect" in document else -1)) as judge:
        asking = TONIGHT.model_dump() | {"scorers": [{"name": "prm", "options": {"url": judge.url, "model": "m"}}]}
        config = NightConfig.model_validate(asking)
        assert by_session(review_queue(home, config, ask_judges=False))["silent"].opinions == []
        said = {session: entry.opinions for session, entry in by_session(review_queue(home, config, ask_judges=True)).items()}
        asked = len(judge.asked)
        review_queue(home, config, ask_judges=True)
    assert {session: [(one.value, one.votes) for one in opinions] for session, opinions in said.items()} == {
        "silent": [],  # nothing followed
        "praised": [(1.0, (1, 1, 1))],
        "blamed": [(-1.0, (-1, -1, -1))],
    }
    assert len(judge.asked) == asked == 6
    assert [one.requests for one in spent_in(votes_file(home), night_id(config))] == [6]
