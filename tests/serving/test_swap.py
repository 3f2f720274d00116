"""Versions that are swapped under load: nothing fails, nothing is mixed, sessions stay, and a bad version goes back."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from clawpipe.errors import BusyError
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.serve.serving import follow
from clawpipe.serve.serving.access import CLIENT, listen
from clawpipe.serve.serving.evidence import Least
from clawpipe.serve.serving.follow import Follower
from clawpipe.serve.serving.live import Live, loader
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import Server
from clawpipe.serve.serving.versions import Versions

SWAPS = 15
KEY = {"authorization": "Bearer sk-a-test-key"}


class Registry:
    """Versions in directories; what a bad version's way back was told."""

    def __init__(self, find):
        self.named, self.find, self.backs, self.trials = "1", find, [], []

    def version(self):
        return self.named

    def log_trial(self, action, version, beside, reason):
        self.trials.append((action, version, beside, reason))

    def go_back(self, version, reason):
        self.backs.append((version, reason))
        self.named = "1"


class Asked(Follower[Live]):
    """Looks when the test asks."""

    async def run(self):
        self.loop = asyncio.get_running_loop()
        await asyncio.Event().wait()

    def look_now(self):
        return asyncio.run_coroutine_threadsafe(self.look(), self.loop).result(60)


@pytest.fixture(scope="module")
def directories(base, tokenizer, tmp_path_factory):
    """Three models that say different things."""
    found = []
    for seed in range(3):
        directory = tmp_path_factory.mktemp(f"weights{seed}")
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(AutoModelForCausalLM.from_pretrained(base.path).config).save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        found.append(directory)
    return found


@pytest.fixture
def numbered(directories, served_as):
    """numbered(version): the model of that version, with that number."""

    def find(version):
        return replace(served_as(directories[int(version) % 3]), version=version, digest=version * 64)

    return find


@pytest.fixture
def following(numbered):
    """A server of version 1, its registry and its follower."""
    yield from running(Registry(numbered), ServedPolicy(numbered("1"), "cpu"))


def running(registry, policy, *shares):
    listener = listen("127.0.0.1", 0)
    versions = Versions(Live(policy))
    follower = Asked(versions, registry, loader("cpu"), *shares)
    server = Server(versions, "sk-a-test-key", follower=follower, believes_clients=True, log_level="error")
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
    try:
        yield registry, follower, url
    finally:
        server.should_exit = True
        thread.join()


def ask(url, number, session="", headers=(), **fields):
    body = {"model": "agent", "messages": [{"role": "user", "content": f"Question {number}"}], "max_tokens": 24}
    body |= {"temperature": 1, "seed": number, "logprobs": True, "return_token_ids": True} | fields
    headers = KEY | dict(headers) | ({"x-session-id": session} if session else {})
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def test_swaps_under_load_fail_nothing_and_mix_nothing(following, directories):
    registry, follower, url = following
    over, numbers = threading.Event(), itertools.count()

    def client(_):
        answers = []
        while not over.is_set():
            number = next(numbers)
            answers.append(ask(url, number, session=f"s{number % 7}" if number % 2 else ""))
        return answers

    with ThreadPoolExecutor(6) as clients:
        asking = [clients.submit(client, number) for number in range(6)]
        for version in range(2, SWAPS + 2):
            registry.named = str(version)
            follower.look_now()
            assert httpx.get(f"{url}/healthz").json()["version"] == str(version)
        over.set()
        answers = [answer for each in asking for answer in each.result()]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.headers["x-clawpipe-model-version"] for answer in answers}) > SWAPS / 2
    check_unmixed(answers, [EmbeddedEngine(directory, None, device="cpu") for directory in directories])


def check_unmixed(answers, engines):
    """Each answer's log-probs are those of the version that it names, and of no other."""
    for answer in answers[:: max(len(answers) // 60, 1)]:
        version, body = int(answer.headers["x-clawpipe-model-version"]), answer.json()
        assert answer.headers["x-clawpipe-digest"] == str(version) * 64
        [choice] = body["choices"]
        prompt, ids = body["prompt_token_ids"], choice["token_ids"]
        told = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        own, *others = (engines[(version + shift) % 3].score(prompt + ids, len(prompt)) for shift in range(3))
        assert told == pytest.approx(own, abs=1e-4)
        assert all(told != pytest.approx(other, abs=1e-2) for other in others)


def test_a_session_stays_and_the_way_back_takes_it_along(following):
    registry, follower, url = following
    version = lambda session="": ask(url, 1, session).headers["x-clawpipe-model-version"]  # noqa: E731
    assert version("old") == "1"
    registry.named = "2"
    follower.look_now()
    assert [version("old"), version("new"), version(), version("old")] == ["1", "2", "2", "1"]
    done = ask(url, 1, "old", {"x-session-done": "true"})
    assert done.headers["x-clawpipe-model-version"] == "1"
    assert version("old") == "2"  # a session of that name begins anew
    registry.named = "1"
    follower.look_now()
    assert [version("new"), version()] == ["1", "1"]


def test_sessions_may_move_with_their_next_turn(numbered):
    first, second = (ServedPolicy(numbered(version), "cpu") for version in "12")
    versions = Versions(Live(first), session_seconds=0)
    before = versions.of_session("a")
    versions.put_in_service(Live(second))
    assert versions.of_session("a") is versions.current is not before


def test_at_most_three_versions_stay_loaded(numbered):
    versions = Versions(Live(ServedPolicy(numbered("1"), "cpu")))
    assert versions.of_session("a").policy.served.version == "1"
    retired = [live for version in "2345" for live in versions.put_in_service(Live(ServedPolicy(numbered(version), "cpu")))]
    assert [live.policy.served.version for live in retired] == ["1", "2"]
    assert [live.policy.served.version for live in versions.loaded] == ["3", "4", "5"]
    assert versions.previous.policy.served.version == "4"
    assert versions.of_session("a").policy.served.version == "5"  # its version is gone


def test_old_versions_keep_no_keys_and_values(following):
    registry, follower, url = following
    kept = lambda: [len(live.policy.batch._held._kept) for live in follower._versions.loaded]  # noqa: E731
    ask(url, 1, "old")
    registry.named = "2"
    follower.look_now()
    ask(url, 2, "new")
    assert ask(url, 3, "old").headers["x-clawpipe-model-version"] == "1"
    assert [kept()[0], kept()[1] > 0] == [0, True]
    registry.named = "1"
    follower.look_now()
    ask(url, 4, "old")
    assert [kept()[0], kept()[1] > 0] == [0, True]  # the one in service is last


def test_a_version_that_is_closed_is_not_kept_by_its_responses(numbered):
    versions = Versions(Live(ServedPolicy(numbered("1"), "cpu")))
    versions.record_response("r1", versions.current)
    first = weakref.ref(versions.current)
    for version in "234":
        versions.put_in_service(Live(ServedPolicy(numbered(version), "cpu")))
    gc.collect()
    assert first() is None
    assert not versions.rate("r1", 1.0)


def test_an_answer_ends_on_the_version_that_began_it(following, directories):
    registry, follower, url = following
    body = {"model": "agent", "messages": [{"role": "user", "content": "Question 1"}], "max_tokens": 400, "stream": True}
    body |= {"temperature": 0, "logit_bias": {"257": -100}}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, headers=KEY, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        for version in "2345":  # two more than stay loaded
            registry.named = version
            follower.look_now()
        assert answer.headers["x-clawpipe-model-version"] == "1"
        assert list(lines)[-2] == "data: [DONE]"


def test_a_version_with_broken_weights_is_not_put_in_service(following, directories, served_as, tmp_path, caplog):
    registry, follower, url = following
    for file in directories[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: torch.full_like(weight, torch.nan) for name, weight in weights.items()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    find, broken = registry.find, replace(served_as(tmp_path), version="2")
    registry.find = lambda version: broken if version == "2" else find(version)
    registry.named = "2"
    for _ in range(2):
        follower.look_now()
    assert "version 2 cannot serve, version 1 stays" in caplog.text
    assert caplog.text.count("cannot serve") == 1  # it is tried once
    assert ask(url, 1).headers["x-clawpipe-model-version"] == "1"
    registry.named = "3"
    follower.look_now()
    assert ask(url, 1).headers["x-clawpipe-model-version"] == "3"


def test_a_version_that_rambles_goes_back_by_itself(parrot, base, served_as, monkeypatch, tmp_path):
    """The parrot ends its sentence, random weights never do. Only what nobody but the model limits tells."""
    monkeypatch.setattr(follow, "LEAST", Least(5, 10, 2))
    found = {"1": served_as(parrot), "2": served_as(_with_short_context(base.path, tmp_path))}
    registry = Registry(lambda version: replace(found[version], version=version))
    fields = {"temperature": 0, "messages": [{"role": "user", "content": "How many mugs?"}], "logit_bias": {"257": -100}}
    for _, follower, url in running(registry, ServedPolicy(registry.find("1"), "cpu")):
        for number in range(5):
            ask(url, number, **fields | {"logit_bias": None}, max_tokens=60)
        registry.named = "2"
        follower.look_now()
        for limits in ({"max_tokens": 1}, {"max_completion_tokens": 1, "max_tokens": None}, {"max_tokens": None}):
            assert registry.backs == []
            answers = [ask(url, number, "s" * number, **fields, **limits).json() for number in range(1, 8)]
            assert {one["choices"][0]["finish_reason"] for one in answers} == {"length"}
            follower.look_now()
        [(version, reason)] = registry.backs
        assert version == "2"
        assert reason.startswith("100% of 7 answers are runaway")
        assert ask(url, 9, "s").headers["x-clawpipe-model-version"] == "1"
        follower.look_now()
        assert (len(registry.backs), follower._versions.previous) == (1, None)


def _with_short_context(base, directory):
    """A copy of a model that ends after 160 tokens."""
    for file in base.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 160}))
    return directory


def test_a_canary_gets_a_share_of_new_sessions_and_then_all(numbered, monkeypatch):
    monkeypatch.setattr(follow, "TRIAL_ANSWERS", 20)
    registry = Registry(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), 0.25):
        version = lambda session, url=url: ask(url, 1, session, max_tokens=1).headers["x-clawpipe-model-version"]  # noqa: E731
        assert version("old") == "1"
        registry.named = "2"
        follower.look_now()
        first = [version(f"s{number}") for number in range(60)]
        assert 5 <= first.count("2") <= 30  # 15 are expected; which sessions is a matter of their ids
        assert [version(f"s{number}") for number in range(60)] == first  # a session stays
        assert [version("old"), version("")] == ["1", "1"]
        follower.look_now()
        assert [version("fresh"), version(""), version("old")] == ["2", "2", "1"]
        assert follower._versions.trial is None
        assert [(action, version, beside) for action, version, beside, _ in registry.trials] == [
            ("trial", "2", "1"),
            ("trial_passed", "2", "1"),
        ]
        assert registry.trials[0][-1] == "25% of new sessions get it"


def test_a_rollback_to_an_unloaded_version_is_no_trial(numbered):
    registry = Registry(numbered)
    registry.named = "2"
    for _, follower, url in running(registry, ServedPolicy(numbered("2"), "cpu"), 0.25, 0.5):
        assert ask(url, 1, "s").headers["x-clawpipe-model-version"] == "2"
        registry.named = "1"
        follower.look_now()
        assert ask(url, 2, "s").headers["x-clawpipe-model-version"] == "1"
        assert registry.trials == []


def test_a_version_answers_unseen_before_anybody_gets_it(numbered, monkeypatch):
    monkeypatch.setattr(follow, "TRIAL_ANSWERS", 5)
    registry = Registry(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), 0.5, 1.0):
        answered = lambda count, url=url: {  # noqa: E731
            ask(url, 1, f"s{number}", max_tokens=1).headers["x-clawpipe-model-version"] for number in range(count)
        }
        registry.named = "2"
        follower.look_now()
        shadow = follower._versions.trial
        assert answered(5) == {"1"}
        while shadow.answers.total < 5:  # it answers when its turn comes
            pass
        assert (shadow.answers.total, follower._versions.current.answers.total) == (5, 5)
        follower.look_now()
        assert follower._versions.trial is shadow
        assert answered(40) == {"1", "2"}  # now a share of sessions gets it
        follower.look_now()
        assert follower._versions.current is shadow
        assert [(action, reason) for action, _, _, reason in registry.trials] == [
            ("trial", "it answers 100% of requests, and nobody sees it"),
            ("trial_passed", "5 answers were no worse than the old version's"),
            ("trial", "50% of new sessions get it"),
            ("trial_passed", registry.trials[-1][-1]),
        ]


def test_a_version_whose_unseen_answers_are_bad_is_taken_back(numbered, monkeypatch):
    monkeypatch.setattr(follow, "LEAST", Least(3, 10, 2))
    registry = Registry(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), 1.0, 1.0):
        registry.named = "2"
        follower.look_now()
        for _ in range(3):
            follower._versions.trial.count({"total": True, "failed": True})
        assert ask(url, 1).headers["x-clawpipe-model-version"] == "1"
        follower.look_now()
        assert (follower._versions.trial, [version for version, _ in registry.backs]) == (None, ["2"])


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_version_that_people_dislike_goes_back_by_itself(numbered, share):
    registry = Registry(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), share):

        def opine(wanted, thumb, client, times, url=url):
            answers = (
                ask(url, number, f"{wanted}-{client}-{number}", {CLIENT: client}, max_tokens=1) for number in itertools.count()
            )
            chosen = (one.json()["id"] for one in answers if one.headers["x-clawpipe-model-version"] == wanted)
            for name in itertools.islice(chosen, times):
                body = {"response_id": name, "thumb": thumb}
                posted = [httpx.post(f"{url}/v1/feedback", json=body, headers=KEY).status_code for _ in range(2)]
                assert posted == [201, 404]  # one opinion an answer

        opine("1", "up", "ann", 5)
        opine("1", "up", "bob", 5)
        registry.named = "2"
        follower.look_now()
        opine("2", "down", "ann", 12)
        follower.look_now()
        assert registry.backs == []  # one client alone does not decide
        opine("2", "down", "bob", 3)
        follower.look_now()
        assert registry.backs == [("2", "100% of 15 ratings are negative, 0% of 10 before; version 1 was in service before")]
        assert {ask(url, 1, f"2-{number}").headers["x-clawpipe-model-version"] for number in range(4)} == {"1"}
        assert httpx.post(f"{url}/v1/feedback", json={"response_id": "x", "thumb": "up"}).status_code == 401


def test_an_alias_that_moves_on_ends_the_trial(numbered):
    registry = Registry(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), 0.5):
        for named, trial in [("2", "2"), ("3", "3"), ("1", None)]:
            registry.named = named
            follower.look_now()
            on_trial = follower._versions.trial
            assert (on_trial and on_trial.policy.served.version) == trial
            assert ask(url, 1).headers["x-clawpipe-model-version"] == "1"
        assert len(follower._versions.loaded) == 1
        moved = "the alias names another version"
        assert [one[:2] for one in registry.trials] == [("trial", "2"), ("trial_ended", "2"), ("trial", "3"), ("trial_ended", "3")]
        assert registry.trials[-1][-1] == moved


def test_a_trial_goes_on_where_the_log_cannot_be_written(numbered, caplog):
    class Full(Registry):
        def log_trial(self, *_):
            raise BusyError("the disk is full")

    registry = Full(numbered)
    for _, follower, url in running(registry, ServedPolicy(numbered("1"), "cpu"), 0.5):
        registry.named = "2"
        follower.look_now()
        assert follower._versions.trial.policy.served.version == "2"
        assert ask(url, 1).status_code == 200
        assert "the trial of version 2 is not in the promotion log: the disk is full" in caplog.text


def test_a_registry_that_does_not_answer_changes_nothing(numbered, caplog):
    class Gone(Registry):
        def version(self):
            raise BusyError("the MLflow server does not answer")

    async def look_twice():
        follower = Follower(Versions(Live(ServedPolicy(numbered("1"), "cpu"))), Gone(numbered), loader("cpu"))
        running = asyncio.create_task(follower.run())
        while "could not be asked" not in caplog.text:
            await asyncio.sleep(0)
        running.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "LOOK_SECONDS", 0)
        asyncio.run(look_twice())


def test_metrics_name_versions_and_count_answers(following):
    registry, follower, url = following
    ask(url, 1, "s")
    registry.named = "2"
    follower.look_now()
    assert httpx.get(f"{url}/metrics").status_code == 401
    told = httpx.get(f"{url}/metrics", headers=KEY).text.splitlines()
    assert 'clawpipe_in_service{version="1"} 0.0' in told
    assert 'clawpipe_sessions{version="1"} 1.0' in told
    assert 'clawpipe_in_service{version="2"} 1.0' in told
    assert 'clawpipe_answers_total{kind="total",version="1"} 1.0' in told
    assert 'clawpipe_responses_total{path="/v1/chat/completions",status="200"} 1.0' in told
    assert 'clawpipe_responses_total{path="/metrics",status="401"} 1.0' in told
