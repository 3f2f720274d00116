"""Train at Fireworks: its library's calls, answered by a fake that really trains; the library itself where it is installed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import partial
from typing import Any

import pytest

from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.config.training import Train
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError
from clawpipe.learn.training.backends import open_backend
from clawpipe.learn.training.remote.fireworks_host import Calls, answered
from clawpipe.learn.training.remote.fireworks_session import FireworksSession, ours
from clawpipe.learn.training.remote.loop import train_at
from tests.fake_tinker import FIREWORKS_KEY, Fault
from tests.training.remote.test_tinker import require_equal
from tests.training.remote.trained import steps_of, weights_of

pytest.importorskip("tinker")
from tests import fireworks_library

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open
SHORT = {"loss": {"dual_clip": None}, "epochs": 1, "optimizer_steps": 2}
PYTHON = os.environ.get("CLAWPIPE_FIREWORKS_PYTHON")  # of an environment with fireworks-ai[training-sdk]


class InProcess:
    """A host without a process of its own."""

    def __init__(self) -> None:
        self._calls, self.asked = Calls(fireworks_library), []

    def ask(self, do: str, **given: Any) -> Any:
        self.asked.append(do)
        answer = answered(self._calls, {"do": do, "given": given})
        if "error" in answer:
            raise ours(answer["error"], "fireworks", "python")
        return answer["ok"]


@pytest.fixture
def at(fake, monkeypatch):
    """at(request): train there in this process; the outcome, and what the host was asked."""
    monkeypatch.setenv("FIREWORKS_API_KEY", FIREWORKS_KEY)

    def train(request):
        host = InProcess()
        open_session = partial(FireworksSession, host, fake.url, "tiny", request)
        train_at(open_session, request, request.weights.parent.parent, lambda step: None)
        return request.weights.parent, host.asked

    return train


@pytest.mark.parametrize(
    "train", [{"method": "sft"}, {"loss": {"dual_clip": 3.0}}, {"loss": {"level": "sequence", "kl_coef": 0.1}}]
)
def test_its_steps_and_adapter_are_those_of_this_machine(job, here, at, fake, train):
    local, (there, asked) = here(job("local", train, there=False)), at(job("there", train))
    require_equal(local, there)
    steps = len(steps_of(there))
    assert [asked.count(name) for name in ("forward", "backward", "step", "save", "keep")] == [steps] * 4 + [1]
    assert list(fake.promoted.values()) == [1]


def test_a_killed_training_goes_on_from_the_last_saved_step(job, at, monkeypatch):
    straight, _ = at(job("straight", SHORT))
    request, ask = job("killed", SHORT), InProcess.ask

    class PowerCutError(BaseException): ...

    def cut(host, do, **given):
        if do == "save" and host.asked.count("save") == 1:
            raise PowerCutError
        return ask(host, do, **given)

    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "ask", cut)
        with pytest.raises(PowerCutError):
            at(request)
    outcome, asked = at(request)
    assert asked.count("step") == 1
    assert [step["loss"] for step in steps_of(outcome)] == [step["loss"] for step in steps_of(straight)]
    found, expected = weights_of(outcome), weights_of(straight)
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.long
def test_a_cut_at_every_call_loses_nothing_and_pays_little(job, at, fake, monkeypatch):
    straight, _ = at(job("straight", SHORT))
    taken, models, seen = fake.steps, len(fake.promoted), set()
    request, ask = job("cut", SHORT), InProcess.ask
    journal = request.weights.parent.parent / "journal.json"

    class PowerCutError(BaseException): ...

    def cut(place: str, do: str) -> None:
        where = (place, do, len(json.loads(journal.read_text())["steps"]) if journal.exists() else 0)
        if where not in seen:
            seen.add(where)
            raise PowerCutError

    def asked(host, do, **given):
        cut("asked", do)
        answer = ask(host, do, **given)
        cut("answered", do)
        return answer

    monkeypatch.setattr(InProcess, "ask", asked)
    monkeypatch.setattr("clawpipe.core.system.faults.kill_point", lambda name, detail="": cut(name, detail))
    outcome = None
    while outcome is None:
        with contextlib.suppress(PowerCutError):
            outcome, _ = at(request)
    assert {do for _, do, _ in seen} >= {"open", "forward", "backward", "step", "save", "keep", "promote"}
    assert [step["loss"] for step in steps_of(outcome)] == [step["loss"] for step in steps_of(straight)]
    found, expected = weights_of(outcome), weights_of(straight)
    assert all((found[name] == expected[name]).all() for name in expected)
    # A step is paid again where the cut comes before it is noted: at its answer, on either side of its save, at the note.
    assert 2 < fake.steps - taken <= 2 + 2 * 4
    assert list(fake.promoted.values())[models:] == [1]


@pytest.mark.long
@pytest.mark.parametrize("fault", [(0, False), (0, True), (-1, True), (429, False), (500, True)])
def test_lost_answers_as_a_model_is_made_make_no_second_one(job, at, fake, monkeypatch, fault):
    monkeypatch.setattr("clawpipe.model.engines.servers.LONGEST_WAIT", 0.0)
    status, late = fault
    for number in range(1, 20):
        fake.requests.clear()
        fake.faults = [Fault("", status, first=number, last=number, late=late)]  # "": the interface for models
        outcome, _ = at(job(f"faulty-{status}-{late}-{number}", SHORT | {"optimizer_steps": 1}))
        assert len(steps_of(outcome)) == 1
        if fake.requests[""] < number:
            break
    assert set(fake.promoted.values()) == {1}


@pytest.mark.parametrize(("status", "kind"), [(401, ConfigError), (402, ConfigError), (0, BusyError), (500, BusyError)])
def test_what_stays_wrong_as_a_model_is_made_goes_on_later(job, at, fake, monkeypatch, status, kind):
    monkeypatch.setattr("clawpipe.model.engines.servers.LONGEST_WAIT", 0.0)
    fake.faults = [Fault("", status, last=10**6)]
    request = job("stuck", SHORT)
    with pytest.raises(kind) as caught:
        at(request)
    assert FIREWORKS_KEY not in str(caught.value)
    fake.faults, taken = [], fake.steps
    assert len(steps_of(at(request)[0])) == 2
    assert (fake.steps, list(fake.promoted.values())) == (taken, [1])


def test_a_service_that_repeats_the_key_is_told_without_it(job, at, monkeypatch):
    monkeypatch.setattr(Calls, "step", lambda *given, **named: (_ for _ in ()).throw(ValueError(f"no {FIREWORKS_KEY}\nhere")))
    with pytest.raises(TrainingError, match=r"ValueError: no \[key\] here"):
        at(job("told", SHORT))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ({"kind": "AuthenticationError", "status": 401, "text": "no"}, ConfigError, "refuses the key"),
        ({"kind": "APIStatusError", "status": 402, "text": "no"}, ConfigError, "cannot pay"),
        ({"kind": "NotFoundError", "status": 404, "text": "no"}, DataError, "answers 404"),
        ({"kind": "UnprocessableEntityError", "status": 422, "text": "no"}, ConfigError, "answers 422"),
        ({"kind": "RateLimitError", "status": 429, "text": "no"}, BusyError, "answers 429"),
        ({"kind": "InternalServerError", "status": 500, "text": "no"}, BusyError, "answers 500"),
        ({"kind": "APIConnectionError", "status": None, "text": "cut"}, BusyError, "does not answer"),
        ({"kind": "TimeoutError", "status": None, "text": ""}, BusyError, "does not answer"),
        ({"kind": "RequestFailedError", "status": None, "text": "vocabulary"}, DataError, "could not do it"),
        ({"kind": "ImportError", "status": None, "text": "No module"}, ConfigError, "cannot be imported"),
        ({"kind": "KeyError", "status": None, "text": "x"}, TrainingError, "library failed"),
    ],
)
def test_what_its_library_raises_is_one_of_our_errors(error, kind, said):
    found = ours(error, "fireworks", "python")
    assert type(found) is kind
    assert said in found.what
    assert "\n" not in found.what


def test_another_base_and_another_vocabulary_end_in_one_line(job, at, fake):
    fake.vocabulary = 5
    with pytest.raises(ClawpipeError, match="could not do it") as caught:
        at(job("foreign", SHORT))
    assert (type(caught.value), caught.value.exit_code) == (DataError, 65)
    assert fake.steps == 0


def test_what_it_cannot_do_is_refused_at_once(monkeypatch):
    monkeypatch.setenv("FIREWORKS_API_KEY", FIREWORKS_KEY)
    spec = {"name": "fireworks", "model": "accounts/fireworks/models/tiny"}
    backend: Any = open_backend(BackendSpec.model_validate(spec))
    assert "ppo" not in backend.can.methods
    refused = list(backend.refusals(Train.model_validate({"lora": {"alpha": 7, "dropout": 0.1}}), 0.5, "none"))
    assert [one.instead for one in refused] == [
        "train.backend.options.python=PYTHON",
        "rollouts.temperature=1",
        "train.lora.dropout=0",
    ]
    ready: Any = open_backend(BackendSpec.model_validate(spec | {"options": {"python": "python3"}}))
    assert list(ready.refusals(Train.model_validate({"lora": {"alpha": 7}}), 1.0, "none")) == []


@pytest.mark.slow
def test_a_python_without_the_library_is_told(job, fake, monkeypatch):
    monkeypatch.setenv("FIREWORKS_API_KEY", FIREWORKS_KEY)
    with pytest.raises(ConfigError, match="cannot be imported"):
        _with_python(job("bare", SHORT), fake, sys.executable)


@pytest.mark.skipif(PYTHON is None, reason="CLAWPIPE_FIREWORKS_PYTHON names no Python with fireworks-ai[training-sdk]")
def test_the_library_itself_trains_the_same_adapter(job, here, fake, monkeypatch):
    monkeypatch.setenv("FIREWORKS_API_KEY", FIREWORKS_KEY)
    train = {"loss": {"dual_clip": 3.0}}
    local = here(job("local", train, there=False))
    fake.faults = [Fault("forward", 500), Fault("optim_step", 0, late=True)]
    require_equal(local, _with_python(job("there", train), fake, str(PYTHON)))


def _with_python(request, fake, python):
    spec = {"name": "fireworks", "url": fake.url, "model": "tiny", "options": {"python": python, "timeout": 120.0}}
    request = request.model_copy(update={"config": request.config.model_copy(update={"backend": BackendSpec.model_validate(spec)})})
    open_backend(request.config.backend).train(request, request.weights.parent.parent, lambda step: None)
    return request.weights.parent
