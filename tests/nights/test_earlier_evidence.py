"""Which nights' evidence adds up: those of the same model with a verdict, since its last promotion."""

import json
import os

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.learn.evaluation.verdict.verdict import Decision, Tally, Verdict
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.past import earlier_evidence
from clawpipe.record.nights.record import NightRecord
from clawpipe.record.nights.status import NightStatus, StepEntry

MODEL = "acme-user-0a"
CONFIG = NightConfig.model_validate({"gate": {"adds_up": True}, "registry": {"model_name": MODEL, "shared": "acme"}})


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def ran(home, number, wins, decision=Decision.HOLD, model=MODEL, verdict=True, tally=True):
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
    (directory / "config.json").write_text(json.dumps({"registry": {"model_name": model}}))
    (directory / "status.json").write_text(NightStatus(night=name, steps=[gate]).model_dump_json())
    (directory / "night.json").write_text(NightRecord(night=name, label=name, champion=None).model_dump_json())
    os.utime(directory / "night.json", (number, number))
    if verdict:
        (directory / LINEAGE).write_text("{}")


def wins(home, config=CONFIG):
    return [tally.wins for tally in earlier_evidence(home, config)]


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


def test_where_nothing_adds_up_no_night_is_read(home):
    ran(home, 1, 5)
    assert wins(home, NightConfig()) == []
