"""Run annotation as a step: from rows and policies to an artifact of token scores."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import Played
from clawpipe.core.config.methods import Opd
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_files
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.system.devices import meter
from clawpipe.learn.annotation.request import SUMMARY, TOKEN_SCORES, AnnotateRequest, Hindsight, Role
from clawpipe.learn.children.run import run_child
from clawpipe.model.policy.spec import policy_spec
from clawpipe.play.environments.openings import openings


@dataclass(frozen=True)
class HintSource:
    """The sources of a teacher's hints and prompts."""

    scores: Sequence[DatasetRef]
    items: DatasetRef
    environment: Played

    @property
    def digests(self) -> list[str]:
        return [self.items.digest, *(ref.digest for ref in self.scores)]

    def on_disk(self, store: Store) -> Hindsight:
        files = [file for ref in self.scores for file in dataset_files(store, ref)]
        return Hindsight(
            scores=tuple(map(str, files)),
            items=tuple(map(str, dataset_files(store, self.items))),
            openings=openings(self.environment),
        )


def annotate_dataset(
    store: Store,
    work: Path,
    rows: DatasetRef,
    policies: Mapping[Role, ModelRef],
    hints: HintSource | None,
    config: Opd,
    *,
    pack_tokens: int,
    temperature: float,
    runtime: Runtime,
    on_progress: Callable[[JsonObject], None],
) -> StepResult:
    """Compute the token scores of `samples` or of `preference_pairs`, in their order.

    Returns:
        output: token_scores; filtered: rows that could not be scored, with null scores; details: the number of rows with teacher
        scores, of rows without them by reason, and the teacher's gain in log-prob.

    Raises:
        ConfigError, DataError, BusyError: see `clawpipe.learn.annotation.run`; BusyError also at a timeout.
    """
    run = work / "annotate" / sha256_json([rows, dict(policies), hints and hints.digests, config, pack_tokens, temperature])[:24]
    request = AnnotateRequest(
        kind=cast(Literal["samples", "preference_pairs"], rows.name),
        rows=tuple(map(str, dataset_files(store, rows))),
        policies={role: policy_spec(store, policy) for role, policy in policies.items()},
        hindsight=hints.on_disk(store) if hints else None,
        config=config,
        pack_tokens=pack_tokens,
        temperature=temperature,
        device=runtime.device,
        threads=runtime.train_threads,
        output=str(run / "outcome"),
    )
    file = run / "request.json"
    write_atomic(file, request.model_dump_json(indent=2).encode())
    command = [sys.executable, "-m", "clawpipe.learn.annotation.child", str(file)]
    fix = "raise runtime.step_timeout, or train on fewer rows"
    with meter().occupied(runtime.device):
        run_child(command, run / "annotate.log", runtime.step_timeout, on_progress, who="the annotation", on_timeout=fix)
    summary = json.loads((run / "outcome" / SUMMARY).read_bytes())
    parents = {rows.digest, *(policy.digest for policy in policies.values()), *(hints.digests if hints else ())}
    output = publish_files(store, "token_scores", [run / "outcome" / TOKEN_SCORES], parents=parents)
    shutil.rmtree(run)
    return _result(rows, output, summary)


def _result(rows: DatasetRef, output: DatasetRef, summary: JsonObject) -> StepResult:
    filtered = summary.pop("filtered")
    sides = output.rows - sum(filtered.values())
    return StepResult(output=output, rows_in=output.rows, rows_out=sides, filtered=filtered, details={"rows": rows.rows, **summary})
