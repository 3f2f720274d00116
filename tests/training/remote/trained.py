"""Train at the fake service, in the test's own process, and read what a training left."""

from __future__ import annotations

import json

from safetensors.torch import load_file

from clawpipe.learn.training.backends import open_backend


def away(request, on_step=lambda step: None):
    """Train at the service in this process; the outcome."""
    open_backend(request.config.backend).train(request, request.weights.parent.parent, on_step)
    return request.weights.parent


def steps_of(outcome):
    return [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]


def weights_of(outcome):
    return load_file(outcome / "adapter" / "adapter_model.safetensors")
