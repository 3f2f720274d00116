"""Open a night: its lock, its record, the champion it has to beat, the policy it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawpipe.config.night import Model, NightConfig
from clawpipe.errors import DataError
from clawpipe.nights.journal import Journal, watcher
from clawpipe.nights.record import (
    Incumbent,
    NightRecord,
    NightStatus,
    clear_leftovers,
    create_record,
    has_verdict,
    night_id,
    read_record,
    run_dir,
)
from clawpipe.policy.base import is_ready, resolve_base
from clawpipe.policy.version import base_ref
from clawpipe.registry.champions import incumbent, restore
from clawpipe.registry.facts import NightFacts
from clawpipe.registry.tracking import Tracking
from clawpipe.rollouts.pool import WorkerPool
from clawpipe.rollouts.request import Job, ResolveRequest
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_ref
from clawpipe.store.home import Home
from clawpipe.store.locks import exclusive
from clawpipe.store.refs import DatasetRef, ModelRef
from flows.steps import RealSteps, Steps
from tasks.resources import open_resources

UNFETCHED = "unfetched"


@dataclass(frozen=True)
class Night:
    """What `the_night` needs to know beforehand. The same settings and champion give the same one, run or planned."""

    config: NightConfig
    night: str
    base: ModelRef
    champion: Incumbent | None
    stored: list[DatasetRef]

    @property
    def start(self) -> ModelRef:
        """The first round's policy."""
        return self.champion.policy if self.champion and self.config.train.start_from == "champion" else self.base

    def contenders(self, candidate: ModelRef) -> dict[str, ModelRef]:
        """Who is evaluated, by role."""
        champion = {"champion": self.champion.policy} if self.champion else {}
        return {"base": self.base, **champion, "candidate": candidate}

    @property
    def outside(self) -> list[ModelRef | DatasetRef]:
        """What was there before the night, for its lineage."""
        return [self.base, *([self.champion.policy] if self.champion else []), *self.stored]

    @property
    def facts(self) -> NightFacts:
        """What the registry is told about the night."""
        return NightFacts(
            night=self.night,
            champion=self.champion.version if self.champion else None,
            model_name=self.config.registry.model_name,
            config=self.config.model_dump(mode="json", exclude={"runtime"}),
        )


@dataclass(frozen=True)
class OpenNight(Night):
    """A night that runs."""

    home: Home
    journal: Journal
    do: Steps


@contextmanager
def open_night(config: NightConfig) -> Iterator[OpenNight]:
    """Hold the home for one night.

    Raises:
        BusyError: another night runs on this home.
        DataError: a stored dataset, or the champion that this night is compared with, is lost.
    """
    home, store = Home.from_env(), Store(Home.from_env().store)
    with ExitStack() as stack:
        stack.enter_context(exclusive(home.locks / "night.lock", f"the home {home.root}"))
        store.sweep()
        clear_leftovers(home, night_id(config))
        record = _record(home, config)
        journal = Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), watcher())
        shared = stack.enter_context(open_resources(home, config.runtime, journal))
        _bring_champion(_tracking(home, config), store, shared.pool, record)
        _bring_base(shared.pool, config.model.base)
        facts = _facts(config, record, store)
        yield OpenNight(**facts, home=home, journal=journal, do=RealSteps(journal))


def paper_night(config: NightConfig) -> Night:
    """The night as it would run now, looked up without touching anything."""
    home = Home.from_env()
    record = read_record(home, night_id(config))
    record = record or NightRecord(night=night_id(config), label=config.night, champion=_incumbent(home, config))
    return Night(**_facts(config, record, Store(home.store)))


def _record(home: Home, config: NightConfig) -> NightRecord:
    """The night's record. One that came to no verdict is renewed when another model has to be beaten by now."""
    record, champion = read_record(home, night_id(config)), _incumbent(home, config)
    if record is None or (champion != record.champion and not has_verdict(home, record.night)):
        return create_record(home, config, champion)
    return record


def _incumbent(home: Home, config: NightConfig) -> Incumbent | None:
    return incumbent(_tracking(home, config), night_id(config))


def _tracking(home: Home, config: NightConfig) -> Tracking:
    return Tracking.of(home, config.registry.model_name)


def _facts(config: NightConfig, record: NightRecord, store: Store) -> dict[str, Any]:
    return {
        "config": config,
        "night": record.night,
        "base": _base(config.model),
        "champion": record.champion,
        "stored": [dataset_ref(store, "trajectories", digest) for digest in config.trajectories],
    }


def _base(model: Model) -> ModelRef:
    """The untrained policy; of a base model that is yet to be fetched the digest is not known."""
    digest = resolve_base(model.base).digest if is_ready(model.base) else UNFETCHED
    return base_ref(model.base, digest, model.calls, model.dtype)


def _bring_base(pool: WorkerPool, name: str) -> None:
    """Fetch or convert a base model that is not there yet, in a worker: it takes a heavy process."""
    if not is_ready(name):
        pool.run(Job(request=ResolveRequest(name=name)))


def _bring_champion(tracking: Tracking, store: Store, pool: WorkerPool, record: NightRecord) -> None:
    if record.champion is None:
        return
    policy = record.champion.policy
    _bring_base(pool, policy.base_name)
    if policy.adapter and not store.intact(policy) and not restore(tracking, store, record.champion):
        raise DataError(
            f"the champion that this night is compared with (version {record.champion.version}) is lost",
            str(Path(store.path(policy))),
            "restore the registry's artefacts, or remove the night's night.json to compare with today's champion",
        )
