"""Step ingest: turn files that an agent has written into datasets."""

from __future__ import annotations

from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import StepResult
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest as ingest_files
from clawpipe.start.proposing.report import ingest_report
from tasks.step import step


@step(cached=False)
def ingest_paths(paths: list[str], options: Options) -> StepResult:
    """Ingest what is new in the files. The step is never cached, because only the files know what is new."""
    home = Home.from_env()
    done = ingest_files(home, paths, options)
    return StepResult(
        output=done.datasets["trajectories"],
        extras={name: ref for name, ref in done.datasets.items() if name != "trajectories"},
        rows_in=done.reading.lines,
        rows_out=done.accepted,
        filtered=dict(done.refused),
        details=ingest_report(home, done),
    )
