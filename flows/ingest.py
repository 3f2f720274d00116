"""Ingest as a flow: turn what agents have written since the last run into datasets, on a schedule if wanted."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path

from prefect import flow
from prefect.events import Event, emit_event

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.permissions import keep_private
from clawpipe.data.ingest.intake.options import LogprobsKind, Options
from clawpipe.data.ingest.watched import sources
from clawpipe.errors import ClawpipeError, NotFoundError
from flows.datasets import waiting
from tasks.ingest import ingest_paths

READY = "clawpipe.data.ready"  # the event that starts the deployment `on-demand`
_LEARNT_FROM = ("trajectories", "preference_pairs")


@flow(name="ingest", persist_result=False)
def ingest(
    paths: list[str] | None = None,
    format: str = "auto",
    policy_version: str | None = None,
    labels: str | None = None,
    user: str | None = None,
    temperature: float | None = None,
    logprobs: LogprobsKind | None = None,
    map: list[str] | None = None,
    ready_at: int | None = None,
    model: str | list[str] = "clawpipe-agent",
) -> list[JsonObject]:
    """Ingest new data; return for each set of options what `clawpipe ingest --json` prints. A step is retried while another runs.

    Args:
        paths: files, folders or patterns; without them, what the gateway captured and what `clawpipe ingest --watch` named, each
            with its options.
        format: name of the files' format; "auto" detects each line's format from its content.
        policy_version: the version of the policy that sampled the tokens.
        labels: file of labels, joined by prompt and occurrence.
        user: owner of sessions that name none.
        temperature: sampling temperature of tokens that record none.
        logprobs: kind of the files' log-probs: "tempered", at the sampling temperature, or "raw", at 1.
        map: `TARGET=PATH` pairs that map fields of an unknown record format.
        ready_at: conversations and pairs that no night for `model` has used: where new data bring so many together, the event
            `clawpipe.data.ready` starts a night.
        model: registered model that the nights are for; of several each that has enough gets an event.
    """
    keep_private()
    home = Home.from_env()
    given = Options(format, policy_version, Path(labels) if labels else None, user, temperature, logprobs, tuple(map or ()))
    reports = list(_ingested({given: tuple(paths)} if paths else sources(home)))
    if ready_at is not None and any(report["dataset"]["rows"] or "preferences" in report for report in reports):
        for one in [model] if isinstance(model, str) else model:
            tell_if_ready(home, one, ready_at)
    return reports


def _ingested(found: dict[Options, tuple[str, ...]]) -> Iterator[JsonObject]:
    for options, paths in found.items():
        try:
            yield ingest_paths.task(list(paths), options).details
        except NotFoundError as error:  # a watched folder that is empty today
            print(error)


def ingest_waiting(home: Home) -> None:
    """Ingest what waits, as a night's first step. What cannot be read now is no reason to have no night."""
    try:
        list(_ingested(sources(home)))
    except ClawpipeError as error:
        logging.getLogger(__name__).warning("what waits could not be ingested, so the night goes on without it: %s", error)


def tell_if_ready(home: Home, model: str, ready_at: int) -> Event | None:
    """Emit READY if enough data wait for a night of the model. Its `night` is a label that stands for these data alone."""
    store = open_store(home)
    found = {name: waiting(home, model, name) for name in _LEARNT_FROM}
    rows = sum(dataset_ref(store, name, digest).rows for name, digests in found.items() for digest in digests)
    if rows < ready_at:
        return None
    label = f"{datetime.datetime.now(datetime.UTC).date().isoformat()}-{sha256_json(found)[:6]}"
    return emit_event(READY, {"prefect.resource.id": f"clawpipe.model.{model}"}, payload={"waiting": rows, "night": label})
