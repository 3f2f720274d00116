import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from mlflow.models import Model

from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError
from clawpipe.record.registry.package import INDEX, package_digest, verify_package
from clawpipe.record.registry.promotions import promote
from clawpipe.record.registry.runs import NightRun, legal_name, record_night
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import FILES_REMOVED, champion, download, is_intact, register, resolve

SAMPLES = DatasetRef(name="samples", digest="5" * 64, rows=12)
HELDOUT = DatasetRef(name="eval_results", digest="e" * 64, rows=60)
RUN = NightRun(
    night="2030-01-02-abc",
    params={"train": {"learning_rate": 3e-4, "lora": {"rank": 16}}},
    metrics={"heldout/candidate/success": 0.75, "pass@1": 0.5, "unknown": None, "broken": float("nan")},
    datasets={"training": SAMPLES, "evaluation": HELDOUT},
)


def accept(directory):
    verify_package(directory)


def stored_file(client, info, name):
    """Return the path at which MLflow keeps a registered file."""
    return f"{client.get_logged_model(info.model_id).artifact_location}/{name}"


def test_looking_for_a_champion_creates_nothing(tracking):
    assert champion(tracking) is None
    assert not tracking.home.exists()
    with pytest.raises(NotFoundError, match="no model has been registered"):
        resolve(tracking, "models:/agent/1")


def test_a_registered_version_names_policy_night_and_package(registry, package):
    info = register(registry, package, accept, RUN)
    assert (info.name, info.version, info.aliases, info.night) == ("agent", "1", (), RUN.night)
    assert info.policy == verify_package(package).policy
    assert info.package == package_digest(package)
    assert resolve(registry, "models:/agent/1") == info
    assert champion(registry) is None


def test_registering_again_brings_back_files_that_gc_removed(registry, client, package):
    info = register(registry, package, accept, RUN)
    client.set_model_version_tag(info.name, info.version, FILES_REMOVED, "2030-01-02")
    shutil.rmtree(client.get_logged_model(info.model_id).artifact_location)
    with pytest.raises(NotFoundError, match="removed this version's files on 2030-01-02"):
        download(registry, info.uri)
    register(registry, package, accept, RUN)
    assert resolve(registry, info.uri) == info
    assert is_intact(registry, info)


def test_registering_again_makes_no_second_version(registry, client, package):
    first = register(registry, package, accept, RUN)
    assert register(registry, package, accept, RUN) == first
    assert len(client.search_model_versions("name='agent'")) == 1


def test_registrations_at_the_same_time_make_one_version(registry, client, package):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: register(registry, package, accept, RUN), range(3)))
    assert found[1:] == found[:-1]
    assert len(client.search_model_versions("name='agent'")) == 1


def test_the_same_model_of_another_night_is_the_same_version(registry, new_package):
    first = register(registry, new_package(), accept, RUN)
    assert register(registry, new_package(night="2030-01-03-abc"), accept, RUN) == first
    assert register(registry, new_package(0.75), accept, RUN).version == "2"


def test_the_check_sees_a_copy_that_came_back_from_the_registry(registry, package):
    seen = []
    register(registry, package, lambda directory: seen.append((directory, verify_package(directory))), RUN)
    [(directory, found)] = seen
    assert directory != package
    assert found == verify_package(package)
    assert not registry.scratch.exists()


def test_a_model_that_fails_the_check_is_no_version(registry, client, package):
    def refuse(directory):
        raise DataError("the logits differ")

    with pytest.raises(DataError, match="logits"):
        register(registry, package, refuse, RUN)
    assert not client.search_model_versions("name='agent'")
    assert register(registry, package, accept, RUN).version == "1"


@pytest.mark.parametrize("point", ["registry.after_upload", "registry.before_version"])
def test_a_killed_registration_is_taken_up(registry, client, package, killed_at, point):
    with killed_at(point):
        register(registry, package, accept, RUN)
    info = register(registry, package, accept, RUN)
    [experiment] = [found.experiment_id for found in client.search_experiments() if found.name == "agent"]
    assert [version.version for version in client.search_model_versions("name='agent'")] == [1]
    [model] = client.search_logged_models([experiment])
    assert (model.model_id, model.status) == (info.model_id, "READY")
    assert len(client.search_runs([experiment])) == 1


def test_damaged_registered_files_are_found_and_repaired(registry, client, package):
    info = register(registry, package, accept, RUN)
    with open(stored_file(client, info, "adapter_model.safetensors"), "r+b") as file:
        file.write(b"\xff")
    with pytest.raises(DataError, match=r"adapter_model\.safetensors is damaged"):
        download(registry, info.uri)
    assert register(registry, package, accept, RUN) == info
    directory, _ = download(registry, info.uri)
    assert verify_package(directory).policy == info.policy


def test_damage_that_no_other_package_can_repair_is_reported(registry, client, new_package):
    info = register(registry, new_package(), accept, RUN)
    os.unlink(stored_file(client, info, INDEX))
    with pytest.raises(DataError, match=INDEX):
        register(registry, new_package(night="2030-01-03-abc"), accept, RUN)


def test_an_index_that_was_exchanged_in_the_registry_is_refused(registry, client, package):
    """A writer of the artifact store can rewrite its hashes, but not the registry's record of them."""
    info = register(registry, package, accept, RUN)
    path = stored_file(client, info, INDEX)
    with open(path, "rb") as file:
        index = json.load(file)
    with open(path, "w") as file:
        json.dump(index | {"night": "another"}, file)
    with pytest.raises(DataError, match="not the one that was registered"):
        download(registry, info.uri)


def test_download_by_number_and_by_alias(registry, client, new_package):
    register(registry, new_package(0.25), accept, RUN)
    second = register(registry, new_package(0.75), accept, RUN)
    client.set_registered_model_alias("agent", "champion", "2")
    directory, info = download(registry, "models:/agent@champion")
    assert info == second.model_copy(update={"aliases": ("champion",)})
    assert verify_package(directory, info.package).policy == second.policy
    assert download(registry, "models:/agent/2")[0] == directory
    assert champion(registry) == info


def test_a_damaged_download_is_fetched_again(registry, package):
    register(registry, package, accept, RUN)
    directory, _ = download(registry, "models:/agent/1")
    (directory / "README.md").write_text("changed")
    (directory / "more.json").write_text("{}")
    again, _ = download(registry, "models:/agent/1")
    assert again == directory
    assert sorted(verify_package(again).files) == sorted(verify_package(package).files)
    assert not registry.scratch.exists()


@pytest.mark.parametrize(
    "uri", ["agent", "models:/agent", "models:/agent/latest", "models:/../1", "models:/agent/1/x", "file:///etc"]
)
def test_other_uris_are_refused(registry, uri):
    with pytest.raises(ConfigError, match="names no model version"):
        resolve(registry, uri)


@pytest.mark.parametrize("name", ["models:/agent/1", "agent@1", "models:/agent@champion", "agent@champion"])
def test_a_version_is_named_with_or_without_the_scheme(registry, package, name):
    registered = register(registry, package, accept, RUN)
    promote(registry, registered.version, who="somebody", reason="")
    assert resolve(registry, name).version == registered.version


@pytest.mark.parametrize("uri", ["models:/agent/7", "models:/agent@champion", "models:/nobody/1", "models:/nobody@champion"])
def test_versions_that_are_not_there_are_not_found(registry, package, uri):
    register(registry, package, accept, RUN)
    with pytest.raises(NotFoundError):
        resolve(registry, uri)


def test_a_version_registered_by_another_tool_is_refused(registry, client):
    client.create_registered_model("agent")
    client.create_model_version("agent", str(registry.home))
    with pytest.raises(DataError, match="not registered by clawpipe"):
        resolve(registry, "models:/agent/1")


def test_a_package_of_another_model_name_is_refused(registry, package):
    with pytest.raises(DataError, match="'agent'"):
        register(registry.model_copy(update={"model_name": "other"}), package, accept, RUN)


def test_lineage_leads_from_the_version_to_the_datasets(registry, client, package):
    info = register(registry, package, accept, RUN)
    run = client.get_run(info.run_id)
    assert run.info.run_name == RUN.night
    assert run.info.status == "FINISHED"
    assert [output.model_id for output in run.outputs.model_outputs] == [info.model_id]
    inputs = {one.dataset.name: (one.dataset.digest, {tag.key: tag.value for tag in one.tags}) for one in run.inputs.dataset_inputs}
    assert inputs["samples"] == ("5" * 36, {"mlflow.data.context": "training", "clawpipe.digest": "5" * 64})
    assert inputs["eval_results"][1]["mlflow.data.context"] == "evaluation"
    assert client.get_model_version("agent", "1").tags["x-clawpipe.dataset.training"] == SAMPLES.digest


def test_recording_a_night_again_adds_nothing(registry, client):
    first, second = record_night(registry, RUN), record_night(registry, RUN)
    assert first == second
    run = client.get_run(first)
    assert run.data.metrics == {"heldout/candidate/success": 0.75, "pass_at_1": 0.5}
    assert run.data.params == {"train.learning_rate": "0.0003", "train.lora.rank": "16"}
    assert len(client.get_metric_history(first, "pass_at_1")) == 1
    assert len(run.inputs.dataset_inputs) == 2


def test_a_night_may_be_called_anything(registry, client):
    night = 'Anne\'s "night" % `x`'
    run = client.get_run(record_night(registry, NightRun(night=night)))
    assert run.info.run_name == night


@pytest.mark.parametrize(("name", "legal"), [("pass@1", "pass_at_1"), ("reward/mean", "reward/mean"), ("a=b;c", "a_b_c")])
def test_metric_names_become_legal(name, legal):
    assert legal_name(name) == legal


def test_settings_of_any_name_are_recorded_apart(registry, client):
    slices = {"数学": 1, "代码": 2, "a//b": 3, "https://site/page": 4, "b/": 5, "long" * 80: 6, "long" * 81: 7, "plain": 8}
    run_id = record_night(registry, RUN.model_copy(update={"params": {"slice_weights": slices}}))
    params = client.get_run(run_id).data.params
    assert sorted(params.values()) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert params["slice_weights.plain"] == "8"
    assert record_night(registry, RUN.model_copy(update={"params": {"slice_weights": slices}})) == run_id


def test_the_default_registry_lies_in_the_home(home, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracking = Tracking.of(home, "agent")
    assert tracking.uri == f"sqlite:///{home.root}/mlflow/mlflow.db"
    assert tracking.artifacts == f"{home.root}/mlflow/artifacts"


def test_a_server_decides_about_artifacts_and_hides_its_password(home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example")
    tracking = Tracking.of(home, "agent")
    assert tracking.artifacts is None
    assert "secret" not in repr(tracking)


def test_a_missing_server_is_reported_at_once_without_password(home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(BusyError, match="does not answer") as caught:
        champion(Tracking.of(home, "agent"))
    assert "secret" not in str(caught.value)


def test_mlflow_is_quiet_and_reads_no_pickles(registry, package, capfd, caplog):
    with caplog.at_level(logging.INFO):
        register(registry, package, accept, RUN)
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_settings_and_packages_need_no_mlflow():
    code = "import sys, clawpipe.record.registry.tracking, clawpipe.record.registry.package; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"mlflow", "torch", "transformers", "prefect"}.isdisjoint(loaded)


def test_a_version_shows_verdict_figures_and_signature(registry, package, client):
    info = register(registry, package, accept, RUN)
    version = client.get_model_version("agent", info.version)
    assert version.description.startswith("**PROMOTE**: sft from tiny on 12 stored trajectories; compared with tiny")
    assert "- base: 0.167 [" in version.description  # 10 of 60
    assert "- candidate: 0.667 [" in version.description
    assert "The candidate beats the base by 50.0 points" in version.description
    told = {"verdict": "PROMOTE", "method": "grpo", "base": "tiny", "environment": "shop"}
    assert told.items() <= version.tags.items()
    assert version.tags["heldout.candidate"].startswith("0.667 [")
    location = client.get_logged_model(info.model_id).artifact_location
    signature = Model.load(location).signature
    assert [(column.name, column.required) for column in signature.inputs] == [("messages", True)]
    assert [column.name for column in signature.outputs] == ["content"]


def paths_in(database):
    """Return every text in MLflow's database that looks like a path or a file URL."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        rows = (row for table in tables for row in connection.execute(f'select * from "{table}"'))
        return {value for row in rows for value in row if isinstance(value, str) and value.startswith(("/", "file:"))}


@pytest.mark.parametrize("original_stays", [True, False])
def test_a_moved_or_copied_home_reads_and_writes_only_in_itself(registry, new_package, tmp_path, original_stays):
    register(registry, new_package(0.5), accept, RUN)
    moved = Home(tmp_path / "mlflow" / "artifacts" / "home")  # a path that looks like a part of a home
    if original_stays:
        shutil.copytree(registry.home, moved.root)
    else:
        moved.root.parent.mkdir(parents=True)
        registry.home.rename(moved.root)
    before = {path: path.stat().st_mtime_ns for path in Home(registry.home).mlflow.rglob("*")}

    there = Tracking.of(moved, "agent")
    info = resolve(there, "models:/agent/1")
    assert is_intact(there, info)
    directory, _ = download(there, "models:/agent/1")
    assert directory.is_relative_to(moved.root)
    second = register(there, new_package(0.7, night="2030-01-03-abc"), accept, RUN.model_copy(update={"night": "2030-01-03-abc"}))
    assert is_intact(there, second)
    assert any(str(moved.root) in path for path in paths_in(there.database))
    assert not any(f"{registry.home}/" in path for path in paths_in(there.database))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert Home(registry.home).mlflow.exists() == original_stays
