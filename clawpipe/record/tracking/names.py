"""Name metrics in trackers; names that earlier systems used are kept.

`python -m clawpipe.record.tracking.names` prints the tables of docs/tracking.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawpipe.learn.training.metrics import METRICS

_RENAMED = {
    "loss": "loss/total",
    "policy_loss": "loss/binary",
    "distil_kl": "loss/opd",
    "grad_norm": "gradient/norm",
    "behav_lp": "logprobs/mean",
    "lp": "logprobs/mean_training",
    "adv_mean": "advantages/mean",
    "adv_std": "advantages/std",
}
_LEFT_OUT = {"of", "epoch"}  # they are per round; a night's curve runs through all rounds
_OURS = {
    "step": "number of the optimizer step, from 1, through all rounds of the night",
    "round": "number of the round, from 1",
    "logprobs/diff": "logprobs/mean minus logprobs/mean_training: above 0 if the tokens have become less likely",
    "reward/mean": "mean score of the round's rollouts, logged with the round's first optimizer step",
    "reward/std": "standard deviation of those scores",
    "rollouts/success": "share of the round's rollouts that succeeded, logged with the round's first optimizer step",
}
PROBE_SUCCESS, PROBE_STEP = "probe/success", "probe/step"
_FINAL = {
    PROBE_SUCCESS: "with train.probe_steps: success on train items that no round takes, at the optimizer step after which it was "
    f"measured; in W&B over {PROBE_STEP}",
    "heldout/base, heldout/champion, heldout/candidate": "success on the held-out items; with _low and _high, its interval",
    "gate/effect": "the candidate's gain over the incumbent",
    "gate/p_better, gate/p_worse": "one-sided exact paired tests over identities",
}
PREDECESSORS = {  # their name -> the name here
    "loss/total": "loss/total",
    "loss/binary": "loss/binary",
    "loss/opd": "loss/opd",
    "reward/mean": "reward/mean",
    "reward/std": "reward/std",
    "gradient/norm": "gradient/norm",
    "learning_rate": "learning_rate",
    "step": "step",
    "train/loss": "loss/total",
    "train/learning_rate": "learning_rate",
    "logprobs/mean": "logprobs/mean",
    "logprobs/mean_training": "logprobs/mean_training",
    "logprobs/diff": "logprobs/diff",
    "advantages/mean": "advantages/mean",
    "advantages/std": "advantages/std",
    "percent correct": "rollouts/success",
    "eval accuracy": "heldout/candidate",
}


def tracked(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an optimizer step under trackers' names; the caller adds `step` and `round`."""
    skipped = {*_LEFT_OUT, "step"}
    metrics = {_RENAMED.get(name, name): float(value) for name, value in values.items() if name in METRICS and name not in skipped}
    if {"lp", "behav_lp"} <= values.keys():
        metrics["logprobs/diff"] = float(values["behav_lp"] - values["lp"])
    return metrics


def names() -> dict[str, str]:
    """Return every metric of an optimizer step in a tracker, with its meaning."""
    theirs = {_RENAMED.get(name, name): text for name, text in METRICS.items() if name not in _LEFT_OUT}
    return theirs | _OURS


def tables() -> str:
    """Return the tables of docs/tracking.md."""
    elsewhere = {name: here for name, here in PREDECESSORS.items() if name != here}
    parts = [
        _table("metric of an optimizer step", "meaning", names()),
        _table("figure of the night", "meaning", _FINAL),
        _table("called elsewhere", "here", elsewhere),
    ]
    return "\n".join(parts)


def _table(left: str, right: str, rows: Mapping[str, str]) -> str:
    return "".join(f"| {name} | {text} |\n" for name, text in _lines(left, right, rows))


def _lines(left: str, right: str, rows: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((left, right), ("---", "---"))
    yield from ((", ".join(f"`{part}`" for part in name.split(", ")), text) for name, text in rows.items())


if __name__ == "__main__":
    print(tables(), end="")
