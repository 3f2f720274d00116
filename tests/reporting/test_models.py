"""Every model of a home in one table: its last verdict, what runs now, what failed since, and when it is due."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli.main import run
from clawpipe.core.config import NightConfig
from clawpipe.record.nights.files import LINEAGE, run_dir
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import Figures, read_status, write_status
from clawpipe.record.reporting.models import ModelStatus, model_statuses
from clawpipe.record.runs.record import ProcessId, Run, write_record


def ended(home, model, night, **facts):
    config = NightConfig.model_validate({"night": night, "registry": {"model_name": model}})
    record = create_record(home, config, None, {})
    status = read_status(home, record.night).model_copy(update=facts)
    write_status(status)
    if status.verdict:
        (run_dir(home, record.night) / LINEAGE).write_text("{}")
    return record.night


@pytest.fixture
def filled(home):
    figures = Figures(success=0.75, low=0.6, high=0.85, n=60)
    first = ended(home, "coder", "monday", verdict="PROMOTE", heldout={"candidate": figures})
    ended(home, "coder", "tuesday", error="out of memory")
    ended(home, "writer", "monday", verdict="HOLD")
    own = ProcessId.own()
    write_record(home, Run(id="20261125T020000-aaaa", model="writer", state="running", step="round-1/train", process=own))
    return home, first


def test_each_model_has_a_line(filled):
    home, first = filled
    coder, new, writer = model_statuses(home, {"coder": "2026-11-27 02:00", "new": "2026-11-27 03:00"})
    assert (coder.model, coder.night, coder.verdict, coder.candidate) == ("coder", first, "PROMOTE", 0.75)
    assert (coder.failures, coder.now, coder.next_run) == (1, None, "2026-11-27 02:00")
    assert new == ModelStatus(
        model="new", night=None, verdict=None, time=None, candidate=None, failures=0, now=None, next_run="2026-11-27 03:00"
    )
    assert (writer.verdict, writer.candidate, writer.now) == ("HOLD", None, "running round-1/train")


def test_the_command_prints_the_table(filled, capsys):
    with pytest.raises(SystemExit) as end:
        run(["status", "--all"])
    assert not end.value.code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["Model", "coder", "writer"]
    assert "PROMOTE" in lines[1]
    assert "running" in lines[2]
    assert max(map(len, lines)) <= 80
    with pytest.raises(SystemExit):
        run(["status", "--all", "--json"])
    assert [one["model"] for one in json.loads(capsys.readouterr().out)["models"]] == ["coder", "writer"]
