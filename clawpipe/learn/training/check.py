"""`python -m clawpipe.learn.training.check request.json`: compare the trainer's log-probs with the model's, in a child process.

It prints one line of progress: the result, or {"error": ...} where this model cannot be trained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO

from clawpipe.core.system.processes import quick_exit
from clawpipe.errors import DataError
from clawpipe.learn.children.answer import answer, memory_may_run_out, prepare, read_request
from clawpipe.learn.training.check_request import TrainerCheckRequest


def _run(file: Path, progress: IO[str]) -> None:
    request = read_request(file, TrainerCheckRequest)
    prepare(request.threads, request.device)
    from clawpipe.learn.training.check_run import check_trainer  # after prepare(): torch reads the environment once

    with memory_may_run_out(str(file), "free memory, or quantize the model (model.quantization)"):
        try:
            print(check_trainer(request).model_dump_json(), file=progress)
        except DataError as error:
            print(json.dumps({"error": error.as_dict()}), file=progress)


if __name__ == "__main__":
    quick_exit(answer(_run, sys.argv))
