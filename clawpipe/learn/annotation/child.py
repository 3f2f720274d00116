"""`python -m clawpipe.learn.annotation.child request.json`: score recorded tokens under other policies, in a separate process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO

from clawpipe.core.system.processes import quick_exit
from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.learn.annotation.request import AnnotateRequest
from clawpipe.learn.children.answer import answer, memory_may_run_out, prepare, read_request


def _run(file: Path, progress: IO[str]) -> None:
    request = read_request(file, AnnotateRequest)
    prepare(request.threads, request.device)
    with quick_imports():  # after the environment is set: torch reads it once
        from clawpipe.learn.annotation.run import annotate

    with memory_may_run_out(str(file), "lower train.pack_tokens, or free memory"):
        annotate(request, lambda summary: print(json.dumps(summary), file=progress))


if __name__ == "__main__":
    quick_exit(answer(_run, sys.argv))
