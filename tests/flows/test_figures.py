"""The figures of a real night, in the file and on the port."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clawpipe.core.config import NightConfig
from clawpipe.core.config.metrics import Metrics
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, ConfigError
from clawpipe.serve.monitoring.exposition import HOME_BYTES
from flows.figures import exported
from tests.flows.test_alarms import watched


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {family.name: [(one.labels, one.value) for one in family.samples] for family in text_string_to_metric_families(text)}


def config(file: Path) -> NightConfig:
    return NightConfig(night="a", metrics=Metrics(textfile=str(file)))


def test_a_night_that_fails_is_in_the_file_too(home: Home, tmp_path: Path):
    home.root.mkdir()
    (home.root / "secret").write_text("12345")
    with pytest.raises(BusyError), exported(config(tmp_path / "c.prom")):
        raise BusyError("the engine is gone", "x", "y")
    assert read((tmp_path / "c.prom").read_text()) == {"clawpipe_night_home_bytes": [({"directory": "."}, 5.0)]}


def test_a_file_that_cannot_be_written_fails_no_night(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "c.prom"
    with caplog.at_level(logging.WARNING), exported(config(file)):
        file.mkdir()
    assert "c.prom was not written: IsADirectoryError" in caplog.text


def test_a_wrong_place_is_said_before_the_night(home: Home):
    with pytest.raises(ConfigError, match="lies in the home"), exported(config(home.root / "c.prom")):
        pytest.fail("the night began")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_file_and_port_have_the_figures_of_a_night(finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clawpipe, file, night = finished.clawpipe, tmp_path / "c.prom", tmp_path / "night.yaml"
    night.write_text(f"metrics: {{textfile: {file}}}\n")
    status = clawpipe.night(f"metrics.textfile={file}")
    found = read(file.read_text())
    wanted = {"model": "clawpipe-tiny", "role": "candidate"}  # the home may hold nights of other models as well
    [(labels, success)] = [one for one in found["clawpipe_night_heldout_success_ratio"] if one[0].items() >= wanted.items()]
    assert success == status["heldout"]["candidate"]["success"]
    model = {"model": labels["model"]}
    assert ({**model, "verdict": status["verdict"]}, 1.0) in found["clawpipe_night_verdict"]
    of_model = [labels for labels, _ in found["clawpipe_night_stage_tokens"] if labels.items() >= model.items()]
    tokens = {(labels["stage"], labels["kind"]) for labels in of_model}
    assert tokens == {("generate_rollouts", "sampled"), ("train", "trained"), ("evaluate", "sampled")}
    assert "clawpipe_night_stage_accelerator_seconds" not in found or status["steps"][0]["accelerator_seconds"]
    assert "clawpipe_night_stage_cost" not in found

    file.unlink()
    monkeypatch.setenv("CLAWPIPE_HOME", str(clawpipe.home.root))
    user, _, password = home_secret(clawpipe.home).partition(":")
    with watched(clawpipe.home, night) as url:
        assert httpx.get(f"{url}/metrics").status_code == 401
        answer = httpx.get(f"{url}/metrics", auth=(user, password), timeout=60)
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert of_nights(read(answer.text)) == of_nights(found) == of_nights(read(file.read_text()))


def of_nights(found: dict[str, list[tuple[dict[str, str], float]]]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All but the bytes of the home, to which the watcher adds its log."""
    return {name: samples for name, samples in found.items() if name != HOME_BYTES}
