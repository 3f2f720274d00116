"""What judges spend: a budget is the night's, and holds over kills, retries, failed tries and requests at once."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.judging.breaker import BUSY_PATIENCE, PATIENCE, Breaker
from clawpipe.play.judging.endpoint import Meter
from clawpipe.play.judging.prm import make_prm
from clawpipe.play.judging.spending import Budget, Ledger, Tokens, estimated, spending_of, spent_in
from clawpipe.play.judging.votes import VoteStore, votes_file
from tests.judging.fake_judge import code_in, fake_judge, verdict
from tests.judging.killed import judge_until_killed
from tests.judging.test_prm import chat, scored

ROWS = [chat(f"Thanks {number}") for number in range(40)]
USAGE = {"prompt_tokens": 400, "completion_tokens": 10}


@pytest.fixture(autouse=True)
def _quick(home: Home, monkeypatch: pytest.MonkeyPatch):
    """Votes are kept below a home of the test's own, and nothing waits between tries."""
    monkeypatch.setattr("clawpipe.play.judging.endpoint.LONGEST_WAIT", 0.0)


def spent(home: Home, night: str) -> dict[str, Any]:
    (row,) = spent_in(votes_file(home), night)
    return vars(row) | {"tokens": row.tokens}


@contextmanager
def raw_judge(answer):
    """A server that writes what `answer` says of each request: status, headers and body, or nothing at all."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer(self, body)

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(handler, data: Any, status: int = 200) -> None:
    written = data if isinstance(data, bytes) else json.dumps(data).encode()
    handler.send_response(status)
    handler.send_header("content-length", str(len(written)))
    handler.end_headers()
    handler.wfile.write(written)


def completion(body: Any, value: int = 1, **more: Any) -> dict[str, Any]:
    text = verdict(body["messages"][0]["content"], value)
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], **more}


@pytest.mark.parametrize("concurrency", [1, 16])
def test_a_night_killed_three_times_keeps_to_its_budget(home: Home, concurrency: int):
    budget = 120_000
    with fake_judge(lambda system, document: verdict(system, 1)) as judge:
        options = {"url": judge.url, "model": "m", "budget_tokens": budget, "concurrency": concurrency}
        for _ in range(3):
            assert judge_until_killed("judging.before_vote#15", ROWS, **options) == -signal.SIGKILL
        for _ in range(2):
            try:
                with spending_of("a night"):
                    scored(make_prm(**options), *ROWS)
            except BusyError as error:
                assert "budget is spent" in error.what  # noqa: PT017
        counted = spent(home, "a night")
        assert 110 * len(judge.asked) <= counted["tokens"] <= budget
        assert len(judge.asked) >= 45


def test_steps_and_commands_of_a_night_share_one_count(home: Home):
    with fake_judge(lambda system, document: verdict(system, 1)) as judge, spending_of("a night"):
        for part in (ROWS[:20], ROWS[20:], ROWS[20:]):
            with pytest.raises(BusyError, match="budget is spent"):
                scored(make_prm(url=judge.url, model="m", budget_tokens=5000), *part)
        assert 110 * len(judge.asked) == spent(home, "a night")["tokens"] <= 5000
    with fake_judge(lambda system, document: verdict(system, 1)) as judge, spending_of("the next night"):
        with pytest.raises(BusyError, match="budget is spent"):
            scored(make_prm(url=judge.url, model="m", budget_tokens=5000), *ROWS[20:])
        assert judge.asked


def test_what_an_endpoint_does_not_count_is_estimated(home: Home):
    with raw_judge(lambda handler, body: send(handler, completion(body))) as url, spending_of("a night"):
        scored(make_prm(url=url, model="m", votes=1), *ROWS[:3])
    counted = spent(home, "a night")
    assert (counted["requests"], counted["estimated"], counted["failed"]) == (3, 3, 0)
    assert counted["prompt_tokens"] > 3 * 400  # a question has about 2,000 bytes


@pytest.mark.parametrize(
    "forged",
    [
        {"prompt_tokens": 1, "completion_tokens": 1},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 700, "completion_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": 20},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": "700", "completion_tokens": "20"},
        {"prompt_tokens": 1 << 60, "completion_tokens": 20},
        "many",
        None,
    ],
)
def test_a_count_that_cannot_be_true_is_estimated(home: Home, forged: Any):
    with raw_judge(lambda handler, body: send(handler, completion(body, usage=forged))) as url, spending_of("a night"):
        scored(make_prm(url=url, model="m", votes=1), ROWS[0])
    counted = spent(home, "a night")
    assert counted["estimated"] == 1
    assert 400 < counted["prompt_tokens"] < 2000  # a question has about 2,000 bytes
    assert counted["reply_tokens"] > 5


@pytest.mark.parametrize("status", [500, 503, 520, 522, 524, 529, 598])
def test_any_failure_of_a_server_is_tried_again(status: int):
    states = iter([status, status])

    def answer(handler, body):
        send(handler, completion(body), next(states, 200))

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m", votes=1), ROWS[0]) == [{0: 1.0, None: 1.0}]


def test_a_question_that_a_filter_refuses_is_no_vote():
    """A provider's filter answers 403, as one does that does not know the key: that one has answered nothing before."""
    states = iter([200, 200, 403])

    def answer(handler, body):
        send(handler, completion(body), next(states, 200))

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m", concurrency=1), *ROWS[:3]) == [{0: 1.0, None: 1.0}] * 3
    with raw_judge(lambda handler, body: send(handler, {}, 403)) as url, pytest.raises(ConfigError, match="403"):
        scored(make_prm(url=url, model="m"), *ROWS[:3])


def test_failed_tries_are_paid_for(home: Home):
    """One of the two questions is refused for a while, then lost, then answered."""
    states = iter([503, "lost", 200])

    def answer(handler, body):
        state = next(states, 200)
        if state == "lost":
            handler.connection.close()
        else:
            send(handler, completion(body, usage={"prompt_tokens": 100, "completion_tokens": 10}), state)

    with raw_judge(answer) as url, spending_of("a night"):
        assert scored(make_prm(url=url, model="m", votes=1, max_tokens=50), ROWS[0]) == [{0: 1.0, None: 1.0}]
    counted = spent(home, "a night")
    assert (counted["requests"], counted["failed"], counted["held_tokens"]) == (3, 2, 0)
    assert counted["prompt_tokens"] > 100 + 2 * 400  # the estimates of the two that failed
    assert counted["reply_tokens"] == 10 + 50  # of the lost one, the most that it can have been


def test_an_endpoint_that_nobody_reaches_costs_nothing(home: Home):
    with spending_of("a night"), pytest.raises(BusyError):
        scored(make_prm(url="http://127.0.0.1:9/v1", model="m", votes=1), ROWS[0])
    assert spent(home, "a night")["tokens"] == 0


@pytest.mark.parametrize(
    "strange",
    [
        b"<html>hello</html>",
        {"choices": []},
        {"error": {"message": "provider"}},
        [],
        {"choices": [{"message": None}]},
        b"[" * 100_000,
        b"data: {}\n\ndata: [DONE]\n\n",
        b'data: {"choices": [{"delta": {"content": "{\\"code',
    ],
)
def test_an_odd_answer_is_an_unread_vote(home: Home, strange: Any):
    """One of twenty-seven once ended the night with code 2."""
    odd = iter([strange])

    def answer(handler, body):
        send(handler, next(odd, completion(body)))

    with raw_judge(answer) as url:
        found = scored(make_prm(url=url, model="m"), *ROWS[:9])
    assert found == [{0: 1.0, None: 1.0}] * 9
    assert sum(vote.value is None for vote in VoteStore.of(home).every()) == 1


@pytest.mark.parametrize(
    "empty",
    [
        {"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"},
        {"message": {"role": "assistant", "content": None, "refusal": "No."}, "finish_reason": "stop"},
        {"message": {"role": "assistant", "content": "I"}, "finish_reason": "content_filter"},
    ],
)
def test_an_empty_answer_is_not_kept_for_ever(empty: Any):
    asked, well = [], threading.Event()

    def answer(handler, body):
        asked.append(body)
        send(handler, completion(body) if well.is_set() else {"choices": [empty]})

    with raw_judge(answer) as url:
        with pytest.raises(BusyError, match="3 answers cannot be read") as away:
            scored(make_prm(url=url, model="m"), ROWS[0])
        assert "asked for again" in away.value.fix
        well.set()
        for _ in range(2):
            assert scored(make_prm(url=url, model="m"), ROWS[0]) == [{0: 1.0, None: 1.0}]
    assert len(asked) == 6


def test_a_whole_call_has_a_deadline():
    """An endpoint that sends a byte now and then was awaited for ever: the time limit was that of each read."""

    def drip(handler, body):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)

    began = time.monotonic()
    with raw_judge(quiet(drip)) as url, pytest.raises(BusyError, match="not answer: TimeoutError"):
        scored(make_prm(url=url, model="m", votes=1, timeout=0.2), ROWS[0])
    assert time.monotonic() - began < 20


def quiet(answer):
    def answers(handler, body):
        try:
            answer(handler, body)
        except OSError:  # whoever asked has gone
            handler.close_connection = True

    return answers


def test_response_format_is_sent_where_the_endpoint_has_it():
    refused, asked = [], []

    def answer(handler, body):
        if "response_format" in body:
            refused.append(body["response_format"])
            return send(handler, {"error": "unknown field"}, 400)
        asked.append(body)
        return send(handler, completion(body))

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m", concurrency=1), *ROWS[:3]) == [{0: 1.0, None: 1.0}] * 3
    assert (len(refused), len(asked)) == (1, 9)
    code = code_in(asked[0]["messages"][0]["content"])
    assert refused[0]["json_schema"]["schema"]["properties"]["code"] == {"const": code}


@pytest.mark.parametrize("form", ["content", "parts"])
def test_what_stands_in_the_content_is_read_alone(form: str):
    """A thought with a draft of the answer once made it unreadable."""

    def answer(handler, body):
        system = body["messages"][0]["content"]
        text = f"<think>First {verdict(system, -1)}</think>{verdict(system, 1)}"
        message = {"content": text if form == "content" else [{"type": "text", "text": text}]}
        send(handler, {"choices": [{"message": message | {"reasoning_content": verdict(system, 0)}}]})

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m"), ROWS[0]) == [{0: 1.0, None: 1.0}]


def test_an_answer_that_is_not_compressed_as_it_says_is_no_vote():
    """It ended the night with a traceback."""
    odd, wanted = iter([True]), set()

    def answer(handler, body):
        wanted.add(handler.headers["accept-encoding"])
        handler.send_response(200)
        data = json.dumps(completion(body)).encode()
        for name, value in [("content-encoding", "gzip")] * next(odd, False) + [("content-length", str(len(data)))]:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m"), *ROWS[:9]) == [{0: 1.0, None: 1.0}] * 9
    assert wanted == {"identity"}


def test_an_answer_as_a_stream_or_as_a_call_is_read(home: Home):
    """Some endpoints stream unasked, and some models answer a layout by calling a tool."""

    def stream(handler, body):
        text = verdict(body["messages"][0]["content"], 1)
        pieces = [{"choices": [{"index": 0, "delta": {"content": text[at : at + 9]}}]} for at in range(0, len(text), 9)]
        last = [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": USAGE}]
        events = [f"data: {json.dumps(piece)}\n\n" for piece in [*pieces, *last]]
        send(handler, "".join([": waiting\n\n", *events, "data: [DONE]\n\n"]).encode())

    def call(handler, body):
        function = {"name": "answer", "arguments": verdict(body["messages"][0]["content"], 1)}
        calls = [{"id": "1", "type": "function", "function": function}]
        send(handler, {"choices": [{"message": {"content": None, "tool_calls": calls}}], "usage": USAGE})

    for answer in (stream, call):
        with raw_judge(answer) as url, spending_of(answer.__name__):
            assert scored(make_prm(url=url, model="m", votes=1), ROWS[0]) == [{0: 1.0, None: 1.0}]
        assert (spent(home, answer.__name__)["estimated"], spent(home, answer.__name__)["tokens"]) == (0, 410)


def test_a_thought_that_was_cut_off_is_no_answer():
    """Its draft was counted as the verdict."""

    def answer(handler, body):
        message = {"content": "", "reasoning_content": f"Perhaps {verdict(body['messages'][0]['content'], 1)}, or"}
        send(handler, {"choices": [{"message": message, "finish_reason": "length"}]})

    with raw_judge(answer) as url, pytest.raises(BusyError, match="3 answers cannot be read"):
        scored(make_prm(url=url, model="m"), ROWS[0])


@pytest.mark.parametrize(
    ("field", "status", "says"),
    [
        ("max_tokens", 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        ("seed", 422, '{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}'),
        ("response_format", 501, "not implemented"),
        ("response_format", 500, "failed to parse grammar"),
    ],
)
def test_a_field_that_an_endpoint_refuses_is_not_sent_again(field: str, status: int, says: str):
    """Newer models of OpenAI take no `max_tokens`, and some providers no field that they do not know."""
    refused, asked = [], []

    def answer(handler, body):
        (refused if field in body else asked).append(body)
        send(handler, {"error": says} if field in body else completion(body), status if field in body else 200)

    with raw_judge(answer) as url:
        assert scored(make_prm(url=url, model="m", concurrency=1), *ROWS[:2]) == [{0: 1.0, None: 1.0}] * 2
    assert (len(refused), len(asked)) == (1, 6)
    assert all(body.get("max_tokens") or body.get("max_completion_tokens") for body in asked)


def test_an_endpoint_that_has_moved_is_named():
    def answer(handler, body):
        handler.send_response(308)
        handler.send_header("location", "https://judge.example/v1/chat/completions")
        handler.send_header("content-length", "0")
        handler.end_headers()

    with raw_judge(answer) as url, pytest.raises(ConfigError, match="308") as moved:
        scored(make_prm(url=url, model="m"), ROWS[0])
    assert "https://judge.example/v1/chat/completions" in moved.value.fix


def test_a_jury_says_who_abstained():
    says = {"one": 1, "two": 1}
    with fake_judge(lambda system, _: verdict(system, says["one"])) as one, fake_judge(lambda system, document: "?") as two:
        jury = [{"url": one.url, "model": "a"}, {"url": two.url, "model": "b"}]
        judge = make_prm(jury=jury, votes=1, failed_share=1.0)
        judge.prepare([ROWS[0]])
        (turn, _) = judge.score({}, ROWS[0])
        assert turn.evidence["abstained"] == [f"b at {two.url}"]
        with pytest.raises(BusyError, match=r"1 of 1 turns have not one valid verdict of b at http"):
            scored(make_prm(jury=jury, votes=1), ROWS[0])


def test_a_breaker_opens_after_half_a_minute_of_silence():
    now = [0.0]
    breaker = Breaker("http://judge", lambda: now[0])
    breaker.failed(0.0, "refused")
    now[0] = PATIENCE - 1
    breaker.failed(now[0], "refused")
    now[0] = PATIENCE
    with pytest.raises(BusyError, match=r"http://judge: it has not answered for 30 s, 3 tries: refused"):
        breaker.failed(now[0], "refused")
    with pytest.raises(BusyError):
        breaker.require()


def test_one_lost_answer_among_others_opens_no_breaker():
    now = [0.0]
    breaker = Breaker("http://judge", lambda: now[0])
    breaker.answered()
    now[0] = 100.0
    breaker.failed(0.0, "lost")
    breaker.require()
    breaker.answered()
    breaker.failed(now[0], "lost")


def test_lost_answers_among_others_open_no_breaker():
    """Of requests at once several were lost, while the others were answered all the time."""
    now = [45.0]
    breaker = Breaker("http://judge", lambda: now[0])
    breaker.answered()
    for _ in range(3):
        breaker.failed(0.0, "lost")
    now[0] = 45.0 + PATIENCE
    with pytest.raises(BusyError):
        breaker.failed(45.0, "lost")


def test_a_busy_endpoint_is_given_more_time():
    now = [0.0]
    breaker = Breaker("http://judge", lambda: now[0])
    breaker.failed(0.0, "429", busy=True)
    now[0] = BUSY_PATIENCE - 1
    breaker.failed(now[0], "429", busy=True)
    now[0] = BUSY_PATIENCE
    with pytest.raises(BusyError):
        breaker.failed(now[0], "429", busy=True)


def test_the_most_that_a_request_may_cost():
    meter = Meter(100)
    assert meter.most(2000) == Tokens(2000 + 32, 100)  # a byte is a token at most
    meter.counted(2000, Tokens(500, 40))
    assert meter.most(2000) == Tokens(1000 + 32, 100)  # twice what was counted
    meter.counted(2000, Tokens(3000, 400))
    assert meter.most(2000) == Tokens(3000 + 32, 400)  # one that counts more than there is


def test_the_budget_is_checked_and_paid_at_once(home: Home):
    ledger, budget = Ledger(None, "n"), Budget(tokens=100, money=1.0, prompt_price=10_000.0, reply_price=20_000.0)
    assert ledger.hold("j", Tokens(20, 10), budget)  # 0.4 of money
    assert ledger.hold("j", Tokens(20, 10), budget)
    assert not ledger.hold("j", Tokens(20, 10), budget)  # 1.2 of money
    ledger.settle("j", Tokens(20, 10), Tokens(10, 0), budget, 1.5)
    assert ledger.total() == pytest.approx((40, 0.5))
    assert ledger.hold("j", Tokens(20, 10), budget)
    assert not Ledger(None, "n").by_judge()


def test_tokens_are_estimated_by_bytes():
    assert (estimated("abcd"), estimated("\u4eca\u5929"), estimated("")) == (2, 2, 0)
