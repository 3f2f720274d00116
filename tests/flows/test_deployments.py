"""What `clawpipe up` deploys: prefect.yaml as shipped, or with a user's own config."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clawpipe.cli.main import run
from clawpipe.core.config.load import load_config, read_yaml
from clawpipe.core.services import stack
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.record.nights.files import list_nights
from clawpipe.record.nights.record import create_record
from clawpipe.record.notifications.outbox import leave
from flows.deployments import HOME_ID, belonging_to, deployments, scheduled
from flows.watch import Alarm, Watcher

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
    found = named([night(ENVIRONMENT)], ["seed=3"])
    assert found["nightly"]["parameters"] == {"config": f"{Path.cwd()}/night.yaml", "overrides": ["seed=3"]}
    assert {name: one for name, one in found.items() if name != "nightly"} == {
        name: one for name, one in named().items() if name != "nightly"
    }


def test_one_that_learns_from_what_is_new_also_starts_on_demand(night):
    found = named([night(NEW)], ["seed=3"])
    assert found["on-demand"]["parameters"] == found["nightly"]["parameters"]
    [trigger] = found["on-demand"]["triggers"]
    assert trigger["match"] == {"prefect.resource.id": "clawpipe.model.mine"}
    assert trigger["parameters"] == {"overrides": ["seed=3", "night={{ event.payload.night }}"]}
    assert found["ingest"]["parameters"] == {"ready_at": 200, "model": "mine"}


def test_nights_start_when_asked_in_the_zone_of_their_settings(night):
    found = named([night(ENVIRONMENT)], ["timezone=Europe/Berlin"], schedule="30 3 * * 1-5")
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


@pytest.fixture
def agents(tmp_path):
    """Configs of two models that learn from what is new, and of one that does not."""

    def write(name, text):
        (tmp_path / f"{name}.yaml").write_text(text + f"registry: {{model_name: {name}}}\n")
        return tmp_path / f"{name}.yaml"

    new = NEW.replace("registry: {model_name: mine}\n", "")
    return [write("coder", new), write("writer", new), write("clerk", ENVIRONMENT)]


def test_each_of_several_models_has_its_own_nights(home, agents):
    made = belonging_to(home, deployments(agents, ["seed=3"], schedule="30 3 * * *"))
    found = {one["name"]: one for one in made["deployments"]}
    assert list(found) == ["nightly-coder", "on-demand-coder", "nightly-writer", "on-demand-writer", "nightly-clerk", "ingest"]
    queues = {name: one["work_pool"].get("work_queue_name", "").rpartition("-")[2] for name, one in found.items()}
    assert queues == {name: "" if name == "ingest" else name.rpartition("-")[2] for name in found}
    assert found["nightly-coder"]["tags"] == ["clawpipe", "nightly", "model:coder"]
    [trigger] = found["on-demand-writer"]["triggers"]
    assert trigger["match"] == {"prefect.resource.id": "clawpipe.model.writer"}
    assert found["ingest"]["parameters"] == {"ready_at": 200, "model": ["coder", "writer"]}
    assert [night["config"] for night in scheduled(made)] == [str(file) for file in agents]
    assert found["nightly-clerk"]["schedules"][0]["cron"] == "30 3 * * *"


def test_two_configs_of_one_model_are_refused(agents, tmp_path):
    (tmp_path / "again.yaml").write_text(agents[0].read_text())
    with pytest.raises(ConfigError, match="2 configs are for the model coder"):
        deployments([*agents, tmp_path / "again.yaml"])


def test_imports_wait_for_no_night_of_several_models(home, agents):
    several, one = (belonging_to(home, deployments(files)) for files in (agents, agents[:1]))
    commands = stack._worker_commands(several, 2)
    assert list(commands) == ["worker", "import-worker"]
    nights = commands["worker"]
    assert nights[nights.index("--limit") + 1] == "2"
    assert {nights[place + 1] for place, word in enumerate(nights) if word == "--work-queue"} == {
        f"nights-{home_id(home)}-{model}" for model in ("coder", "writer", "clerk")
    }
    assert commands["import-worker"][-2:] == ["--work-queue", "default"]
    assert list(stack._worker_commands(one, 1)) == ["worker"]
    assert stack._watcher_command(1, several)[3:] == ["1", *map(str, agents), "--"]


def test_an_alarm_reaches_those_whose_night_it_is(home, agents):
    configs = [load_config(file) for file in agents]
    watcher = Watcher(home, configs)
    told = {"kind": "night.overdue", "text": "x", "about": "y"}
    assert watcher._about(Alarm.model_validate(told | {"model": "writer"})) == [configs[1]]
    assert watcher._about(Alarm.model_validate(told)) == configs[:1]
    create_record(home, configs[2].model_copy(update={"night": "n"}), None, {})
    [night] = list_nights(home)
    assert watcher._about(Alarm.model_validate(told | {"kind": "night.crashed", "night": night})) == [configs[2]]


def test_what_no_model_has_is_told_to_the_receivers_of_all(home, agents):
    """Those of the first config alone heard of it."""
    for number, file in enumerate(agents):
        file.write_text(f"{file.read_text()}\nnotify: {{webhooks: [{{url: 'http://127.0.0.1:{number + 1}/'}}]}}\n")
    leave(home, "service.failing", "the worker ended")
    Watcher(home, [load_config(file) for file in agents])._tell_everybody(due=False)
    with closing(sqlite3.connect(home.root / "notifications.sqlite")) as database:
        found = {url for (url,) in database.execute("SELECT receiver FROM deliveries")}
    assert found == {receiver for file in agents for receiver in load_config(file).notify.receivers}
    assert len(found) == 3


def test_a_number_of_ones_own_starts_a_night_on_demand():
    assert named(ready_at=500)["ingest"]["parameters"] == {"ready_at": 500}
    assert named(ready_at=500)["nightly"] == named()["nightly"]


def test_settings_alone_go_on_top_of_the_shipped_night():
    shipped = project_directory() / "configs" / "nightly.yaml"
    assert named([], ["seed=3"])["nightly"]["parameters"] == {"config": str(shipped), "overrides": ["seed=3"]}


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
        deployments([night(text)], settings)


def test_a_mistake_shows_before_anything_starts(home: Home, night, capsys):
    for words in (["--config", "none.yaml"], ["--config", str(night("night: monday\n"))]):
        with pytest.raises(SystemExit) as end:
            run(["up", *words])
        assert end.value.code in (ConfigError.exit_code, NotFoundError.exit_code)
        assert capsys.readouterr().err.startswith("clawpipe: ")
    assert not home.root.exists()
