"""The stored datasets that a night's settings name: by digest, by a word for what was ingested, or by a query for its rows.

`new` is what no night with a verdict has used, for the model that the night is for. A night that was killed has no verdict, so
what it used is new to the next one. `unlearned` is that, and what only nights have used that ended with HOLD and whose version was
never promoted: a few conversations a night seldom suffice for a verdict, and those of several nights may. What a query selects of a
dataset is a dataset of its own, which the night names; the other rows stay new.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.night import NightConfig
from clawpipe.core.ledger.open import open_ledger, registry_uri
from clawpipe.core.store.datasets import dataset_ref, find_dataset, newest
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.replaced import replaced, successor
from clawpipe.data.ingest.intake.state import IngestState, logs
from clawpipe.data.ingest.query import UNLEARNED, is_query, matching, parse_query, row_names, selected, takes_new
from clawpipe.errors import BusyError, DataError
from clawpipe.record.nights.files import has_verdict, list_nights, run_dir
from clawpipe.record.nights.record import NightRecord
from clawpipe.record.nights.status import read_status, verdicts
from clawpipe.record.reviews.open import last_decisions

DATASETS = {"trajectories": "trajectories", "scores": "scores", "preferences": "preference_pairs"}  # settings, and what they name
_DIGEST = re.compile(r"[0-9a-f]{64}")


class NothingNewError(BusyError):
    """No data have come that no night has used."""


def named_datasets(home: Home, config: NightConfig) -> dict[str, tuple[str, ...]]:
    """Return the digests of each setting that names datasets by anything but digests.

    Raises:
        NothingNewError: new data are asked for, and there are none yet.
        NotFoundError: a word is no dataset's.
        ConfigError: a query cannot be read.
        DataError: a log of ingest is damaged.
    """
    named: dict[str, tuple[str, ...]] = {setting: getattr(config, setting) for setting in DATASETS}
    if all(_DIGEST.fullmatch(word) for words in named.values() for word in words):
        return {}
    model, decided = config.registry.model_name, list(last_decisions(home)) if config.curation.approved_only else None
    found = {
        setting: tuple(
            dict.fromkeys(digest for word in words for digest in _digests(home, model, DATASETS[setting], word, decided))
        )
        for setting, words in named.items()
    }
    if not found["trajectories"] and not found["preferences"] and config.rollouts is None:
        what, fix = f"nothing has been ingested that no night for {model} has used", "ingest more, or name `all`"
        if waits := waiting_rows(home, config):
            what, fix = f"{waits} new rows wait for a person's approval, and nobody has decided about any", "see `clawpipe review`"
        asked = "preferences" if config.preferences and not config.trajectories else "trajectories"
        raise NothingNewError(what, asked, fix)
    return found


def waiting_rows(home: Home, config: NightConfig) -> int:
    """Return how many new trajectories and pairs wait for a person's approval, where the settings ask for it.

    A night takes of new data only those rows that a person has decided about, so that the others are new to the next one.
    """
    if not config.curation.approved_only:
        return 0
    anybody, store = without_approval(config), open_store(home)
    with suppress(NothingNewError):
        found, decided = named_datasets(home, anybody), set(last_decisions(home))
        taken = {setting for setting in found if any(takes_new(word) for word in getattr(config, setting))} - {"scores"}
        refs = [dataset_ref(store, DATASETS[setting], digest) for setting in sorted(taken) for digest in found[setting]]
        return sum(name not in decided for name in row_names(store, refs).to_pylist())
    return 0


def without_approval(config: NightConfig) -> NightConfig:
    """Return settings that take rows that wait for approval as well."""
    return config.model_copy(update={"curation": config.curation.model_copy(update={"approved_only": False})})


def datasets_of(home: Home, config: NightConfig, record: NightRecord | None) -> dict[str, tuple[str, ...]]:
    """Return the datasets of a night that starts or goes on: those of its record, unless another night has used one meanwhile,
    or the night ended for its data, so that what has come since may help.

    Raises:
        ClawpipeError: see `named_datasets`.
    """
    if record is None or read_status(home, record.night).exit_code == DataError.exit_code:
        return named_datasets(home, config)
    return named_datasets(home, config) if overtaken(home, config, record) else record.datasets


def overtaken(home: Home, config: NightConfig, record: NightRecord) -> bool:
    """Whether another night has used new data of a night that has no verdict yet."""
    words = {setting: getattr(config, setting) for setting in DATASETS}
    unused = [setting for setting in record.datasets if any(takes_new(word) for word in words[setting])]
    held = _held(home, config.registry.model_name) if any(UNLEARNED in words[setting] for setting in unused) else frozenset()
    return any(_is_used(home, config, DATASETS[setting], digest, held) for setting in unused for digest in record.datasets[setting])


def used_by_models(home: Home, besides: Collection[str] = ()) -> dict[str, frozenset[str]]:
    """Return for each dataset that a night with a verdict has used, or that has replaced one, the models it was used for.

    Args:
        besides: nights that do not count.
    """
    used: defaultdict[str, set[str]] = defaultdict(set)
    taken = replaced(open_store(home))
    for night in filter(lambda night: has_verdict(home, night) and night not in besides, list_nights(home)):
        model, digests = _used_in(run_dir(home, night) / "config.json")
        for digest in digests:
            used[digest].add(model)
            used[successor(taken, digest)].add(model)
    return {digest: frozenset(models) for digest, models in used.items()}


def waiting(home: Home, model: str, name: str) -> list[str]:
    """Return the ingested datasets of a name that no night with a verdict has used for the model, oldest first. Where a query took
    some of the rows, the others are a dataset of their own."""
    return _unused(home, model, name)


def unlearned(home: Home, model: str, name: str) -> list[str]:
    """Return what waits for the model, and what only nights have used that held, oldest first. Nothing where nothing waits: another
    night on the same rows would only look once more."""
    if name != "scores" and not waiting(home, model, name):
        return []
    return _unused(home, model, name, _held(home, model))


def _held(home: Home, model: str) -> frozenset[str]:
    """Return the nights of the model that ended with HOLD and whose version nobody has promoted since."""
    from clawpipe.record.registry.promotions import LOG, Move  # loads MLflow

    moves = open_ledger(home, registry_uri(home)).read(LOG, Move).entries
    promoted = {move.to_version for move in moves if move.model == model and move.action == "promote"}
    held = (status for status in verdicts(home, model) if status.verdict == "HOLD")
    return frozenset(Path(one.run_dir).name for one in held if not (one.model and one.model.version in promoted))


def _unused(home: Home, model: str, name: str, besides: Collection[str] = ()) -> list[str]:
    used = {digest for digest, models in used_by_models(home, besides).items() if model in models}
    whole = [digest for digest, state in _ingested(home, name).items() if not _is_whole(digest, state, used)]
    store, taken = open_store(home), _taken(home, name, used)
    if not len(taken):
        return whole
    left = [selected(store, dataset_ref(store, name, digest), taken, inverted=True) for digest in whole]
    return [ref.digest for ref in left if ref]


def _digests(home: Home, model: str, name: str, word: str, decided: Sequence[str] | None) -> list[str]:
    """Return the datasets that a word names; with `decided`, of new ones only the rows that people have decided about."""
    found = _named(home, model, name, word)
    if decided is None or not takes_new(word):
        return found
    store, names = open_store(home), pa.array(decided, pa.string())
    left = [selected(store, dataset_ref(store, name, digest), names) for digest in found]
    return [ref.digest for ref in left if ref]


def _named(home: Home, model: str, name: str, word: str) -> list[str]:
    if word in ("new", UNLEARNED):
        return (waiting if word == "new" else unlearned)(home, model, name)
    if is_query(word):
        return _queried(home, model, name, word)
    if word in ("all", "latest"):
        return list(_ingested(home, name)) if word == "all" else _latest(home, name)
    return [word if _DIGEST.fullmatch(word) else find_dataset(open_store(home), f"{name}/{word}").digest]


def _latest(home: Home, name: str) -> list[str]:
    """Return the dataset that ingest made last: of all that were stored, nights have made some, of held-out rows too."""
    store, last = open_store(home), [made[-1] for state in logs(home).values() if (made := state.datasets.get(name))]
    found = newest(store, (dataset_ref(store, name, digest) for digest in last))
    return [found.digest] if found else []


def _queried(home: Home, model: str, name: str, text: str) -> list[str]:
    """Return the datasets of the rows that a query selects. A score is selected with its trajectory."""
    store, query = open_store(home), parse_query(text)
    asked = "trajectories" if name == "scores" else name
    described = [dataset_ref(store, asked, digest) for digest in _ingested(home, asked)]
    keep = matching(store, described, query.conditions)
    searched = waiting(home, model, name) if query.unused else list(_ingested(home, name))
    found = [selected(store, dataset_ref(store, name, digest), keep) for digest in searched]
    return [ref.digest for ref in found if ref]


def _is_used(home: Home, config: NightConfig, name: str, digest: str, besides: Collection[str]) -> bool:
    """Whether a night with a verdict has used a dataset, or some of its rows, for the same model; `besides` are left out."""
    used = {one for one, models in used_by_models(home, besides).items() if config.registry.model_name in models}
    if digest in used:
        return True
    store, ingested = open_store(home), _ingested(home, name)
    others = _refs(home, name, used if digest not in ingested else used - set(ingested))
    mine = row_names(store, [dataset_ref(store, name, digest)]) if others else pa.array([], pa.string())
    return bool(pc.any(pc.is_in(mine, value_set=row_names(store, others))).as_py())  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


def _ingested(home: Home, name: str) -> dict[str, IngestState]:
    """Return the datasets of a name that ingest has made, oldest first, each with its log; two logs may hold equal datasets."""
    return {digest: state for state in logs(home).values() for digest in state.datasets.get(name, ())}


def _is_whole(digest: str, state: IngestState, used: set[str]) -> bool:
    """Whether all of a dataset has been used."""
    return digest in used or all(any(one.startswith(part) for one in used) for part in state.parts(digest))


def _taken(home: Home, name: str, used: set[str]) -> pa.Array:
    """Return what names the rows that were used as part of another dataset: of one that a query has selected."""
    ingested = _ingested(home, name)
    parts = {part for digest, state in ingested.items() for part in state.parts(digest)}
    apart = {digest for digest in used - set(ingested) if not any(digest.startswith(part) for part in parts)}
    return row_names(open_store(home), _refs(home, name, apart))


def _refs(home: Home, name: str, digests: set[str]) -> list[DatasetRef]:
    """Return refs of those digests that stand for a dataset of this name."""
    store, found = open_store(home), list[DatasetRef]()
    for digest in sorted(digests):
        with suppress(DataError):  # of another name, or removed
            found.append(dataset_ref(store, name, digest))
    return found


def _used_in(file: Path) -> tuple[str, list[str]]:
    """Return the model of a night and the digests in its settings; settings of another version that cannot be read name none."""
    try:
        settings: JsonObject = json.loads(file.read_bytes())
        return settings["registry"]["model_name"], [digest for setting in DATASETS for digest in settings[setting]]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []
