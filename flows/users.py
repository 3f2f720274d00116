"""The nights of single users: each learns from what one user said, for a model of that user alone.

A user's night is a night like any other, with a model name of its own, on the rows of that user. So it is resumed, forgotten and
traced as any night is. Settings and names hold a digest of the user, never the name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clawpipe.core.config import load_config
from clawpipe.core.config.night import NightConfig
from clawpipe.core.config.registry import model_of_user, user_digest
from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.data.ingest.intake.state import logs
from clawpipe.data.ingest.query import SINCE, is_query, users_of
from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from flows.datasets import DATASETS, NothingNewError, named_datasets


def overrides_of_users(home: Home, config: Path, overrides: Sequence[str]) -> Iterator[list[str]]:
    """Yield the overrides that make the settings those of one user's night, for each user who said something new.

    Raises:
        ConfigError: the settings name datasets that are not selected by user.
        NothingNewError: nobody has said anything that a night of theirs has not used.
    """
    settings, found = load_config(config, list(overrides)), False
    for digest in sorted({user_digest(user) for user in _users(home)}):
        own = [*overrides, *_overrides(settings, digest)]
        if _has_news(home, load_config(config, own), digest):
            found = True
            yield own
    if not found:
        what = f"no user has said anything that no night of theirs for {settings.registry.model_name} has used"
        raise NothingNewError(what, "registry.per", "ingest more conversations that name their users")


def each(nights: Iterator[list[str]], run: Callable[[list[str]], None], tell: Callable[[ClawpipeError], None]) -> None:
    """Run one night after the other. What ends a user's night does not keep the others from theirs.

    Raises:
        ClawpipeError: the error of the last night, if none has come to its end; BusyError at once, since the home is not free.
    """
    failed: ClawpipeError | None = None
    ended = 0
    for own in nights:
        try:
            run(own)
            ended += 1
        except BusyError:
            raise
        except ClawpipeError as error:
            failed = error
            tell(error)
    if failed and not ended:
        raise failed


def _overrides(config: NightConfig, digest: str) -> list[str]:
    name = config.registry.model_name
    named = {setting: [_of_user(setting, word, digest) for word in getattr(config, setting)] for setting in DATASETS}
    own = {"registry.per": None, "registry.model_name": model_of_user(name, digest), "registry.shared": name}
    return [
        f"{setting}={json.dumps(value)}" for setting, value in (own | {key: words for key, words in named.items() if words}).items()
    ]


def _of_user(setting: str, word: str, digest: str) -> str:
    """Return the query for those of the named rows that are the user's."""
    mine = f"user = sha256:{digest}"
    if word == "all":
        return mine
    if word == "new":
        return f"{mine} and {SINCE}"
    if is_query(word):
        return f"{mine} and {word}"
    raise ConfigError(f"{word!r} names the rows of all users", setting, "with registry.per name all, new or a query")


def _has_news(home: Home, config: NightConfig, digest: str) -> bool:
    new = (f"user = sha256:{digest} and {SINCE}",)
    fresh = {"trajectories": new, "scores": (), "preferences": new if config.preferences else ()}
    try:
        return bool(named_datasets(home, config.model_copy(update=fresh)))
    except NothingNewError:
        return False


def _users(home: Home) -> set[str]:
    """Return all users of ingested conversations."""
    store = open_store(home)
    refs = [
        dataset_ref(store, "trajectories", one) for state in logs(home).values() for one in state.datasets.get("trajectories", ())
    ]
    return users_of(store, refs)
