"""The figures of nights, read by Prometheus' own parser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clawpipe.core.config import NightConfig
from clawpipe.core.config.metrics import Metrics, Prices
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import StepResult
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import EvidenceLeft, Figures, NightStatus, StepEntry, entry, write_status
from clawpipe.record.registry.promotions import Move, move_log
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.runs.record import Run, write_record
from clawpipe.serve.monitoring.exposition import FIGURES, HOME_BYTES, exposition
from clawpipe.serve.monitoring.usage import Usage, price

MODEL = "clawpipe-agent"
PRICES = Prices(currency="EUR", machine_hour=0.5, accelerator_hour=2.0, million_tokens=4.0)
STEPS = [
    entry("round-1/generate_rollouts", False, 90.0, "a", StepResult(details={"sampled_tokens": 1_000_000}), 180.0),
    entry("round-1/train", False, 1800.0, "b", StepResult(details={"updates": [{"trained_tokens": 40.0}] * 2}), 1800.0),
    entry("round-2/train", False, 3600.0, "c", StepResult(details={"updates": [{"trained_tokens": 20.0}]}), 3600.0),
    entry("evaluate/base", False, 10.0, "d", StepResult(rows_in=40, rows_out=38, details={"reply_tokens": 2.5})),
    entry("evaluate/candidate", False, 20.0, "e", StepResult(rows_in=40, rows_out=40, details={"reply_tokens": 4.0})),
]


def a_night(home: Home, label: str, ended: float, **known: object) -> NightStatus:
    """A night that ended at a time, in seconds since 1970: with a verdict, or with an error."""
    record = create_record(home, NightConfig(night=label, metrics=Metrics(prices=PRICES)), None)
    directory = run_dir(home, record.night)
    status = NightStatus.model_validate({"night": record.night, "run_dir": str(directory), **known})
    write_status(status)
    if status.verdict:
        (directory / LINEAGE).touch()
        os.utime(directory / LINEAGE, (ended, ended))
    return status


def promoted(home: Home, version: str, time: str) -> None:
    move = {"id": time, "time": time, "model": MODEL, "action": "promote", "from_version": None, "to_version": version}
    log = move_log(Tracking.of(home, MODEL).log)
    log.append(Move.model_validate({**move, "who": "a", "reason": "b", "evidence": "", "forced": False}))


def read(home: Home) -> dict[str, float]:
    """Samples by name and labels, in the order of the labels' names, without the model's."""
    text = exposition(home, lambda _: {"trajectories": 12}).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels.get("model", MODEL) for sample in samples} <= {MODEL}
    return {
        " ".join([one.name, *(one.labels[name] for name in sorted(one.labels) if name != "model")]): one.value for one in samples
    }


@pytest.fixture
def figures(home: Home) -> dict[str, float]:
    figures = Figures(success=0.5, low=0.25, high=0.75, n=40)
    left = EvidenceLeft(available=1000, looked_at=100, a_night=100)
    a_night(home, "old", 1000.0, verdict="REJECT")
    a_night(
        home, "good", 2000.0, verdict="PROMOTE", heldout={"candidate": figures}, evidence_left=left, steps=STEPS, seconds=5520.0
    )
    a_night(home, "bad", 3000.0, error="no disk")
    promoted(home, "1", "1970-01-01T00:10:00+00:00")
    promoted(home, "2", "1970-01-01T00:20:00+00:00")
    promoted(home, "1", "1970-01-01T00:30:00+00:00")
    return read(home)


def test_the_last_verdict_and_what_failed_since(figures: dict[str, float]):
    assert figures["clawpipe_night_last_success_timestamp_seconds"] == 2000
    assert figures["clawpipe_night_last_verdict_timestamp_seconds"] == 2000
    assert figures["clawpipe_night_failures"] == 1
    verdicts = {name.split()[1]: value for name, value in figures.items() if name.startswith("clawpipe_night_verdict ")}
    assert verdicts == {"PROMOTE": 1, "HOLD": 0, "REJECT": 0}
    assert figures["clawpipe_night_champion_timestamp_seconds 1"] == 600  # since it was first promoted
    assert figures["clawpipe_night_waiting_rows trajectories"] == 12


def test_a_quiet_day_is_a_success_without_a_verdict(home: Home):
    a_night(home, "good", 2000.0, verdict="HOLD")
    quiet = Run(id="19700101T010000-aaaa", model=MODEL, ended="1970-01-01T01:00:00+00:00", state="completed")
    write_record(home, quiet)
    write_record(
        home, quiet.model_copy(update={"id": "19700101T020000-aaaa", "state": "failed", "ended": "1970-01-01T02:00:00+00:00"})
    )
    found = read(home)
    assert found["clawpipe_night_last_success_timestamp_seconds"] == 3600
    assert found["clawpipe_night_last_verdict_timestamp_seconds"] == 2000


def test_evidence_has_its_interval_and_what_is_left(figures: dict[str, float]):
    assert figures["clawpipe_night_heldout_success_ratio success candidate"] == 0.5
    assert figures["clawpipe_night_heldout_success_low_ratio success candidate"] == 0.25
    assert figures["clawpipe_night_heldout_success_high_ratio success candidate"] == 0.75
    assert figures["clawpipe_night_heldout_items success candidate"] == 40
    assert figures["clawpipe_night_evidence_left_items"] == 900
    assert figures["clawpipe_night_evidence_left_nights"] == 9


def test_a_stage_sums_its_rounds_and_models(figures: dict[str, float]):
    assert figures["clawpipe_night_duration_seconds"] == 5520
    assert figures["clawpipe_night_stage_duration_seconds train"] == 5400
    assert figures["clawpipe_night_stage_duration_seconds evaluate"] == 30
    assert figures["clawpipe_night_stage_tokens trained train"] == 100
    assert figures["clawpipe_night_stage_tokens sampled generate_rollouts"] == 1_000_000
    assert figures["clawpipe_night_stage_tokens sampled evaluate"] == 2.5 * 40 + 4 * 40
    assert figures["clawpipe_night_stage_accelerator_seconds train"] == 5400
    assert figures["clawpipe_night_stage_cost EUR train"] == pytest.approx(1.5 * 0.5 + 1.5 * 2)
    assert figures["clawpipe_night_stage_cost EUR generate_rollouts"] == pytest.approx(0.025 * 0.5 + 0.05 * 2 + 4)


def test_what_was_not_measured_is_absent(figures: dict[str, float]):
    assert "clawpipe_night_stage_accelerator_seconds evaluate" not in figures
    assert not [name for name in figures if name.startswith("clawpipe_night_heldout") and name.endswith(" base")]


def test_sampled_tokens_of_evaluation_are_not_billed():
    assert price("evaluate", Usage(seconds=0, tokens={"sampled": 1_000_000}), PRICES) == 0


def test_a_home_without_nights_has_its_bytes(tmp_path: Path):
    home = Home(tmp_path / "new")
    assert read(home) == {}
    (home.root / "store").mkdir(parents=True)
    (home.root / "store" / "a").write_bytes(b"12345")
    (home.root / "b").write_bytes(b"1")
    assert read(home) == {f"{HOME_BYTES} .": 1, f"{HOME_BYTES} store": 5}


def test_a_damaged_log_of_promotions_hides_the_champion_alone(home: Home):
    a_night(home, "a", 1000.0, verdict="HOLD")
    promoted(home, "1", "1970-01-01T00:10:00+00:00")
    log = Tracking.of(home, MODEL).log
    log.write_bytes(b"{}\n" + log.read_bytes())
    found = read(home)
    assert found["clawpipe_night_verdict HOLD"] == 1
    assert not [name for name in found if "champion" in name]


def test_a_night_that_runs_is_no_failure(home: Home):
    a_night(home, "now", 1000.0)
    assert read(home)["clawpipe_night_failures"] == 0


def test_without_a_price_list_nothing_has_a_price(home: Home):
    record = create_record(home, NightConfig(night="a"), None)
    directory = run_dir(home, record.night)
    step = StepEntry.model_validate(STEPS[0].model_dump())
    write_status(NightStatus(night=record.night, verdict="HOLD", steps=[step], run_dir=str(directory)))
    (directory / LINEAGE).touch()
    found = read(home)
    assert "clawpipe_night_stage_duration_seconds generate_rollouts" in found
    assert not [name for name in found if "cost" in name or "evidence" in name]


def test_names_end_in_their_unit():
    """But counts of failures, rows and the like, and a cost, whose currency is a label."""
    units = ("seconds", "ratio", "items", "nights", "rows", "tokens", "bytes", "failures", "verdict", "cost")
    assert all(name.endswith(units) for name in [*FIGURES, HOME_BYTES])
