"""What is told of a night."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.config import NightConfig
from clawpipe.core.config.notify import Notify
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from clawpipe.record.nights.files import night_id, run_dir
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import EvidenceLeft, Figures, NightStatus, StepEntry, write_status
from clawpipe.record.notifications.nights import events_of_verdict, failure


def a_night(home: Home, label: str, verdict: str, signs: tuple[str, ...] = (), left: int = 900) -> NightStatus:
    """A night of the default model that has ended."""
    night = create_record(home, NightConfig(night=label), None).night
    gate = StepEntry(
        name="gate", state="ran", seconds=1, rows_in=0, rows_out=0, filtered={}, key=None, digest=None, details={"warnings": signs}
    )
    status = NightStatus(
        night=night,
        verdict=verdict,
        reasons=["It is no better.", "It has 40 items."],
        steps=[gate],
        evidence_left=EvidenceLeft(available=1000, looked_at=1000 - left, a_night=100),
        run_dir=str(run_dir(home, night)),
    )
    status.heldout["base"] = Figures(success=0.25, low=0.125, high=0.5, n=40)
    status.heldout["candidate"] = Figures(success=0.5, low=0.25, high=0.75, n=40)
    write_status(status)
    return status


def told(home: Home, status: NightStatus, in_a_row: int = 3) -> dict[str, str]:
    return {one.kind: one.text for one in events_of_verdict(home, status, "clawpipe-agent", in_a_row)}


def test_a_verdict_is_told_with_its_evidence(home: Home):
    status = a_night(home, "a", "HOLD")
    (run_dir(home, status.night) / "report.html").touch()
    [one] = events_of_verdict(home, status, "clawpipe-agent", 3)
    assert (one.kind, one.night, one.model, one.verdict) == ("night.verdict", status.night, "clawpipe-agent", "HOLD")
    assert one.text == "HOLD: It is no better."
    assert one.evidence == "candidate 0.500 [0.250, 0.750], base 0.250 [0.125, 0.500], n=40"
    assert one.report == (home.runs / status.night / "report.html").as_uri()
    assert one.body.splitlines()[:2] == ["HOLD: It is no better.", f"night: {status.night}"]


def test_nights_in_a_row_are_told_until_one_promotes(home: Home):
    verdicts = ["HOLD", "REJECT", "PROMOTE", "HOLD", "HOLD", "REJECT", "HOLD"]
    rows = [told(home, a_night(home, f"{number}", verdict)) for number, verdict in enumerate(verdicts)]
    assert ["nights.without_promotion" in row for row in rows] == [False, False, False, False, False, True, True]
    assert rows[5]["nights.without_promotion"].startswith("3 nights in a row: 5-")


def test_signs_of_hacking_and_low_evidence_are_told(home: Home):
    found = told(home, a_night(home, "a", "REJECT", ("Length drifts.", "The reward rose."), left=60))
    assert found["signs.hacking"] == "Length drifts. The reward rose."
    assert "60 of 1000 held-out identities are fresh, a night asks for 100" in found["evidence.low"]


def test_one_failure_is_told_once_and_another_one_again(home: Home):
    ids = [failure(home, night, "m", error).id for night, error in (("a", "x\n  -> y"), ("a", "x -> y"), ("a", "z"), ("b", "z"))]
    assert len(set(ids)) == 3
    assert failure(home, "a", "m", "x\n  -> y").error == "x -> y"


def test_who_is_told_changes_no_night_and_is_in_no_record(home: Home):
    quiet = NightConfig(night="a")
    loud = NightConfig(night="a", notify=Notify(blocks=("slack-webhook/ops",)))
    assert night_id(quiet) == night_id(loud)
    assert quiet.settings() == loud.settings()
    record = create_record(home, loud, None)
    assert "notify" not in json.loads((run_dir(home, record.night) / "config.json").read_text())


def test_an_address_with_a_secret_is_refused_and_not_repeated(tmp_path: Path):
    from clawpipe.core.config.load import load_config

    file = tmp_path / "night.yaml"
    file.write_text("notify: {webhooks: [{url: 'https://me:hunter2@example.org/'}]}\n")
    with pytest.raises(ConfigError, match="url_env") as caught:
        load_config(file)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("hook", ["{}", "{url: 'http://a/', url_env: B}", "{url: 'file:///etc/passwd'}", "{url_env: 'a b'}"])
def test_a_webhook_has_one_address(tmp_path: Path, hook: str):
    from clawpipe.core.config.load import load_config

    file = tmp_path / "night.yaml"
    file.write_text(f"notify: {{webhooks: [{hook}]}}\n")
    with pytest.raises(ConfigError, match=r"notify\.webhooks"):
        load_config(file)
