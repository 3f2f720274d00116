"""What is forgotten leaves the segments, too, also the one that a running gateway writes to."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, stored_datasets
from clawpipe.data.capture.segments import segments, segments_dir
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.record.lineage.exposure import exposure
from clawpipe.record.removal.forget import forget
from clawpipe.serve.gateway.keys import make_key

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


@pytest.fixture
def shared(home, fake, start):
    """Two keys whose clients call a session the same, with a sub-agent each, captured and read in; a gateway that runs."""
    keys = {name: make_key(home, name) for name in ("ann", "bob")}
    with start(home, fake.url, key=None) as gateway:

        def say(name, text, session="shared", **headers):
            return gateway.ask(text, key=keys[name], headers={"X-Session-Id": session} | headers)

        for name in keys:
            first = say(name, f"{name} speaks of a very long walk")
            gateway.post("/v1/feedback", {"response_id": first.id, "correction": f"corrected for {name}"}, key=keys[name])
            say(name, f"the sub-agent of {name} digs", "below", **{"X-Parent-Session-Id": "shared", "X-Session-Done": "1"})
            gateway.post("/v1/sessions/shared/done", {}, key=keys[name])
        ingest(home, [str(segments_dir(home))], Options())
        yield gateway, say


def stored(home) -> set[str]:
    """What users said and corrected, in all rows of the store."""
    store, found = Store(home.store), set()
    for ref in stored_datasets(store):
        for file in dataset_files(store, ref):
            table = pq.read_table(file)
            for column in {"messages", "chosen"} & {*table.column_names}:
                texts = [one["content"] for row in table[column].to_pylist() for one in row or ()]
                found |= {text for text in texts if "ann" in text or "bob" in text}
    return found


def test_a_session_of_one_key_is_forgotten_without_others(home, shared):
    gateway, say = shared
    [result, *_] = forget(home, Subject(session="shared"), dry_run=True)
    assert (result.keys, result.captured) == (["ann", "bob"], 4)
    with pytest.raises(ConfigError, match="sessions of 2 keys have this id: ann, bob"):
        forget(home, Subject(session="shared"))
    [result, *_] = forget(home, Subject(session="shared", key="ann"))
    assert (result.keys, result.captured, result.trajectories, result.sessions) == (["ann"], 2, 2, ["below"])
    assert b"ann" not in held(home)
    assert stored(home)
    assert not any("ann" in text for text in stored(home))
    say("ann", "ann comes back")
    say("ann", "the sub-agent of ann comes back", "below")
    say("bob", "bob comes back")
    say("bob", "the sub-agent of bob comes back", "below")
    texts = {turn.request["messages"][-1]["content"] for turn in gateway.turns()}
    assert {"bob comes back", "the sub-agent of bob comes back"} <= texts
    assert not any("ann" in text for text in texts)
    assert exposure(home, Subject(session="shared", key="ann")).forgotten
    assert exposure(home, Subject(session="shared", key="bob")).forgotten is None


def test_a_forgotten_session_of_one_key_keeps_nobody_else_out(home, shared):
    gateway, say = shared
    say("ann", "ann speaks alone", "alone")
    [result, *_] = forget(home, Subject(session="alone"))
    assert (result.key, result.keys, result.captured) == (None, ["ann"], 1)
    say("bob", "bob speaks alone", "alone")
    say("ann", "ann speaks again", "alone")
    texts = {turn.request["messages"][-1]["content"] for turn in gateway.turns()}
    assert "bob speaks alone" in texts
    assert not texts & {"ann speaks alone", "ann speaks again"}


def test_a_user_takes_no_session_of_another_key_along(home, fake, start):
    keys = {name: make_key(home, name) for name in ("ann", "bob")}
    with start(home, fake.url, key=None) as gateway:
        gateway.ask("ann names herself", key=keys["ann"], headers={"X-Session-Id": "s"}, user="Ann")
        gateway.ask("and then does not", key=keys["ann"], headers={"X-Session-Id": "s", "X-Session-Done": "1"})
        gateway.ask("bob never does", key=keys["bob"], headers={"X-Session-Id": "s", "X-Session-Done": "1"})
        ingest(home, [str(segments_dir(home))], Options())
        forget(home, Subject(user="Ann"))
        gateway.ask("bob goes on", key=keys["bob"], headers={"X-Session-Id": "s"})
        assert [turn.request["messages"][-1]["content"] for turn in gateway.turns()] == ["bob never does", "bob goes on"]


def test_a_key_without_a_session_names_nothing():
    with pytest.raises(ConfigError, match="a key narrows a session"):
        Subject(user="ann", key="k")
