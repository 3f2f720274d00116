"""Ingest as a flow: what agents left behind since the last time becomes datasets, on a schedule if you like."""

from __future__ import annotations

from typing import Any

from prefect import flow

from clawpipe.ingest.options import Told
from tasks.ingest import ingest_paths


@flow(name="ingest", persist_result=False)
def ingest(
    paths: list[str],
    format: str = "auto",
    policy_version: str | None = None,
    labels: str | None = None,
    user: str | None = None,
    temperature: float | None = None,
    logprobs: Told | None = None,
    map: list[str] | None = None,
) -> dict[str, Any]:
    """What `clawpipe ingest --json` prints. Only what is new is read; a try that met another one at work is repeated.

    Args:
        paths: files, folders or patterns.
        format: name of their format; "auto" tells each line's by its content.
        policy_version: of whoever sampled the tokens in them.
        labels: file of labels, joined by prompt and occurrence.
        user: whose sessions they are, where they do not say.
        temperature: that tokens were sampled at, where they do not say.
        logprobs: what their log-probs are: "tempered", at the sampling temperature, or "raw", at 1.
        map: words TARGET=PATH that say where records of another form hold what.
    """
    return ingest_paths.task(paths, format, policy_version, labels, user, temperature, logprobs, map or []).details
