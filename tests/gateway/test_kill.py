"""A gateway that is killed under load loses no turn that a client has seen the end of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clawpipe.data.capture.segments import segments, segments_dir

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("quick_scripts")
def test_no_acknowledged_turn_is_lost_over_some_kills():
    """`benchmarks/gateway_kills.py --kills 100` is the whole of it."""
    command = [sys.executable, "benchmarks/gateway_kills.py", "--kills", "4", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["lost"] == 0
    assert result["acknowledged"] > 4 * 20


def test_a_new_gateway_cuts_off_what_a_killed_one_left_torn(home, fake, start):
    with start(home, fake.url) as gateway:
        gateway.ask("whole")
        gateway.kill()
    [segment] = segments(segments_dir(home))
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b'{"crc":"00000000","record":{"kind":"turn","id":"ha')
    with start(home, fake.url) as gateway:
        gateway.ask("after")
        assert [turn.request["messages"][0]["content"] for turn in gateway.turns()] == ["whole", "after"]
        assert "50 bytes of records that were never acknowledged are cut off" in gateway.service.log.read_text()
    assert segment.read_bytes()[size:].startswith(b'{"crc":')
    assert segment.read_bytes().endswith(b"}}\n")
