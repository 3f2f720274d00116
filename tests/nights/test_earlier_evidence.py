"""Which nights' evidence adds up: those of the same model and incumbent with a verdict, since its last promotion."""

import os

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import ModelRef
from clawpipe.learn.evaluation.verdict.verdict import Decision, Tally, Verdict
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.past import earlier_evidence
from clawpipe.record.nights.record import Incumbent, NightRecord
from clawpipe.record.nights.status import NightStatus, StepEntry, read_status, write_status

MODEL = "acme-user-0a"
CONFIG = NightConfig.model_validate({"gate": {"adds_up": True}, "registry": {"model_name": MODEL, "shared": "acme"}})


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def version(number):
    """A version in service."""
    policy = ModelRef(
        name="a", digest="d", base="b", base_name="b", tool_call_format="hermes", dtype="float32", policy_version=f"p{number}"
    )
    return Incumbent(version=f"{number}", night="before", policy=policy)


def ran(home, number, wins, decision=Decision.HOLD, model=MODEL, verdict=True, tally=True, champion=None, draw=None, **settings):
    """Leave a night behind; a later number is a later night."""
    name = f"night-{number}"
    directory = run_dir(home, name)
    directory.mkdir(parents=True)
    found = Tally(wins=wins, losses=0, identities=10) if tally else None
    details = Verdict(decision=decision, reasons=(), incumbent="base", models={}, comparison=None, tally=found).model_dump(
        mode="json"
    )
    gate = StepEntry(
        name="gate",
        state="ran",
        seconds=1,
        rows_in=1,
        rows_out=1,
        filtered={},
        key=None,
        digest=None,
        artifacts={},
        details=details,
    )
    config = NightConfig.model_validate({"registry": {"model_name": model}, "draw": draw} | settings)
    (directory / "config.json").write_text(config.model_dump_json())
    (directory / "status.json").write_text(NightStatus(night=name, steps=[gate]).model_dump_json())
    (directory / "night.json").write_text(NightRecord(night=name, label=name, champion=champion).model_dump_json())
    os.utime(directory / "night.json", (number, number))
    if verdict:
        (directory / LINEAGE).write_text("{}")


def wins(home, config=CONFIG, champion=None):
    return [tally.wins for tally in earlier_evidence(home, config, champion)]


def test_nights_since_the_last_promotion_count(home):
    for number, (won, decision) in enumerate([(9, "HOLD"), (8, "PROMOTE"), (1, "HOLD"), (2, "REJECT"), (3, "HOLD")], start=1):
        ran(home, number, won, Decision(decision))
    assert wins(home) == [1, 2, 3]


def test_other_models_and_unfinished_nights_do_not_count(home):
    ran(home, 1, 5, model="acme-user-0b")
    ran(home, 2, 4)
    ran(home, 3, 7, model="acme", decision=Decision.PROMOTE)  # the shared one's promotion is no user's
    ran(home, 4, 6, verdict=False)
    ran(home, 5, 8, tally=False)  # it did not add up then
    assert wins(home) == [4]


def test_nothing_counts_behind_a_night_that_cannot_be_read(home):
    ran(home, 1, 5)
    ran(home, 2, 6)
    ran(home, 3, 7)
    (run_dir(home, "night-2") / "status.json").write_text("{}")
    assert wins(home) == [7]


def test_evidence_against_another_incumbent_does_not_count(home):
    ran(home, 1, 5)  # and then a person promoted its candidate
    ran(home, 2, 6, champion=version(1))
    ran(home, 3, 7, champion=version(2))
    ran(home, 4, 8, champion=version(1))
    assert [wins(home, champion=version(number)) for number in (1, 2, 3)] == [[6, 8], [7], []]
    assert wins(home) == [5]
    assert wins(home, CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"base": "random"})})) == []


def test_a_night_that_runs_again_keeps_its_place(home):
    for number, decision in enumerate(["HOLD", "PROMOTE", "HOLD"], start=1):
        ran(home, number, number, Decision(decision))
    for again in ("night-1", "night-2"):
        write_status(read_status(home, again))
        assert wins(home) == [3]


def test_nights_of_one_draw_count_once(home):
    for number, draw in enumerate(["sweep", None, "sweep", "tonight"], start=1):
        ran(home, number, number, draw=draw)
    assert sorted(wins(home)) == [1, 2, 4]
    assert sorted(wins(home, CONFIG.model_copy(update={"draw": "tonight"}))) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {"environment": {"name": "letters"}},
        {"environment": {"name": "shop", "options": {"tools": 2}}},
        {"evaluation": {"replay_calls": True}},
        {"gate": {"promote_on_likelihood": True}},
    ],
)
def test_wins_at_something_else_do_not_count(home, other):
    ran(home, 1, 5)
    ran(home, 2, 6, **other)
    ran(home, 3, 7, evaluation={"confidence": 0.9})  # which decides no win
    assert wins(home) == [5, 7]


def test_where_nothing_adds_up_no_night_is_read(home):
    ran(home, 1, 5)
    assert wins(home, NightConfig()) == []
