"""What machines of one home know of each other's nights."""

from __future__ import annotations

import logging

import pytest

from clawpipe.core.config import NightConfig
from clawpipe.core.ledger import lease as lease_module
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.record.nights import brought
from clawpipe.record.nights.files import LINEAGE, list_nights, night_id, run_dir
from clawpipe.record.nights.machines import held
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, read_status, write_status
from clawpipe.record.reporting.latest import latest_nights

TONIGHT = NightConfig(night="tonight")
NIGHT = night_id(TONIGHT)


@pytest.fixture(params=["s3", "file"])
def machines(request, tmp_path, monkeypatch) -> tuple[Home, Home]:
    on_s3 = request.param == "s3"
    url = f"s3://{request.getfixturevalue('bucket')}/home" if on_s3 else f"file://{tmp_path}/shared"
    monkeypatch.setenv(VARIABLE, url)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/registry.db")
    monkeypatch.setattr(brought, "FRESH_SECONDS", 0.0)
    return Home(tmp_path / "one"), Home(tmp_path / "two")


def objects() -> Objects:
    shared = shared_objects()
    assert shared
    return shared


def note(home: Home, **said: str) -> None:
    write_status(NightStatus(night=NIGHT, run_dir=str(run_dir(home, NIGHT)), **said))


def test_a_machine_that_ran_no_night_knows_of_all(machines):
    """As the pod that serves: `status --all` and `trace` found nothing there, and `forget` marked no model."""
    one, two = machines
    with held(one, NIGHT) as share:
        create_record(one, TONIGHT, None)
        share()
        assert list_nights(two) == [NIGHT]
        assert read_status(two, NIGHT).verdict is None
        note(one, verdict="HOLD")
        (run_dir(one, NIGHT) / LINEAGE).write_text("{}")
        share()
    assert read_status(two, NIGHT).verdict == "HOLD"
    latest = latest_nights(two)[TONIGHT.registry.model_name]
    assert latest.status
    assert latest.status.night == NIGHT
    assert latest.time == objects().written(f"nights/{NIGHT}/{LINEAGE}")


def test_a_list_leaves_a_night_that_runs_here_as_it_is(machines):
    one, _ = machines
    with held(one, NIGHT) as share:
        create_record(one, TONIGHT, None)
        share()
        note(one, verdict="HOLD")
        list_nights(one)
        assert read_status(one, NIGHT).verdict == "HOLD"


def test_who_was_overtaken_changes_nothing_of_a_night(machines, monkeypatch, caplog):
    """A machine that was halted wrote its own end over that of the machine which had taken the night over."""
    monkeypatch.setattr(lease_module, "STILL_SECONDS", 0.0)
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 60.0)
    one, two = machines
    with held(one, NIGHT) as share:
        create_record(one, TONIGHT, None)
        with held(two, NIGHT) as share_of_two:
            note(two, verdict="PROMOTE")
            share_of_two()
        note(one, error="it was halted")
        with caplog.at_level(logging.WARNING):
            share()
    assert "another machine has taken over tonight" in caplog.text
    assert read_status(one, NIGHT).verdict == "PROMOTE"
