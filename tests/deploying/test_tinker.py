"""Deploy to a fake of Tinker's API, which has the weights of what was trained there."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.serve.deploying.plan import Wanted
from clawpipe.serve.deploying.run import deploy, end, states

pytest.importorskip("tinker")
from tests.deploying.conftest import PATH
from tests.fake_tinker import KEY, FakeTinker, Fault, fake_tinker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def service(monkeypatch) -> Iterator[FakeTinker]:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with fake_tinker({"tiny": ""}) as fake:
        fake.kept[PATH] = ("tiny", {})
        fake.ttl[PATH] = 3600
        yield fake


def put(home, service, **given):
    return deploy(home, "agent@1", "tinker", Wanted(url=service.url, **given), lambda plan: True)


def test_weights_that_were_trained_there_are_kept_and_named(home, service, registered):
    registered()
    plan, record = put(home, service)
    assert (record.state, record.model, record.endpoint) == ("deployed", PATH, f"{service.url}/oai/api/v1")
    assert service.ttl[PATH] is None
    assert [call.path for call in plan.calls] == [
        "/api/v1/weights_info",
        "/api/v1/training_runs/run:train:0/checkpoints/sampler_weights/adapter/ttl",
    ]
    assert plan.price.startswith("unknown: the service's interface tells no prices")
    assert put(home, service)[1].state == "deployed"
    assert [state for _, state in states(home, "agent@1")] == ["READY"]
    assert end(home, "agent@1", "tinker").state == "ended"
    assert service.ttl[PATH] == 7 * 24 * 3600
    del service.kept[PATH]
    assert [state for _, state in states(home, "agent@1")] == ["ended"]


def test_weights_that_have_expired_are_told(home, service, registered):
    registered()
    put(home, service)
    del service.kept[PATH]
    assert [state for _, state in states(home, "agent@1")] == ["gone"]
    with pytest.raises(DataError, match="404"):
        put(home, service)
    assert end(home, "agent@1", "tinker").state == "ended"


def test_what_was_trained_elsewhere_is_refused(home, service, registered):
    registered(remote=None)
    with pytest.raises(NotFoundError, match="takes no weights from outside"):
        put(home, service)
    assert not service.requests


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": 2}, "no meaning there"),
        ({"method": "merged"}, "no meaning there"),
        ({"project": "p"}, "project of their training"),
    ],
)
def test_settings_without_a_meaning_there_are_refused(home, service, registered, given, said):
    registered()
    with pytest.raises(ConfigError, match=said):
        put(home, service, **given)
    assert not service.requests


def test_a_refused_key_is_told_without_it(home, service, registered, monkeypatch):
    registered()
    monkeypatch.setenv("TINKER_API_KEY", "tml-another")
    with pytest.raises(ConfigError, match="refuses the key") as caught:
        put(home, service)
    assert "tml-another" not in str(caught.value)


def test_lost_answers_are_asked_again_and_none_is_busy(home, service, registered, monkeypatch):
    registered()
    service.faults = [Fault("weights_info", 503), Fault("training_runs", 0)]
    assert put(home, service)[1].state == "deployed"
    monkeypatch.setattr("clawpipe.serve.deploying.tinker._SECONDS", 1.0)
    service.faults = [Fault("weights_info", 503, last=10**6)]
    with pytest.raises(BusyError, match="in the time"):
        put(home, service)
