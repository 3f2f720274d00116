"""Settings that change no result, such as devices, workers and time limits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from clawpipe.core.config.block import Block


class TaskRunner(Block):
    """Whose workers do the work of steps."""

    name: Literal["threads", "dask", "ray"] = Field(default="threads", description="threads: the night's own process does it")
    address: str = Field(default="", description="of the cluster: Dask's scheduler, tcp://host:8786, or Ray's head, host:6379")
    resources: dict[str, float] = Field(
        default_factory=dict, description="what each step asks of a worker, by the cluster's names, e.g. {GPU: 1}"
    )

    @model_validator(mode="after")
    def _is_somewhere(self) -> TaskRunner:
        if self.name == "threads" and (self.address or self.resources):
            raise ValueError("`threads` are this process's: `address` and `resources` belong to a cluster")
        if self.name != "threads" and not self.address:
            raise ValueError(f"`{self.name}` needs the address of the cluster: set `address`")
        return self


class Runtime(Block):
    """Settings that change how fast or where a night runs, but no result: in no step's key."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$", description="auto, cpu, cuda, cuda:N")
    workers: int = Field(default=0, ge=0, description="number of generation processes; 0 chooses by cores or GPUs")
    train_threads: int = Field(default=0, ge=0, description="CPU threads of the trainer; 0 uses every core")
    train_processes: int = Field(default=1, ge=1, description="number of training processes; several are started with torchrun")
    accelerate: str | None = Field(
        default=None, description="accelerate config of the training processes, e.g. configs/accelerate/fsdp2.yaml"
    )
    curation_memory: str = Field(
        default="512MB",
        pattern=r"^[1-9][0-9]*(MB|GB)$",
        description="memory of the tables of curation and near-duplicates before they go to disk; the process takes 0.5 GB more",
    )
    task_runner: TaskRunner = TaskRunner()
    log_rollouts: int = Field(
        default=0, ge=0, description="rollouts of each round that are written as text into the night's logs, to look into; 0: none"
    )
    step_timeout: float = Field(default=7200.0, gt=0, description="most seconds of a subprocess")

    def result_fields(self) -> frozenset[str]:
        return frozenset()
