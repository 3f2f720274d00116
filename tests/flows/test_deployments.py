"""What `clawpipe up` deploys: prefect.yaml as shipped, or with a user's own config."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.cli.main import run
from clawpipe.config.load import read_yaml
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.services.stack import project_directory
from clawpipe.store.home import Home
from clawpipe.store.identity import home_id
from flows.deployments import HOME_ID, belonging_to, deployments

ENVIRONMENT = "environment: {name: shop}\n"
NEW = (
    "trajectories: [new]\nrollouts: null\nenvironment: {name: conversations}\nregistry: {model_name: mine}\ntrain: {method: sft}\n"
)


def named(*arguments, **more):
    return {one["name"]: one for one in deployments(*arguments, **more)["deployments"]}


@pytest.fixture
def night(tmp_path, monkeypatch):
    """Write a config into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "night.yaml").write_text(text)
        return Path("night.yaml")

    return write


def test_without_a_config_it_is_prefect_yaml():
    assert deployments() == read_yaml(project_directory() / "prefect.yaml")


def test_a_config_of_ones_own_is_scheduled_by_its_absolute_path(night):
    found = named(night(ENVIRONMENT), ["seed=3"])
    assert found["nightly"]["parameters"] == {"config": f"{Path.cwd()}/night.yaml", "overrides": ["seed=3"]}
    assert {name: one for name, one in found.items() if name != "nightly"} == {
        name: one for name, one in named().items() if name != "nightly"
    }


def test_one_that_learns_from_what_is_new_also_starts_on_demand(night):
    found = named(night(NEW), ["seed=3"])
    assert found["on-demand"]["parameters"] == found["nightly"]["parameters"]
    [trigger] = found["on-demand"]["triggers"]
    assert trigger["match"] == {"prefect.resource.id": "clawpipe.model.mine"}
    assert trigger["parameters"] == {"overrides": ["seed=3", "night={{ event.payload.night }}"]}
    assert found["ingest"]["parameters"] == {"ready_at": 200, "model": "mine"}


def test_nights_start_when_asked_in_the_zone_of_their_settings(night):
    found = named(night(ENVIRONMENT), ["timezone=Europe/Berlin"], schedule="30 3 * * 1-5")
    assert found["nightly"]["schedules"] == [{"cron": "30 3 * * 1-5", "timezone": "Europe/Berlin", "slug": "nightly"}]
    assert named(schedule="30 3 * * *")["nightly"]["schedules"] == [{"cron": "30 3 * * *", "timezone": "UTC", "slug": "nightly"}]
    with pytest.raises(ConfigError, match="'at night' is no schedule"):
        deployments(schedule="at night")


def test_deployments_of_a_home_name_it_and_queue_for_it(home: Home):
    made = {one["name"]: one["work_pool"] for one in belonging_to(home, deployments())["deployments"]}
    for deployment, model in (("nightly", "clawpipe-nightly"), ("on-demand", "clawpipe-agent")):
        assert made[deployment]["work_queue_name"] == f"nights-{home_id(home)}-{model}"
    assert "work_queue_name" not in made["ingest"]
    assert {pool["job_variables"]["env"][HOME_ID] for pool in made.values()} == {home_id(home)}


def test_a_number_of_ones_own_starts_a_night_on_demand():
    assert named(ready_at=500)["ingest"]["parameters"] == {"ready_at": 500}
    assert named(ready_at=500)["nightly"] == named()["nightly"]


def test_settings_alone_go_on_top_of_the_shipped_night():
    shipped = project_directory() / "configs" / "nightly.yaml"
    assert named(None, ["seed=3"])["nightly"]["parameters"] == {"config": str(shipped), "overrides": ["seed=3"]}


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        ("sed: 3\n", [], "no such setting"),
        ("night: monday\n", [], "'monday' every night"),
        (ENVIRONMENT, ["environment.name=mine.py:Sums"], "mine.py:Sums is relative"),
        ("environment: {name: prompts, options: {file: ./mine.py}}\n", [], "relative"),
    ],
)
def test_a_config_that_would_not_work_every_night_is_refused(night, text, settings, told):
    Path("mine.py").write_text("")
    with pytest.raises(ConfigError, match=told):
        deployments(night(text), settings)


def test_a_mistake_shows_before_anything_starts(home: Home, night, capsys):
    for words in (["--config", "none.yaml"], ["--config", str(night("night: monday\n"))]):
        with pytest.raises(SystemExit) as end:
            run(["up", *words])
        assert end.value.code in (ConfigError.exit_code, NotFoundError.exit_code)
        assert capsys.readouterr().err.startswith("clawpipe: ")
    assert not home.root.exists()
