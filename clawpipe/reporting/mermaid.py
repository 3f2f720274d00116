"""A lineage as markdown: a Mermaid graph from task items to the model version, and a table of steps."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from clawpipe.lineage.record import Lineage, Node, Step
from clawpipe.reporting.wording import duration, model_title, one_line, reasons, short

Edge = tuple[str, str]

_SHAPES = {
    "dataset": '[("{}")]',
    "base": '(["{}"])',
    "model": '(["{}"])',
    "verdict": '{{{{"{}"}}}}',
    "version": '[["{}"]]',
    "unknown": '["{}"]',
}
_GROUPS = {"evaluate": "held-out evaluation"}  # rounds are named by their steps


def markdown(lineage: Lineage) -> str:
    """For a page that renders Mermaid. Steps, digests, rows and states in a table below the graph."""
    head = f"# Lineage of {literal(_title(lineage))}\n\nNight {literal(lineage.night)}, verdict **{lineage.verdict or 'none'}**"
    return f"{head}{_registry(lineage)}\n\n```mermaid\n{graph(lineage)}\n```\n\n{_table(lineage.steps)}\n"


def graph(lineage: Lineage) -> str:
    """The graph in Mermaid: what leads to the model version, or to the verdict where none was registered.

    Arrows that a longer way implies are left out, so that the picture is a chain and no web; those to the version stay.
    """
    nodes = _leading_to_the_end(lineage)
    places = {node.id: place for place, node in enumerate(nodes)}
    shown = [(read, made) for read, made in lineage.edges if read in places and made in places]
    forward = [(read, made) for read, made in shown if places[read] < places[made]]  # equal content made twice can make a loop
    lines = [line for group in _groups(nodes) for line in _group_lines(group, nodes, places)]
    drawn = set(_without_shortcuts(forward)) | {edge for edge in forward if edge[1] in _ids(lineage, "version")}
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
    """Nodes from which the last node is reached, in their order."""
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


def _without_shortcuts(edges: list[Edge]) -> list[Edge]:
    """The transitive reduction of a graph without loops."""
    children: dict[str, set[str]] = {}
    for read, made in edges:
        children.setdefault(read, set()).add(made)

    @cache
    def below(identity: str) -> set[str]:
        return {reached for child in children.get(identity, ()) for reached in {child} | below(child)}

    return [(read, made) for read, made in edges if not any(made in below(child) for child in children[read] - {made})]


def _groups(nodes: Iterable[Node]) -> list[str]:
    """Parts of the night in order; "" is what belongs to none."""
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
    """Text inside of a quoted Mermaid label; entities are written `#name;` there."""
    escaped = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}
    return "".join(escaped.get(character, character) for character in one_line(text))


def _table(steps: Iterable[Step]) -> str:
    head = "| step | state | time | rows in | rows out | set aside | digest |\n|---|---|--:|--:|--:|---|---|"
    return "\n".join([head, *map(_row, steps)])


def _row(step: Step) -> str:
    cells = [
        literal(step.name),
        literal(step.state),
        duration(step.seconds),
        str(step.rows_in),
        str(step.rows_out),
        literal(", ".join(reasons(step.set_aside))),
        f"`{step.digest[:12]}`" if step.digest else "",
    ]
    return f"| {' | '.join(cells)} |"


def literal(text: str) -> str:
    """`text` in markdown, where it stays text: no table cell ends in it, no markup begins."""
    return re.sub(r"([\\|*_`\[\]])", r"\\\1", html.escape(one_line(text), quote=False))
