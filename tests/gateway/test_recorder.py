"""The recorder's groups: a record that cannot be encoded harms no other."""

from __future__ import annotations

import asyncio
import json

from clawpipe.core.store.home import Home
from clawpipe.data.capture.records import Answer, Feedback, Turn
from clawpipe.data.capture.segments import read_segment, segments
from clawpipe.serve.gateway.recorder import UNWRITABLE, Recorder


def turn(name, value=None):
    fields = {"turn_type": "main", "session_from": "x", "turn_type_from": "x"}
    message = {"role": "assistant", "content": "x", "z": value}
    return Turn(name, 1.0, "k", name, request={"messages": []}, answers=[Answer(message)], **fields)


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_record_that_cannot_be_encoded_harms_no_other(tmp_path):
    async def written():
        groups = []
        recorder = Recorder(Home(tmp_path), tmp_path / "captured", groups.append)
        bad = [turn("deep", nested(5000)), turn("no JSON", object()), turn("half", b"\\ud800".decode("unicode-escape"))]
        records = [turn("a"), *bad, Feedback("f", 1.0, "k", session="a", value=1.0), turn("b")]
        reasons = await asyncio.gather(*map(recorder.write, records))
        await recorder.close()
        return reasons, groups

    reasons, groups = asyncio.run(written())
    assert reasons == [None, *[UNWRITABLE] * 3, None, None]
    assert sum(group.records for group in groups) == 3
    [path] = segments(tmp_path / "captured")
    lines = [json.loads(line)["record"] for line in path.read_bytes().splitlines()]
    assert [line.get("id") for line in lines] == ["a", "f", "b", None]
    assert len([*read_segment(path)]) == 4
