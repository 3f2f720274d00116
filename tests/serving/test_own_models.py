"""Users with models of their own on one engine: each user's requests get the user's champion, all others the shared model."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import torch
from peft import LoraConfig, get_peft_model

from clawpipe.core.config.registry import model_of_user, user_digest
from clawpipe.errors import BusyError, NotFoundError
from clawpipe.model.policy.load import load_base
from clawpipe.serve.serving.access import USER, listen
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.other_models import OtherModels
from clawpipe.serve.serving.own_models import OwnModels
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import Server
from clawpipe.serve.serving.versions import Versions

KEY = {"authorization": "Bearer sk-a-test-key"}
ASKED = {"model": "agent", "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 8}
ANN, BOB = user_digest("ann"), user_digest("bob")


class Champions:
    """The registry: versions by the user's digest; a user without one has no alias."""

    def __init__(self):
        self.named, self.looks, self.down = {}, 0, False

    def __call__(self, user):
        return _Alias(self, user)


class _Alias:
    def __init__(self, champions, user):
        self._champions, self._user = champions, user

    def version(self):
        self._champions.looks += 1
        if self._champions.down:
            raise BusyError("the registry does not answer")
        if self._user not in self._champions.named:
            raise NotFoundError("no such alias")
        return self._champions.named[self._user].version

    def find(self, version):
        return self._champions.named[self._user]


@pytest.fixture(scope="module")
def adapters(base, tmp_path_factory):
    return [_adapter(base.path, tmp_path_factory.mktemp("adapter"), seed) for seed in (1, 2)]


def _adapter(base, directory, seed):
    torch.manual_seed(seed)
    model = load_base(base, "float32", torch.device("cpu"))
    grown = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in grown.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    grown.save_pretrained(directory)
    return directory


@pytest.fixture
def version_of(base, served_as):
    """version_of(directory, number): a registered version with this adapter."""

    def make(directory, number):
        shared = served_as(base.path)
        spec = shared.spec.model_copy(update={"adapter": str(directory), "policy_version": number * 16})
        return replace(shared, spec=spec, version=number, digest=number * 64)

    return make


@contextmanager
def serving(policy, champions, believes_clients, others=None):
    own_models = OwnModels(champions, look_seconds=0.0)
    listener, live = listen("127.0.0.1", 0), Live(policy)
    server = Server(Versions(live), "sk-a-test-key", None, None, believes_clients, own_models, others, log_level="error")
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", live
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def champions():
    return Champions()


@pytest.fixture
def shared(base, served_as):
    return ServedPolicy(served_as(base.path), "cpu", apart=True)


def ask(url, whose="", **fields):
    reply = httpx.post(f"{url}/chat/completions", json=ASKED | fields, headers=KEY | ({USER: whose} if whose else {}), timeout=60)
    reply.raise_for_status()
    assert reply.json()["model"] == (ASKED | fields)["model"]
    return reply.headers["x-clawpipe-model-version"], reply.json()["choices"][0]["message"]["content"]


def test_each_user_gets_their_own_champion(adapters, shared, champions, version_of):
    champions.named = {ANN: version_of(adapters[0], "1"), BOB: version_of(adapters[1], "2")}
    with serving(shared, champions, believes_clients=True) as (url, _):
        found = {user: ask(url, user) for user in (ANN, BOB, user_digest("cleo"), "")}
    assert [version for version, _ in found.values()] == ["1", "2", "3", "3"]
    assert found[user_digest("cleo")] == found[""]
    for user, directory, number in ((ANN, adapters[0], "1"), (BOB, adapters[1], "2")):
        policy = ServedPolicy(version_of(directory, number), "cpu")  # with peft, and nothing else
        with serving(policy, Champions(), believes_clients=True) as (url, _):
            assert ask(url)[1] == found[user][1]
    assert len({text for _, text in found.values()}) == 3


def test_a_promotion_reaches_its_user_and_nobody_else(adapters, shared, champions, version_of):
    champions.named = {BOB: version_of(adapters[1], "2")}
    with serving(shared, champions, believes_clients=True) as (url, _):
        before = ask(url, ANN), ask(url, BOB)
        champions.named[ANN] = version_of(adapters[0], "1")
        after = ask(url, ANN), ask(url, BOB)
        del champions.named[ANN]  # rolled back
        assert (before[0][0], after[0][0], ask(url, ANN)) == ("3", "1", before[0])
    assert before[1] == after[1]


def test_a_client_cannot_say_whose_model_it_wants(adapters, shared, champions, version_of):
    champions.named = {ANN: version_of(adapters[0], "1")}
    with serving(shared, champions, believes_clients=True) as (url, _):  # a gateway says who asks
        assert ask(url, BOB, user="ann")[0] == "3"
    with serving(ServedPolicy(shared.served, "cpu", apart=True), champions, believes_clients=False) as (url, _):
        assert ask(url, ANN)[0] == "3"  # a header of the client's own
        assert ask(url, user="ann")[0] == "1"  # the only key is that of an application, which knows its users


def test_a_registry_that_is_silent_changes_nothing(adapters, shared, champions, version_of):
    champions.named = {ANN: version_of(adapters[0], "1")}
    with serving(shared, champions, believes_clients=True) as (url, _):
        first = ask(url, ANN)
        champions.down = True
        assert ask(url, ANN) == first
        assert ask(url, BOB)[0] == "3"


@pytest.mark.parametrize("wrong", [{"adapter": None}, {"base": "/another"}, {"tool_call_format": "json"}])
def test_a_model_that_does_not_fit_leaves_the_shared_one(adapters, shared, champions, version_of, wrong):
    fine = version_of(adapters[0], "1")
    champions.named = {ANN: replace(fine, spec=fine.spec.model_copy(update=wrong))}
    with serving(shared, champions, believes_clients=True) as (url, _):
        assert ask(url, ANN)[0] == "3"
        champions.named[ANN] = version_of(adapters[0], "4")  # the next night's
        assert ask(url, ANN)[0] == "4"


def test_answers_of_a_users_model_say_nothing_of_the_shared(adapters, shared, champions, version_of):
    champions.named = {ANN: version_of(adapters[0], "1")}
    with serving(shared, champions, believes_clients=True) as (url, live):
        ask(url, ANN)
        assert live.answers.total == 0
        ask(url, BOB)
        assert live.answers.total == 1


def test_a_users_model_has_a_name_beside_the_shared_one():
    assert model_of_user("acme", user_digest("ann")) == "acme-user-49915e0d7d4b402e"


def test_further_models_answer_to_their_own_names(adapters, shared, champions, version_of):
    champions.named = {"coder": version_of(adapters[0], "1"), "writer": version_of(adapters[1], "2")}
    others = OtherModels(["coder", "writer", "idle"], champions)
    with serving(shared, champions, believes_clients=True, others=others) as (url, _):
        found = {name: ask(url, model=name) for name in ("agent", "coder", "writer")}
        listed = httpx.get(f"{url}/models", headers=KEY).json()["data"]
        one, none = (httpx.get(f"{url}/models/{name}", headers=KEY) for name in ("coder", "idle"))
        refused = [httpx.post(f"{url}/chat/completions", json=ASKED | {"model": name}, headers=KEY) for name in ("idle", "foreign")]
    assert [version for version, _ in found.values()] == ["3", "1", "2"]
    assert len({text for _, text in found.values()}) == 3
    assert [card["id"] for card in listed] == ["agent", "coder", "writer"]  # what a client may ask for
    assert (one.json()["id"], none.status_code) == ("coder", 404)
    assert [reply.status_code for reply in refused] == [404, 404]
    assert "no version in service on the base of 'agent'" in refused[0].text
