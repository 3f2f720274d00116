"""What a trainer is asked for and what it leaves: plain files, so that it may run in another process or elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.config.training import Train
from clawpipe.store.digests import code_digest, sha256_file, sha256_json

ADAPTER, METRICS, SUMMARY = "adapter", "metrics.jsonl", "summary.json"  # in the outcome directory


class TrainRequest(BaseModel):
    """One training run. `device`, `threads` and all paths say where it runs, not what it computes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: tuple[str, ...] = Field(description="Parquet files in the layout of the samples contract, in order")
    base: str = Field(description="directory of the base model")
    base_digest: str = Field(description="sha256 of the base weights; recorded in the adapter instead of the path")
    dtype: str = "float32"
    init_adapter: str | None = Field(default=None, description="directory of an adapter to go on from")
    config: Train
    temperature: float = Field(gt=0, description="temperature of the log-probs of rows that recorded none")
    seed: int
    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 uses every core")
    output: str = Field(description="directory of the outcome; it appears when it is complete")

    def identity(self) -> dict[str, str]:
        """Digests of everything that decides the result: two requests with equal ones train the same adapter."""
        settings = self.model_dump(mode="json", exclude={"samples", "base", "init_adapter", "device", "threads", "output"})
        adapter = sorted(Path(self.init_adapter).iterdir()) if self.init_adapter else []
        return {
            "config": sha256_json(settings | {"init_adapter": [[file.name, sha256_file(file)] for file in adapter]}),
            "code": code_digest("clawpipe.training.__main__"),
            "data": sha256_json([sha256_file(Path(file)) for file in self.samples]),
        }


def is_finished(request: TrainRequest) -> bool:
    """Whether the outcome of this very run is there and whole."""
    output = Path(request.output)
    try:
        summary = json.loads((output / SUMMARY).read_bytes())
        files = summary["files"].items()
        return summary["identity"] == request.identity() and all(sha256_file(output / ADAPTER / name) == sha for name, sha in files)
    except (OSError, ValueError, KeyError):
        return False
