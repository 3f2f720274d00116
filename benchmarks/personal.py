"""How soon is a model to one person's taste, from that person's reactions alone?

    python benchmarks/personal.py --json --log personal.jsonl --out benchmarks/personal.json 0 1 2

The metric is OpenClaw-RL's: sessions before the first of three in a row whose first reply satisfies; at most 72 are held. A person
of `tastes` talks to a served model, a dozen sessions a day, and a night follows each day: it learns from the words that followed
the answers, and its verdict is about held-out prompts of that person. Beside it two baselines that learn nothing: what the person
likes in the system prompt, and nothing.

A line of the log is one arm, person and seed; those that are in it are not run again. Nothing is claimed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import cast

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import shipped_file
from clawpipe.core.store.home import Home
from clawpipe.play.environments.tastes import PEOPLE, Name, TastesEnvironment
from clawpipe.start.simulation.hours import LiveDemo, Plan
from clawpipe.start.simulation.satisfaction import MOST, sessions_until_satisfied

ARMS = ("reactions", "system prompt", "nothing")
A_DAY = 12  # sessions
CONFIG = Path("configs/live.yaml")


def plan_of(arm: str, person: str, seed: int) -> Plan:
    """Return what an arm runs: nights only where it learns."""
    config, nights = shipped_file(str(CONFIG)) or CONFIG, MOST // A_DAY - 1 if arm == "reactions" else 0
    environment = ["environment.name=tastes", f'environment.options={{"person": "{person}"}}', "environment.heldout_items=40"]
    few = ["gate.min_items=20", f"gate.nights={MOST // A_DAY}", "curation.quotas.per_user=null", "curation.min_samples=4"]
    last = A_DAY if nights else MOST
    return Plan(
        config, seed, cycles=nights, talks=A_DAY, last=last, users=1, overrides=(*environment, *few), most_tokens=48, at_night=0
    )


def run(arm: str, person: str, seed: int) -> JsonObject:
    """Let a person talk until the sessions are over, and return the line of the log."""
    environment = TastesEnvironment(cast(Name, person), told=arm == "system prompt")
    with tempfile.TemporaryDirectory() as home:
        demo = LiveDemo(
            Home(Path(home)), plan_of(arm, person, seed), lambda line: print(f"  {line}", file=sys.stderr, flush=True), environment
        )
        report = demo.run()
        firsts = [talk.success for talk in demo.talks]
    satisfied = {"sessions": sessions_until_satisfied(firsts), "of": len(firsts), "success": sum(firsts) / len(firsts)}
    verdicts = [hour.night.verdict for hour in report.hours if hour.night]
    return {"arm": arm, "person": person, "seed": seed, **satisfied, "verdicts": verdicts, "minutes": report.minutes}


def summary(lines: list[JsonObject]) -> JsonObject:
    """Return the mean number of sessions by arm, where a person who was never satisfied counts as `MOST`."""
    figures = {}
    for arm in ARMS:
        own = [line for line in lines if line["arm"] == arm]
        if own:
            until = [MOST if line["sessions"] is None else line["sessions"] for line in own]
            never = sum(line["sessions"] is None for line in own)
            figures[arm] = {"n": len(own), "mean_sessions": sum(until) / len(own), "never": never}
    return {"cap": MOST, "arms": figures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--people", nargs="+", default=[person.name for person in PEOPLE])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--log", type=Path, default=Path("personal.jsonl"), help="a line an arm, person and seed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="JSON file for figures and lines")
    given = parser.parse_args()
    wanted = [(arm, person, seed) for seed in given.seeds for person in given.people for arm in given.arms]
    for arm, person, seed in wanted:
        if not any((line["arm"], line["person"], line["seed"]) == (arm, person, seed) for line in read(given.log)):
            with given.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run(arm, person, seed)) + "\n")
    lines = read(given.log)
    figures = summary(lines)
    if given.out:
        given.out.write_text(json.dumps({**figures, "runs": lines}, indent=1) + "\n")
    print(json.dumps(figures, indent=1) if given.json else figures)
    return 0


def read(log: Path) -> list[JsonObject]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


if __name__ == "__main__":
    sys.exit(main())
