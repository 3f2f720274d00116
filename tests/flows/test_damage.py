"""What a night needs is damaged or deleted between two runs: it repairs what can be computed again, and names the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DATA = 65  # exit code


def flip(path: Path, offset: int = -1) -> None:
    """Change one bit in place, as a failing disk would: hard links see it as well."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def artifact(clawpipe, status: dict, step: str, role: str = "output") -> Path:
    """Directory of what a step made."""
    [ref] = [entry["artifacts"][role] for entry in status["steps"] if entry["name"] == step]
    return clawpipe.home.store / ref["name"] / ref["digest"]


def record(clawpipe, status: dict, step: str) -> Path:
    [key] = [entry["key"] for entry in status["steps"] if entry["name"] == step]
    return clawpipe.home.steps / key


def registry(clawpipe) -> tuple:
    return clawpipe.registered(), clawpipe.moves()


def essence(status: dict) -> dict:
    steps = {step["name"]: (step["digest"], step["rows_in"], step["rows_out"]) for step in status["steps"]}
    return {name: status[name] for name in ("verdict", "reasons", "heldout", "model", "policy_version")} | steps


def ran(status: dict) -> set[str]:
    return {step["name"] for step in status["steps"] if step["state"] == "ran"} - {"record_look", "publish_lineage"}


def registered_by(status: dict) -> str:
    """MLflow's run of the registered version, as the step says."""
    return next(step["details"]["run_id"] for step in status["steps"] if step["name"] == "register")


def damages(clawpipe, status: dict) -> list[tuple[str, Path]]:
    """The step that has to notice, and what is damaged: one artifact of each kind."""
    items = artifact(clawpipe, status, "make_items") / "part-00000.parquet"
    return [
        ("make_items", items),
        ("draw_heldout", items),  # its list of all items links the same file
        ("round-1/generate_rollouts", artifact(clawpipe, status, "round-1/generate_rollouts") / "part-00000.parquet"),
        ("round-1/score", artifact(clawpipe, status, "round-1/score") / "part-00000.parquet"),
        ("round-2/curate", artifact(clawpipe, status, "round-2/curate") / "manifest.json"),
        ("round-2/train", artifact(clawpipe, status, "round-2/train") / "adapter_model.safetensors"),
        ("evaluate/base", artifact(clawpipe, status, "evaluate/base") / "part-00000.parquet"),
        ("evaluate/candidate", artifact(clawpipe, status, "evaluate/candidate", "trajectories") / "manifest.json"),
        ("gate", record(clawpipe, status, "gate")),
        ("register", clawpipe.registered()["1"] / "adapter_model.safetensors"),
    ]


def test_flipped_bytes_are_noticed_and_repaired(finished):
    clawpipe, before = finished.clawpipe, finished.status
    harmed, known = damages(clawpipe, before), registry(clawpipe)
    for path in {path for _, path in harmed}:
        flip(path)
    (clawpipe.home.runs / before["night"] / "status.json").write_bytes(b"{")
    told = clawpipe("status", "--json", "--night", before["night"])
    assert (told.code, told.json["where"]) == (DATA, str(clawpipe.home.runs / before["night"] / "status.json"))

    after = clawpipe.night()
    assert essence(after) == essence(before)
    assert ran(after) == {step for step, _ in harmed}
    assert {"run": after["run"], **clawpipe("status", "--json", "--night", before["night"]).json} == after
    assert ran(clawpipe.night()) == set()
    assert registry(clawpipe) == known
    assert clawpipe.leftovers() == []


def test_deleted_artifacts_are_made_again(finished):
    clawpipe, before = finished.clawpipe, finished.status
    known = registry(clawpipe)
    steps = ("make_items", "round-1/generate_rollouts", "round-2/score", "round-1/curate", "round-1/train", "evaluate/candidate")
    for step in steps:
        shutil.rmtree(artifact(clawpipe, before, step))
    record(clawpipe, before, "promote").unlink()
    shutil.rmtree(clawpipe.registered()["1"])
    after = clawpipe.night()
    assert essence(after) == essence(before)
    assert ran(after) >= {*steps, "register", "promote"}
    assert registry(clawpipe) == known
    assert clawpipe.leftovers() == []


def test_lost_registry_is_made_anew(finished):
    clawpipe, before = finished.clawpipe, finished.status
    moves, database = clawpipe.moves(), clawpipe.home.mlflow / "mlflow.db"
    flip(database, offset=0)
    refused = clawpipe.run()
    assert (refused.code, refused.json["error"], refused.json["where"]) == (DATA, "DataError", str(database))
    database.unlink()
    after = clawpipe.night()
    assert essence(after) == essence(before)
    assert ran(after) == {"register", "promote"}
    assert after["model"]["aliases"] == ["champion"]
    assert (list(clawpipe.registered()), clawpipe.moves(), clawpipe.leftovers()) == (["1"], moves, [])
    again = clawpipe.night()  # the record of the version that was lost is not taken for that of the new one
    assert (ran(again), registered_by(again)) == (set(), registered_by(after))
    assert registered_by(again) != registered_by(before)


def test_damaged_record_of_the_night_is_named_and_can_be_removed(finished):
    clawpipe, before = finished.clawpipe, finished.status
    path = clawpipe.home.runs / before["night"] / "night.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    refused = clawpipe.run()
    assert (refused.code, refused.json["error"], refused.json["where"]) == (DATA, "DataError", str(path))
    path.unlink()
    after = clawpipe.night()
    assert essence(after) == essence(before)
    assert ran(after) == set()
    began = {"began": None}
    assert json.loads(path.read_bytes()) | began == json.loads(whole) | began


@pytest.mark.long
def test_a_lost_champion_comes_back_from_the_registry(finished):
    clawpipe, first = finished.clawpipe, finished.status
    adapter = artifact(clawpipe, first, "round-2/train")
    following = ("night=following", "rounds=1")

    flip(adapter / "adapter_model.safetensors")
    status = clawpipe.night(*following)
    assert status["heldout"]["champion"] is not None  # asked on items of this night's own

    shutil.rmtree(adapter)
    shutil.rmtree(clawpipe.registered()["1"])
    shutil.rmtree(clawpipe.home.mlflow / "packages")
    lost = clawpipe.run(*following)
    assert (lost.code, lost.json["where"]) == (DATA, str(adapter))
    assert "version 1" in lost.json["what"]
    assert clawpipe("status", "--json", "--night", status["night"]).json["verdict"] == status["verdict"]

    assert essence(clawpipe.night()) == essence(first)  # the night that made it makes it again
    assert clawpipe.night(*following)["verdict"] == status["verdict"]
