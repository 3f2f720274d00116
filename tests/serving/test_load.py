"""A client that disconnects, and more clients than the queue allows."""

import contextlib

import httpx
import openai
import pytest
from transformers import AutoModelForCausalLM

from clawpipe.model.engines.rows import AT_ONCE
from clawpipe.serve.serving.engine_thread import WAITING
from clawpipe.serve.serving.fields import MOST_CHOICES
from clawpipe.serve.serving.policy import ServedPolicy

LONG = {"model": "agent", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0}
SHORT = LONG | {"max_completion_tokens": 1}


class Watched(ServedPolicy):
    """Keeps the rows of its answers."""

    def choices(self, prepared, adapter=None):
        choices = super().choices(prepared, adapter)
        self.rows += [choice.row for choice in choices]
        return choices


@pytest.fixture(scope="module")
def endless(base, tokenizer, tmp_path_factory):
    """The random model with a context too long to fill."""
    directory = tmp_path_factory.mktemp("endless")
    model = AutoModelForCausalLM.from_pretrained(base.path)
    model.config.max_position_embeddings = 100_000
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture
def server(endless, served_as, start):
    policy = Watched(served_as(endless), "cpu")
    policy.rows = []
    with start(policy) as running:
        yield running


@pytest.fixture
def http(server):
    headers = {"authorization": "Bearer sk-a-test-key"}
    with httpx.Client(base_url=f"{server.url}/v1", headers=headers, timeout=60) as client:
        yield client


def test_a_stream_that_nobody_reads_stops(server, http):
    with http.stream("POST", "/chat/completions", json=LONG | {"stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    assert http.post("/chat/completions", json=SHORT).status_code == 200  # behind the other, in the same queue
    assert len(server.policy.rows[0].turn) < 10_000


def test_an_answer_that_nobody_waits_for_stops(server, http):
    with pytest.raises(httpx.ReadTimeout):
        http.post("/chat/completions", json=LONG, timeout=0.2)
    assert http.post("/chat/completions", json=SHORT).status_code == 200
    assert len(server.policy.rows[0].turn) < 10_000


def test_a_full_queue_asks_to_come_back(server, http):
    with contextlib.ExitStack() as streams:
        for _ in range((AT_ONCE + WAITING) // MOST_CHOICES):
            many = LONG | {"stream": True, "n": MOST_CHOICES}
            answer = streams.enter_context(http.stream("POST", "/chat/completions", json=many))
            assert answer.status_code == 200
        refused = http.post("/chat/completions", json=SHORT)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) > 0
        assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_server_that_stops_gives_up_long_answers_and_says_so(endless, served_as, start, monkeypatch):
    monkeypatch.setattr("clawpipe.serve.serving.server.GRACE_SECONDS", 0.1)
    with contextlib.ExitStack() as clients:
        with start(ServedPolicy(served_as(endless), "cpu")) as running:
            client = clients.enter_context(running.client())
            stream = clients.enter_context(client.chat.completions.create(**LONG, stream=True))
            next(iter(stream))
        with pytest.raises(openai.APIError, match="the server stops"):
            list(stream)
