"""How much of its evaluation could a night have spared? Reads the nights of a home, and prints a line for each.

    python benchmarks/early_stop.py HOME --json > benchmarks/early_stop.json

A night could stop as soon as the remaining held-out items cannot change its verdict any more, whoever wins all of them; its error
rates would stay as they are. The items are taken in the order in which they were drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.gate import Gate
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.learn.evaluation.verdict.evidence import build_evidence
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.record.nights.files import has_verdict, list_nights, run_dir
from clawpipe.record.nights.status import NightStatus, read_status

_STEP = 8  # items


def nights(home: Home) -> Iterator[JsonObject]:
    """Yield how many of its held-out items each night needed for its verdict."""
    for name in filter(lambda name: has_verdict(home, name), list_nights(home)):
        status = read_status(home, name)
        rules = Gate.model_validate(json.loads((run_dir(home, name) / "config.json").read_bytes())["gate"])
        yield {"night": name, "verdict": status.verdict} | needed(results(home, status), rules)


def results(home: Home, status: NightStatus) -> dict[str, pa.Table]:
    """Return the results of each role's model."""
    made = {step.name: step.artifacts.get("output") for step in status.steps if step.name.startswith("evaluate/")}
    store = open_store(home)
    return {name.partition("/")[2]: read_dataset(store, ref) for name, ref in made.items() if isinstance(ref, DatasetRef)}


def needed(tables: dict[str, pa.Table], rules: Gate) -> JsonObject:
    """Return the fewest items, in steps of `_STEP`, after which the verdict is certain, and the number of all."""
    rival, items = "champion" if "champion" in tables else "base", tables["candidate"].num_rows
    asked = (count for count in range(0, items, _STEP) if is_certain(tables, rival, count, rules))
    return {"needed": next(asked, items), "items": items}


def is_certain(tables: dict[str, pa.Table], rival: str, asked: int, rules: Gate) -> bool:
    """Say whether the verdict is the same if the candidate wins all items from `asked` on, if its rival does, and as it was."""
    ends = [{"candidate": wins, rival: not wins} for wins in (True, False)]
    found = {decision(tables | {role: ended(tables[role], asked, end[role]) for role in end}, rules) for end in ends}
    return found == {decision(tables, rules)}


def ended(table: pa.Table, asked: int, success: bool) -> pa.Table:
    answers = [*table["success"].to_pylist()[:asked], *[success] * (table.num_rows - asked)]
    return table.set_column(table.schema.get_field_index("success"), "success", pa.array(answers, pa.bool_()))


def decision(tables: dict[str, pa.Table], rules: Gate) -> str:
    policy = tables["candidate"]["policy_version"][0].as_py()
    return str(decide(build_evidence(tables["base"], tables.get("champion"), tables["candidate"], policy), rules).decision)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = list(nights(Home(given.home)))
    spared = 1 - sum(one["needed"] for one in found) / sum(one["items"] for one in found)
    if given.json:
        print(json.dumps({"spared": round(spared, 3), "nights": found}, indent=2))
    else:
        print(*(f"{one['night']}  {one['verdict']}  {one['needed']} of {one['items']}" for one in found), sep="\n")
        print(f"spared: {spared:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
