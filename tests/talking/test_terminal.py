"""Talk in the terminal with a server that answers as OpenAI's interface does (a fake of it: what it says is written here)."""

from __future__ import annotations

import json

import httpx
import pytest

from clawpipe.errors import NotFoundError
from clawpipe.start.talking.bench import bench_of
from clawpipe.start.talking.line import Card, Line, card_of
from clawpipe.start.talking.terminal import HELP, Speaker, Talk

CARD = Card("shop-agent", "3", tools=[{"type": "function", "function": {"name": "calc"}}], preamble=[])


class Server:
    """Streams the answers that it is given, one a request, in pieces of one character."""

    def __init__(self, *answers: dict | int) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path == "/v1/feedback":
            return httpx.Response(200, json={})
        if request.url.path.endswith("/done"):
            return httpx.Response(404)  # a server that captures nothing
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            return httpx.Response(answer, json={"error": {"message": "too long"}})
        number = len(self.requests)
        return httpx.Response(200, text="".join(map(event, [*chunks(answer, number), "[DONE]"])))

    def bodies(self, path: str) -> list[dict]:
        return [json.loads(request.content) for request in self.requests if request.url.path == path]


def event(data: dict | str) -> str:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def chunks(answer: dict, number: int) -> list[dict]:
    deltas = [{"content": letter} for letter in answer.get("content", "")]
    for place, (name, arguments) in enumerate(answer.get("calls", ())):
        deltas.append({"tool_calls": [{"index": place, "id": f"call_{place}", "function": {"name": name, "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": letter}}]} for letter in arguments]
    return [{"id": f"chatcmpl-{number}", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]


def talk_with(server: Server, environment: str, said: list[str], by_hand=lambda call: "by hand"):
    """Return what is written, after each of the lines."""
    written: list[str] = []
    client = httpx.Client(base_url="http://model", transport=httpx.MockTransport(server))
    with bench_of(environment, by_hand) as bench:
        talk = Talk([Speaker(Line(client, CARD, CARD.tools, CARD.preamble), bench)], written.append)
        went_on = [talk.hear(text) for text in said]
    return "".join(written), went_on


def test_tools_run_in_the_environment_of_the_version():
    server = Server({"calls": [("calc", '{"expression": "12 + 30"}')]}, {"content": "The answer is 42."})
    written, _ = talk_with(server, "shop", ["What is 12 + 30?"])
    assert 'calc({"expression": "12 + 30"}) -> 42\n' in written
    assert written.endswith("The answer is 42.\n")
    [_, second] = server.bodies("/v1/chat/completions")
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call_0", "content": "42"}


def test_a_call_that_nothing_can_run_is_asked_of_the_person():
    server = Server({"calls": [("calc", "{}"), ("calc", "{}")]}, {"content": "ok"})
    written, _ = talk_with(server, "", ["go"], by_hand=lambda call: f"done {call.id}")
    assert "-> done call_0\n" in written
    assert "-> done call_1\n" in written


def test_thumbs_name_the_last_answer_of_one_session():
    server = Server({"content": "a"}, {"content": "b"})
    written, _ = talk_with(server, "", ["one", "two", "/bad say c", "/good"])
    first, second = server.bodies("/v1/feedback")
    assert first == {"response_id": "chatcmpl-2", "thumb": "down", "correction": "say c"}
    assert second == {"response_id": "chatcmpl-2", "thumb": "up"}
    asked = [request for request in server.requests if request.url.path != "/v1/feedback"]
    assert len({request.headers["x-session-id"] for request in asked}) == 1
    assert "noted as bad, with what is right" in written


def test_a_new_conversation_has_another_session_and_no_history():
    server = Server({"content": "a"}, {"content": "b"})
    talk_with(server, "", ["one", "/new", "two"])
    first, _, second = server.requests  # between them: the first is over
    assert first.headers["x-session-id"] != second.headers["x-session-id"]
    assert [message["content"] for message in server.bodies("/v1/chat/completions")[1]["messages"]] == ["two"]


def test_what_the_server_refuses_was_not_said():
    server = Server(400, {"content": "b"})
    written, went_on = talk_with(server, "", ["a long line", "two"])
    assert "the server refuses: too long" in written
    assert went_on == [True, True]
    assert [message["content"] for message in server.bodies("/v1/chat/completions")[1]["messages"]] == ["two"]


def test_a_terminal_obeys_no_model():
    written, _ = talk_with(Server({"content": "a\x1b]0;owned\x07b"}), "", ["hi"])
    assert "\x1b" not in written
    assert "\x07" not in written


@pytest.mark.parametrize(
    ("line", "told"), [("/good", "no answer yet"), ("/what", "there is no /what"), ("/help", "/quit"), ("", "")]
)
def test_commands_that_ask_nothing(line, told):
    server = Server()
    written, went_on = talk_with(server, "", [line])
    assert told in written
    assert went_on == [True]
    assert server.requests == []


def test_quit_ends_the_talk():
    assert talk_with(Server(), "", ["/quit"])[1] == [False]


def test_a_model_that_only_calls_is_stopped():
    server = Server(*[{"calls": [("calc", "{}")]}] * 8)
    written, _ = talk_with(server, "", ["go"])
    assert "8 replies with calls and no answer" in written


def test_an_environment_that_is_asked_for_has_to_be_there():
    with pytest.raises(NotFoundError), bench_of("no-such-world", lambda call: "", asked_for=True):
        pass
    with bench_of("no-such-world", lambda call: "by hand") as bench:
        said = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": "{}"}}]}
        assert bench.run([said]) == [{"role": "tool", "tool_call_id": "c", "content": "by hand"}]


def test_a_card_is_read():
    def models(request: httpx.Request) -> httpx.Response:
        one = {"id": "a", "version": "3", "tools": [], "preamble": [], "environment": "shop", "context_length": 2048}
        return httpx.Response(200, json={"data": [one]})

    card = card_of(httpx.Client(base_url="http://model", transport=httpx.MockTransport(models)))
    assert (card.name, card.version, card.environment, card.context) == ("a", "3", "shop", 2048)


def test_the_help_fits_80_columns_and_is_aligned():
    lines = HELP.splitlines()
    assert max(map(len, lines)) < 80
    [told] = {len(line) - len(line.partition("  ")[2].lstrip()) for line in lines}
    assert told == len("/bad [what is right]  ")


def test_a_new_conversation_ends_the_one_before():
    """What was said could not be read in until an hour later."""
    server = Server({"content": "a"}, {"content": "b"})
    talk_with(server, "", ["hello", "/new", "/new", "hello"])
    told = [request for request in server.requests if request.url.path != "/v1/chat/completions"]
    first = server.requests[0].headers["x-session-id"]
    assert [request.url.path for request in told] == [f"/v1/sessions/{first}/done"]
