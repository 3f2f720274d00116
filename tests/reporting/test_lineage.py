"""The graph of a night's artifacts, and its picture."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.errors import DataError, NotFoundError
from clawpipe.record.lineage.record import Lineage, Node, build_lineage, read_lineage, write_lineage
from clawpipe.record.nights.status import NightStatus, read_status, write_status
from clawpipe.record.reporting.mermaid import graph, markdown

VERSION = "models:/clawpipe-agent/3"


def made_by(night: NightStatus, step: str, role: str = "output") -> str:
    [entry] = [entry for entry in night.steps if entry.name == step]
    return entry.artifacts[role].digest


def ancestors(lineage: Lineage, identity: str) -> set[str]:
    parents = set(lineage.parents(identity))
    return parents.union(*(ancestors(lineage, parent) for parent in parents))


def test_the_journal_keeps_what_the_graph_needs(night: NightStatus) -> None:
    write_status(night)
    home = Home(Path(night.run_dir).parents[1])
    assert build_lineage(read_status(home, night.night)) == build_lineage(night)


def test_the_version_goes_back_to_the_task_items_and_the_base(night: NightStatus) -> None:
    lineage = build_lineage(night)
    rounds = [made_by(night, f"round-{n}/{step}") for n in (1, 2, 3) for step in ("generate_rollouts", "score", "curate", "train")]
    evaluations = [made_by(night, f"evaluate/{role}") for role in ("base", "candidate")]
    base = next(node.id for node in lineage.nodes if node.kind == "base")
    assert ancestors(lineage, VERSION) == {made_by(night, "make_items"), base, *rounds, *evaluations, "verdict"}
    assert lineage.parents(VERSION) == [made_by(night, "round-3/train"), "verdict"]
    assert ancestors(lineage, made_by(night, "evaluate/base")) == {made_by(night, "make_items"), base}


def test_nodes_tell_what_they_are(night: NightStatus) -> None:
    lineage = build_lineage(night)
    samples = lineage.node(made_by(night, "round-2/curate"))
    assert samples is not None
    assert (samples.kind, samples.name, samples.rows, samples.step) == ("dataset", "samples", 178, "round-2/curate")
    base = lineage.nodes[0]
    assert (base.kind, base.name, base.step) == ("base", "smollm2-135m-instruct", None)


def test_an_unchanged_output_belongs_to_the_step_that_made_it(night: NightStatus) -> None:
    raw = build_lineage(night).node(made_by(night, "round-1/validate"))
    assert raw is not None
    assert raw.step == "round-1/generate_rollouts"


def test_every_artifact_is_a_node_and_every_arrow_joins_nodes(night: NightStatus) -> None:
    lineage = build_lineage(night)
    names = [node.id for node in lineage.nodes]
    assert len(set(names)) == len(names)
    assert {ref.digest for step in night.steps for ref in step.artifacts.values()} <= set(names)
    assert {end for edge in lineage.edges for end in edge} <= set(names)


def test_a_champion_is_a_node_from_before_the_night(night: NightStatus) -> None:
    candidate = next(step for step in night.steps if step.name == "round-1/train").artifacts["output"]
    assert isinstance(candidate, ModelRef)
    champion = candidate.model_copy(update={"digest": "c" * 64, "policy_version": "c" * 16, "parents": ("s" * 64,)})
    lineage = build_lineage(night, outside=[champion])
    node = lineage.node("c" * 64)
    assert node is not None
    assert (node.kind, node.step) == ("model", None)
    unnamed = lineage.node("s" * 64)
    assert unnamed is not None
    assert unnamed.kind == "unknown"


def test_it_is_read_back_as_it_was_written(night: NightStatus, tmp_path: Path) -> None:
    lineage = build_lineage(night, link="http://127.0.0.1:5000/#/models/clawpipe-agent/versions/3")
    path = write_lineage(lineage, tmp_path)
    assert path == tmp_path / "lineage.json"
    assert read_lineage(tmp_path) == lineage
    plain = json.loads(path.read_text())
    assert plain["model"]["version"] == "3"
    assert plain["steps"][0]["name"] == "make_items"


def test_a_damaged_or_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"lineage\.json"):
        read_lineage(tmp_path)
    (tmp_path / "lineage.json").write_text('{"night": 1')
    with pytest.raises(DataError, match=r"lineage\.json"):
        read_lineage(tmp_path)


# ---- the picture

NODE = re.compile(r'^ *(n\d+)(?:\[\("|\(\["|\{\{"|\[\["|\[")([^"]*)(?:"\)\]|"\]\)|"\}\}|"\]\]|"\])$')
ARROW = re.compile(r"^ *(n\d+) --> (n\d+)$")
GROUP = re.compile(r'^ *subgraph \w+\["([^"]*)"\]$|^ *end$')


def parts(picture: str) -> tuple[dict[str, str], list[tuple[str, str]], list[str]]:
    """Labels by node, arrows, groups; every line is one of them."""
    head, *lines = picture.splitlines()
    assert head == "flowchart TD"
    assert all(NODE.match(line) or ARROW.match(line) or GROUP.match(line) for line in lines)
    nodes = {match[1]: match[2] for line in lines if (match := NODE.match(line))}
    arrows = [(match[1], match[2]) for line in lines if (match := ARROW.match(line))]
    groups = [match[1] for line in lines if (match := GROUP.match(line)) and match[1]]
    return nodes, arrows, groups


def test_labels_are_short_and_rounds_are_groups(night: NightStatus) -> None:
    nodes, _, groups = parts(graph(build_lineage(night)))
    digest = made_by(night, "round-2/curate")
    assert f"samples<br/>178 rows<br/>{digest[:8]}" in nodes.values()
    assert "eval_results<br/>candidate<br/>160 rows<br/>" + made_by(night, "evaluate/candidate")[:8] in nodes.values()
    assert "PROMOTE" in nodes.values()
    assert groups == ["round 1", "round 2", "round 3", "held-out evaluation"]


def test_arrows_that_a_longer_way_implies_are_left_out(night: NightStatus) -> None:
    lineage = build_lineage(night)
    nodes, arrows, _ = parts(graph(lineage))
    named = {(nodes[read].replace("<br/>", " "), nodes[made].replace("<br/>", " ")) for read, made in arrows}
    items, raw = f"task_items 288 rows {made_by(night, 'make_items')[:8]}", made_by(night, "round-1/generate_rollouts")[:8]
    assert (items, f"trajectories 256 rows {raw}") in named
    assert not any(read == items and made.startswith("samples") for read, made in named)
    last = f"adapter {made_by(night, 'round-3/train')[:8]}"
    assert (last, "clawpipe-agent version 3") in named, "what the version is stays visible"


def test_a_night_of_many_rounds_is_drawn() -> None:
    """Its longest way is longer than functions may call each other in Python."""
    names = [f"made-{number}" for number in range(1200)]
    nodes = tuple(Node(id=name, kind="dataset", name="samples", step="round-1/curate") for name in names)
    way, shortcuts = list(pairwise(names)), list(zip(names, names[2:], strict=False))
    lineage = Lineage(night="n", verdict=None, model=None, link=None, nodes=nodes, edges=(*way, *shortcuts), steps=())
    assert len(parts(graph(lineage))[1]) == len(way)


def test_only_what_leads_to_the_version_is_drawn(night: NightStatus) -> None:
    nodes, _, _ = parts(graph(build_lineage(night)))
    held = made_by(night, "evaluate/base", "trajectories")[:8]
    assert not any(held in label for label in nodes.values())


def test_without_a_version_the_picture_ends_at_the_verdict(night: NightStatus) -> None:
    rejected = night.model_copy(update={"verdict": "REJECT", "model": None})
    nodes, arrows, _ = parts(graph(build_lineage(rejected)))
    [verdict] = [name for name, label in nodes.items() if label == "REJECT"]
    assert any(made == verdict for _, made in arrows)


def test_equal_content_made_twice_makes_no_endless_loop(night: NightStatus) -> None:
    first, second = (next(s for s in night.steps if s.name == name) for name in ("round-1/generate_rollouts", "round-1/score"))
    back = first.artifacts["output"].model_copy(update={"parents": (made_by(night, "round-1/score"),)})
    looped = night.model_copy(update={"steps": [*night.steps, second.model_copy(update={"artifacts": {"output": back}})]})
    nodes, _, _ = parts(graph(build_lineage(looped)))
    assert len(nodes) == len(parts(graph(build_lineage(night)))[0])


def test_names_cannot_leave_their_label_or_cell(night: NightStatus) -> None:
    evil = 'x"] --> n0\n"<script>`|#'
    ref = DatasetRef(name=evil, digest="e" * 64, rows=1)
    first = night.steps[0].model_copy(update={"name": f"{evil}/{evil}", "artifacts": {"output": ref}, "filtered": {evil: 2}})
    items = night.steps[0].artifacts["output"].digest
    used = night.steps[1].model_copy(
        update={"artifacts": {"output": DatasetRef(name="t", digest=items, rows=1, parents=("e" * 64,))}}
    )
    lineage = build_lineage(night.model_copy(update={"night": evil, "steps": [first, used, *night.steps[2:]]}))
    nodes, _, _ = parts(graph(lineage))
    assert "x#quot;] --#gt; n0 #quot;#lt;script#gt;#96;|#35;<br/>1 rows<br/>eeeeeeee" in nodes.values()
    table = markdown(lineage)
    assert "<script>" not in table
    assert table.count("```") == 2
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {8}


def test_the_page_names_steps_and_links_the_registry(night: NightStatus) -> None:
    page = markdown(build_lineage(night, link="http://127.0.0.1:5000/#/models/clawpipe-agent/versions/3"))
    assert "[in the model registry](<http://127.0.0.1:5000/#/models/clawpipe-agent/versions/3>)" in page
    digest = made_by(night, "round-2/curate")[:12]
    assert f"| round-2/curate | ran | 1.1 s | 256 | 178 | 72 zero-variance group, 6 duplicate | `{digest}` |" in page
    assert "| make\\_items | cached | 0.1 s | 0 | 288 |" in page
    assert "[" not in markdown(build_lineage(night, link="sqlite:///registry.db")).split("```")[0]
