"""Figures of the home's nights for Prometheus: the text, and the file that is written after each night."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.serve.monitoring.exposition import exposition
from clawpipe.serve.monitoring.textfile import require_place, write_textfile
from flows.datasets import DATASETS, waiting

_LOG = logging.getLogger(__name__)


@contextmanager
def exported(config: NightConfig) -> Iterator[None]:
    """Write the textfile of the settings, if they name one, when the night in this block has ended; a failure is a line in the log.

    Raises:
        ConfigError: the file cannot lie there.
    """
    file = config.metrics.textfile
    if file is None:
        yield
        return
    home = Home.from_env()
    require_place(home, file)
    try:
        yield
    finally:
        try:
            write_textfile(file, figures(home))
        except Exception as error:
            _LOG.warning("%s was not written: %s: %s", file, type(error).__name__, error)


def figures(home: Home) -> bytes:
    """Return all figures of a home in Prometheus' text format.

    Raises:
        DataError: a log of the home is damaged.
    """
    return exposition(home, lambda model: _waiting_rows(home, model))


def _waiting_rows(home: Home, model: str) -> dict[str, int]:
    store = open_store(home)
    return {name: sum(dataset_ref(store, name, digest).rows for digest in waiting(home, model, name)) for name in DATASETS.values()}
