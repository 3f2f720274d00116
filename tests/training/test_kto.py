"""KTO: its loss against the formula and TRL's own code, its reference point, and what its trainer does with rows."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl import KTOTrainer

from clawpipe.core.config.methods import Kto
from clawpipe.errors import DataError
from clawpipe.learn.training.data.pairs import plan_pairs
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.batch import KtoObjective
from clawpipe.learn.training.losses.kto import kto_loss, reference_point, row_sums
from clawpipe.learn.training.trainers.kto import KtoTrainer, one_label_each, require_both_labels, weighed, with_mismatched

LABELS = torch.tensor([True, False, False, True, True])


@pytest.fixture
def log_ratios() -> torch.Tensor:
    return torch.tensor([0.5, -1.0, 2.0, -3.0, 0.0], dtype=torch.float64)


def written_out(ratio: float, desirable: bool, point: float, beta: float, weights: tuple[float, float]) -> float:
    sigmoid = 1 / (1 + math.exp(-(beta * (ratio - point) if desirable else beta * (point - ratio))))
    return weights[0 if desirable else 1] * (1 - sigmoid)


@pytest.mark.parametrize(("point", "beta", "weights"), [(0.0, 0.1, (1.0, 1.0)), (0.7, 0.3, (1.0, 1.33)), (4.0, 1.0, (0.0, 2.0))])
def test_the_loss_is_its_formula(log_ratios, point, beta, weights):
    config = Kto(beta=beta, desirable_weight=weights[0], undesirable_weight=weights[1])
    loss, metrics = kto_loss(log_ratios, LABELS, torch.tensor(point, dtype=torch.float64), config)
    expected = [written_out(ratio, label, point, beta, weights) for ratio, label in zip(log_ratios.tolist(), LABELS, strict=True)]
    assert loss.tolist() == pytest.approx(expected, rel=1e-12)
    assert metrics["kl"].item() == pytest.approx(point)
    assert metrics["_chosen"].item() == pytest.approx(3 / 5)


def test_the_gradient_is_that_of_finite_differences(log_ratios):
    config, point = Kto(beta=0.4, undesirable_weight=1.5), torch.tensor(0.3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda ratios: kto_loss(ratios, LABELS, point, config)[0], log_ratios.requires_grad_())


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=6), st.floats(0, 30))
def test_rows_move_towards_their_label_by_a_bounded_loss(ratios, point):
    values = torch.tensor(ratios, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(len(ratios)) % 2 == 0
    loss, _ = kto_loss(values, labels, torch.tensor(point), Kto())
    loss.sum().backward()
    assert ((loss >= 0) & (loss <= 1)).all()
    assert values.grad is not None
    assert (torch.where(labels, -values.grad, values.grad) >= 0).all()


def test_the_reference_point_is_a_mean_that_is_never_negative():
    assert reference_point(torch.tensor(3.0), torch.tensor(2)).item() == 1.5
    assert reference_point(torch.tensor(-3.0), torch.tensor(2)).item() == 0
    assert reference_point(torch.tensor(0.0), torch.tensor(0)).item() == 0


def theirs(policy, reference, mismatched, reference_mismatched, labels, config: Kto):
    """Loss and gradient by KTOTrainer._compute_loss; its model gives the log-probs that are given here."""
    rows, length = policy.shape
    policy = policy.clone().requires_grad_()

    def model(input_ids=None, labels=None, **_):
        table = policy if labels is not None and input_ids[0, 0] == 0 else mismatched
        zeros = torch.zeros(rows, length, dtype=policy.dtype)
        return SimpleNamespace(log_probs=table, entropy=zeros, mean_logits=zeros)

    ids = torch.zeros(rows, length + 1, dtype=torch.long)
    batch = {
        "input_ids": ids, "attention_mask": ids + 1, "completion_mask": ids + 1, "label": labels,
        "KL_input_ids": ids + 1, "KL_attention_mask": ids + 1, "KL_completion_mask": ids + 1,
        "ref_logps": reference.sum(-1), "ref_KL_logps": reference_mismatched.sum(-1),
    }  # fmt: skip
    accelerator = SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda value: value)
    trainer = SimpleNamespace(
        model=torch.nn.Linear(1, 1), accelerator=accelerator, aux_loss_enabled=False, precompute_ref_logps=True, calculate_KL=True,
        beta=config.beta, loss_type="kto", desirable_weight=config.desirable_weight, undesirable_weight=config.undesirable_weight,
        _metrics=defaultdict(lambda: defaultdict(list)), _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    trainer._compute_kl_logps = lambda model, batch: KTOTrainer._compute_kl_logps(trainer, model, batch)  # type: ignore[arg-type]
    loss = KTOTrainer._compute_loss(trainer, model, batch, False)  # type: ignore[arg-type]
    loss.backward()
    return loss.detach(), policy.grad


@pytest.mark.parametrize("drift", [0.5, -0.5])
def test_loss_and_gradient_are_those_of_trl(drift):
    """With a divergence above 0, and with one that is clamped."""
    generator = torch.Generator().manual_seed(0)
    policy, reference, mismatched = (-3 * torch.rand(5, 7, generator=generator, dtype=torch.float64) for _ in range(3))
    reference_mismatched = mismatched - drift + 0.1 * torch.randn(5, 7, generator=generator, dtype=torch.float64)
    config = Kto(beta=0.3, desirable_weight=1.2, undesirable_weight=0.7)
    expected, gradient = theirs(policy, reference, mismatched, reference_mismatched, LABELS, config)

    own, rows = policy.clone().requires_grad_(), torch.arange(5).repeat_interleave(7)
    point = reference_point((mismatched - reference_mismatched).sum(), torch.tensor(5))
    loss, _ = kto_loss(row_sums((own - reference).flatten(), rows), LABELS, point, config)
    loss.mean().backward()
    torch.testing.assert_close(loss.mean().detach(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(own.grad, gradient, rtol=0, atol=1e-6)
    assert (point > 0) == (drift > 0)


def labelled(rows: list[Sample], reference: float = -5.0) -> list[Sample]:
    """Rows as `load_samples` gives them; every other one is desirable."""
    labels = [np.full(len(row.trained), 1.0 if place % 2 else -1.0, np.float32) for place, row in enumerate(rows)]
    known = [np.full(len(row.trained), reference, np.float32) for row in rows]
    return [
        replace(row, streams={"advantages": label, "reference": part}) for row, label, part in zip(rows, labels, known, strict=True)
    ]


def test_a_talk_with_turns_of_both_labels_becomes_two_rows(make_sample):
    mixed, plain = make_sample([1, 2, 3, 4, 5], [1, 3, 4], [-1.0, -2.0, -3.0], [1.0, -1.0, 1.0]), make_sample([1, 7], [1])
    first, second, third = one_label_each([mixed, plain])
    assert (first.trained.tolist(), first.streams["behaviour"].tolist()) == ([1, 4], [-1.0, -3.0])
    assert (second.trained.tolist(), second.streams["advantages"].tolist()) == ([3], [-1.0])
    assert third.trained.tolist() == [1]
    require_both_labels([first, second])


def pull(config: Kto, rows: list[Sample]) -> dict[str, float]:
    """How much the rows of each question raise what was said, less how much they lower it, at the start of training."""
    kto, balanced = weighed(config, rows)
    total: defaultdict[str, float] = defaultdict(float)
    for row in balanced:
        good = row.streams["advantages"].sum() > 0
        total[row.group] += row.weight * (kto.desirable_weight if good else -kto.undesirable_weight)
    return dict(total)


def test_both_labels_weigh_the_same_unless_told(make_sample):
    good, bad = make_sample([1, 2], [1], advantage=1.0, group="a"), make_sample([1, 3], [1], advantage=-0.5, group="b")
    assert weighed(Kto(), [good, bad, bad, bad])[0].desirable_weight == 3.0
    assert weighed(Kto(undesirable_weight=0.5), [good, good, replace(bad, weight=3.0)])[0].desirable_weight == 0.75
    told, rows = weighed(Kto(desirable_weight=1.2), [good, bad, replace(bad, group="a")])
    assert (told.desirable_weight, [row.weight for row in rows]) == (1.2, [1.0, 1.0, 1.0])


def test_no_question_is_raised_or_lowered_for_being_easy_or_hard(make_sample):
    """All that was said of a hard question became less likely, the right call among it, and kto never found it."""

    def rows(group: str, right: int, wrong: int) -> list[Sample]:
        return [make_sample([1, 2], [1], advantage=1.0 if number < right else -1.0, group=group) for number in range(right + wrong)]

    both = [*rows("easy", 6, 2), *rows("hard", 1, 7)]
    assert pull(Kto(), both) == pytest.approx({"easy": 0, "hard": 0})
    assert pull(Kto(undesirable_weight=1.3), both) == pytest.approx({"easy": 0, "hard": 0})
    some = pull(Kto(), [*both, *rows("never", 0, 3), *rows("always", 2, 0)])
    assert sum(some.values()) == pytest.approx(0)
    assert some["never"] == -3
    assert some["easy"] / 2 == pytest.approx(some["hard"] / 7)  # of as many wrong ones


def test_a_weight_of_its_own_counts_in_a_question(make_sample):
    """The weight of a demonstration, which is the only right answer to its question."""
    good, bad = make_sample([1, 2], [1], advantage=1.0), make_sample([1, 3], [1], advantage=-1.0)
    light = [replace(good, weight=0.5, group="shown"), *[replace(bad, group="shown")] * 4]
    _, rows = weighed(Kto(), [*light, *[replace(good, group="found")], *[replace(bad, group="found")] * 4])
    assert [row.weight for row in rows] == [2.0, 1, 1, 1, 1, 4.0, 1, 1, 1, 1]


def test_a_mismatched_row_has_the_answer_to_another_question(make_sample):
    first = make_sample([1, 2, 3, 4, 5, 6], [3, 5])  # question 1 2 3, answer 4, a tool's 5, answer 6
    again = make_sample([1, 2, 3, 7], [3])
    other = make_sample([8, 9, 20, 21, 22, 23], [2, 3, 5])
    rows = with_mismatched(labelled([first, again, other]))
    assert [row.token_ids.tolist() for row in rows[0::2]] == [sample.token_ids.tolist() for sample in (first, again, other)]
    assert [row.token_ids.tolist() for row in rows[1::2]] == [[1, 2, 3, 20, 21, 22], [1, 2, 3, 20, 21, 22], [8, 9, 4, 5, 6]]
    assert [row.trained.tolist() for row in rows[1::2]] == [[3, 4], [3, 4], [2, 4]]  # 23 would make the row the longest
    assert [sorted(set(row.streams["label"].tolist())) for row in rows] == [[-1.0], [0.0], [1.0], [0.0], [-1.0], [0.0]]


def test_rows_that_all_answer_one_question_are_refused(make_sample):
    with pytest.raises(DataError, match="the same question"):
        with_mismatched(labelled([make_sample([1, 2, 3], [2]), make_sample([1, 2, 4], [2])]))


@pytest.mark.parametrize(("label", "said"), [(1.0, "all 3 rows are desirable"), (-1.0, "all 3 rows are undesirable")])
def test_rows_of_one_label_are_refused(make_sample, label, said):
    """They trained in silence: whatever was said was raised, or lowered."""
    rows = [make_sample([1, 2 + number, 3], [2], advantage=label) for number in range(3)]
    with pytest.raises(DataError, match=said) as refused:
        require_both_labels(rows)
    assert "train.method" in str(refused.value.fix)
    require_both_labels([*rows, make_sample([1, 9, 3], [2], advantage=-label)])


def ready(rows: list[Sample], reference: float = -5.7) -> list[Sample]:
    """Rows with what `prepare` adds."""
    paired = with_mismatched(labelled(rows, reference))
    paired[1::2] = [
        replace(row, streams=row.streams | {"reference": np.full(len(row.trained), reference, np.float32)}) for row in paired[1::2]
    ]
    return paired


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_one_pack_or_many_are_the_same_step(fit, rollouts, tiny_llama):
    """The reference point is the step's, not the pack's: TRL's would change with the size of a micro-batch."""
    rows, results = ready(rollouts(groups=3, each=2), reference=-6.5), []
    for pack_tokens in (10_000, 40):
        plan, model = plan_pairs(rows, pack_tokens, 1, seed=0), tiny_llama()
        [step] = fit(model, rows, plan, trainer=KtoTrainer, objective=KtoObjective(Kto(beta=0.5)))
        results.append((len(plan[0]), step, weights(model)))
    (one, first, whole), (many, second, split) = results
    assert one == 1 < many
    assert first["kl"] > 0.1
    for name in ("loss", "kl", "rewards_chosen", "rewards_rejected", "margin", "entropy", "grad_norm"):
        assert first[name] == pytest.approx(second[name], rel=1e-4), name
    step_taken = (whole - weights(tiny_llama())).norm()  # AdamW's first step turns a gradient of rounding errors into a full step
    assert (whole - split).norm() < 1e-3 * step_taken


def test_training_raises_desirable_rows_and_lowers_others(fit, rollouts, tiny_llama):
    rows = ready(rollouts(groups=3, each=2))
    steps = fit(
        tiny_llama(),
        rows,
        plan_pairs(rows, 10_000, 1, seed=0) * 20,
        trainer=KtoTrainer,
        objective=KtoObjective(Kto()),
        learning_rate=1e-2,
    )
    assert steps[-1]["margin"] > steps[0]["margin"] + 0.3
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert steps[0]["trained_tokens"] == sum(len(row.trained) for row in rows[0::2])  # a mismatched row carries no loss


def steps_of(outcome: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]


def test_steps_are_of_as_many_tokens_as_carry_loss(request_for, here):
    """Sixteen rows of seven trained tokens."""
    outcome = here(request_for("run", train={"method": "kto", "epochs": 1, "optimizer_steps": None, "batch_tokens": 56}))
    assert [step["trained_tokens"] for step in steps_of(outcome)] == [56, 56]


def test_a_run_that_resumes_estimates_the_same_point(request_for, here):
    """Packs are many and there is dropout: the estimate must take no random numbers."""

    class CutError(Exception): ...

    def stop(facts):
        if facts["step"] == 4:
            raise CutError

    straight, request = here(request_for("straight", train={"method": "kto"})), request_for("killed", train={"method": "kto"})
    with pytest.raises(CutError):
        here(request, stop)
    again = here(request)
    assert [step["kl"] for step in steps_of(again)] == [step["kl"] for step in steps_of(straight)]
    weights = [(outcome / "adapter" / "adapter_model.safetensors").read_bytes() for outcome in (straight, again)]
    assert weights[0] == weights[1]


def test_a_label_without_rows_has_no_metric(fit, rollouts, tiny_llama):
    rows = [replace(row, streams=row.streams | {"label": np.abs(row.streams["label"])}) for row in ready(rollouts())]
    [step] = fit(tiny_llama(), rows, plan_pairs(rows, 10_000, 1, seed=0), trainer=KtoTrainer, objective=KtoObjective(Kto()))
    assert "rewards_chosen" in step
    assert not {"rewards_rejected", "margin"} & set(step)
