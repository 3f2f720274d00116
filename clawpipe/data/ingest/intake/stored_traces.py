"""Look up the traces of which earlier runs have stored calls: a span that wraps calls is often written after them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.core.store.duck import session

TRACE = "call_of_trace"  # in `extra`: a digest of the trace that a stored call is of; its name is what a program made of it
_STORED = f"""
    with named as (
        select case when contains(extra, '{TRACE}') and json_valid(extra) then extra->>'$.{TRACE}' end as trace
        from read_parquet($files, union_by_name = true))
    select distinct trace from named where trace in (select unnest($traces::varchar[]))"""


def stored_traces(store: Store, files: Sequence[Path], traces: Collection[str]) -> set[str]:
    """Return those of the traces of which a call is stored.

    Args:
        files: rows of `trajectories`.
    """
    if not files or not traces:
        return set()
    with session(store, files) as duck:
        by_digest = {trace_digest(trace): trace for trace in traces}
        parameters = {"files": [str(file) for file in files], "traces": sorted(by_digest)}
        return {by_digest[digest] for (digest,) in duck.execute(_STORED, parameters).fetchall()}


def trace_digest(trace: str) -> str:
    return sha256_bytes(trace.encode())[:16]
