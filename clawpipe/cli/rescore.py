"""`clawpipe rescore`: score stored rollouts anew under a changed verifier, and show which verdicts changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.datasets import DatasetArgument
from clawpipe.cli.environments import PythonOption
from clawpipe.cli.output import JsonFlag, options_of, print_json
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from rich.table import Table

    from clawpipe.play.judging.rescore import Rescored, Verdicts

_SHOWN = 20  # changed verdicts of a table


def rescore(
    dataset: DatasetArgument,
    environment: Annotated[
        str, typer.Option("--environment", "-e", metavar="NAME", help="Built-in, or path/to/file.py:ClassName.")
    ],
    options: Annotated[list[str], typer.Option("--option", metavar="NAME=VALUE", help="Option of the environment.")] = [],  # noqa: B006
    python: PythonOption = None,
    label: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The environment's label among several; its own name unless given.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Score stored rollouts anew with their environment's verifier as it is now, and show the verdicts that changed.

    Nothing is played again: the verifier reads the recorded messages and what the world said at each episode's end. The new scores
    are a dataset of their own, in which other scorers' scores stay; a night takes it by the setting `scores`.
    """
    from clawpipe.core.config.environment import EnvironmentSpec
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.notes import BY_HAND, Note, Notes
    from clawpipe.core.store.open import open_store
    from clawpipe.core.user_code.user_errors import LOG
    from clawpipe.play.environments.discovery import environment_name
    from clawpipe.play.environments.several import open_world
    from clawpipe.play.judging.rescore import rescore as rescore_dataset
    from clawpipe.record.reporting.datasets import named_dataset

    home = Home.from_env()
    store = open_store(home)
    ref = named_dataset(home, store, dataset)
    spec = EnvironmentSpec(name=environment, options=options_of(options), python=python)
    label = label or environment_name(environment, python)
    with open_world(spec, label) as judge:
        done = rescore_dataset(store, ref, judge, home.logs / LOG)
    made = done.result.dataset
    Notes(store, BY_HAND).keep(made.digest, Note(dataset=made, details={"by": "rescore"}))
    if json_output:
        print_json({"environment": environment, "label": label, "trajectories": ref.digest, **_facts(done)})
        return
    for line in _lines(done):
        typer.echo(line)
    if done.changed:
        from rich.console import Console

        Console(highlight=False).print(_table(done.changed[:_SHOWN]))
    if len(done.changed) > _SHOWN:
        typer.echo(f"{len(done.changed) - _SHOWN} more: --json shows all")


def _facts(done: Rescored) -> JsonObject:
    return {
        "scores": done.result.dataset.digest,
        "rollouts": len(done.verdicts),
        "others": done.others,
        "filtered": done.result.filtered,
        "raised": done.result.details.get("raised"),
        "before": _summary([one.before for one in done.verdicts]),
        "now": _summary([one.now for one in done.verdicts]),
        "changed": [asdict(one) for one in done.changed],
    }


def _summary(verdicts: Sequence[JsonObject | None]) -> JsonObject:
    """Return how many verdicts there are, how many of them are successes, and their mean value, None where there is none."""
    given = [verdict for verdict in verdicts if verdict]
    value = fmean(verdict["value"] for verdict in given) if given else None
    return {"verdicts": len(given), "successes": sum(bool(verdict["success"]) for verdict in given), "value": value}


def _lines(done: Rescored) -> list[str]:
    facts = _facts(done)
    shown = []
    for side in ("before", "now"):
        summary = facts[side]
        value = "" if summary["value"] is None else f", mean value {summary['value']:.3f}"
        shown.append(f"{side + ':':7} {summary['verdicts']} verdicts, {summary['successes']} successes{value}")
    shown += [f"  filtered: {count} x {reason}" for reason, count in facts["filtered"].items()]
    shown += [f"  {facts['raised']}"] if facts["raised"] else []
    left = ", ".join(f"{count} of {label}" for label, count in facts["others"].items())
    shown += [f"  rollouts of other environments, left as they are: {left}"] if left else []
    return [*shown, f"{len(done.changed)} of {facts['rollouts']} verdicts changed; scores {facts['scores'][:12]}"]


def _table(changed: Sequence[Verdicts]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from clawpipe.record.reporting.wording import one_line

    table = Table("trajectory", "item", "before", "now", "reason now", box=None, pad_edge=False)
    for one in changed:
        reason = one_line(one.now["reason"]) if one.now else ""
        table.add_row(one.trajectory_id, one.item_id, _cell(one.before), _cell(one.now), Text(reason))
    return table


def _cell(verdict: JsonObject | None) -> str:
    return f"{verdict['value']:.3f} {'success' if verdict['success'] else 'failure'}" if verdict else "-"
