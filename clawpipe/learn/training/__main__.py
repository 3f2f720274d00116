"""`python -m clawpipe.learn.training request.json`: run one training. The directory of the request file is the work directory."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from clawpipe.core.store.files import exclusive
from clawpipe.core.system.processes import quick_exit
from clawpipe.learn.children.answer import answer, prepare, read_request
from clawpipe.learn.children.ranks import die_with_parent, require_ranks
from clawpipe.learn.training.backends import open_backend
from clawpipe.learn.training.request import TrainRequest


def _run(file: Path, progress: IO[str]) -> None:
    request = read_request(file, TrainRequest)
    here = require_ranks(request.processes)
    if here.size > 1:
        die_with_parent()
    with exclusive(file.parent / "train.lock", "the training directory") if here.is_main else nullcontext():
        prepare(request.threads, request.device)  # before the backend imports torch, which reads the environment once
        backend = open_backend(request.config.backend)
        backend.train(request, file.parent, lambda metrics: print(json.dumps(metrics), file=progress))


if __name__ == "__main__":
    quick_exit(answer(_run, sys.argv))
