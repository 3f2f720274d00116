"""Deploy to a fake of Fireworks' interface: what is sent, what a cut or a fault costs, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.core.store.artifacts import STAGING
from clawpipe.core.store.open import open_store
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, NotFoundError
from clawpipe.record.lineage.traced import TracedModel
from clawpipe.record.registry.versions import resolve
from clawpipe.serve.deploying.plan import Plan, Wanted
from clawpipe.serve.deploying.run import deploy, end, states
from tests.fake_fireworks import KEY, Fault

BASE = "accounts/fireworks/models/tiny"
CALLS = ["make the model", "upload its files to the addresses of the answer", "let the service check them"]


@pytest.fixture
def wanted(fireworks):
    return Wanted(base=BASE, gpus=2, url=fireworks.url)


def agreed(plan: Plan) -> bool:
    return True


def put(home, wanted, version="agent@1"):
    return deploy(home, version, "fireworks", wanted, agreed)


def test_an_adapter_is_uploaded_and_deployed_once(home, registry, fireworks, wanted, registered):
    info = registered()
    plan, record = put(home, wanted)
    assert record
    [name] = fireworks.models
    assert name == f"clawpipe-agent-1-lora-{info.policy.policy_version[:8]}"
    model, deployment = fireworks.models[name], fireworks.deployments[name]
    assert (model["kind"], model["state"]) == ("HF_PEFT_ADDON", "READY")
    assert model["peftDetails"] == {"baseModel": BASE, "r": 8, "targetModules": ["q_proj", "v_proj"]}
    assert deployment["baseModel"] == f"accounts/mine/models/{name}"
    assert (deployment["acceleratorType"], deployment["acceleratorCount"]) == ("NVIDIA_H100_80GB", 2)
    assert (deployment["minReplicaCount"], deployment["maxReplicaCount"]) == (0, 1)
    assert {file for _, file in fireworks.files} == {"adapter_config.json", "adapter_model.safetensors"}
    config = json.loads(fireworks.files[name, "adapter_config.json"])
    assert (config["base_model_name_or_path"], config["r"]) == (BASE, 8)
    assert [call.note for call in plan.calls[:3]] == CALLS
    assert record.model == f"accounts/mine/models/{name}#accounts/mine/deployments/{name}"
    asked = len(fireworks.requests)
    assert put(home, wanted)[1].state == "deployed"
    assert fireworks.created == {name: 2}  # a model and a deployment
    assert not [one for one in fireworks.requests[asked:] if one.startswith(("POST", "PUT"))]


def test_another_type_of_gpu_is_refused_while_it_is_in_service(home, registry, fireworks, wanted, registered):
    registered()
    put(home, wanted.model_copy(update={"gpu": "NVIDIA_H100_80GB"}))
    other = wanted.model_copy(update={"gpu": "NVIDIA_H200_141GB"})
    with pytest.raises(ConfigError, match="on NVIDIA_H100_80GB"):
        put(home, other)
    end(home, "agent@1", "fireworks")
    put(home, other)
    assert [one["acceleratorType"] for one in fireworks.deployments.values()] == ["NVIDIA_H200_141GB"]


def test_a_night_that_ends_meanwhile_takes_no_file_away(home, registry, fireworks, wanted, registered):
    registered()

    def agree(plan):
        shutil.rmtree(home.work, ignore_errors=True)  # as the end of a night, and gc
        open_store(home).sweep()
        return True

    assert deploy(home, "agent@1", "fireworks", wanted, agree)[1].state == "deployed"
    assert list((home.store / STAGING).iterdir()) == []


def test_the_registry_and_the_lineage_know_where_it_is(home, registry, fireworks, wanted, registered):
    registered()
    put(home, wanted)
    [(record, state)] = states(home, "agent@1")
    assert (record.target, record.state, record.gpus, state) == ("fireworks", "deployed", 2, "CREATING")
    found = resolve(registry, "agent@1")
    traced = TracedModel(
        name="agent", version="1", aliases=[], night="n", policy_version="p", deployed=[found.deployed[0].model_dump()]
    )
    assert traced.deployed[0]["model"] == record.model
    assert end(home, "agent@1", "fireworks").state == "ended"
    assert fireworks.deployments == {}
    assert fireworks.models
    assert [state for _, state in states(home, "agent@1")] == ["ended"]
    assert end(home, "agent@1", "fireworks").state == "ended"
    put(home, wanted)
    assert len(fireworks.deployments) == 1


def test_without_a_yes_nothing_is_made(home, registry, fireworks, wanted, registered):
    registered()
    plan, record = deploy(home, "agent@1", "fireworks", wanted, lambda plan: False)
    assert record is None
    assert plan.price.startswith("unknown: the service's interface tells no prices; it bills 2 NVIDIA_H100_80GB by the second")
    assert not [one for one in fireworks.requests if not one.startswith("GET")]
    assert resolve(registry, "agent@1").deployed == ()


def test_a_price_says_whose_figure_it_is(home, registry, fireworks, wanted, registered):
    registered()
    plan, _ = deploy(home, "agent@1", "fireworks", wanted.model_copy(update={"gpu_hour": 4.5}), lambda plan: False)
    assert plan.price == "$9.00 an hour while a replica runs: 2 NVIDIA_H100_80GB at $4.50, the figure of --gpu-hour"
    free = wanted.model_copy(update={"gpus": None})
    plan, _ = deploy(home, "agent@1", "fireworks", free, lambda plan: False)
    assert plan.calls[-1].body["deploymentShape"] == "default"
    assert "acceleratorType" not in plan.calls[-1].body


POINTS = [
    *("deploy.noted#1", "fireworks.asked#1", "fireworks.answered#1", "fireworks.uploaded#1"),
    *("fireworks.asked#2", "fireworks.answered#2"),
]


class PowerCutError(BaseException):
    """The process ends here."""


def test_a_cut_at_any_call_makes_nothing_twice(home, registry, fireworks, wanted, registered, monkeypatch):
    registered()
    for point in POINTS:
        passes = []

        def cut(name: str, detail: str = "", point: str = point, passes: list[str] = passes) -> None:
            passes.append(name)
            if point == f"{name}#{passes.count(name)}":
                raise PowerCutError

        with monkeypatch.context() as patch:
            patch.setattr("clawpipe.core.system.faults.kill_point", cut)
            with pytest.raises(PowerCutError):
                put(home, wanted)
        [(record, _)] = states(home, "agent@1")
        assert record.state == "starting"
        assert put(home, wanted)[1].state == "deployed"
        assert list(fireworks.created.values()) == [2]
        fireworks.forget()


@pytest.mark.parametrize("status", [0, -1, 429, 500])
def test_lost_answers_and_overload_are_tried_again(home, registry, fireworks, wanted, registered, status):
    registered()
    places = ("POST /v1/accounts/mine/models", "POST /v1/accounts/mine/deployments", "PUT /upload", "GET /v1")
    fireworks.faults = [Fault(at, status, late=status <= 0) for at in places]
    assert put(home, wanted)[1].state == "deployed"
    assert list(fireworks.created.values()) == [2]


ENDS = {
    "another key": ({"status": 401}, ConfigError, "it answers 401"),
    "no money": ({"status": 402}, ConfigError, "it answers 402"),
    "a refused shape": ({"status": 400}, ConfigError, "it answers 400"),
    "overload": ({"status": 429}, BusyError, "it answers 429, 5 times"),
    "a dead service": ({"status": 0}, BusyError, "it does not answer"),
    "half answers": ({"status": -1}, BusyError, "it does not answer"),
}


def test_what_stays_wrong_is_one_line_and_goes_on_later(home, registry, fireworks, wanted, registered):
    registered()
    for fault, kind, said in ENDS.values():
        fireworks.forget()
        fireworks.faults = [Fault("POST /v1/accounts/mine/deployments", last=99, **fault)]
        with pytest.raises(ClawpipeError, match=said) as caught:
            put(home, wanted)
        assert type(caught.value).exit_code == kind.exit_code
        assert "\n" not in caught.value.what
        assert not [secret for secret in (KEY, "signature") if secret in str(caught.value)]
        fireworks.faults = []
        assert put(home, wanted)[1].state == "deployed"
        assert list(fireworks.created.values()) == [2]


def test_uploads_that_fail_name_no_signed_address(home, registry, fireworks, wanted, registered):
    registered()
    fireworks.faults = [Fault("PUT /upload", 500, last=99)]
    with pytest.raises(BusyError, match=r"adapter_config\.json could not be uploaded: it answers 500") as caught:
        put(home, wanted)
    assert "signature" not in str(caught.value)
    assert fireworks.deployments == {}


def test_two_ways_at_once_would_cost_twice(home, registry, fireworks, wanted, registered):
    registered()
    put(home, wanted)
    with pytest.raises(ConfigError, match="in service there already, by method lora on 2 GPUs") as caught:
        put(home, wanted.model_copy(update={"gpus": 4}))
    assert caught.value.fix == "end that first: clawpipe undeploy agent@1 --from fireworks"
    end(home, "agent@1", "fireworks")
    put(home, wanted.model_copy(update={"gpus": 4}))
    [deployment] = fireworks.deployments.values()
    assert deployment["acceleratorCount"] == 4


def test_what_cannot_be_is_refused_before_anything(home, registry, fireworks, wanted, registered, monkeypatch):
    registered(rank=2)
    with pytest.raises(ConfigError, match="rank 4 to 64, and this one has 2"):
        put(home, wanted)
    with pytest.raises(ConfigError, match="name of its base"):
        put(home, wanted.model_copy(update={"base": None}))
    with pytest.raises(NotFoundError):
        put(home, wanted, "agent@7")
    with pytest.raises(NotFoundError, match="never deployed to fireworks"):
        end(home, "agent@1", "fireworks")
    fireworks.accounts = ["mine", "ours"]
    with pytest.raises(ConfigError, match="belongs to 2 accounts: mine, ours"):
        put(home, wanted)
    monkeypatch.delenv("FIREWORKS_API_KEY")
    with pytest.raises(ConfigError, match="FIREWORKS_API_KEY is not in the environment"):
        put(home, wanted)
    assert not [one for one in fireworks.requests if not one.startswith("GET")]


def test_an_account_can_be_named(home, registry, fireworks, wanted, registered):
    registered()
    fireworks.accounts = ["mine", "ours"]
    _, record = put(home, wanted.model_copy(update={"project": "ours"}))
    assert record.deployment.startswith("accounts/ours/deployments/")
    assert [state for _, state in states(home, "agent@1")] == ["CREATING"]


def test_an_answer_of_another_interface_is_no_plan(home, registry, fireworks, wanted, registered, monkeypatch):
    registered()
    monkeypatch.setattr(type(fireworks), "_models", lambda *given: (200, []))
    with pytest.raises(DataError, match="not of its interface"):
        put(home, wanted)


def test_the_command_shows_asks_and_tells(home, registry, fireworks, registered):
    registered()
    words = ["deploy", "agent@1", "--to", "fireworks", "--base", BASE, "--gpus", "2", "--url", fireworks.url]
    shown = CliRunner().invoke(app, [*words, "--dry-run"])
    assert shown.exit_code == 0
    assert "POST /v1/accounts/mine/models  (make the model)" in shown.output
    assert "price: unknown" in shown.output
    assert KEY not in shown.output
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.what == "nobody is there to confirm it"
    assert not fireworks.created
    done = CliRunner().invoke(app, [*words, "--yes", "--json"])
    assert json.loads(done.stdout)["deployed"]["state"] == "deployed"
    listed = json.loads(CliRunner().invoke(app, ["deployments", "agent@1", "--json"]).output)
    assert [one["now"] for one in listed["deployments"]] == ["CREATING"]
    assert "no longer in service" in CliRunner().invoke(app, ["undeploy", "agent@1", "--from", "fireworks"]).output
