"""What is forgotten leaves the segments, too, also the one that a running gateway writes to."""

from __future__ import annotations

import pytest

from clawpipe.capture.segments import segments, segments_dir
from clawpipe.errors import ClawpipeError
from clawpipe.ingest.options import Options
from clawpipe.ingest.run import ingest
from clawpipe.lineage.subject import Subject
from clawpipe.removal.forget import forget

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")


def spoken(gateway, text, session, **fields):
    return gateway.ask(text, headers={"X-Session-Id": session}, **fields)


def held(home) -> bytes:
    return b"".join(path.read_bytes() for path in segments(segments_dir(home)))


def test_forgetting_rewrites_segments_of_a_running_gateway(home, fake, start):
    with start(home, fake.url) as gateway:
        first = spoken(gateway, "ann speaks of her garden", "ann-1")
        gateway.post("/v1/feedback", {"response_id": first.id, "thumb": "up", "comment": "of the garden"})
        gateway.ask("her sub-agent digs", headers={"X-Session-Id": "sub", "X-Parent-Session-Id": "ann-1"})
        spoken(gateway, "bob speaks of his boat", "bob-1", user="bob")
        spoken(gateway, "carl speaks of a very long walk", "carl-1")
        spoken(gateway, "dora stays", "dora-1")

        [result, *_] = forget(home, Subject(session="ann-1"), dry_run=True)
        assert (result.captured, result.found) == (2, True)
        assert b"garden" in held(home)
        for subject, count in [(Subject(session="ann-1"), 2), (Subject(user="bob"), 1), (Subject(text="a very long walk"), 1)]:
            [result, *_] = forget(home, subject)
            assert (result.captured, result.found, result.still_held) == (count, True, [])
        data = held(home)
        assert not any(text in data for text in (b"garden", b"digs", b"boat", b"walk"))
        assert b"dora stays" in data
        spoken(gateway, "ann comes back", "ann-1")  # answered, and not kept
        spoken(gateway, "dora still stays", "dora-1")
        assert [turn.request["messages"][0]["content"] for turn in gateway.turns()] == ["dora stays", "dora still stays"]


def test_a_rewritten_segment_is_not_read_again(home, fake, start):
    with start(home, fake.url) as gateway:
        for name in ("ann", "bob", "carl"):
            spoken(gateway, f"{name} speaks", name, extra_body={"session_done": True})
    folder = [str(segments_dir(home))]
    done = ingest(home, folder, Options())
    assert done.datasets["trajectories"].rows == 3
    [result, *_] = forget(home, Subject(session="bob"))
    assert (result.captured, result.trajectories) == (1, 1)
    again = ingest(home, folder, Options())
    assert again.datasets["trajectories"].rows == 0
    assert again.counts["repeated"] == 2
    with pytest.raises(ClawpipeError):
        forget(home, Subject(text="short"))
