"""A night whose artifacts lie on object storage: what the machine loses, the next run of it fetches."""

from __future__ import annotations

import shutil

import fsspec
import pytest

pytestmark = pytest.mark.slow

SHORT = ("rounds=1", "train.optimizer_steps=2")


def states(status: dict) -> set[str]:
    return {step["state"] for step in status["steps"] if step["name"] not in ("record_look", "publish_lineage")}


def test_a_night_outlives_its_machine(new_clawpipe, bucket, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_STORE", f"s3://{bucket}/nights")
    clawpipe = new_clawpipe("shared")
    before = clawpipe.night(*SHORT)
    assert states(before) == {"ran"}
    manifests = fsspec.filesystem("s3").glob(f"{bucket}/nights/*/*/manifest.json")
    assert {"/".join(path.split("/")[-3:-1]) for path in manifests} == clawpipe.artifacts()

    shutil.rmtree(clawpipe.home.store)
    after = clawpipe.night(*SHORT)
    assert states(after) == {"cached"}
    assert (after["heldout"], after["verdict"], after["model"]) == (before["heldout"], before["verdict"], before["model"])
    assert clawpipe.leftovers() == []
