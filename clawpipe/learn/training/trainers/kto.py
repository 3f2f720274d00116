"""The KTO trainer, on labelled trajectories; each stands beside a mismatched row, which serves to estimate the reference point.

Row 2p is a trajectory; row 2p + 1 is its question with the answer of a trajectory to another question. Both stand in one pack, in
which they share the question's tokens. The reference point is that of the whole optimizer step, on all processes: it does not
depend on how many packs a step has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clawpipe.core.config.methods import Kto
from clawpipe.errors import DataError
from clawpipe.learn.training.data.pairs import plan_pairs
from clawpipe.learn.training.data.samples import Sample, load_samples
from clawpipe.learn.training.losses.batch import Batch, KtoObjective, log_ratios
from clawpipe.learn.training.losses.kto import reference_point
from clawpipe.learn.training.model.scoring_head import score_pack
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.base import PackDataset, PackedTrainer
from clawpipe.learn.training.trainers.job import Score, TrainingJob, readable_of


def training_job(request: TrainRequest) -> TrainingJob:
    """Read labelled samples, and put a mismatched row beside each.

    Raises:
        DataError: no row is left to train on, all have the same question, or all the same label.
    """
    config = request.config
    samples, filtered = load_samples(request.samples, config, request.temperature, request.token_scores, readable_of(request))
    samples = one_label_each(samples)
    require_both_labels(samples)
    kto, samples = weighed(config.kto, samples)
    return TrainingJob(
        rows=with_mismatched(samples),
        filtered=filtered,
        plan=partial(plan_pairs, share=config.share_prefixes, whole=False),
        objective=KtoObjective(kto),
        trainer=KtoTrainer,
        complete=_with_references,
        rows_each=2,
    )


def one_label_each(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples of one label each: of a conversation with turns of both labels, one row trains each kind of turn."""
    return [part for sample in samples for part in _by_label(sample)]


def _by_label(sample: Sample) -> Iterator[Sample]:
    signs = np.sign(sample.streams["advantages"])
    for sign in np.unique(signs)[::-1]:
        of_label = signs == sign
        streams = {name: values[of_label] for name, values in sample.streams.items()}
        yield replace(sample, trained=sample.trained[of_label], streams=streams)


def require_both_labels(samples: Sequence[Sample]) -> None:
    """Check that there is something to tell apart.

    Raises:
        DataError: all rows are desirable, or all undesirable: then kto only raises, or lowers, whatever was said.
    """
    labels = {_is_good(sample) for sample in samples}
    if len(labels) == 1:
        kind, other = ("desirable", "failures") if labels == {True} else ("undesirable", "successes")
        what = f"all {len(samples)} rows are {kind}: kto learns to tell desirable from undesirable ones"
        raise DataError(what, "train.method", f"add rows that are {other}, or set train.method to sft, which imitates successes")


def weighed(config: Kto, samples: Sequence[Sample]) -> tuple[Kto, list[Sample]]:
    """Return settings with a weight of desirable rows, and the samples with weights of their own: where the settings have none,
    those with which both labels weigh the same, over all rows and among the answers to each question that has both. In a question
    rows are counted, so what the samples weigh already, as demonstrations may, goes on counting.

    Ethayarajh et al. 2024 advise that desirable rows weigh 1 to 1.5 times as much as the others; in early nights few are desirable.
    Without a balance for each question all that was said of a hard one becomes less likely, and all that was said of an easy one
    likelier, whatever it was: the question, and not the answer, would decide.
    """
    if config.desirable_weight is not None:
        return config, list(samples)
    groups: defaultdict[str, list[tuple[bool, float]]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append((_is_good(sample), 1.0))
    factors = {name: _bad_over_good(group) for name, group in groups.items()}
    balanced = [replace(one, weight=one.weight * factors[one.group]) if _is_good(one) else one for one in samples]
    ratio = _bad_over_good((_is_good(one), one.weight) for one in balanced)
    return config.model_copy(update={"desirable_weight": config.undesirable_weight * ratio}), balanced


def _bad_over_good(weights: Iterable[tuple[bool, float]]) -> float:
    """Return how much more undesirable rows weigh than desirable ones, given whether each is desirable, and its weight; 1 unless
    there are both."""
    totals = {True: 0.0, False: 0.0}
    for is_good, weight in weights:
        totals[is_good] += weight
    return totals[False] / totals[True] if all(totals.values()) else 1.0


def _is_good(sample: Sample) -> bool:
    return bool(sample.streams["advantages"].sum() > 0)


def with_mismatched(samples: Sequence[Sample]) -> list[Sample]:
    """Return 2R rows: each sample with its label and reference, and after it its question with another one's answer.

    The sign of its advantages says whether a sample is desirable. The other answer is that of the next sample, in stored order, to
    another question; it is cut where the row would be longer than the longest sample.

    Raises:
        DataError: all samples have the same question.
    """
    longest = max(len(sample.token_ids) for sample in samples)
    questions = [sample.token_ids[: sample.trained[0]].tobytes() for sample in samples]
    if len(set(questions)) == 1:
        raise DataError("all rows answer the same question: kto compares with answers to others", fix="train on more task items")
    rows = []
    for place, sample in enumerate(samples):
        turns = chain(range(place + 1, len(samples)), range(place))
        other = samples[next(turn for turn in turns if questions[turn] != questions[place])]
        label = np.sign(sample.streams["advantages"])
        rows += [replace(sample, streams={"reference": sample.streams["reference"], "label": label})]
        rows += [_mismatched(sample, other, longest)]
    return rows


def _mismatched(sample: Sample, other: Sample, longest: int) -> Sample:
    start, answer = sample.trained[0], other.trained[0]
    ids = np.concatenate([sample.token_ids[:start], other.token_ids[answer:]])[:longest]
    trained = other.trained - answer + start
    trained = trained[trained < len(ids)]
    return replace(sample, token_ids=ids, trained=trained, streams={"label": np.zeros(len(trained), np.float32)})


def _with_references(rows: Sequence[Sample], score: Score) -> list[Sample]:
    """Add the mismatched rows' log-probs under the reference, the policy that the night started from."""
    found, complete = score(rows[1::2], reference=True), list(rows)
    complete[1::2] = [replace(row, streams={**row.streams, "reference": part}) for row, part in zip(rows[1::2], found, strict=True)]
    return complete


class KtoTrainer(PackedTrainer):
    """Trains a policy on the rows of `with_mismatched`, packed by `plan_pairs`."""

    objective: KtoObjective

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor:
        alone = len(batch_samples) == 1 and self.accelerator.num_processes == 1
        self.objective.point = None if alone else self._estimate(batch_samples)  # a single pack has all of the rows itself
        return super()._get_num_items_in_batch(batch_samples, device)

    def _validate(self, packs: PackDataset) -> float:
        self.objective.point = self._estimate(packs[index] for index in range(len(packs)))
        return super()._validate(packs)

    @torch.no_grad()
    def _estimate(self, batches: Iterable[Batch]) -> Tensor:
        """Return the reference point of the mismatched rows of several packs, on all processes.

        Without dropout: it takes no random numbers, so a run that goes on from a checkpoint has those of one that never stopped.
        """
        self.model.eval()
        found = torch.zeros(2, device=self.model.device)
        for batch in batches:
            inputs: Any = self._prepare_inputs(batch)  # type: ignore[arg-type]
            scores = score_pack(self.model_wrapped, inputs)  # type: ignore[arg-type]
            if len(inputs["score"]):
                mismatched = log_ratios(scores, inputs)[1::2]
                found += torch.stack([mismatched.sum(), mismatched.new_tensor(len(mismatched))])
        total, rows = self.accelerator.gather(found).view(-1, 2).sum(0)  # type: ignore[union-attr]
        return reference_point(total, rows)
