"""Open a night: its lock, its record, the champion it has to beat, the policy it starts from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from clawpipe.config.night import EnvironmentConfig, NightConfig, Rollouts
from clawpipe.config.training import Train
from clawpipe.devices import expected_device
from clawpipe.environments.discovery import environment_name, load_environment
from clawpipe.evaluation.ledger import Ledger
from clawpipe.nights.compared import compared
from clawpipe.nights.conclude import conclude, count_evidence, evidence_warning
from clawpipe.nights.journal import Journal, watcher
from clawpipe.nights.record import (
    Incumbent,
    NightRecord,
    NightStatus,
    clear_leftovers,
    create_record,
    has_verdict,
    new_record,
    night_id,
    night_label,
    read_record,
    run_dir,
)
from clawpipe.planning.architecture import require_targets
from clawpipe.policy.quantization import require
from clawpipe.progress import heard_by
from clawpipe.registry.champions import incumbent
from clawpipe.registry.night_summary import NightSummary
from clawpipe.registry.tracking import Tracking
from clawpipe.reporting.html import write_report
from clawpipe.reporting.transcripts import heldout_transcripts
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_ref
from clawpipe.store.files import exclusive
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef, ModelRef
from clawpipe.tracking.attach import tracked_by
from clawpipe.workers.episodes import derive_seed
from clawpipe.workers.pool import open_workers
from flows.policies import bring_policies, teacher_of, untrained


@dataclass(frozen=True)
class Night:
    """What `the_night` needs to know beforehand. The same settings and champion give the same one, run or planned."""

    config: NightConfig
    night: str
    label: str  # by which its items and seeds are drawn
    base: ModelRef
    champion: Incumbent | None
    stored: list[DatasetRef]
    scores: list[DatasetRef]  # of what is stored
    pairs: list[DatasetRef]
    history: list[DatasetRef]  # trajectories of earlier nights, which are only compared with
    teacher: ModelRef | None  # None: each round's own policy
    ledger: Ledger
    seen: dict[str, int]  # held-out identities that earlier nights have looked at, and how many of them have

    @property
    def draw(self) -> str:
        """What it shares with the nights that answer the same held-out items."""
        return self.config.draw or self.night

    @property
    def start(self) -> ModelRef:
        """The first round's policy."""
        return self.champion.policy if self.champion and self.config.train.start_from == "champion" else self.base

    @property
    def known(self) -> list[ModelRef]:
        """Policies that were there before the night, and may have sampled what is stored."""
        return [self.base, self.champion.policy] if self.champion else [self.base]

    @property
    def trained(self) -> Train:
        """What of the settings decides how the model computes while it is trained; rates and losses do not."""
        train = self.config.train
        return Train(adapter=train.adapter, lora=train.lora, gradient_checkpointing=train.gradient_checkpointing)

    @property
    def environment(self) -> EnvironmentConfig:
        """With a seed of the night's own: a night under another label draws other items."""
        own = self.config.environment
        return own.model_copy(update={"seed": derive_seed(own.seed, self.label)})

    @property
    def rollouts(self) -> Rollouts:
        """How items are rolled out; a night on stored data evaluates by the defaults."""
        return self.config.rollouts or Rollouts()

    def seed(self, purpose: str, *parts: int) -> int:
        """Another one for every purpose and label."""
        return derive_seed(self.config.seed, self.label, purpose, *parts)

    def contenders(self, candidate: ModelRef) -> dict[str, ModelRef]:
        """Who is evaluated, by role."""
        champion = {"champion": self.champion.policy} if self.champion else {}
        return {"base": self.base, **champion, "candidate": candidate}

    @property
    def outside(self) -> list[ModelRef | DatasetRef]:
        """What was there before the night, for its lineage."""
        others = [self.champion.policy] if self.champion else []
        data = [*self.stored, *self.scores, *self.pairs, *self.history]
        return [self.base, *others, *([self.teacher] if self.teacher else []), *data]

    @property
    def compared(self) -> str:
        """What it learns from and what is compared, in one sentence."""
        return compared(self.config, self.stored, self.pairs, self.champion.version if self.champion else None)

    @property
    def summary(self) -> NightSummary:
        """What the registry is told about the night."""
        return NightSummary(
            night=self.night,
            compared=self.compared,
            champion=self.champion.version if self.champion else None,
            model_name=self.config.registry.model_name,
            config=self.config.settings(),
        )


@dataclass(frozen=True)
class OpenNight(Night):
    """A night that runs."""

    home: Home
    journal: Journal


@contextmanager
def open_night(config: NightConfig, ledger_home: Home | None = None) -> Iterator[OpenNight]:
    """Hold the home for one night.

    Args:
        config: its settings.
        ledger_home: where the looks at held-out items are written down; the night's own home unless given.

    Raises:
        BusyError: another night runs on this home.
        ConfigError: this machine cannot hold the models in the bits that the night asks for; the environment does not load; or
            there is no such teacher, or it has another vocabulary.
        DataError: a stored dataset, or the champion that this night is compared with, is lost.
    """
    _require(config)
    home = Home.from_env()
    store = open_store(home)
    with ExitStack() as stack:
        stack.enter_context(exclusive(home.locks / "night.lock", f"the home {home.root}"))
        store.sweep()
        clear_leftovers(home, night_id(config))
        record = _record(home, config)
        journal = Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), watcher())
        stack.enter_context(tracked_by(journal, record.resolve(config), _tracking(home, config), store))
        stack.enter_context(heard_by(journal))
        pool = stack.enter_context(open_workers(config.runtime, journal.run_dir / "logs"))
        with journal.ended():
            bring_policies(config, _tracking(home, config), store, pool, record.champion)
            night = OpenNight(**vars(_night(config, record, store, ledger_home or home)), home=home, journal=journal)
            journal.status.compared = night.compared
            yield night


def dry_run_night(config: NightConfig) -> Night:
    """The night as it would run now, looked up without touching anything.

    Raises:
        ConfigError: the environment does not load, or an adapter would be put on modules that the model does not have.
    """
    _require_loadable(config)
    home = Home.from_env()
    record = read_record(home, night_id(config))
    record = record or new_record(home, config, _incumbent(home, config))
    return _night(config, record, open_store(home), home)


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


def _night(config: NightConfig, record: NightRecord, store: Store, ledger_home: Home) -> Night:
    base = untrained(config.model)
    ledger = ledger_of(ledger_home, config)
    return Night(
        config=record.resolve(config),
        night=record.night,
        label=config.draw or night_label(config),
        base=base,
        champion=record.champion,
        stored=[dataset_ref(store, "trajectories", digest) for digest in config.trajectories],
        scores=[dataset_ref(store, "scores", digest) for digest in config.scores],
        pairs=[dataset_ref(store, "preference_pairs", digest) for digest in config.preferences],
        history=[dataset_ref(store, "trajectories", digest) for digest in config.curation.near.history],
        teacher=teacher_of(config, base, record.champion),
        ledger=ledger,
        seen=ledger.seen(config.draw or record.night),
    )


def ledger_of(home: Home, config: NightConfig) -> Ledger:
    """The looks that the night's own are among."""
    return Ledger(home.root, config.registry.model_name, environment_name(config.environment.name))


def _require_loadable(config: NightConfig) -> None:
    """Fail now, on whatever machine."""
    load_environment(config.environment.name, config.environment.options)
    if config.train.adapter == "lora":
        require_targets(config.model.base, config.train.lora)


def _require(config: NightConfig) -> None:
    """Fail now, not after hours of training."""
    _require_loadable(config)
    device = expected_device(config.runtime.device)
    require(config.model.quantization, device, "model.quantization")
    require(config.serving.quantization, device, "serving.quantization")


def close_night(night: OpenNight) -> NightStatus:
    """The final status; the report lies beside it, and nothing unfinished is left."""
    status = count_evidence(conclude(night.journal.status), night.ledger, night.config.environment.heldout_items)
    if text := evidence_warning(status):
        night.journal.warn(text)
    night.journal.save()
    transcripts = heldout_transcripts(open_store(night.home), status)
    write_report(status, night.journal.run_dir, night.config, transcripts)
    shutil.rmtree(night.home.work, ignore_errors=True)
    return status
