"""A training request and its outcome: plain files, so that training may run in another process or on another machine."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.config.quantization import Quantization
from clawpipe.config.training import Train
from clawpipe.environments.openings import Opening
from clawpipe.extensions import is_reference
from clawpipe.messages import ToolCallFormat
from clawpipe.store.digests import sha256_file, sha256_json
from clawpipe.store.source import code_digest
from clawpipe.training.losses.objectives import LOSSES

ADAPTER, MODEL, METRICS, SUMMARY = "adapter", "model", "metrics.jsonl", "summary.json"  # in the outcome directory
_PLACES = {"samples", "token_scores", "base", "init_adapter", "device", "threads", "processes", "accelerate", "shrink", "output"}


class Rendering(BaseModel):
    """How text becomes tokens: with the preamble and tools of an environment, as in its rollouts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    opening: Opening
    tool_call_format: ToolCallFormat


class TrainRequest(BaseModel):
    """One training run. Paths, `threads`, `processes` and `shrink` decide where and how it runs, not what it computes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: tuple[str, ...] = Field(description="Parquet files of samples, for dpo of preference_pairs, in order")
    token_scores: tuple[str, ...] = Field(
        default=(), description="Parquet files of the rows' token_scores, where the method needs them"
    )
    rendering: Rendering | None = Field(default=None, description="for preference pairs that exist only as text")
    base: str = Field(description="directory of the base model")
    base_digest: str = Field(description="sha256 of the base weights; recorded in the adapter instead of the path")
    dtype: str = "float32"
    quantization: Quantization = Field(default="none", description="quantization of the frozen base")
    init_adapter: str | None = Field(default=None, description="directory of an adapter to start from")
    config: Train
    temperature: float = Field(gt=0, description="temperature of log-probs in rows that record none")
    seed: int
    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 uses every core")
    processes: int = Field(default=1, ge=1, description="processes, on all machines together")
    accelerate: str | None = Field(default=None, description="accelerate config of the processes")
    shrink: int = Field(default=0, ge=0, description="how often train.pack_tokens is halved, because memory ran out")
    output: str = Field(description="directory of the outcome; it appears once it is complete")

    @property
    def weights(self) -> Path:
        """Directory of the outcome's weights: an adapter, or a whole model."""
        return Path(self.output) / (MODEL if self.config.adapter == "full" else ADAPTER)

    def _objective_digest(self) -> list[str]:
        """The digest of a user's loss; the built-in ones are in that of the trainer's code."""
        objective = self.config.loss.objective
        return [LOSSES.source_digest(objective)] if is_reference(objective) else []

    def identity(self) -> dict[str, str]:
        """Return digests of everything that decides the result: requests with equal digests train the same weights."""
        settings = self.model_dump(mode="json", exclude=_PLACES)
        adapter = sorted(Path(self.init_adapter).iterdir()) if self.init_adapter else []
        return {
            "config": sha256_json(settings | {"init_adapter": [[file.name, sha256_file(file)] for file in adapter]}),
            "code": sha256_json([code_digest("clawpipe.training.__main__"), *self._objective_digest()]),
            "data": sha256_json([sha256_file(Path(file)) for file in (*self.samples, *self.token_scores)]),
        }


def is_finished(request: TrainRequest) -> bool:
    """Return whether the outcome of this request exists and is intact."""
    try:
        summary = json.loads((Path(request.output) / SUMMARY).read_bytes())
        files = summary["files"].items()
        return summary["identity"] == request.identity() and all(sha256_file(request.weights / name) == sha for name, sha in files)
    except (OSError, ValueError, KeyError):
        return False
