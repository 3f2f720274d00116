"""The local backend: train on this machine, by clawpipe's own trainers. Imports no heavy library before it trains."""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.learn.children.answer import memory_may_run_out
from clawpipe.learn.training.backends import Capabilities, OnStep
from clawpipe.learn.training.request import TrainRequest


class LocalBackend:
    """Trains with torch, in as many processes as the request says; each calls `train`."""

    can = Capabilities(
        adapters=frozenset({"lora", "full"}), elsewhere=False, starts_from_adapter=True, goes_on=True, snapshots=True, resumes=True
    )

    def __init__(self, url: None = None, model: None = None) -> None:
        """Both are None: there is no service, and the base is the request's."""

    def train(self, request: TrainRequest, work: Path, on_step: OnStep) -> None:
        """Train from the newest checkpoint in `work`; see clawpipe.learn.training.run."""
        with quick_imports():
            from clawpipe.learn.training.process.collectives import join, leave
            from clawpipe.learn.training.run import train

        with memory_may_run_out(str(work / "request.json"), "lower train.pack_tokens, or free memory"):
            join(request.device)
            train(request, work, on_step)
        leave()
