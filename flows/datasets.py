"""The stored datasets that a night's settings name: by digest, or by a word for what was ingested.

`new` is what no night with a verdict has used, for the model that the night is for. A night that was killed has no verdict, so
what it used is new to the next one.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from clawpipe.config.night import NightConfig
from clawpipe.errors import BusyError
from clawpipe.ingest.memory import logs
from clawpipe.nights.record import NightRecord, has_verdict, list_nights, run_dir
from clawpipe.store.datasets import find_dataset
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.replaced import replaced, successor

DATASETS = {"trajectories": "trajectories", "scores": "scores", "preferences": "preference_pairs"}  # settings, and what they name
_DIGEST = re.compile(r"[0-9a-f]{64}")


def named_datasets(home: Home, config: NightConfig) -> dict[str, tuple[str, ...]]:
    """Return the digests of each setting that names datasets by anything but digests.

    Raises:
        BusyError: new data are asked for, and there are none yet.
        NotFoundError: a word is no dataset's.
        DataError: a log of ingest is damaged.
    """
    named: dict[str, tuple[str, ...]] = {setting: getattr(config, setting) for setting in DATASETS}
    if all(_DIGEST.fullmatch(word) for words in named.values() for word in words):
        return {}
    model = config.registry.model_name
    found = {
        setting: tuple(dict.fromkeys(digest for word in words for digest in _digests(home, model, DATASETS[setting], word)))
        for setting, words in named.items()
    }
    if not found["trajectories"] and not found["preferences"] and config.rollouts is None:
        what = f"nothing has been ingested that no night for {model} has used"
        raise BusyError(what, "trajectories", "ingest more, or name `all` in place of `new`")
    return found


def datasets_of(home: Home, config: NightConfig, record: NightRecord | None) -> dict[str, tuple[str, ...]]:
    """Return the datasets of a night that starts or goes on: those of its record, unless another night has used one meanwhile.

    Raises:
        ClawpipeError: see `named_datasets`.
    """
    if record is None:
        return named_datasets(home, config)
    used, model = used_by_models(home) if record.datasets else {}, config.registry.model_name
    words = {setting: getattr(config, setting) for setting in DATASETS}
    gone = (
        digest
        for setting, digests in record.datasets.items()
        for digest in digests
        if "new" in words[setting] and model in used.get(digest, ())
    )
    return named_datasets(home, config) if any(gone) else record.datasets


def used_by_models(home: Home) -> dict[str, frozenset[str]]:
    """Return for each dataset that a night with a verdict has used, or that has replaced one, the models it was used for."""
    used: defaultdict[str, set[str]] = defaultdict(set)
    taken = replaced(open_store(home))
    for night in filter(lambda night: has_verdict(home, night), list_nights(home)):
        model, digests = _used_in(run_dir(home, night) / "config.json")
        for digest in digests:
            used[digest].add(model)
            used[successor(taken, digest)].add(model)
    return {digest: frozenset(models) for digest, models in used.items()}


def waiting(home: Home, model: str, name: str) -> list[str]:
    """Return the ingested datasets of a name that no night with a verdict has used for the model, oldest first."""
    used = {digest for digest, models in used_by_models(home).items() if model in models}
    found = [
        digest
        for memory in logs(home).values()
        for digest in memory.datasets.get(name, ())
        if digest not in used and not all(any(one.startswith(part) for one in used) for part in memory.parts(digest))
    ]
    return list(dict.fromkeys(found))  # two logs may have made equal datasets


def _digests(home: Home, model: str, name: str, word: str) -> list[str]:
    if word == "new":
        return waiting(home, model, name)
    if word in ("all", "latest"):
        everything = [digest for memory in logs(home).values() for digest in memory.datasets.get(name, ())]
        return everything if word == "all" else [find_dataset(open_store(home), name).digest] if everything else []
    return [word if _DIGEST.fullmatch(word) else find_dataset(open_store(home), f"{name}/{word}").digest]


def _used_in(file: Path) -> tuple[str, list[str]]:
    """Return the model of a night and the digests in its settings; settings of another version that cannot be read name none."""
    try:
        settings: Mapping = json.loads(file.read_bytes())
        return settings["registry"]["model_name"], [digest for setting in DATASETS for digest in settings[setting]]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []
