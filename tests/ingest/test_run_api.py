"""Batches from a fake of Atropos' run-api, which answers as the real one of atroposlib 0.4 was seen to answer.

`tests/atropos` has the real server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from clawpipe.core.store.files import InUseError, exclusive
from clawpipe.data.ingest.run_api import RunApi, Taken, Wanted, batches_in, take
from clawpipe.errors import BusyError, ConfigError, DataError

WANTED = Wanted(batch_size=2, max_tokens=512, batches=3)


def group(number, **fields):
    said = [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": "a"}]
    sequences = {"tokens": [[1, 2, number]] * 2, "masks": [[-100, -100, number]] * 2, "scores": [1.0, 0.0]}
    return sequences | {"messages": [said, said], "inference_logprobs": [[1.0, 1.0, -0.5]] * 2, "env_id": 0} | fields


class FakeRunApi:
    """Forms a batch of each group; forgets all when it is `restarted`."""

    def __init__(self, *groups):
        self.groups, self.trainers, self.asked, self.queued = list(groups), [], [], 0

    def restarted(self):
        self.trainers = []

    def answer(self, path, body):
        self.asked.append(path)
        match path:
            case "/info":
                return {"batch_size": self.trainers[0]["batch_size"] if self.trainers else -1, "max_token_len": -1}
            case "/register":
                self.trainers.append(body)
                return {"uuid": 2**100}
            case "/status":
                return {"current_step": len(self.asked), "queue_size": self.queued}
            case "/batch" if not self.trainers:
                return {"status": "error", "message": "Trainer not registered. Call /register first.", "batch": []}
            case "/batch":
                return {"batch": [self.groups.pop(0)] if self.groups else None}

    def client(self):
        def respond(request):
            return httpx.Response(200, json=self.answer(request.url.path, json.loads(request.content or "null")))

        return httpx.Client(transport=httpx.MockTransport(respond))


def taken_from(server, folder, wanted=WANTED, sleep=lambda _: None):
    return list(take(RunApi("http://x", server.client()), folder, wanted, sleep))


def groups_in(folder):
    return [json.loads(line) for file in batches_in(folder) for line in file.read_bytes().splitlines()]


def test_batches_are_files_of_groups_as_they_were_sent(tmp_path):
    sent = [group(5), group(6, generation_params={"temperature": 0.7}), group(7, messages=None)]
    server = FakeRunApi(*sent)
    assert taken_from(server, tmp_path) == [Taken(1, 1, 2, 0), Taken(2, 1, 2, 0), Taken(3, 1, 2, 2)]
    assert groups_in(tmp_path) == sent
    [trainer] = server.trainers
    assert {name: trainer[name] for name in ("batch_size", "max_token_len", "starting_step", "num_steps")} == {
        "batch_size": 2,
        "max_token_len": 512,
        "starting_step": 0,
        "num_steps": 3,
    }
    assert taken_from(server, tmp_path) == []  # there are as many as are wanted


def test_it_waits_until_there_is_a_batch(tmp_path):
    server, slept = FakeRunApi(), []

    def sleep(seconds):
        slept.append(seconds)
        server.groups.append(group(len(slept)))

    assert [one.number for one in taken_from(server, tmp_path, sleep=sleep)] == [1, 2, 3]
    assert len(slept) == 3


@pytest.mark.parametrize(("queued", "told"), [(0, "waits for environments"), (3, "3 groups wait, and make no batch of exactly 2")])
def test_what_is_waited_for_is_told_once_a_minute(tmp_path, queued, told):
    """Groups of three never make a batch of two, and nothing said so."""
    server, said, slept = FakeRunApi(), [], []
    server.queued = queued

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 61:
            server.groups += [group(1), group(2), group(3)]

    list(take(RunApi("http://x", server.client()), tmp_path, WANTED, sleep, said.append))
    assert (len(said), sum(slept)) == (2, 61.0)
    assert all(words.startswith(told) for words in said)


def test_a_server_that_was_started_anew_is_registered_with(tmp_path):
    server = FakeRunApi(group(5))

    def sleep(_):
        if len(server.trainers) == 1 and not server.groups:
            server.restarted()
            server.groups += [group(6), group(7)]

    assert [one.number for one in taken_from(server, tmp_path, sleep=sleep)] == [1, 2, 3]
    assert [trainer["starting_step"] for trainer in server.trainers] == [1]  # the first one was forgotten with the server


def test_a_trainer_with_other_batches_is_not_replaced(tmp_path):
    server = FakeRunApi(group(5))
    server.trainers = [{"batch_size": 64}]
    with pytest.raises(ConfigError, match="batches of 64 sequences"):
        taken_from(server, tmp_path)
    assert "/batch" not in server.asked


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (httpx.Response(200, text="<html>"), DataError),
        (httpx.Response(200, json=[]), DataError),
        (httpx.Response(404), DataError),
        (httpx.ConnectError("refused"), BusyError),
        (httpx.ReadTimeout("slow"), BusyError),
    ],
)
def test_what_is_no_run_api_is_told_in_one_line(tmp_path, response, error):
    def respond(_):
        if isinstance(response, Exception):
            raise response
        return response

    with pytest.raises(error) as raised:
        list(take(RunApi("http://x", httpx.Client(transport=httpx.MockTransport(respond))), tmp_path, WANTED))
    assert "\n" not in raised.value.what


def test_two_readers_of_a_folder_do_not_take_turns(tmp_path):
    with exclusive(tmp_path / ".lock", "it"), pytest.raises(InUseError):
        taken_from(FakeRunApi(group(5)), tmp_path)


@pytest.fixture
def served():
    """A fake on loopback: (it, its URL)."""
    fake = FakeRunApi(group(5), group(6), group(7), group(8))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
            answer = json.dumps(fake.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_): ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield fake, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("point", "lost"), [("write_atomic.before_rename#2", [6]), ("run_api.batch_arrived#2", [6])])
def test_a_killed_reader_goes_on_and_takes_no_batch_twice(served, tmp_path, monkeypatch, point, lost):
    """What the server had given away when the reader died is lost: it gives a batch once. Nothing else is."""
    fake, url = served
    command = [
        sys.executable,
        "-m",
        "clawpipe",
        "atropos",
        url,
        "--output",
        str(tmp_path / "taken"),
        "--batches",
        "3",
        "--batch-size",
        "2",
    ]
    monkeypatch.setenv("CLAWPIPE_KILL_AT", point)
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert [one["tokens"][0][2] for one in groups_in(tmp_path / "taken")] == [5]
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    done = subprocess.run([*command, "--json"], capture_output=True, check=True)
    assert [one["number"] for one in json.loads(done.stdout)["batches"]] == [2, 3]
    assert [one["tokens"][0][2] for one in groups_in(tmp_path / "taken")] == [
        number for number in (5, 6, 7, 8) if number not in lost
    ]
    assert len(fake.trainers) == 1
