"""Ingest as a flow: turn what agents have written since the last run into datasets, on a schedule if wanted."""

from __future__ import annotations

from prefect import flow

from clawpipe.ingest.options import LogprobsKind
from clawpipe.json_types import JsonObject
from tasks.ingest import ingest_paths


@flow(name="ingest", persist_result=False)
def ingest(
    paths: list[str],
    format: str = "auto",
    policy_version: str | None = None,
    labels: str | None = None,
    user: str | None = None,
    temperature: float | None = None,
    logprobs: LogprobsKind | None = None,
    map: list[str] | None = None,
) -> JsonObject:
    """Ingest new data; return what `clawpipe ingest --json` prints. The step is retried while another ingest runs.

    Args:
        paths: files, folders or patterns.
        format: name of the files' format; "auto" detects each line's format from its content.
        policy_version: the version of the policy that sampled the tokens.
        labels: file of labels, joined by prompt and occurrence.
        user: owner of sessions that name none.
        temperature: sampling temperature of tokens that record none.
        logprobs: kind of the files' log-probs: "tempered", at the sampling temperature, or "raw", at 1.
        map: `TARGET=PATH` pairs that map fields of an unknown record format.
    """
    return ingest_paths.task(paths, format, policy_version, labels, user, temperature, logprobs, map or []).details
