"""The deployments of `clawpipe up`: those of prefect.yaml as shipped, or with a user's own config in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clawpipe.config.load import load_config, read_yaml, shipped, shipped_file
from clawpipe.config.night import NightConfig
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.ingest.query import takes_new
from clawpipe.json_types import JsonObject
from clawpipe.nights.record import DATE
from clawpipe.store.home import Home
from clawpipe.store.identity import home_id

HOME_ID = "CLAWPIPE_DEPLOYED_HOME"  # in the environment of a deployed run: the id of the home that it is for


def deployments(
    config: Path | None = None, overrides: Sequence[str] = (), ready_at: int | None = None, schedule: str | None = None
) -> JsonObject:
    """Return the contents of the prefect.yaml that is to be deployed.

    The config is that of the deployment `nightly`; and where it learns from what is new, of `on-demand` too, which then starts when
    enough data wait for the config's model. Whatever is left out is as shipped.

    Args:
        config: a night's settings; deployed by its absolute path, because a worker runs in a directory of its own.
        overrides: settings on top of it.
        ready_at: conversations and pairs that start a night on demand.
        schedule: when nights start, in cron's five fields, in the time zone of their settings.

    Raises:
        NotFoundError: there is no such config.
        ConfigError: the schedule is none; or the config cannot be read, or would not work night after night.
    """
    made = read_yaml(_shipped_file())
    named = {deployment["name"]: deployment for deployment in made["deployments"]}
    if ready_at is not None:
        named["ingest"]["parameters"]["ready_at"] = ready_at
    if config is None and not overrides and schedule is None:
        return made
    nightly = named["nightly"]["parameters"]
    file = shipped(config or Path(nightly["config"])).resolve()
    settings = load_config(file, overrides)
    _require_every_night(settings, file)
    [clock] = named["nightly"]["schedules"]
    clock |= {"timezone": settings.timezone} | ({"cron": _cron(schedule)} if schedule else {})
    nightly |= {"config": str(file), "overrides": list(overrides)}
    if any(takes_new(word) for word in (*settings.trajectories, *settings.preferences)):
        _on_demand(named["on-demand"], nightly, settings.registry.model_name)
        named["ingest"]["parameters"]["model"] = settings.registry.model_name
    return made


def belonging_to(home: Home, made: JsonObject) -> JsonObject:
    """Return deployments for one home: a queue for its nights of each model, and its id, by which other homes refuse them."""
    return {**made, "deployments": [{**one, "work_pool": _work_pool(home_id(home), one)} for one in made["deployments"]]}


def _work_pool(home: str, deployment: JsonObject) -> JsonObject:
    pool = {**deployment["work_pool"], "job_variables": {"env": {HOME_ID: home}}}
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


def _on_demand(deployment: JsonObject, nightly: JsonObject, model: str) -> None:
    """Let the deployment run the nightly config, by the event of its model; the event's label stands for the data."""
    deployment["parameters"] = dict(nightly)
    for trigger in deployment["triggers"]:
        trigger["match"] = {"prefect.resource.id": f"clawpipe.model.{model}"}
        trigger["parameters"]["overrides"] = [*nightly["overrides"], *trigger["parameters"]["overrides"]]


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
