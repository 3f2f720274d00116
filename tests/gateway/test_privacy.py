"""What is written: nothing that must not be, nothing that nobody may know, and nothing of who refused."""

from __future__ import annotations

import stat

import httpx
import pytest

from clawpipe.data.capture.segments import segments, segments_dir
from clawpipe.data.forgotten.tombstones import Tombstone, read_tombstones, tombstones_path, write_tombstones
from clawpipe.serve.gateway.keys import make_key, read_keys, revoke_key

CHAT = {"model": "agent", "messages": [{"role": "user", "content": "x"}]}
SECRET = "sk-ant-api03-" + "Qx7Lm2Vb9Kd4Rt8Wz3Hn6Pc1Ys5Gf0Ja"


def written(home) -> bytes:
    return b"".join(path.read_bytes() for path in segments(segments_dir(home)))


def test_a_secret_reaches_neither_disk_nor_log(gateway):
    answer = gateway.ask(f"my key is {SECRET} please")
    assert SECRET in answer.choices[0].message.content  # the client still gets its answer
    gateway.ask(f"again {SECRET} ok", stream=True)
    data = written(gateway.home)
    assert SECRET.encode() not in data
    assert b"[REDACTED:" in data
    assert SECRET not in gateway.service.log.read_text()
    for turn in gateway.turns()[-2:]:
        assert turn.prompt_token_ids is None
        assert [one.token_ids for one in turn.answers] == [None]
        assert turn.no_tokens == "a text of it was redacted"


def test_no_text_of_a_chat_is_logged(gateway):
    gateway.ask("a very private remark")
    assert "private remark" not in gateway.service.log.read_text()


def test_segments_are_their_owners_alone(gateway):
    gateway.ask("mine")
    directory = segments_dir(gateway.home)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in segments(directory)} == {0o600}


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_may_refuse_its_capture(gateway, fake, stream):
    before = len(gateway.turns())
    gateway.ask("not for you", stream=stream, headers={"X-Clawpipe-Capture": "off"})
    assert len(gateway.turns()) == before
    assert b"not for you" not in written(gateway.home)
    assert "return_token_ids" not in fake.asked()[-1]["body"]
    assert 'clawpipe_gateway_uncaptured_total{reason="asked"}' in gateway.get("/metrics").text


def test_a_key_may_refuse_it_for_all_its_requests(gateway):
    key = make_key(gateway.home, f"quiet-{len(read_keys(gateway.home))}", capture=False)
    wait_until_known(gateway, key)
    before = len(gateway.turns())
    gateway.ask("quiet please", key=key)
    assert len(gateway.turns()) == before


def test_a_session_that_was_forgotten_is_captured_no_more(gateway):
    gateway.ask("before", headers={"X-Session-Id": "ann-s"})
    stones = read_tombstones(gateway.home)
    stone = Tombstone(
        kind="session", digest=stones.digest("session", "ann-s"), date="2026-11-23", trajectories=0, replaced={}, models=()
    )
    write_tombstones(gateway.home, stones.with_stone(stone))
    gateway.ask("after", headers={"X-Session-Id": "ann-s"})
    gateway.ask("a sub-agent of it", headers={"X-Parent-Session-Id": "ann-s"})
    texts = [turn.request["messages"][0]["content"] for turn in gateway.turns()]
    assert "before" in texts
    assert not {"after", "a sub-agent of it"} & {*texts}


def test_a_damaged_list_of_the_forgotten_stops_capture(home, fake, start):
    with start(home, fake.url) as gateway:
        gateway.ask("before")
        tombstones_path(home).write_text("{damaged")
        while (reply := gateway.post("/v1/chat/completions", CHAT)).status_code == 200:
            pass
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "capture_unavailable")
        count = len(gateway.turns())
        assert gateway.post("/v1/chat/completions", CHAT).status_code == 503
        assert len(gateway.turns()) == count
        tombstones_path(home).unlink()
        while gateway.post("/v1/chat/completions", CHAT).status_code != 200:
            pass


def test_keys_are_stored_as_digests_and_can_be_revoked(home, fake, start):
    key = make_key(home, "ann", owner="ann@host")
    assert key.startswith("sk-clawpipe-")
    assert key.encode() not in (home.root / "keys.json").read_bytes()
    with start(home, fake.url, key=None) as gateway:
        gateway.ask("whose", key=key)
        assert (gateway.turns()[-1].key, gateway.turns()[-1].user) == ("ann", "ann@host")
        for wrong in ("x", "sk-clawpipe-wrong", key[:-1], "ann"):
            refused = gateway.post("/v1/chat/completions", {}, key=wrong)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        revoke_key(home, "ann")
        while gateway.get("/v1/models", key=key).status_code == 200:
            pass
        assert gateway.get("/v1/models", key=key).status_code == 401


def test_limits_of_a_key_are_429_that_say_when_to_come_back(home, start, start_fake, tmp_path):
    keys = {name: make_key(home, name, **{name: 1}) for name in ("at_once", "per_minute", "per_day")}
    free = make_key(home, "free")
    with start_fake(tmp_path / "log", "--hang") as fake, start(home, fake.url, key=None) as gateway:
        body = {"model": "agent", "messages": [{"role": "user", "content": "one two three four"}], "stream": True}
        url, headers = f"{gateway.url}/v1/chat/completions", {"authorization": f"Bearer {keys['at_once']}"}
        with httpx.stream("POST", url, json=body, headers=headers) as reply:
            assert reply.status_code == 200
            refused(gateway, keys["at_once"], range(1, 2))
            gateway.ask("others are served", key=free)
            fake.go_on()
            assert reply.read().endswith(b"data: [DONE]\n\n")
        gateway.ask("again", key=keys["at_once"])
        for name, seconds in (("per_minute", range(50, 62)), ("per_day", range(1, 86402))):
            gateway.ask("the first", key=keys[name])
            refused(gateway, keys[name], seconds)


def refused(gateway, key, seconds):
    answer = gateway.post("/v1/chat/completions", {"model": "agent", "messages": [{"role": "user", "content": "x"}]}, key=key)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(answer.headers["retry-after"]) in seconds


def wait_until_known(gateway, key):
    while gateway.get("/v1/models", key=key).status_code == 401:
        pass
