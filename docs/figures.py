"""Draw the figures of the explanations: `python docs/figures.py`. Curves are computed by clawpipe's own loss; rates are those that
benchmarks/gate.json recorded."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from clawpipe.core.config.training import Loss
from clawpipe.learn.training.losses.policy import policy_loss

IMAGES = Path(__file__).parent / "images"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "clawpipe",  # the same ids each time
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def gradient_weight(ratios: torch.Tensor, advantage: float) -> torch.Tensor:
    """How strongly a token's log-prob is pushed, by its importance ratio: minus the gradient of its loss, [N]."""
    logprobs = ratios.log().requires_grad_()
    zeros, count = torch.zeros_like(logprobs), len(ratios)
    loss, _ = policy_loss(logprobs, zeros.detach(), torch.full_like(ratios, advantage), torch.arange(count), Loss())
    loss.sum().backward()
    assert logprobs.grad is not None
    return -logprobs.grad


def ratios(axes: Axes) -> None:
    """What one recorded token contributes, by how the trained policy has moved since it was sampled."""
    at = torch.linspace(0.401, 3.601, 1601)  # between the bounds, where rounding would decide
    for advantage, label in ((1.0, "advantage +1: push up"), (-1.0, "advantage -1: push down")):
        axes.plot(at, gradient_weight(at, advantage), label=label)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.annotate("not moved yet", (1.0, -2.8), xytext=(1.06, -2.8), color="grey")
    axes.set_xlabel("importance ratio: p now / p when it was sampled")
    axes.set_ylabel("weight of the token's gradient")
    axes.legend(frameon=False)


def gate(axes: Axes) -> None:
    """How often one night promotes, by the true gain."""
    recorded = json.loads((Path(__file__).parents[1] / "benchmarks" / "gate.json").read_text())
    for items in (160, 400, 800):
        rows = sorted((row["gain"], row["rate"]) for row in recorded["power"] if row["items"] == items)
        axes.plot([100 * gain for gain, _ in rows], [rate for _, rate in rows], marker="o", label=f"{items} held-out items")
    axes.set_xlabel("true gain of the candidate, points of success")
    axes.set_ylabel("share of nights that promote")
    axes.legend(frameon=False)


def draw(directory: Path) -> None:
    with matplotlib.rc_context(STYLE):
        for figure in (ratios, gate):
            _, axes = plt.subplots(figsize=(7, 3.6))
            figure(axes)
            plt.tight_layout()
            plt.savefig(directory / f"{figure.__name__}.svg", metadata={"Date": None})
            plt.close()


if __name__ == "__main__":
    draw(IMAGES)
