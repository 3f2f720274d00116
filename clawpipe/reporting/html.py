"""The night's report: one HTML file that needs nothing else, no script, no network. Every value is escaped: data are anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from clawpipe.config.night import NightConfig
from clawpipe.lineage.record import build_lineage
from clawpipe.nights.record import LINEAGE, REPORT, NightStatus, StepEntry
from clawpipe.reporting import wording
from clawpipe.reporting.charts import Curve, curve, interval_chart
from clawpipe.reporting.transcripts import Transcript
from clawpipe.store.files import write_atomic

_CURVES = {
    "loss": "loss",
    "approx_kl": "approximate KL",
    "clip_frac": "clipped share",
    "ratio_max": "largest ratio",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "tokens_per_second": "trained tokens/s",
}
_BATCH = {"success_rate": "Success", "reward_mean": "Mean reward", "groups": "Groups", "trained_tokens": "Trained tokens"}


def write_report(status: NightStatus, run_dir: Path, config: NightConfig, transcripts: Sequence[Transcript] = ()) -> Path:
    """Write `report.html` into the night's run directory, whole or not at all.

    Args:
        status: of the night, finished or not.
        run_dir: the night's directory.
        config: its settings.
        transcripts: held-out conversations to show.

    Returns:
        the file's path.
    """
    path = run_dir / REPORT
    write_atomic(path, render(status, config, transcripts).encode())
    return path


def render(status: NightStatus, config: NightConfig, transcripts: Sequence[Transcript] = ()) -> str:
    """The report's HTML."""
    details = {step.name: step.details for step in status.steps}
    rounds = [(step.name.rpartition("/")[0], step) for step in status.steps if step.name.endswith("/curate")]
    return (
        _templates()
        .get_template("report.html.jinja")
        .render(
            status=status,
            gate=details.get("gate", {}),
            intervals=interval_chart(status.heldout),
            confidence=config.evaluation.confidence,
            longest=max((step.seconds for step in status.steps), default=0.0) or 1.0,
            rounds=rounds,
            batch_facts={key: title for key, title in _BATCH.items() if any(key in step.details for _, step in rounds)},
            curves=_curves(status.steps),
            lineage=build_lineage(status),
            lineage_file=LINEAGE,
            transcripts=transcripts,
            settings=config.model_dump_json(indent=2),
        )
    )


def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("clawpipe.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"duration": wording.duration, "short": wording.short, "reasons": wording.reasons}
    templates.globals |= {"model_title": wording.model_title, "no_verdict": wording.no_verdict, "rerun": wording.rerun}
    return templates


def _curves(steps: Sequence[StepEntry]) -> list[Curve]:
    """Training metrics over the night's updates, those that were computed."""
    rounds = [step.details.get("updates", []) for step in steps if step.name.endswith("/train")]
    drawn = [curve(title, [[update.get(name) for update in updates] for updates in rounds]) for name, title in _CURVES.items()]
    return [line for line in drawn if line]
