"""Run an annotation: compute the log-probs of the trained tokens of rows under other policies."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.core.store.files import fsync
from clawpipe.errors import ConfigError
from clawpipe.learn.annotation.request import SUMMARY, TOKEN_SCORES, AnnotateRequest, Role
from clawpipe.learn.annotation.rows import Hinted, HintedRows, Part, Prompts, Row, load_rows
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.likelihoods import Likelihoods, likelihoods, plan
from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.model.policy.layout import context_of
from clawpipe.model.policy.load import load_policy, resolve_device
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.template import open_renderer
from clawpipe.model.policy.vocabulary import load_tokenizer

Progress = Callable[[JsonObject], None]
RowLikelihoods = list[Likelihoods | None]  # one entry for each row; None if it cannot be scored


class TeacherScores(NamedTuple):
    """The teacher's scores of a row with N trained tokens; K tokens of the vocabulary are compared at each. `hint` is the index of
    the hint that taught most tokens of the first part. Where `taught` is False no hint applies to the token, and its figures are
    the student's.
    """

    hint: int
    taught: np.ndarray  # bool [N]
    logprobs: np.ndarray  # float32 [N]
    top_tokens: np.ndarray  # int32 [N, K]
    top_logprobs: np.ndarray  # float32 [N, K]


def annotate(request: AnnotateRequest, on_progress: Progress = lambda summary: None) -> None:
    """Write `token_scores`, one row for each input row, and a summary, into a directory that appears atomically.

    Raises:
        ConfigError: teacher and student have different vocabularies, or fewer tokens than `top_k`.
        DataError: the rows cannot be read.
    """
    if request.threads:
        torch.set_num_threads(request.threads)
    rows, scorer = load_rows(request), PolicyScorer(request, on_progress)
    by_role: dict[Role, RowLikelihoods] = {role: scorer.plain(role, rows) for role in request.policies if role != "teacher"}
    hinted, teacher_scores = scorer.taught(rows, by_role["student"]) if "teacher" in request.policies else ([], [None] * len(rows))
    columns = {
        "row_id": [row.row_id for row in rows],
        **{
            name: [entry and entry.logprobs for entry in by_role.get(name, [None] * len(rows))]
            for name in ("reference", "proximal")
        },
        **_teacher_columns(teacher_scores, request.config.form == "topk"),
    }
    summary = {"filtered": _counted(row.fault for row in rows), "without_hint": _counted(entry.reason for entry in hinted)}
    _commit(Path(request.output), columns, summary | _summary(teacher_scores, by_role.get("student", [])))


class PolicyScorer:
    """Scores rows under the policies, with one policy in memory at a time."""

    def __init__(self, request: AnnotateRequest, on_progress: Progress) -> None:
        self._request, self._on_progress = request, on_progress
        self._loaded: tuple[PolicySpec, Any] | None = None
        self._plain: dict[PolicySpec, RowLikelihoods] = {}

    def plain(self, role: Role, rows: Sequence[Row]) -> RowLikelihoods:
        """Score the rows without hints; each policy scores them once, also if it has several roles."""
        spec = self._request.policies[role]
        if spec not in self._plain:
            known = [(index, row.sample) for index, row in enumerate(rows) if row.sample is not None]
            answers = self._ask(role, [sample for _, sample in known])
            found = dict(zip((index for index, _ in known), answers, strict=True))
            self._plain[spec] = [found.get(index) for index in range(len(rows))]
        return self._plain[spec]

    def taught(self, rows: Sequence[Row], student: RowLikelihoods) -> tuple[list[Hinted], list[TeacherScores | None]]:
        """Score the rows with hints under the teacher."""
        hinted = self._hint(rows)
        samples = [
            sample if self._compares_own else _comparing(sample, _known(student[index]).top[part.places])
            for index, entry in enumerate(hinted)
            for part in entry.parts
            for sample in part.hinted.values()
        ]
        answers = iter(self._ask("teacher", samples))
        scored = [[(part, {hint: next(answers) for hint in part.hinted}) for part in entry.parts] for entry in hinted]
        return hinted, [self._best(_known(student[index]), parts) if parts else None for index, parts in enumerate(scored)]

    @property
    def _compares_own(self) -> bool:
        return self._request.config.top_k_of == "teacher"

    def _best(self, own: Likelihoods, parts: Sequence[tuple[Part, dict[int, Likelihoods]]]) -> TeacherScores:
        """Replace the student's figures by the teacher's for each part, with the hints that agree most."""
        taught = np.zeros(len(own.logprobs), bool)
        logprobs, tokens, compared = own.logprobs.copy(), own.top.copy(), own.top_logprobs.copy()
        hints = []
        for part, answers in parts:
            places = part.places
            tops = {hint: answer.top for hint, answer in answers.items()}
            chosen = choose(tops, own.top[places], self._request.config.hint_per)
            hints.append(int(np.bincount(chosen).argmax()))
            taught[places], logprobs[places] = True, _of(chosen, answers, "logprobs")
            tokens[places] = _of(chosen, answers, "top") if self._compares_own else own.top[places]
            compared[places] = _of(chosen, answers, "top_logprobs" if self._compares_own else "compared")
        return TeacherScores(hints[0], taught, logprobs, tokens, compared)

    def _hint(self, rows: Sequence[Row]) -> list[Hinted]:
        request = self._request
        assert request.hindsight is not None
        student = request.policies["student"]
        tokenizer, context = load_tokenizer(Path(student.base)), context_of(self._model("teacher"))
        prompts = {
            opening.label: Prompts(open_renderer(tokenizer, student.tool_call_format, opening.specs()), opening.messages())
            for opening in request.hindsight.openings
        }
        hints = HintedRows(prompts, request.hindsight, request.config, context)
        return [hints.of(row) for row in rows]

    def _ask(self, role: Role, samples: Sequence[Sample]) -> list[Likelihoods]:
        packs, done = len(plan(samples, self._request.pack_tokens)), count(1)

        def on_pack() -> None:
            self._on_progress({"step": next(done), "of": packs, "note": role})

        width, vocabulary = self._width(role)
        return likelihoods(self._model(role), samples, self._request.pack_tokens, width, vocabulary, on_pack)

    def _width(self, role: Role) -> tuple[int, int | None]:
        """Return the number of most likely tokens to compare between student and teacher, and the size of the vocabulary."""
        policies = self._request.policies
        if "teacher" not in policies or policies[role] not in (policies["student"], policies["teacher"]):
            return 0, None
        vocabulary, width = len(load_tokenizer(Path(policies["student"].base))), self._request.config.top_k
        if width > vocabulary:
            raise ConfigError(
                f"{width} tokens cannot be compared in a vocabulary of {vocabulary}", "train.opd.top_k", "choose fewer"
            )
        return width, vocabulary

    def _model(self, role: Role) -> Any:
        spec = self._request.policies[role]
        if self._loaded is None or self._loaded[0] != spec:
            self._loaded = None  # free the old weights first
            device = resolve_device(self._request.device.partition(":")[0])  # this process sees one GPU, which is number 0
            adapter = Path(spec.adapter) if spec.adapter else None
            policy = load_policy(Path(spec.base), adapter, spec.dtype, device, quantization=spec.quantization)
            use_packs(policy, device)
            self._loaded = (spec, policy)
        return self._loaded[1]


def choose(tops: Mapping[int, np.ndarray], student: np.ndarray, per: Literal["row", "token"]) -> np.ndarray:
    """Return for each token the hint h with which the teacher agrees most with the student, the first of equals: argmax over h of
    |top-K of the student and top-K of the teacher with h|, at that token, or summed over all tokens.

    Args:
        tops: int [N, K] by candidate.
        student: int [N, K].
        per: what has one hint: all N tokens, or each.

    Returns:
        int [N].
    """
    overlaps = np.stack([(top[:, :, None] == student[:, None, :]).sum((1, 2)) for top in tops.values()])  # [H, N]
    if per == "row":
        overlaps = np.broadcast_to(overlaps.sum(1, keepdims=True), overlaps.shape)
    return np.array(list(tops))[overlaps.argmax(0)]


def _of(chosen: np.ndarray, answers: Mapping[int, Likelihoods], figure: str) -> np.ndarray:
    """Return a figure [N, ...] of each token, as the teacher has it with the token's hint."""
    found = getattr(answers[int(chosen[0])], figure).copy()
    for hint in set(chosen.tolist()):
        found[chosen == hint] = getattr(answers[hint], figure)[chosen == hint]
    return found


def _comparing(sample: Sample, tokens: np.ndarray) -> Sample:
    return Sample(sample.group, sample.token_ids, sample.trained, sample.temperature, sample.weight, {"top_tokens": tokens})


def _known(entry: Likelihoods | None) -> Likelihoods:
    assert entry is not None, "a row with hints has been scored without them"
    return entry


def _teacher_columns(teacher_scores: Sequence[TeacherScores | None], compared: bool) -> dict[str, list[Any]]:
    tops = [scores if compared else None for scores in teacher_scores]
    return {
        "teacher": [scores and scores.logprobs for scores in teacher_scores],
        "top_k": [scores and scores.top_tokens.shape[1] for scores in tops],
        "top_tokens": [scores and scores.top_tokens.ravel() for scores in tops],
        "top_teacher": [scores and scores.top_logprobs.ravel() for scores in tops],
        "hint": [scores and scores.hint for scores in teacher_scores],
        "taught": [None if scores is None or scores.taught.all() else scores.taught for scores in teacher_scores],
    }


def _summary(teacher_scores: Sequence[TeacherScores | None], student: RowLikelihoods) -> JsonObject:
    """Count the rows with teacher scores and the chosen hints, and compute two figures; one that cannot be computed is absent.

    teacher_gain is the mean log-prob of the teacher minus the student's on the recorded tokens, in nats per token. teacher_mass is
    the share of the teacher's probability on the compared tokens; where it is small, they do not show what the teacher prefers.
    """
    pairs = [(scores, _known(own)) for scores, own in zip(teacher_scores, student, strict=False) if scores is not None]
    if not pairs:
        return {"hinted": 0}
    gains = np.concatenate([(scores.logprobs - own.logprobs)[scores.taught] for scores, own in pairs])
    chosen = Counter(scores.hint for scores, _ in pairs)
    hints = {str(hint): chosen[hint] for hint in sorted(chosen)}
    mass = np.concatenate([np.exp(scores.top_logprobs[scores.taught].astype(np.float64)).sum(axis=1) for scores, _ in pairs])
    figures = {"teacher_gain": gains.mean(dtype=np.float64), "teacher_mass": mass.mean()}
    return {"hinted": len(pairs), "hints": hints, **{name: round(float(value), 6) for name, value in figures.items()}}


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reason for reason in reasons if reason).items()))


def _commit(output: Path, columns: dict[str, list[Any]], summary: JsonObject) -> None:
    schema = schema_of("token_scores")
    staging = output.with_name(f".{output.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
    write_parquet(pa.table(arrays, schema=schema), staging / TOKEN_SCORES)
    (staging / SUMMARY).write_text(json.dumps(summary, indent=2, sort_keys=True))
    for file in staging.iterdir():
        fsync(file)
    shutil.rmtree(output, ignore_errors=True)
    os.replace(staging, output)
