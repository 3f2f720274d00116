"""Garbage collection of versions: nothing that anybody can come back to, or that forgetting asks for, goes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from clawpipe.core.store.files import InUseError, exclusive
from clawpipe.data.forgotten.subject import Subject
from clawpipe.errors import NotFoundError
from clawpipe.record.lineage.exposure import exposure
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.forgetting import registered_versions
from clawpipe.record.registry.promotions import promote, rollback
from clawpipe.record.registry.runs import experiment_id
from clawpipe.record.registry.versions import champion, download
from clawpipe.record.removal import collect as collecting
from clawpipe.record.removal.collect import collect

pytestmark = pytest.mark.slow


@pytest.fixture
def years(filled, tracking, tmp_path):
    """Six versions: 1, 3 and 4 were promoted, 4 was rolled back, 6 was trained from 5; a seventh night was rejected."""
    start, policies, row = filled.base, {}, filled.rows("samples")[0]  # of Ann's session
    for number in range(1, 8):
        label = f"night-{number}"
        other = {"trajectory_id": f"other-{number}", "item_id": f"other-{number}"}
        lesson = filled.publish("samples", [row if number == 5 else row | other])
        policies[number] = filled.night(label, lesson, policies[5] if number == 6 else start)
        register(filled, tracking, label, policies[number], lesson, tmp_path, version=number < 7)
        if number in (1, 3, 4):
            promote(tracking, str(number), who="me", reason="", forced=True)
            start = policies[number]
    rollback(tracking, who="me", reason="")
    return filled


def register(filled, tracking, label, policy, lesson, scratch: Path, *, version: bool) -> None:
    """As a night does: a run with checkpoints, and a version with files."""
    (scratch / "weights").mkdir(exist_ok=True)
    (scratch / "weights" / "adapter.safetensors").write_text("x" * 100)
    with changes(tracking) as client:
        experiment = experiment_id(client, tracking)
        run = client.create_run(experiment, tags={"clawpipe.night": filled.nights[label]})
        client.log_artifacts(run.info.run_id, str(scratch / "weights"), "checkpoints/round-1")
        client.set_terminated(run.info.run_id)
        if not version:
            return
        model = client.create_logged_model(experiment, name="adapter", source_run_id=run.info.run_id)
        client.log_model_artifacts(model.model_id, str(scratch / "weights"))
        facts = {"key": label, "model_id": model.model_id, "package": "f" * 64, "policy": policy.model_dump_json()}
        tags = {f"clawpipe.{name}": value for name, value in (facts | {"night": filled.nights[label]}).items()}
        if not client.search_registered_models(f"name='{tracking.model_name}'"):
            client.create_registered_model(tracking.model_name)
        tags["clawpipe.dataset.round-1"] = lesson.digest
        client.create_model_version(tracking.model_name, model.artifact_location, run_id=run.info.run_id, tags=tags)


def weights(tracking, part: str) -> int:
    return len(list((tracking.home / "mlflow" / "artifacts").glob(f"{part}/**/adapter.safetensors")))


def versions(tracking) -> dict[str, str]:
    """Numbers of the versions, with the dates on which their files went."""
    return {info.version: info.files_removed for info, _ in registered_versions(tracking)}


def test_what_no_rollback_can_reach_loses_its_files_alone(years, tracking):
    planned = collect(years.home, keep_versions=1, dry_run=True)
    taken = [one.of for one in planned.files if one.of.startswith("models:")]
    assert sorted(taken) == ["models:/agent/2", "models:/agent/4", "models:/agent/5"]
    assert {one.bytes for one in planned.files} == {100}
    assert (weights(tracking, "models"), weights(tracking, "*/artifacts/checkpoints")) == (6, 7)
    assert set(versions(tracking).values()) == {""}

    assert collect(years.home, keep_versions=1).files == planned.files
    assert (weights(tracking, "models"), weights(tracking, "*/artifacts/checkpoints")) == (3, 4)  # 1, 3, 6, and the latest run
    found = versions(tracking)
    assert {version for version, date in found.items() if date} == {"2", "4", "5"}
    assert len(found) == 6
    assert collect(years.home, keep_versions=1).files == []


def test_a_version_without_files_is_not_promoted(years, tracking):
    collect(years.home, keep_versions=1)
    with pytest.raises(NotFoundError, match="removed this version's files") as refused:
        promote(tracking, "2", who="me", reason="", forced=True)
    assert years.nights["night-2"] in refused.value.fix
    with pytest.raises(NotFoundError, match="removed this version's files"):
        download(tracking, "models:/agent/5")
    assert rollback(tracking, who="me", reason="").to_version == "1"


def test_a_version_that_is_promoted_meanwhile_keeps_its_files(years, tracking, monkeypatch):
    """From another terminal, while the store is looked through, which may take minutes."""
    look_through = collecting._garbage

    def meanwhile(*arguments):
        with suppress(InUseError):  # then the promotion waits, and is refused afterwards
            with exclusive(tracking.lock, "the model registry"):
                pass
            promote(tracking, "2", who="me", reason="", forced=True)
        return look_through(*arguments)

    monkeypatch.setattr(collecting, "_garbage", meanwhile)
    collect(years.home, keep_versions=1)
    assert champion(tracking).files_removed == ""


def test_forgetting_knows_what_taught_the_versions_that_stay(years, tracking):
    """Version 6 was trained from 5, 5 from 4: what taught these stays, without their weights. What taught 2 and 7 goes."""
    collect(years.home, 0, keep_versions=1, settling=0.0)
    left = {row["trajectory_id"] for row in years.rows("samples")}
    assert left == {"a1", "other-1", "other-3", "other-4", "other-6"}
    learned = {model.uri for model in exposure(years.home, Subject(session="sess-a")).models}
    assert learned == {"models:/agent/5", "models:/agent/6"}


def test_versions_of_other_homes_stay(years, tracking):
    for night in years.nights.values():
        (years.home.runs / night / "night.json").unlink()  # as if another home had run them
    assert collect(years.home, keep_versions=1, dry_run=True).files == []


def test_all_that_a_dry_run_never_collects_is_listed_with_bytes(years):
    stays = {one.what: one.bytes for one in collect(years.home, dry_run=True).stays}
    assert stays["MLflow"] > 13 * 100
    assert stays["promotions and looks"] == (years.home.root / "promotions.jsonl").stat().st_size
    assert list(stays.values()) == sorted(stays.values(), reverse=True)
