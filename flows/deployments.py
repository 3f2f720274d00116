"""The deployments of `clawpipe up`: those of prefect.yaml as shipped, or with configs of a user's own in its place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import load_config, read_yaml, shipped, shipped_file
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.data.ingest.query import takes_new
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.record.nights.files import DATE

NIGHTLY, OF_MODEL = "nightly", "model:"  # tags: of what runs nights; and before the name of the model that they are for
HOME_ID = "CLAWPIPE_DEPLOYED_HOME"  # in the environment of a deployed run: the id of the home that it is for


def deployments(
    configs: Sequence[Path] = (), overrides: Sequence[str] = (), ready_at: int | None = None, schedule: str | None = None
) -> JsonObject:
    """Return the contents of the prefect.yaml that is to be deployed.

    A config is that of the deployment `nightly`; and where it learns from what is new, of `on-demand` too, which then starts when
    enough data wait for the config's model. Of several configs each has deployments with its model's name. Whatever is left out is
    as shipped.

    Args:
        configs: settings of nights, each for a model of its own; deployed by absolute paths, because a worker runs in another
            directory.
        overrides: settings on top of each.
        ready_at: conversations and pairs that start a night on demand.
        schedule: when nights start, in cron's five fields, in the time zone of their settings.

    Raises:
        NotFoundError: there is no such config.
        ConfigError: the schedule is none; two configs are for one model; or one cannot be read, or would not work every night.
    """
    made = read_yaml(_shipped_file())
    nightly, on_demand, ingest = made["deployments"]
    if ready_at is not None:
        ingest["parameters"]["ready_at"] = ready_at
    if not configs and not overrides and schedule is None:
        return made
    files = [shipped(file).resolve() for file in configs or [Path(nightly["parameters"]["config"])]]
    nights = [_Night(file, load_config(file, overrides), overrides, schedule) for file in files]
    _require_own_models(nights)
    if waiting := [night.model for night in nights if night.takes_new]:
        ingest["parameters"]["model"] = waiting[0] if len(nights) == 1 else waiting
    of_each = [night.deployed(nightly, on_demand) for night in nights]
    if len(nights) == 1:
        return {**made, "deployments": [*of_each[0], ingest]}
    named = [_named(one, night) for night, own in zip(nights, of_each, strict=True) for one in own[: 1 + night.takes_new]]
    return {**made, "deployments": [*named, ingest]}


def scheduled(made: JsonObject) -> list[JsonObject]:
    """Return the parameters of each deployment of nights that starts by the clock."""
    return [one["parameters"] for one in made["deployments"] if NIGHTLY in one["tags"] and one["schedules"]]


@dataclass(frozen=True)
class _Night:
    """A config to deploy."""

    file: Path
    settings: NightConfig
    overrides: Sequence[str]
    schedule: str | None

    @property
    def model(self) -> str:
        return self.settings.registry.model_name

    @property
    def takes_new(self) -> bool:
        return any(takes_new(word) for word in (*self.settings.trajectories, *self.settings.preferences))

    def deployed(self, nightly: JsonObject, on_demand: JsonObject) -> list[JsonObject]:
        """Return the two shipped deployments for this config."""
        _require_every_night(self.settings, self.file)
        [clock] = nightly["schedules"]
        clock = clock | {"timezone": self.settings.timezone} | ({"cron": _cron(self.schedule)} if self.schedule else {})
        own: JsonObject = nightly | {
            "parameters": {"config": str(self.file), "overrides": list(self.overrides)},
            "schedules": [clock],
        }
        return [own, _on_demand(on_demand, own["parameters"], self.model) if self.takes_new else on_demand]


def _named(deployment: JsonObject, night: _Night) -> JsonObject:
    return deployment | {"name": f"{deployment['name']}-{night.model}", "tags": [*deployment["tags"], f"{OF_MODEL}{night.model}"]}


def _require_own_models(nights: Sequence[_Night]) -> None:
    for model, count in Counter(night.model for night in nights).items():
        if count > 1:
            files = ", ".join(str(night.file) for night in nights if night.model == model)
            raise ConfigError(f"{count} configs are for the model {model}", files, "give each a registry.model_name of its own")


def belonging_to(home: Home, made: JsonObject) -> JsonObject:
    """Return deployments for one home: a queue for its nights of each model, and its id, by which other homes refuse them."""
    return {**made, "deployments": [{**one, "work_pool": _work_pool(home_id(home), one)} for one in made["deployments"]]}


def _work_pool(home: str, deployment: JsonObject) -> JsonObject:
    pool = dict(deployment["work_pool"])
    variables = pool.get("job_variables", {})
    pool["job_variables"] = variables | {"env": variables.get("env", {}) | {HOME_ID: home}}
    if "work_queue_name" not in pool:
        return pool
    night = deployment["parameters"]
    model = load_config(shipped(Path(night["config"])), night["overrides"]).registry.model_name
    return pool | {"work_queue_name": f"{pool['work_queue_name']}-{home}-{model}"}


def _cron(schedule: str) -> str:
    from prefect.client.schemas.schedules import CronSchedule  # here: Prefect takes seconds to import

    try:
        CronSchedule(cron=schedule)
    except ValueError:
        fix = 'five fields: minute, hour, day, month, weekday, e.g. "30 3 * * *" for half past three'
        raise ConfigError(f"{schedule!r} is no schedule", "--schedule", fix) from None
    return schedule


def _shipped_file() -> Path:
    file = shipped_file("prefect.yaml")
    if file is None:
        raise NotFoundError("prefect.yaml is not installed", fix="install clawpipe from its wheel or from a clone")
    return file


def _on_demand(deployment: JsonObject, nightly: JsonObject, model: str) -> JsonObject:
    """Return the deployment with the nightly config, started by the event of its model; the event's label stands for the data."""
    triggers = [
        trigger
        | {"match": {"prefect.resource.id": f"clawpipe.model.{model}"}}
        | {"parameters": {"overrides": [*nightly["overrides"], *trigger["parameters"]["overrides"]]}}
        for trigger in deployment["triggers"]
    ]
    return deployment | {"parameters": dict(nightly), "triggers": triggers}


def _require_every_night(settings: NightConfig, file: Path) -> None:
    """Refuse what works once and here alone: one label for all nights, and paths that lead elsewhere from a worker's directory."""
    if DATE not in settings.night:
        what = f"the label is {settings.night!r} every night, so nothing would be done after the first"
        raise ConfigError(what, f"{file}: night", f"-o 'night={DATE}'")
    for name, text in _texts(settings.model_dump(mode="json")):
        path, colon, member = text.rpartition(":") if ".py:" in text else (text, "", "")
        if {"/", "."} & set(path) and not os.path.isabs(path) and os.path.exists(path):
            what = f"{text} is relative to this directory, and a worker runs in another"
            raise ConfigError(what, f"{file}: {name}", f"write {os.path.abspath(path)}{colon}{member}")


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts of a setting with their dotted names."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(inner, f"{name}.{key}" if name else str(key))
