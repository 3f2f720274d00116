"""A training request and its outcome: plain files, so that training may run in another process or on another machine."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.quantization import Quantization
from clawpipe.core.config.training import Train
from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.core.store.digests import sha256_file, sha256_json
from clawpipe.core.store.source import code_digest
from clawpipe.core.user_code.extensions import is_reference
from clawpipe.learn.training.backends import BACKENDS
from clawpipe.learn.training.course import Course
from clawpipe.learn.training.losses.objectives import LOSSES
from clawpipe.play.environments.openings import Opening

ADAPTER, MODEL, METRICS, SUMMARY = "adapter", "model", "metrics.jsonl", "summary.json"  # in the outcome directory
STATE = "state.json"  # in that of the optimizer: {"steps": optimizer steps that the night has taken so far}
SNAPSHOTS = "snapshots"  # beside the outcome directory while training goes on, then in it
OPTIMIZER = "optimizer"  # there too, if another round of the night may follow
_PATHS = {"samples", "token_scores", "base", "init_adapter", "optimizer", "reference", "accelerate", "output"}
_PLACES = _PATHS | {"device", "threads", "processes", "shrink"}


class Rendering(BaseModel):
    """How text becomes tokens: with the preamble and tools of an environment, as in its rollouts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    opening: Opening
    tool_call_format: ToolCallFormat


class Reference(BaseModel):
    """The policy of the night's start, which the losses of dpo and kto compare with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(description="directory of the weights")
    adapter: str | None = Field(description="directory of the adapter on them")
    version: str = Field(description="its policy version, by which the request's identity knows it")


class TrainRequest(BaseModel):
    """One training run. Paths, `threads`, `processes` and `shrink` decide where and how it runs, not what it computes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    samples: tuple[str, ...] = Field(description="Parquet files of samples, for dpo of preference_pairs, in order")
    token_scores: tuple[str, ...] = Field(
        default=(), description="Parquet files of the rows' token_scores, where the method needs them"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="most tokens of a row; null: what the model can compute")
    rendering: Rendering | None = Field(default=None, description="for preference pairs that exist only as text")
    base: str = Field(description="directory of the base model")
    base_digest: str = Field(description="sha256 of the base weights; recorded in the adapter instead of the path")
    dtype: str = "float32"
    quantization: Quantization = Field(default="none", description="quantization of the frozen base")
    init_adapter: str | None = Field(default=None, description="directory of an adapter to start from")
    course: Course | None = Field(default=None, description="place of this training in its night; null: it stands alone")
    optimizer: str | None = Field(default=None, description="directory of the optimizer's state after the night's earlier rounds")
    reference: Reference | None = Field(default=None, description="null: the policy that this training starts from")
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

    @property
    def snapshots(self) -> Path:
        """Directory in which a run keeps the weights after every `train.probe_steps` optimizer steps."""
        return Path(self.output).parent / SNAPSHOTS

    @property
    def moments(self) -> Path | None:
        """Directory of the optimizer's state that this training starts with."""
        return Path(self.optimizer) if self.optimizer else None

    @property
    def steps_before(self) -> int:
        """The optimizer steps that the night's earlier rounds took."""
        return json.loads((self.moments / STATE).read_bytes())["steps"] if self.moments else 0

    @property
    def is_gone_on_from(self) -> bool:
        """Whether another round of the night may follow, which takes over the optimizer's state."""
        return self.course is not None and self.course.rounds_left > 1

    def _extension_digests(self) -> list[str]:
        """The digests of a user's loss and of another backend than the local one: what is built in is in the trainer's code."""
        objective, backend = self.config.loss.objective, self.config.backend
        own = [LOSSES.source_digest(objective)] if is_reference(objective) else []
        return own if backend.is_local else [*own, BACKENDS.source_digest(backend.name)]

    def identity(self) -> dict[str, str]:
        """Return digests of everything that decides the result: requests with equal digests train the same weights."""
        settings = self.model_dump(mode="json", exclude=dict.fromkeys(_PLACES, True) | {"config": {"backend": {"url"}}})
        given = {"init_adapter": _content(self.init_adapter), "optimizer": _content(self.optimizer)}
        return {
            "config": sha256_json(settings | given | {"reference": self.reference and self.reference.version}),
            "code": sha256_json([code_digest("clawpipe.learn.training.__main__"), *self._extension_digests()]),
            "data": sha256_json([sha256_file(Path(file)) for file in (*self.samples, *self.token_scores)]),
        }


def snapshot_name(step: int) -> str:
    """Return the name of a snapshot's directory: names in order are steps in order."""
    return f"step-{step:06d}"


def _content(directory: str | None) -> list[list[str]]:
    """Return name and digest of each file in a directory."""
    return [[file.name, sha256_file(file)] for file in sorted(Path(directory).iterdir())] if directory else []


def is_finished(request: TrainRequest) -> bool:
    """Return whether the outcome of this request exists and is intact."""
    try:
        summary = json.loads((Path(request.output) / SUMMARY).read_bytes())
        files = [(request.weights / name, digest) for name, digest in summary["files"].items()]
        files += [(Path(request.output) / OPTIMIZER / name, digest) for name, digest in summary["optimizer"].items()]
        return summary["identity"] == request.identity() and all(sha256_file(file) == digest for file, digest in files)
    except (OSError, ValueError, KeyError):
        return False
