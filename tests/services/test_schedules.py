"""What a Prefect server has scheduled, and why the last run failed."""

from __future__ import annotations

import datetime

from clawpipe.core.services.schedules import Deployed, _why

NOW = datetime.datetime(2026, 11, 27, 2, tzinfo=datetime.UTC)


def test_a_failed_run_says_why_in_a_line():
    """A night whose config could not be read left no trace but on Prefect's pages."""
    raised = "Flow run encountered an exception: ConfigError: night.yaml: train.metod: no such setting\n  -> a hint"
    why = _why({"state_type": "FAILED", "state": {"message": raised}})
    assert why == "ConfigError: night.yaml: train.metod: no such setting"
    assert str(Deployed("nightly", NOW, NOW, "Failed", None, why)).endswith(f"last Failed at 2026-11-27 02:00 UTC ({why})")
    assert _why({"state_type": "COMPLETED", "state": {"message": "no new data"}}) is None
    assert _why({"state_type": "CRASHED", "state": {"message": None}}) == "it says nothing"
