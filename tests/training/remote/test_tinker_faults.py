"""Cuts at every call, lost answers, refusals: no step is lost or taken twice, and each error is one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError
from clawpipe.learn.training.backends import require_request
from clawpipe.learn.training.produce import run_training
from clawpipe.learn.training.remote.journal import Journal
from tests.fake_tinker import KEY, Fault
from tests.training.remote.trained import away, steps_of

tinker = pytest.importorskip("tinker")
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open
SHORT = {"loss": {"dual_clip": None}, "epochs": 1, "optimizer_steps": 2}


class PowerCutError(BaseException):
    """The process ends here."""


def adapter_of(outcome):
    return (outcome / "adapter" / "adapter_model.safetensors").read_bytes()


@pytest.mark.long
def test_a_cut_at_every_call_changes_nothing(job, fake, monkeypatch):
    straight, seen = away(job("straight", SHORT)), set()
    taken = fake.steps
    request = job("cut", SHORT)
    work = request.weights.parent.parent

    def cut(name: str, detail: str = "") -> None:
        journal = work / "journal.json"
        place = (name, detail, len(json.loads(journal.read_text())["steps"]) if journal.exists() else 0)
        if place not in seen:
            seen.add(place)
            raise PowerCutError

    monkeypatch.setattr("clawpipe.core.system.faults.kill_point", cut)
    outcome = None
    while outcome is None:
        try:
            outcome = away(request)
        except PowerCutError:
            continue
    assert adapter_of(outcome) == adapter_of(straight)
    assert [step["loss"] for step in steps_of(outcome)] == [step["loss"] for step in steps_of(straight)]
    calls = {"load", "forward_backward", "optim_step", "save_state", "save_weights_for_sampler", "save_weights_external", "urls"}
    assert calls <= {detail for _, detail, _ in seen}
    # A step that is cut between its request and the note that it is saved is taken again, on the weights from before it.
    assert 2 < fake.steps - taken <= 2 + 2 * 6
    # A cut inside of a write leaves its hidden temporary file, which goes with the directory when the night publishes the outcome.
    assert [path.name for path in work.iterdir() if not path.name.startswith(".journal.json.")] == ["outcome"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_a_killed_process_goes_on_and_ends_with_the_same_bytes(job, fake, tmp_path, monkeypatch):
    straight = away(job("straight", SHORT))
    request, told = job("killed", SHORT), []
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "tinker.answered/save_state#2")
    with pytest.raises(BusyError):
        run_training(request, tmp_path / "killed", 300, told.append)
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    outcome = run_training(request, tmp_path / "killed", 300, told.append)
    assert [step["step"] for step in told] == [1, 2]
    assert adapter_of(outcome) == adapter_of(straight)
    assert KEY not in "".join(file.read_text() for file in (tmp_path / "killed").rglob("*.json*"))
    assert KEY not in (tmp_path / "killed" / "train.log").read_text()


@pytest.fixture
def cut_at(monkeypatch):
    """cut_at(request, name, detail): train until that place is passed for the second time, where the process ends."""

    def train(request, name, detail):
        passed = []

        def cut(*place: str) -> None:
            passed.append(place)
            if passed.count((name, detail)) == 2:
                raise PowerCutError

        with monkeypatch.context() as patched:
            patched.setattr("clawpipe.core.system.faults.kill_point", cut)
            with pytest.raises(PowerCutError):
                away(request)

    return train


def test_another_machine_of_the_home_pays_for_no_step_again(job, fake, cut_at, tmp_path, monkeypatch):
    straight = away(job("straight", SHORT))
    monkeypatch.setenv("CLAWPIPE_SHARED", f"file://{tmp_path}/shared")
    taken = fake.steps
    cut_at(job("first", SHORT), "tinker.asked", "forward_backward")
    paid = fake.steps
    assert paid - taken == 1
    outcome = away(job("second", SHORT))
    assert fake.steps - paid == 1
    assert adapter_of(outcome) == adapter_of(straight)
    assert steps_of(outcome)[0]["loss"] == steps_of(straight)[0]["loss"]
    assert away(job("third", SHORT))  # a machine that died before the step's record was shared
    assert fake.steps - paid == 1


def test_what_another_machine_noted_since_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_SHARED", f"file://{tmp_path}/shared")
    first = Journal(tmp_path / "first.json", {"rows": "a"}, shared=True)
    first.add_step({"loss": 1.0}, "tinker://1")
    Journal(tmp_path / "second.json", {"rows": "a"}, shared=True).add_step({"loss": 2.0}, "tinker://2")
    again = Journal(tmp_path / "first.json", {"rows": "a"}, shared=True)
    assert (again.state, len(again.steps)) == ("tinker://2", 2)
    assert not Journal(tmp_path / "first.json", {"rows": "b"}, shared=True).steps


def test_policies_between_steps_do_not_go_on_elsewhere(job, fake, cut_at, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_SHARED", f"file://{tmp_path}/shared")
    probed = SHORT | {"probe_steps": 1}
    cut_at(job("first", probed), "tinker.asked", "optim_step")
    outcome = away(job("second", probed))
    assert sorted(one.name for one in (outcome / "snapshots").iterdir()) == ["step-000001", "step-000002"]


def test_lost_answers_and_busy_servers_cost_no_step(job, fake):
    straight, taken = away(job("straight", SHORT)), fake.steps
    fake.requests.clear()
    fake.faults = [
        Fault("client", 500),
        Fault("create_session", 429),
        Fault("create_model", 0, late=True),
        Fault("get_info", 503),
        Fault("forward_backward", 0, late=True),
        Fault("optim_step", 0, late=True),
        Fault("optim_step", 500, first=3, late=True, last=3),
        Fault("retrieve_future", -1, first=3, last=3),
        Fault("retrieve_future", 502, first=5, last=6),
        Fault("save_weights", 0, late=True),
        Fault("save_weights_external", 500, late=True),
        Fault("training_runs", -1),
        Fault("download", -1),
    ]
    outcome = away(job("faulty", SHORT))
    assert fake.steps - taken == 2
    assert adapter_of(outcome) == adapter_of(straight)
    assert all(fake.requests[fault.at] > fault.first for fault in fake.faults if fault.at != "training_runs")


@pytest.mark.long
def test_a_connection_lost_at_each_call_costs_no_step(job, fake, cut_at):
    """Of a training that is cut once and goes on: a request of each kind is lost, and when it is sent again, its answer is."""
    train = SHORT | {"loss": {"dual_clip": 3.0}}  # a forward pass beside each gradient

    def run(name: str) -> bytes:
        request = job(name, train)
        cut_at(request, "tinker.answered", "save_state")
        return adapter_of(away(request))

    straight, taken = run("straight"), fake.steps
    kinds = fake.requests.keys() - {"session_heartbeat", "sessions"}
    assert {"create_model", "load_weights", "forward_backward", "optim_step", "save_weights_for_sampler", "download"} <= kinds
    for kind in sorted(kinds):
        first, before = fake.requests[kind] + 1, fake.steps
        fake.faults = [Fault(kind, 0, first, first), Fault(kind, 0, first + 1, first + 1, late=True)]
        assert run(kind) == straight, kind
        assert fake.steps - before == taken, kind


def refused(request) -> ClawpipeError:
    with pytest.raises(ClawpipeError) as caught:
        away(request)
    assert "\n" not in caught.value.what
    assert KEY not in str(caught.value)
    assert not request.weights.exists()
    return caught.value


def test_a_refused_key_loses_nothing(job, fake, monkeypatch):
    fake.faults = [Fault("optim_step", 401, first=2, last=2)]
    request = job("key", SHORT)
    error = refused(request)
    assert (type(error), error.exit_code) == (ConfigError, 2)
    assert "TINKER_API_KEY" in error.fix
    assert fake.steps == 1
    assert len(steps_of(away(request))) == 2
    assert fake.steps == 2
    monkeypatch.setenv("TINKER_API_KEY", "tml-another")
    assert "refuses the key" in refused(job("other", SHORT)).what


def _unknown_base(fake):
    fake.bases.clear()


def _another_base(fake):
    fake.named["tiny"] = "large"


def _another_vocabulary(fake):
    fake.vocabulary = 5


def _other_weights(fake):
    fake.spoil = lambda tensors: {name: tensor[:1] for name, tensor in tensors.items()}


def _weights_that_are_not_finite(fake):
    fake.spoil = lambda tensors: {name: tensor * torch.nan for name, tensor in tensors.items()}


def _gradients_that_are_not_finite(fake):
    fake.poison = 1


@pytest.mark.parametrize(
    ("spoil", "kind", "what"),
    [
        (_unknown_base, DataError, "no base model tiny"),
        (_another_base, DataError, "the service trains large, not tiny"),
        (_another_vocabulary, DataError, "beyond the vocabulary"),
        (_other_weights, DataError, "tensors are not those of an adapter of this base"),
        (_weights_that_are_not_finite, TrainingError, "trained weights are not finite"),
        (_gradients_that_are_not_finite, TrainingError, "log-probs, loss or gradient are not finite"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_there_is_one_line_here(job, fake, spoil, kind, what):
    spoil(fake)
    error = refused(job("wrong", SHORT))
    assert type(error) is kind
    assert what in error.what


def test_saved_steps_that_have_expired_are_named(job, fake):
    fake.faults = [Fault("optim_step", 401, first=2, last=2)]
    request = job("expired", SHORT)
    refused(request)
    fake.saved.clear()
    error = refused(request)
    assert (error.exit_code, "nothing is saved at" in error.what) == (65, True)


def test_rows_of_another_temperature_are_counted(job, fake):
    request = job("some", SHORT)
    rows = pq.read_table(request.samples[0]).to_pylist()
    for hot in (range(4), range(16)):
        changed = [row | {"temperature": 0.8 if number in hot else 1.0} for number, row in enumerate(rows)]
        write_parquet(pa.Table.from_pylist(changed), Path(request.samples[0]))
        if len(hot) == 4:
            summary = json.loads((away(request) / "summary.json").read_text())
            assert (summary["samples"], summary["filtered"]) == (12, {"another_temperature": 4})
            shutil.rmtree(request.output)
    error = refused(request)
    assert type(error) is DataError
    assert "rollouts.temperature=1" in error.fix


@pytest.mark.parametrize(
    ("train", "changes", "what"),
    [
        ({"method": "ppo"}, {}, "it has no ppo"),
        ({"method": "opd"}, {}, "train.opd.form=token"),
        ({"method": "combine", "combine": {"w_opd": 0.0}}, {}, ""),
        ({"adapter": "full"}, {}, "train.adapter=lora"),
        ({"lora": {"rank": 4, "alpha": 8}}, {}, "train.lora.alpha=32"),
        ({"lora": {"rank": 4, "alpha": 32, "dropout": 0.1}}, {}, "train.lora.dropout=0"),
        ({"lora": {"rank": 4, "alpha": 32, "variant": "dora"}}, {}, "train.lora.variant=lora"),
        ({"lora": {"rank": 4, "alpha": 32, "target_modules": ["q_proj"]}}, {}, "train.lora.target_modules=all-linear"),
        ({"validation": 0.25}, {}, "train.validation=0"),
        ({"loss": {"entropy_coef": 0.1}}, {}, "train.loss.entropy_coef=0"),
        ({}, {"quantization": "nf4"}, "model.quantization=none"),
        ({}, {}, ""),
    ],
)
def test_settings_without_a_counterpart_are_refused(job, train, changes, what):
    request = job("planned", train, **changes)
    if not what:
        return require_request(request)
    with pytest.raises(ConfigError) as caught:
        require_request(request)
    assert what in f"{caught.value.what} {caught.value.fix}"
    return None


def test_the_key_is_asked_for_before_anything_is_spent(job, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(ConfigError, match="TINKER_API_KEY is not in the environment"):
        require_request(job("keyless"))


def test_a_later_round_goes_on_with_the_weights_and_moments(job, fake, here, request_for):
    from clawpipe.learn.training.course import Course

    night = Course(seed=1, start="s", rounds=2)
    finals = []
    for where, run in (("local", here), ("there", away)):
        there = where == "there"
        first = run(job(f"{where}-1", SHORT, there=there, course=night))
        taken = {"init_adapter": str(first / "adapter"), "optimizer": str(first / "optimizer")}
        second = run(job(f"{where}-2", SHORT, there=there, course=night.model_copy(update={"number": 1}), **taken))
        finals.append(load_file(second / "adapter" / "adapter_model.safetensors"))
        assert json.loads((second / "summary.json").read_text())["moved"] > 0
    local, remote = finals
    for name in local:
        torch.testing.assert_close(remote[name], local[name], rtol=1e-3, atol=1e-5)


def test_policies_between_steps_are_kept(job, fake):
    outcome = away(job("probed", SHORT | {"probe_steps": 1}))
    kept = sorted((outcome / "snapshots").iterdir())
    assert [one.name for one in kept] == ["step-000001", "step-000002"]
    last = load_file(kept[1] / "adapter_model.safetensors")
    final = load_file(outcome / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(last[name], final[name]) for name in final)
