"""`python -m clawpipe.play.workers DEVICE THREADS`: one generation process."""

from __future__ import annotations

import sys

from clawpipe.core.system.processes import let_waiting_threads_sleep, quick_exit
from clawpipe.core.system.quick_imports import quick_imports

let_waiting_threads_sleep()
with quick_imports():
    from clawpipe.play.workers.worker import serve

if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
    quick_exit(0)
