"""A gateway that follows an alias: versions are adapters which the engine loads. The engine is a fake of vLLM."""

from __future__ import annotations

import sys
import time

import httpx
import pytest

from clawpipe.cli import main
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.serve.gateway.keys import make_key
from clawpipe.serve.serving.follow import TRIAL_ANSWERS
from tests.gateway.conftest import FAKE, KEY
from tests.serving.test_command import MLFLOW, PEFT, publish_adapter, put_in_service

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(MLFLOW, PEFT)]
NAME, ALIAS = "clawpipe-agent", "clawpipe-agent@champion"


def answered(gateway, session):
    """The version that answered a session's request, and what the engine was asked for."""
    message = [{"role": "user", "content": "How many mugs"}]
    reply = gateway.post("/v1/chat/completions", {"model": NAME, "messages": message}, **{"x-session-id": session})
    assert reply.status_code == 200, reply.text
    return reply.headers["x-clawpipe-model-version"], reply.json()["model"]


def wait_for(gateway, version, begun=""):
    """Ask as new sessions until this version answers one."""
    end = time.monotonic() + 120
    for number in range(10_000):
        found = gateway.post(
            "/v1/chat/completions",
            {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]},
            **{"x-session-id": f"new-{begun}-{number}"},
        )
        if found.status_code == 200 and found.headers["x-clawpipe-model-version"] == version:
            return
        assert time.monotonic() < end, found.text
        time.sleep(0.2)


def test_new_sessions_get_a_promoted_version_and_old_ones_stay(start, start_fake, tmp_path):
    home, base = Home(tmp_path / "home"), resolve_base("random")
    home.root.mkdir()
    untrained = base_ref("random", base.digest, "pythonic", "float32")
    with (
        start_fake(tmp_path / "fake", "--lora") as fake,
        start(home, fake.url, ALIAS, "--base", str(base.path)) as gateway,
    ):
        wait_for(gateway, "base")
        assert answered(gateway, "old") == ("base", "base-model")
        first = publish_adapter(Store(home.store), untrained, base.path)
        put_in_service(home, first, tmp_path / "first")
        wait_for(gateway, "1", "first")
        adapter = f"{NAME}-1-{first.digest[:12]}"
        assert answered(gateway, "young") == ("1", adapter)
        assert answered(gateway, "old") == ("base", "base-model")  # a session stays where it is
        assert httpx.post(f"{fake.url}/fake/forget").status_code == 200
        assert answered(gateway, "young") == ("1", adapter)  # an engine that was started anew loads it again
        assert gateway.post("/v1/sessions/old/done", {}).status_code == 200
        assert answered(gateway, "old") == ("1", adapter)
        cards = gateway.get("/v1/models").json()["data"]
        assert [card["id"] for card in cards] == [NAME, "base-model", adapter]
        assert cards[0]["max_model_len"] == 4096  # that of the engine's model
        assert gateway.get(f"/v1/models/{NAME}").json()["id"] == NAME
        assert gateway.get("/v1/models/unknown").status_code == 404
    turns = [turn for turn in gateway.turns() if turn.session == "young"]
    assert {(turn.model_version, turn.digest, turn.policy_version) for turn in turns} == {("1", first.digest, first.policy_version)}


def test_a_version_that_people_dislike_goes_back_by_itself(start, start_fake, tmp_path):
    home, base = Home(tmp_path / "home"), resolve_base("random")
    home.root.mkdir()
    untrained = base_ref("random", base.digest, "pythonic", "float32")
    put_in_service(home, publish_adapter(Store(home.store), untrained, base.path), tmp_path / "first")
    bob = make_key(home, "bob")
    with start_fake(tmp_path / "fake", "--lora") as fake, start(home, fake.url, ALIAS) as gateway:
        wait_for(gateway, "1")
        rate(gateway, 1, 12, "a")
        rate(gateway, 1, 6, "a", bob)
        put_in_service(home, publish_adapter(Store(home.store), untrained, base.path, seed=1), tmp_path / "second")
        wait_for(gateway, "2", "second")
        rate(gateway, -1, 12, "b")
        assert answered(gateway, "still")[0] == "2"  # one key alone decides nothing
        rate(gateway, -1, 3, "b", bob)
        wait_for(gateway, "1", "back")


def test_a_version_answers_unseen_before_anybody_gets_it(start, start_fake, tmp_path):
    home, base = Home(tmp_path / "home"), resolve_base("random")
    home.root.mkdir()
    untrained = base_ref("random", base.digest, "pythonic", "float32")
    first = publish_adapter(Store(home.store), untrained, base.path)
    words = (ALIAS, "--base", str(base.path), "--shadow-share", "1")
    with start_fake(tmp_path / "fake", "--lora") as fake, start(home, fake.url, *words) as gateway:
        wait_for(gateway, "base")
        put_in_service(home, first, tmp_path / "first")
        wait_for(gateway, "1", "first")
        asked = [one["body"] for one in fake.asked() if one["body"]["messages"][-1]["content"] == "Hi"]
    adapter = f"{NAME}-1-{first.digest[:12]}"
    unseen = [one for one in asked if one["model"] == adapter][:-1]  # the last one was seen
    assert len(unseen) >= TRIAL_ANSWERS
    assert len([turn for turn in gateway.turns() if turn.model_version == "1"]) == 1  # the one that was seen is captured


VLLM = """#!{python}
import os, socket, sys
if sys.argv[2] != "vllm.entrypoints.openai.api_server":
    os.execv("{python}", ["{python}", *sys.argv[1:]])
assert sys.argv[sys.argv.index("--tool-call-parser") + 1] == "pythonic", sys.argv
listener = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
os.set_inheritable(listener.fileno(), True)
os.execv("{python}", ["{python}", "{fake}", str(listener.fileno()), "--lora"])
"""


def test_serve_starts_vllm_and_keeps_it_on_the_alias(start_serving, tmp_path):
    """The Python of vLLM's environment is a fake that starts the fake of vLLM."""
    home, base, vllm = Home(tmp_path / "home"), resolve_base("random"), tmp_path / "python"
    home.root.mkdir()
    vllm.write_text(VLLM.format(python=sys.executable, fake=FAKE))
    vllm.chmod(0o700)
    first = publish_adapter(Store(home.store), base_ref("random", base.digest, "pythonic", "float32"), base.path)
    words = ("serve", ALIAS, "--engine", "vllm", "--python", str(vllm), "--capture", "--base", str(base.path))
    with start_serving(home, *words) as served:
        wait_for(served, "base")
        put_in_service(home, first, tmp_path / "first")
        wait_for(served, "1", "first")
        assert answered(served, "young") == ("1", f"{NAME}-1-{first.digest[:12]}")
    assert {turn.digest for turn in served.turns() if turn.session == "young"} == {first.digest}


def test_vllm_is_served_with_its_python_behind_the_gateway_alone(capsys):
    with pytest.raises(SystemExit) as end:
        main.run(["serve", ALIAS, "--engine", "vllm"])
    assert end.value.code == 2
    assert "--python" in capsys.readouterr().err


def rate(gateway, value, times, begun, key=KEY):
    for number in range(times):
        body = {"model": NAME, "messages": [{"role": "user", "content": "How many mugs"}]}
        response = gateway.post("/v1/chat/completions", body, key, **{"x-session-id": f"rated-{begun}-{number}"}).json()["id"]
        assert gateway.post("/v1/feedback", {"response_id": response, "rating": value}, key).status_code == 201


def test_a_model_that_no_version_serves_yet_is_refused_for_now(start, start_fake, tmp_path):
    with start_fake(tmp_path / "fake", "--lora") as fake, start(Home(tmp_path / "home"), fake.url, ALIAS) as gateway:
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
        refused = gateway.post("/v1/chat/completions", body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_not_loaded")
        other = gateway.post("/v1/chat/completions", body | {"model": "base-model"})
        assert other.status_code == 200
