"""Episodes over an endpoint: clawpipe's own server, and a server whose failures are made by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam
from pydantic import TypeAdapter

from clawpipe.cli.main import app
from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.errors import BusyError, ConfigError
from clawpipe.model.engines.chat import ChatModel
from clawpipe.model.engines.servers import Servers
from clawpipe.model.policy.renderer import Renderer
from clawpipe.play.environments.base import Environment, Episode, TaskItem
from clawpipe.play.environments.prompts import UNCHECKED, PromptsEnvironment
from clawpipe.play.workers.chats import chat_episodes, endpoint_rows, verified
from tests.importers.reading import read_files
from tests.serving.conftest import Running

SAID = {"choices": [{"message": {"role": "assistant", "content": "It is 4."}, "finish_reason": "stop"}]}
CALLED = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add", "arguments": "{"}}],
            },
            "finish_reason": "tool_calls",
        }
    ]
}


class AsksTwice(PromptsEnvironment):
    """Answers the first reply."""

    answer = Message("user", "Are you sure?")

    def start(self, item: TaskItem) -> Episode:
        return _Twice(self.answer)


class _Twice:
    def __init__(self, answer: Message) -> None:
        self._answer = answer

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        answered = sum(message.role == "assistant" for message in messages)
        return [self._answer] if answered == 1 else None

    def close(self) -> None: ...


def token_answer(prompt: list[int], ids: list[int]) -> dict:
    """A fake's answer in vLLM's fields."""
    logprobs = {"content": [{"token": "x", "logprob": -1.0} for _ in ids]}
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", "token_ids": ids, "logprobs": logprobs}
    return {"choices": [choice], "prompt_token_ids": prompt}


@contextmanager
def answering(*answers: tuple[int, object]) -> Iterator[tuple[str, list[dict]]]:
    """A fake endpoint that gives these answers in turn, the last one again and again; yields its URL and what it was asked."""
    asked: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = answers[min(len(asked), len(answers) - 1)]
            asked.append(json.loads(body) | {"authorization": self.headers.get("Authorization")})
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", asked
        finally:
            server.shutdown()
            thread.join()


def model(url: str) -> ChatModel:
    return ChatModel.at(EngineSpec(name="openai", url=(url,), model="m", concurrency=2), 0.8, 64)


def prompts(folder: Path, count: int = 3) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(f'{{"prompt": "{number} + {4 - number} = ?", "answer": 4}}\n' for number in range(count)))
    return file


def test_an_overloaded_endpoint_is_asked_again(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with answering((429, {}), (503, {}), (200, SAID)) as (url, asked), model(url) as there:
        reply, reason = there.reply([Message("user", "2 + 2?")], [])
    assert (reply.content, reason, len(asked)) == ("It is 4.", "stop", 3)
    assert asked[0]["messages"] == [{"role": "user", "content": "2 + 2?"}]
    assert asked[0]["authorization"] == "Bearer a-key"


def test_one_that_stays_away_is_for_later():
    busy = pytest.raises(BusyError, match="503, 2 times")
    with answering((503, {})) as (url, asked), ChatModel(Servers([url], tries=2), "m", 1.0, 8) as there, busy:
        there.reply([Message("user", "?")], [])
    assert len(asked) == 2


@pytest.mark.parametrize(("status", "answer"), [(404, {"error": "no such model"}), (200, {"hello": "there"}), (200, [])])
def test_what_another_try_does_not_mend_is_an_error_at_once(status, answer):
    with answering((status, answer)) as (url, asked), model(url) as there, pytest.raises(ConfigError) as refused:
        there.reply([Message("user", "?")], [])
    assert len(asked) == 1
    assert refused.value.where.startswith(url)


def test_a_malformed_call_is_kept_and_counted(tmp_path):
    environment = PromptsEnvironment(str(prompts(tmp_path)), "numeric")
    tasks = [(item, 0) for item in environment.every_item()]
    with answering((200, CALLED)) as (url, _), model(url) as there:
        found = [verified(environment, episode) for episode in chat_episodes(there, environment, tasks, 1)]
    assert [episode.malformed for episode in found] == [True] * 3
    assert [episode.success for episode in found] == [False] * 3


def test_tools_are_offered_as_openais_client_would():
    """They were once wrapped twice: an endpoint saw tools without names."""
    with answering((200, SAID)) as (url, asked), model(url) as there:
        there.reply([Message("user", "?")], [ToolSpec("add", "Adds.", {"a": "integer"})])
    [tool] = TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python(asked[0]["tools"])
    assert (tool["function"]["name"], tool["function"].get("parameters", {}).get("required")) == ("add", ["a"])


def test_a_batch_goes_on_where_it_was_stopped(tmp_path, capsys):
    file, out = prompts(tmp_path), tmp_path / "out.jsonl"
    words = ["batch", str(file), "--output", str(out), "-m", "m", "--check", "numeric", "--prompt", "Be brief.", "--json"]
    with answering((200, SAID)) as (url, asked):
        app([*words, "--endpoint", url], standalone_mode=False)
        first = json.loads(capsys.readouterr().out)
        assert (first["answered"], first["right"]) == (3, 3)
        lines = out.read_bytes().splitlines(keepends=True)
        out.write_bytes(b"".join(lines[:2]) + lines[2][:20])  # killed within a line
        app([*words, "--endpoint", url], standalone_mode=False)
        second = json.loads(capsys.readouterr().out)
    assert (second["answered_before"], second["answered"]) == (2, 1)
    assert out.read_bytes().splitlines(keepends=True) == lines
    assert asked[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    reading = read_files([str(out)])
    assert len(reading.conversations) == 3
    assert all(talk.judgements for talk in reading.conversations)


def test_prompts_without_answers_are_asked_and_not_judged(tmp_path, capsys):
    file, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    file.write_text('{"prompt": "Hello?"}\n')
    with answering((200, SAID)) as (url, _):
        app(["batch", str(file), "--output", str(out), "-m", "m", "--endpoint", url, "--json"], standalone_mode=False)
    [row] = map(json.loads, out.read_text().splitlines())
    assert row["messages"][-1]["content"] == "It is 4."
    assert "success" not in row
    [item] = PromptsEnvironment(str(file), UNCHECKED).every_item()
    with pytest.raises(ValueError, match="no answer"):
        PromptsEnvironment(str(file), UNCHECKED).verify(item, [*item.messages, Message("assistant", "x")])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_of_an_endpoint_are_those_of_its_policy(random_server, engine, tmp_path, monkeypatch, temperature):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-test-key")
    tasks = [(item, index) for item in PromptsEnvironment(str(prompts(tmp_path)), "numeric").every_item() for index in range(2)]
    rows = recorded(random_server, PromptsEnvironment(str(prompts(tmp_path)), "numeric"), tasks, temperature)
    assert {(row["policy_version"], row["logprobs_kind"], row["tokens"]) for row in rows} == {("f" * 16, "tempered", "recorded")}
    for row in rows:
        start = row["prompt_tokens"]
        assert row["turns"] == [
            {"start": start, "end": len(row["token_ids"]), "kind": "main", "finish_reason": row["finish_reason"]}
        ]
        own = engine.score(row["token_ids"], start, temperature)
        np.testing.assert_allclose(row["logprobs"][start:], own, atol=1e-4)


def test_turns_with_tool_calls_between_are_one_row(parrot_server, talk, tokenizer, tmp_path, monkeypatch):
    """The row is the conversation that the model has memorised, token by token."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-test-key")
    messages, tools = talk
    environment = AsksTwice(str(prompts(tmp_path)), "numeric")
    environment.answer, environment.tools = messages[2], lambda: tools
    item = replace(environment.every_item()[0], messages=messages[:1])
    [row] = recorded(parrot_server, environment, [(item, 0)], 0.2)
    ids, mask = Renderer(tokenizer, "pythonic", tools).render_with_mask(messages)
    assert row["token_ids"] == ids[:-1]  # without the line break after the last turn
    assert row["loss_mask"] == mask[:-1]
    assert [Message.from_dict(message).content for message in row["messages"]] == [message.content for message in messages]


def recorded(server: Running, environment: Environment, tasks: list[tuple[TaskItem, int]], temperature: float) -> list[Row]:
    spec = EngineSpec(name="openai", url=(f"{server.url}/v1",), model="agent", tokens=True, concurrency=2)
    with ChatModel.at(spec, temperature, 40) as model:
        return list(endpoint_rows(list(chat_episodes(model, environment, tasks, 2, seed=3)), model, 3))


def test_a_prompt_that_was_tokenized_anew_leaves_text(tmp_path):
    answers = [(200, token_answer([1, 2], [3])), (200, token_answer([1, 2, 9], [4]))]
    environment = AsksTwice(str(prompts(tmp_path, 1)), "numeric")
    tasks = [(item, 0) for item in environment.every_item()]
    with answering(*answers) as (url, asked), ChatModel(Servers([url]), "m", 1.0, 8, tokens=True) as there:
        [row] = endpoint_rows(list(chat_episodes(there, environment, tasks, 2)), there, 3)
    assert (row["tokens"], row["token_ids"], len(row["messages"])) == ("none", (), 4)
    assert (asked[0]["return_token_ids"], asked[0]["top_p"], asked[0]["top_k"]) == (True, 1.0, -1)


def test_tokens_of_a_malformed_call_are_recorded(tmp_path):
    answer = token_answer([1, 2], [3, 4])
    answer["choices"][0]["message"] = CALLED["choices"][0]["message"]
    environment = PromptsEnvironment(str(prompts(tmp_path, 1)), "numeric")
    with answering((200, answer)) as (url, _), ChatModel(Servers([url]), "m", 1.0, 8, tokens=True) as there:
        [row] = endpoint_rows(list(chat_episodes(there, environment, [(environment.every_item()[0], 0)], 1)), there, 3)
    assert (row["tokens"], row["token_ids"], row["policy_version"]) == ("recorded", [1, 2, 3, 4], "model:m")


def test_raw_log_probs_show_themselves_at_another_temperature():
    """The same log-probs whatever the temperature are raw ones."""
    top = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -2.4}]
    said = {"choices": [{"message": SAID["choices"][0]["message"], "logprobs": {"content": [{"top_logprobs": top}]}}]}
    with answering((200, said)) as (url, asked), ChatModel(Servers([url]), "m", 0.7, 8, tokens=True) as there:
        assert there.kind_of("raw") == "raw"
    assert [one["temperature"] for one in asked] == [1.0, 2.0]


def test_an_endpoint_that_tells_no_tokens_is_an_error_at_once():
    none = pytest.raises(ConfigError, match="no token ids")
    with answering((200, SAID)) as (url, _), ChatModel(Servers([url]), "m", 1.0, 8, tokens=True) as there, none as refused:
        there.reply([Message("user", "?")], [])
    assert "rollouts.engine.tokens" in refused.value.fix


@pytest.mark.trains
def test_an_environment_is_tried_here_and_at_an_endpoint(random_server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-test-key")
    options = ["--option", f"file={prompts(tmp_path, 20)}", "--option", "check=numeric"]
    sizes = ["--steps", "2", "--samples", "2", "--max-tokens", "4", "--output", str(tmp_path / "rows"), "--json"]
    models = ["--model", "random", "--model", f"agent@{random_server.url}/v1"]
    app(["env", "test", "prompts", *options, *models, *sizes], standalone_mode=False)
    here, there = json.loads(capsys.readouterr().out)["models"]
    assert (here["episodes"], there["episodes"], here["errors"], there["errors"]) == (4, 4, 0, 0)
    assert here["success"] is not None
    files = sorted((tmp_path / "rows").iterdir())
    assert len(files) == 2
    assert all(len(file.read_text().splitlines()) == 4 for file in files)


def test_a_batch_runs_as_monoclaw_prints_it(tmp_path, capsys, monkeypatch):
    file, out = prompts(tmp_path), tmp_path / "data" / "run.jsonl"
    with answering((200, SAID)) as (url, asked):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        app(["batch", "run", "--input", str(file), "--output", str(out), "--save-tool-calls", "true"], standalone_mode=False)
    assert len(out.read_text().splitlines()) == 3
    assert asked[0]["model"] == "clawpipe-agent"
    with pytest.raises(ConfigError, match="one file of prompts is asked for, and not 2"):
        app(["batch", "what", str(file), "--output", str(out)], standalone_mode=False)


def test_a_batch_runs_the_tools_that_name_functions(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def add(a, b):\n    return a + b\n")
    described = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}}
    (tmp_path / "run.json").write_text(json.dumps([described | {"path": "mine.py:add"}]))
    (tmp_path / "offered.json").write_text(json.dumps([described]))
    (tmp_path / "p.jsonl").write_text('{"prompt": "2+2?"}\n')
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    called = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    for tools, roles in (("run", ["user", "assistant", "tool", "assistant"]), ("offered", ["user", "assistant"])):
        out = tmp_path / f"{tools}.jsonl"
        with answering((200, called), (200, SAID)) as (url, _):
            words = ["batch", str(tmp_path / "p.jsonl"), "--output", str(out), "--tools", str(tmp_path / f"{tools}.json")]
            app([*words, "-m", "m", "--endpoint", url], standalone_mode=False)
        [row] = map(json.loads, out.read_text().splitlines())
        assert [message["role"] for message in row["messages"]] == roles
        assert tools == "offered" or row["messages"][2]["content"] == "4"
