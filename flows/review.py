"""What would teach tonight, for people to look at before it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.replaced import current_digest
from clawpipe.errors import NotFoundError
from clawpipe.play.judging.base import SCORERS, Scorer, scores_stored
from clawpipe.play.judging.spending import spending_of
from clawpipe.record.nights.files import list_nights, night_id
from clawpipe.record.nights.status import NightStatus, read_status
from clawpipe.record.reviews.open import open_decisions
from clawpipe.record.reviews.queue import Candidates, Queue
from clawpipe.record.reviews.snapshot import made_by
from flows.datasets import DATASETS, NothingNewError, named_datasets, without_approval

_FREE = "rules"  # a judge that asks nobody
_EVERYTHING = NightConfig(trajectories=("all",), scores=("all",), preferences=("all",))


def review_queue(home: Home, config: NightConfig | None, ask_judges: bool) -> Queue:
    """Return the rows that a night with these settings would take, and the rollouts that it has made.

    Args:
        config: None: everything that was ingested, and the rollouts of the last night.
        ask_judges: whether the settings' judges are asked about what they have not scored; else only one that asks nobody is.
    """
    nights = list_nights(home)
    night = night_id(config) if config else nights[-1] if nights else ""
    named, status, store = _named(home, config or _EVERYTHING), _status(home, night), open_store(home)
    made, said = (list(_there(store, refs(status))) if status else [] for refs in (made_by, _scores_of))
    candidates = Candidates([*named["trajectories"], *made], [*named["scores"], *said], named["preferences"])
    with spending_of(night):  # what judges are asked here is of the night's budget, and is not asked again by the night
        scorers = _judges(config, ask_judges)
    return Queue(store, candidates, open_decisions(home), scorers)


def _named(home: Home, config: NightConfig) -> dict[str, list[DatasetRef]]:
    words = {setting: getattr(config, setting) for setting in DATASETS}
    with suppress(NothingNewError):
        words |= named_datasets(home, without_approval(config))
        store = open_store(home)
        return {setting: [dataset_ref(store, DATASETS[setting], one) for one in words[setting]] for setting in DATASETS}
    return {setting: [] for setting in DATASETS}


def _status(home: Home, night: str) -> NightStatus | None:
    with suppress(NotFoundError):
        return read_status(home, night) if night else None
    return None


def _scores_of(status: NightStatus) -> list[DatasetRef]:
    """Return what the verifier and the judges of a night have said."""
    steps = (step for step in status.steps if step.name.rpartition("/")[2] == "score")
    return [ref for step in steps if isinstance(ref := step.artifacts.get("output"), DatasetRef)]


def _there(store: Store, refs: Iterable[DatasetRef]) -> Iterator[DatasetRef]:
    """Yield what a night has made and the store still holds; a dataset of which rows were forgotten has another in its place."""
    for ref in refs:
        now = ref.model_copy(update={"digest": current_digest(store, ref.digest)})
        if store.has(now):
            yield dataset_ref(store, now.name, now.digest)


def _judges(config: NightConfig | None, ask: bool) -> list[Scorer]:
    named = [(one.name, one.options) for one in config.scorers] if config else [(_FREE, {})]
    made = [SCORERS.make(name, options) for name, options in named if ask or name == _FREE]
    return [scorer for scorer in made if scores_stored(scorer)]
