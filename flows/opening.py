"""Open a night: take its lock, and find its record, the champion to beat and the policy to start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from prefect.runtime import flow_run

from clawpipe.core.config.idle import idle_note
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, stored_dataset
from clawpipe.core.store.files import clear
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.system.devices import metered
from clawpipe.core.system.progress import reporting_to
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.verdict.looks import Looks, SeveralLooks, looks_at
from clawpipe.play.judging.spending import spending_of
from clawpipe.play.workers.pool import open_workers
from clawpipe.record.nights.conclude import conclude, count_evidence, evidence_warning
from clawpipe.record.nights.files import clear_leftovers, has_verdict, night_id, night_label, run_dir
from clawpipe.record.nights.forgetting import forgetting_warning
from clawpipe.record.nights.journal import Journal, watcher
from clawpipe.record.nights.judges import judges_of
from clawpipe.record.nights.locks import if_alone, night_held
from clawpipe.record.nights.machines import held
from clawpipe.record.nights.past import earlier_evidence, past_rounds
from clawpipe.record.nights.record import Incumbent, NightRecord, create_record, new_record, read_record
from clawpipe.record.nights.status import NightStatus
from clawpipe.record.registry.champions import incumbent
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.reporting.html import write_report
from clawpipe.record.reporting.transcripts import heldout_transcripts
from clawpipe.record.reviews.snapshot import made_by, reviewed_rows, reviews_of
from clawpipe.record.tracking.attach import tracked_by
from flows.datasets import datasets_of, named_datasets, waiting_rows
from flows.night import Night, OpenNight, Past
from flows.policies import bring_policies, teacher_of, untrained
from flows.refusals import require_loadable, require_settings, undemonstrated
from tasks.cluster import on_cluster


@contextmanager
def open_night(config: NightConfig, ledger_home: Home | None = None) -> Iterator[OpenNight]:
    """Open a night, and lock its home until the block ends.

    Args:
        config: the night's settings.
        ledger_home: home of the ledger of looks at held-out items, and of people's decisions; the night's home unless given.

    Raises:
        BusyError: another night for this model runs on this home, or data are being removed.
        ConfigError: this machine cannot load the models with the quantization asked for; the environment does not load; or
            the teacher does not exist or has another vocabulary.
        DataError: a stored dataset, or the champion to compare with, is lost.
    """
    require_settings(config)
    home = Home.from_env()
    store = open_store(home)
    with ExitStack() as stack:
        stack.enter_context(night_held(home, config.registry.model_name))
        share = stack.enter_context(held(home, night_id(config)))
        with if_alone(home, config.registry.model_name) as is_alone:
            if is_alone:  # nights of other models may be reading what is outdated
                store.sweep()
        clear_leftovers(home, night_id(config))
        _prepare_ledger(_tracking(home, config))
        record = _record(home, config, ledger_home or home)
        share()
        stack.callback(share)
        journal = Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), watcher())
        stack.enter_context(tracked_by(journal, record.resolve(config), _tracking(home, config), store, flow_run.id))
        stack.enter_context(reporting_to(journal))
        stack.enter_context(metered())
        stack.enter_context(spending_of(record.night))
        stack.enter_context(on_cluster(config.runtime))
        pool = stack.enter_context(open_workers(config.runtime, journal.run_dir / "logs"))
        stack.callback(_tell_judges, journal, home, store, record.resolve(config).scores)
        with journal.ended():
            bring_policies(config, _tracking_of(home, config, record.champion), store, pool, record.champion)
            night = OpenNight(**vars(_night(config, record, store, ledger_home or home)), home=home, journal=journal)
            journal.status.compared = night.compared
            if ledger_home is None and (idle := idle_note(config)):  # of a sweep's trials each would say it
                journal.warn(idle)
            if silent := undemonstrated(config):
                journal.warn(silent)
            if waits := waiting_rows(home, config):
                journal.warn(f"{waits} new rows wait for a person's approval and are not used: see `clawpipe review`")
            if config.curation.sampling.replay_nights and not night.past:
                journal.warn("nothing was replayed: this home has no earlier night of this environment and base with a verdict")
            yield night


def _tell_judges(journal: Journal, home: Home, store: Store, scores: Sequence[str]) -> None:
    """Record what the judges have said and spent, also of a night that an error ends."""
    if not journal.status.steps or journal.status.judges:
        return
    with suppress(ClawpipeError):  # what ended the night is told already
        journal.status.judges = judges_of(journal.status, home, store, [dataset_ref(store, "scores", one) for one in scores])
        journal.save()


def _prepare_ledger(tracking: Tracking) -> None:
    """Create the registry's database if other homes' looks are kept there, since MLflow's tables come first.

    Raises:
        ConfigError: the moves of this model's alias are kept in another ledger than this home uses.
    """
    if tracking.ledger().shared:
        from clawpipe.record.registry.client import changes  # loads MLflow

        with changes(tracking):
            pass


def dry_run_night(config: NightConfig) -> Night:
    """Return the night as it would run now, for a dry run; nothing is written but the rows that a query selects.

    Raises:
        ConfigError: the environment does not load, or LoRA targets modules that the model does not have.
    """
    require_loadable(config)
    home = Home.from_env()
    record = read_record(home, night_id(config))
    store = open_store(home)
    if record is None:
        champion, datasets = _incumbent(home, config), named_datasets(home, config)
        past, earlier = past_rounds(home, store, config), earlier_evidence(home, config, champion)
        record = new_record(home, config, champion, datasets, past, earlier, reviews_of(home, store, None, home))
    return _night(config, record, store, home)


def _record(home: Home, config: NightConfig, decided: Home) -> NightRecord:
    """Return the night's record. Without a verdict it is renewed when the champion has changed, or another night used its data."""
    record, champion = read_record(home, night_id(config)), _incumbent(home, config)
    if record and has_verdict(home, record.night):
        return record
    store, datasets = open_store(home), datasets_of(home, config, record)
    reviews = reviews_of(home, store, record, decided)
    if record is None or (champion, datasets, reviews) != (record.champion, record.datasets, record.reviews):
        if record and champion != record.champion and not config.draw:  # nights of one draw answer the same items
            ledger_of(decided, config).renew(record.night)
        past, earlier = past_rounds(home, store, config), earlier_evidence(home, config, champion)
        return create_record(home, config, champion, datasets, past, earlier, reviews)
    return record


def _incumbent(home: Home, config: NightConfig) -> Incumbent | None:
    own, shared = incumbent(_tracking(home, config), night_id(config)), config.registry.shared
    if own or not shared:
        return own
    served = incumbent(Tracking.of(home, shared), night_id(config))
    return served and served.model_copy(update={"model": shared})


def _tracking_of(home: Home, config: NightConfig, champion: Incumbent | None) -> Tracking:
    """Return the registry entry that the champion is of."""
    return Tracking.of(home, champion.model) if champion and champion.model else _tracking(home, config)


def _tracking(home: Home, config: NightConfig) -> Tracking:
    return Tracking.of(home, config.registry.model_name)


def _night(config: NightConfig, record: NightRecord, store: Store, ledger_home: Home) -> Night:
    config = record.resolve(config)
    base = untrained(config.model)
    ledger = ledger_of(ledger_home, config)
    return Night(
        config=config,
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
        earlier=record.earlier,
        seen=ledger.seen(config.draw or record.night),
        reviews=dataset_ref(store, "reviews", record.reviews) if record.reviews else None,
        past=[
            Past(
                trajectories=dataset_ref(store, "trajectories", one.trajectories),
                scores=dataset_ref(store, "scores", one.scores),
                trained=one.trained,
                night=one.night,
                items=stored_dataset(store, "task_items", one.items) if one.items else None,
                sampled=one.sampled,
            )
            for one in record.past
        ],
    )


def ledger_of(home: Home, config: NightConfig) -> Looks | SeveralLooks:
    """Return the ledger that counts looks at the held-out items of this model and its environments."""
    return looks_at(home.root, config.registry.model_name, config.drawn)


def close_night(night: OpenNight, *, counts_evidence: bool = True) -> NightStatus:
    """Write the night's report, remove its unfinished files, and return its final status.

    Args:
        counts_evidence: whether to warn if held-out items run out. Of a sweep's trials, which answer the same items, one says it.
    """
    status = count_evidence(conclude(night.journal.status), night.ledger, night.config.environment.heldout_items)
    if counts_evidence and (text := evidence_warning(status)):
        night.journal.warn(text)
    store = open_store(night.home)
    if text := forgetting_warning(status, store, night.config):
        night.journal.warn(text)
    night.journal.status.judges = judges_of(status, night.home, store, night.scores)
    if night.reviews:
        night.journal.status.reviews = reviewed_rows(store, night.reviews, [*night.stored, *night.pairs, *made_by(status)])
    night.journal.save()
    transcripts = heldout_transcripts(store, status)
    write_report(status, night.journal.run_dir, night.config, transcripts)
    with if_alone(night.home, night.config.registry.model_name) as is_alone:
        if is_alone:
            clear(night.home.work, ignore_errors=True)
    return status
