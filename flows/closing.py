"""Close a night: its status and its report."""

from __future__ import annotations

import shutil

from clawpipe.nights.conclude import conclude, count_evidence, evidence_warning
from clawpipe.nights.record import NightStatus
from clawpipe.reporting.html import write_report
from clawpipe.reporting.transcripts import heldout_transcripts
from clawpipe.store.open import open_store
from flows.opening import OpenNight


def close_night(night: OpenNight) -> NightStatus:
    """The final status; the report lies beside it, and nothing unfinished is left."""
    status = count_evidence(conclude(night.journal.status), night.ledger, night.config.environment.heldout_items)
    if text := evidence_warning(status):
        night.journal.warn(text)
    night.journal.save()
    transcripts = heldout_transcripts(open_store(night.home), status)
    write_report(status, night.journal.run_dir, night.config, transcripts)
    shutil.rmtree(night.home.work, ignore_errors=True)
    return status
