"""`python -m clawpipe.training.check request.json`: whether the trainer's log-probs are the model's own, in a process like its.

One line of progress: the figures, or {"error": ...} where this model cannot be trained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.config.quantization import Quantization
from clawpipe.config.training import Train
from clawpipe.errors import DataError
from clawpipe.policy.spec import PolicySpec
from clawpipe.training.process.child import answer, memory_may_run_out, prepare, read_request
from clawpipe.training.request import TrainRequest


class TrainerCheckRequest(BaseModel):
    """Whose log-probs to compare: those of a policy that is only asked, or of one that is built to be trained as `train` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: PolicySpec
    train: Train | None
    device: str = "auto"
    threads: int = Field(default=0, ge=0, description="CPU threads; 0 uses every core")

    @property
    def quantization(self) -> Quantization:
        """How the base is held: whole weights are trained in full."""
        return "none" if self.train and self.train.adapter == "full" else self.policy.quantization

    def training(self, config: Train) -> TrainRequest:
        """A training run on no rows, which builds the model that a run on some would."""
        return TrainRequest(
            samples=(),
            base=self.policy.base,
            base_digest="",
            dtype=self.policy.dtype,
            quantization=self.quantization,
            init_adapter=self.policy.adapter,
            config=config,
            temperature=1.0,
            seed=0,
            device=self.device,
            threads=self.threads,
            output="",
        )


def _run(file: Path, progress: IO[str]) -> None:
    request = read_request(file, TrainerCheckRequest)
    prepare(request.threads, request.device)
    from clawpipe.training.check_run import check_trainer  # after the environment is set: torch reads it once

    with memory_may_run_out(str(file), "free memory, or hold the model in fewer bits (model.quantization)"):
        try:
            print(check_trainer(request).model_dump_json(), file=progress)
        except DataError as error:
            print(json.dumps({"error": error.as_dict()}), file=progress)


if __name__ == "__main__":
    sys.exit(answer(_run, sys.argv))
