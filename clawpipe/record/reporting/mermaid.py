"""Render a lineage as Markdown: a Mermaid graph from task items to the model version, and a table of steps."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from clawpipe.record.lineage.record import Lineage, Node, Step
from clawpipe.record.reporting.wording import duration, model_title, one_line, reasons, short

Edge = tuple[str, str]

_SHAPES = {
    "dataset": '[("{}")]',
    "base": '(["{}"])',
    "model": '(["{}"])',
    "optimizer": '(["{}"])',
    "verdict": '{{{{"{}"}}}}',
    "version": '[["{}"]]',
    "unknown": '["{}"]',
}
_GROUPS = {"evaluate": "held-out evaluation"}  # groups whose title differs from their steps' prefix


def markdown(lineage: Lineage) -> str:
    """Render for a page that draws Mermaid: the graph, and below it a table of steps, digests, rows and states."""
    head = f"# Lineage of {literal(_title(lineage))}\n\nNight {literal(lineage.night)}, verdict **{lineage.verdict or 'none'}**"
    return f"{head}{_registry(lineage)}\n\n```mermaid\n{graph(lineage)}\n```\n\n{_table(lineage.steps)}\n"


def graph(lineage: Lineage) -> str:
    """Return the Mermaid graph of everything that leads to the model version, or to the verdict if none was registered.

    Arrows implied by a longer path are left out, except those to the version.
    """
    nodes = _leading_to_the_end(lineage)
    places = {node.id: place for place, node in enumerate(nodes)}
    shown = [(read, made) for read, made in lineage.edges if read in places and made in places]
    forward = [(read, made) for read, made in shown if places[read] < places[made]]  # equal content made twice can make a loop
    lines = [line for group in _groups(nodes) for line in _group_lines(group, nodes, places)]
    drawn = set(_without_shortcuts(forward, list(places))) | {edge for edge in forward if edge[1] in _ids(lineage, "version")}
    arrows = [f"  n{places[read]} --> n{places[made]}" for read, made in forward if (read, made) in drawn]
    return "\n".join(["flowchart TD", *lines, *arrows])


def _title(lineage: Lineage) -> str:
    return model_title(lineage.model) if lineage.model else "a night that registered no model"


def _registry(lineage: Lineage) -> str:
    if not lineage.link:
        return ""
    if lineage.link.startswith(("http://", "https://")):
        return f", [in the model registry](<{one_line(lineage.link)}>)"
    return f", in the model registry: `{one_line(lineage.link)}`"


def _leading_to_the_end(lineage: Lineage) -> list[Node]:
    """Return the nodes from which the last node can be reached, in order."""
    ends = _ids(lineage, "version") or _ids(lineage, "verdict") or [node.id for node in lineage.nodes]
    reached: set[str] = set()
    while ends:
        identity = ends.pop()
        if identity not in reached:
            reached.add(identity)
            ends += lineage.parents(identity)
    return [node for node in lineage.nodes if node.id in reached]


def _ids(lineage: Lineage, kind: str) -> list[str]:
    return [node.id for node in lineage.nodes if node.kind == kind]


def _without_shortcuts(edges: Sequence[Edge], order: Sequence[str]) -> list[Edge]:
    """Return the transitive reduction of a graph whose edges lead from earlier nodes of `order` to later ones."""
    children: dict[str, list[str]] = {identity: [] for identity in order}
    for read, made in edges:
        children[read].append(made)
    bit = {identity: 1 << place for place, identity in enumerate(order)}
    below: dict[str, int] = {}  # all that can be reached from a node, as bits: ways through many rounds are too long for recursion
    for identity in reversed(order):
        below[identity] = reduce(or_, (bit[child] | below[child] for child in children[identity]), 0)
    return [(read, made) for read, made in edges if not any(bit[made] & below[child] for child in children[read] if child != made)]


def _groups(nodes: Iterable[Node]) -> list[str]:
    """Return the night's parts in order; "" stands for nodes outside all parts."""
    return list(dict.fromkeys(["", *map(_group, nodes)]))


def _group(node: Node) -> str:
    part, slash, _ = (node.step or "").partition("/")
    return part if slash else ""


def _group_lines(group: str, nodes: Iterable[Node], places: Mapping[str, int]) -> Iterator[str]:
    members = [f"  n{places[node.id]}{_SHAPES[node.kind].format(_label(node))}" for node in nodes if _group(node) == group]
    if not group:
        yield from members
        return
    yield f'  subgraph {re.sub("[^A-Za-z0-9]", "_", group)}["{_text(_GROUPS.get(group, group.replace("-", " ")))}"]'
    yield from (f"  {member}" for member in members)
    yield "  end"


def _label(node: Node) -> str:
    count = f"{node.rows} rows" if node.rows is not None else ""
    digest = "" if node.kind in ("verdict", "version") else short(node.id)
    role = (node.step or "").removeprefix("evaluate/") if _group(node) == "evaluate" else ""
    return "<br/>".join(_text(part) for part in (node.name, role, count, digest) if part)


def _text(text: str) -> str:
    """Escape text for a quoted Mermaid label, where entities are written `#name;`."""
    escaped = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    return "".join(escaped.get(character, character) for character in one_line(text))


def _table(steps: Iterable[Step]) -> str:
    head = "| step | state | time | rows in | rows out | filtered | digest |\n|---|---|--:|--:|--:|---|---|"
    return "\n".join([head, *map(_row, steps)])


def _row(step: Step) -> str:
    cells = [
        literal(step.name),
        literal(step.state),
        duration(step.seconds),
        str(step.rows_in),
        str(step.rows_out),
        literal(", ".join(reasons(step.filtered))),
        f"`{step.digest[:12]}`" if step.digest else "",
    ]
    return f"| {' | '.join(cells)} |"


def literal(text: str) -> str:
    """Escape `text` for Markdown, so that it cannot end a table cell or begin markup."""
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", html.escape(one_line(text), quote=False))
