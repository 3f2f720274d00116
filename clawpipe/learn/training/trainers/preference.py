"""Jobs of preference pairs: packs of whole pairs, and a loss that is the mean over a step's pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from clawpipe.errors import ConfigError
from clawpipe.learn.training.data.pairs import are_text_only, load_pairs, plan_pairs
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.data.text_pairs import load_text_pairs
from clawpipe.learn.training.losses.batch import PairLoss, PairObjective
from clawpipe.learn.training.losses.preference import preference_loss
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.job import Score, TrainingJob, keep, readable_of
from clawpipe.model.policy.text import renderers
from clawpipe.model.policy.vocabulary import load_tokenizer


def training_job(request: TrainRequest) -> TrainingJob:
    """Read preference pairs to train on with the loss of dpo: recorded ones, or those of a dataset that is text only.

    Raises:
        ConfigError: pairs are text, and the request does not say how to render them.
        DataError: no pair is left to train on.
    """
    return pair_job(request, partial(preference_loss, config=request.config.dpo))


def pair_job(request: TrainRequest, loss: PairLoss) -> TrainingJob:
    """Read preference pairs to train on with a loss of pairs, which is given a reference if the method compares with the start.

    Raises:
        ConfigError, DataError: see `training_job`.
    """
    config = request.config
    plan = partial(plan_pairs, share=config.share_prefixes, whole=False)
    job = partial(TrainingJob, plan=plan, objective=PairObjective(loss), rows_each=2)
    compares = config.spec.compares_with_start
    if are_text_only(request.samples):
        return job(*_rendered(request), complete=_with_references if compares else keep)
    scores = request.token_scores if compares else None
    return job(*load_pairs(request.samples, scores, request.temperature, readable_of(request)))


def _rendered(request: TrainRequest) -> tuple[list[Sample], dict[str, int]]:
    rendering = request.rendering
    if rendering is None:
        raise ConfigError("pairs of text need an environment, whose preamble and tools they are rendered with", "rendering")
    tokenizer = load_tokenizer(Path(request.base))
    renderer_of = renderers(tokenizer, rendering.tool_call_format, rendering.opening.specs())
    return load_text_pairs(request.samples, renderer_of, rendering.opening.messages(), readable_of(request))


def _with_references(rows: Sequence[Sample], score: Score) -> list[Sample]:
    """Add the log-probs under the reference, the policy that the night started from, which no step has computed."""
    found = score(rows, reference=True)
    return [replace(row, streams={"reference": logprobs}) for row, logprobs in zip(rows, found, strict=True)]
