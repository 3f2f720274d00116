"""Report the result of an ingest run, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_ref
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.data.importers.read.survey import listed
from clawpipe.data.ingest.intake.run import Ingested
from clawpipe.errors import ConfigError
from clawpipe.learn.evaluation.heldout.heldout_share import heldout_share, too_few
from clawpipe.learn.evaluation.heldout.holding import identities
from clawpipe.start.proposing.numbers import are_labels, least_imitated, unsaid_in

_WRITTEN = "# Written by `clawpipe ingest`, which writes it anew; settings of yours go into -o, or into a copy.\n"
_SETTINGS = {"trajectories": "trajectories", "scores": "scores", "preference_pairs": "preferences"}
_LEARNT_FROM = ("trajectories", "preference_pairs")
_ROLES = {"scores": "scores", "preference_pairs": "preferences", "task_items": "items", "quarantine": "quarantine"}


def ingest_report(home: Home, done: Ingested) -> JsonObject:
    """Return the report as a JSON object. lines = accepted + the sum of quarantined."""
    store, counts = open_store(home), done.counts
    datasets = {name: {"digest": ref.digest, "rows": ref.rows, "path": str(store.path(ref))} for name, ref in done.datasets.items()}
    return {
        "files": len(done.read) + len(done.skipped),
        "new_files": len(done.read),
        "skipped": len(done.skipped),
        "lines": done.reading.lines,
        "accepted": done.accepted,
        "quarantined": dict(done.refused.most_common()),
        "formats": dict(done.reading.formats),
        "trajectories": counts["trajectories"],
        "turns": counts["turns"],
        "side_turns": counts["side_turns"],
        "with_tokens": counts["with_tokens"],
        "repeated": counts["repeated"],
        "silent": dict(done.reading.silent),
        "redactions": dict(done.redactions.most_common()),
        "dataset": datasets["trajectories"],
        **{role: datasets[name] for name, role in _ROLES.items() if name in datasets},
        "parts": done.parts,
        "log": done.log,
        "warnings": list(warnings(done)),
    }


def write_night(home: Home, done: Ingested, file: Path) -> list[str]:
    """Write a night's config that learns from everything stored so far: by dpo where that is preference pairs alone, by kto
    where scores have two signs and none says success, else by sft.

    As in `clawpipe init`, the share that is held out is enough for a verdict if it can be, and where half of the conversations call
    tools, the verdict counts held-out calls that are made anew.

    Returns:
        warnings about the verdict, which stand in the file as well.

    Raises:
        ConfigError: the file exists, and something else wrote it.
        DataError: a dataset is missing or damaged.
    """
    if file.exists() and not file.read_text(encoding="utf-8", errors="replace").startswith(_WRITTEN):
        raise ConfigError("ingest did not write this file and leaves it as it is", str(file), "name a file that does not exist yet")
    given = {field: done.parts[name] for name, field in _SETTINGS.items() if done.parts.get(name)}
    scores = [dataset_ref(open_store(home), "scores", digest) for digest in given.get("scores", [])]
    unsaid = unsaid_in(open_store(home), scores)
    method = "dpo" if list(given) == ["preferences"] else "kto" if are_labels(unsaid) else "sft"
    environment = {"environment": {"name": CONVERSATIONS}}  # the verdict is about this data and nothing else
    night: JsonObject = {"night": file.stem, "rounds": 1, "rollouts": None, **environment, **given, "train": {"method": method}}
    owners = _owners(open_store(home), given)
    share = heldout_share(owners)
    night["evaluation"] = {"heldout_share": share}
    if method == "sft" and "scores" not in given:
        night["curation"] = {"imitate": "any"}  # nobody judged them
    elif method == "sft" and unsaid:
        night["curation"] = {"imitate": "any", "filters": {"min_score": least_imitated(unsaid)}}
    if method == "sft" and _mostly_call_tools(open_store(home), given.get("trajectories", [])):
        night["evaluation"]["replay_calls"] = True
    remarks = list(filter(None, [too_few(owners, share)]))
    head = "".join([_WRITTEN, *(f"# {remark}\n" for remark in remarks)])
    write_atomic(file, (head + yaml.safe_dump(night, sort_keys=False)).encode())
    return [f"{file}: {remark}" for remark in remarks]


def _owners(store: Store, given: Mapping[str, Sequence[str]]) -> int:
    """Return how many users, sessions or prompts the stored conversations and pairs are of."""
    refs = [dataset_ref(store, name, digest) for name in _LEARNT_FROM for digest in given.get(_SETTINGS[name], [])]
    return len({identity for ref in refs for file in dataset_files(store, ref) for identity in identities(file)})


def _mostly_call_tools(store: Store, digests: Sequence[str]) -> bool:
    """Whether at least half of the stored conversations have tool calls."""
    compute: Any = pc  # its functions are made at run time
    rows = calling = 0
    files = [file for digest in digests for file in dataset_files(store, dataset_ref(store, "trajectories", digest))]
    for batch in (batch for file in files for batch in pq.ParquetFile(file).iter_batches(columns=["messages"])):
        messages = batch.column(0)
        calls = compute.list_value_length(compute.struct_field(messages.flatten(), "tool_calls"))
        rows += batch.num_rows
        calling += compute.count_distinct(compute.list_parent_indices(messages).filter(compute.greater(calls, 0))).as_py()
    return 2 * calling >= rows > 0


def warnings(done: Ingested) -> Iterator[str]:
    """Yield warnings about likely mistakes, although every line was read."""
    counts = done.counts
    side = [file for file, of_file in done.of_files.items() if of_file["side_turns"] == of_file["turns"]]
    unnamed = [file for file, of_file in done.of_files.items() if not of_file["with_session"]]
    if side:
        yield f"{listed(side)}: every turn is a side turn: nothing of this would be trained on"
    if unnamed:
        yield f"{listed(unnamed)}: no conversation has a session id: quotas by session, trace and forget cannot tell them apart"
    yield from done.reading.warnings()
    if counts["unnamed_policy"]:
        yield f"{counts['unnamed_policy']} rows have tokens, but nobody says which policy sampled them: give --policy-version"
    if counts["no_logprobs"]:
        yield (
            f"{counts['no_logprobs']} rows have tokens without log-probs: a night computes them where --policy-version and the "
            "sampling temperature (--temperature) are known; sft, dpo and kto need none"
        )
    if counts["no_ratio"]:
        yield (
            f"{counts['no_ratio']} rows have log-probs of which no ratio can be taken: nobody says at which temperature their "
            "tokens were sampled (give --temperature), or a setting such as top_p changed what was drawn"
        )
    if counts["lost_tokens"]:
        yield f"{counts['lost_tokens']} rows have lost their tokens, which spelled a secret: they are text only"
    if done.reading.unmatched:
        yield f"{done.reading.unmatched} judge records belong to no turn that was ever read: ingest their turns as well"
    if done.unused_labels:
        yield f"{done.unused_labels} labels belong to no prompt that was read"
    if done.reading.lines and not done.accepted:
        yield "no line was accepted: is this the right file, and the right --format?"
