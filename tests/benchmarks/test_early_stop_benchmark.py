"""The benchmark of evaluations that could have ended sooner."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.config.gate import Gate
from clawpipe.core.contracts.schema import schema_of

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def answers(policy: str, *success: bool) -> pa.Table:
    fields = {"environment": "e", "slice": "s", "policy_version": policy, "value": 0.0}
    rows = [{"item_id": f"i{place}", "identity": f"i{place}", "success": one} | fields for place, one in enumerate(success)]
    return pa.Table.from_pylist(rows, schema=schema_of("eval_results"))


@pytest.mark.parametrize(
    ("wins", "needed"),
    [(100, 72), (65, 100)],  # of 100 coins 66 heads are surprising at 0.05 / 30, 65 are not; looked at after every 8 items
)
def test_a_verdict_is_certain_when_no_rest_can_change_it(wins: int, needed: int):
    import early_stop  # pyright: ignore[reportMissingImports]

    won = [True] * wins + [False] * (100 - wins)
    tables = {"base": answers("b", *(not one for one in won)), "candidate": answers("c", *won)}
    assert early_stop.needed(tables, Gate(min_effect=0)) == {"needed": needed, "items": 100}
