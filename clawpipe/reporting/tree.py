"""What a model version learned from, as a tree on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from rich.tree import Tree

from clawpipe.lineage.trace import Source, VersionTrace
from clawpipe.nights.record import RegisteredModel
from clawpipe.reporting.wording import model_title, one_line, short


def trace_tree(traced: Mapping[str, Any], limit: int = 3) -> Tree:
    """What `trace_version` found, for a terminal: `limit` items a training; print it on a console of any width."""
    found = VersionTrace.model_validate(traced)
    model = RegisteredModel(**found.model.model_dump(include={"name", "version", "aliases"}), digest=found.adapter)
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    tree = Tree(_line(f"{model_title(model)}, adapter {short(found.adapter)}", "bold"), guide_style="dim")
    tree.add(_line(counts, "dim"))
    for training in found.trainings:
        samples = training.samples
        branch = tree.add(_line(f"{training.step}: {samples.rows} samples {short(samples.digest)} (night {training.night})"))
        if training.trajectories is None:
            branch.add(_line("lost: the store no longer holds these samples whole", "red"))
            continue
        for item, names in list(training.trajectories.items())[:limit]:
            _add_item(branch, found, item, names)
        if len(training.trajectories) > limit:
            branch.add(_line(f"... {len(training.trajectories) - limit} more items; --json lists all", "dim"))
    if found.base:
        tree.add(_line(f"{found.base.name} {short(found.base.digest)}, untrained"))
    return tree


def _add_item(branch: Tree, found: VersionTrace, item_id: str, names: list[str]) -> None:
    item = found.items.get(item_id)
    about = f", {item.environment}: {item.question}" if item else ""
    leaf = branch.add(_line(f"item {item_id}{about}"))
    for name in names[:2]:
        leaf.add(_line(f"trajectory {name}{_read_from(found.sources.get(name))}"))
    if len(names) > 2:
        leaf.add(_line(f"... {len(names) - 2} more trajectories", "dim"))


def _read_from(source: Source | None) -> str:
    if source is None:
        return ""
    place = f"{source.file}:{source.line}" if source.file else ""
    whose = [f"{kind} {name}" for kind, name in (("session", source.session), ("user", source.user)) if name]
    return "".join(f", {part}" for part in (place, *whose) if part)


def _line(text: str, style: str = "") -> Text:
    return Text(one_line(text), style, no_wrap=True, overflow="ellipsis")
