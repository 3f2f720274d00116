"""The Grafana dashboard asks for figures that exist, all of them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from clawpipe.cli.main import run
from clawpipe.serve.monitoring.exposition import FIGURES, HOME_BYTES

LABELS = {f"clawpipe_night_{name}": {"model", *labels} for name, (labels, _) in FIGURES.items()} | {HOME_BYTES: {"directory"}}


@pytest.fixture
def dashboard(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        run(["metrics", "--dashboard"])
    return json.loads(capsys.readouterr().out)


def test_every_figure_is_drawn_and_no_other_is_asked_for(dashboard: dict[str, Any]):
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert {name for text in asked for name in re.findall(r"clawpipe_\w+", text)} == set(LABELS)


def test_legends_and_filters_name_labels_of_their_figures(dashboard: dict[str, Any]):
    for target in (target for panel in dashboard["panels"] for target in panel["targets"]):
        [name] = re.findall(r"clawpipe_\w+", target["expr"])
        used = re.findall(r"{{(\w+)}}", target["legendFormat"]) + re.findall(r"(\w+)=~", target["expr"])
        assert set(used) <= LABELS[name], target


def test_panels_lie_on_the_grid_and_not_on_each_other(dashboard: dict[str, Any]):
    """Grafana's grid has 24 columns."""
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [_cells(**panel["gridPos"]) for panel in panels]
    assert all(0 <= x < 24 for cells in taken for x, _ in cells)
    assert not [True for one, other in combinations(taken, 2) if one & other]


def _cells(x: int, y: int, w: int, h: int) -> set[tuple[int, int]]:
    return {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
