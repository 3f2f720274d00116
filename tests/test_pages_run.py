"""Commands of the pages about training by agents and elsewhere, run as they are printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from clawpipe.cli import main
from tests.importers.test_atropos import GROUP

DOCS = Path("docs").resolve()
RUN = [  # page, how its commands begin, and their exit code
    ("self-training", "clawpipe connect", 0),
    ("from-hermes", "clawpipe explain", 0),
    ("train-elsewhere", "clawpipe plan", 2),  # the tiny night's settings have no counterpart there
    ("atropos", "clawpipe ingest data/groups.jsonl", 0),
    ("atropos", "clawpipe export trajectories --format atropos --output groups.jsonl", 0),
]


def commands(page: str, beginning: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL)
    found = [line for block in blocks for line in block.splitlines() if line.startswith(beginning)]
    assert found, f"{page} has no command that begins with {beginning}"
    return found


def test_commands_of_the_pages_do_what_they_say(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in ("TINKER_API_KEY", "FIREWORKS_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(DOCS.parent / "configs" / "tiny.yaml", tmp_path / "night.yaml")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "groups.jsonl").write_text(json.dumps(GROUP) + "\n")
    for page, beginning, code in RUN:
        for command in commands(page, beginning):
            with pytest.raises(SystemExit) as end:
                main.run(shlex.split(command)[1:])
            told = capfd.readouterr()
            assert end.value.code == code, f"{command}\n{told.out}{told.err}"
            assert "Traceback" not in told.err
            if code:
                assert "tinker cannot train as the settings ask" in told.err
    [written] = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert {name: written[name] for name in ("tokens", "masks", "scores")} == {
        name: GROUP[name] for name in ("tokens", "masks", "scores")
    }
