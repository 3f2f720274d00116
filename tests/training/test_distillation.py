"""The divergence over K + 1 bins: its value, its edge cases, the head and the trainer."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.config.training import Combine, Loss, Opd
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.losses.policy import topk_divergence
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack


def draw(seed, rows=5, vocabulary=12):
    generator = torch.Generator().manual_seed(seed)
    return (torch.log_softmax(3 * torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64), -1) for _ in range(2))


def by_hand(student, teacher):
    """Sum over tokens and the rest of the vocabulary of p log(p / q), one position after the other."""
    results = []
    for mine, other in zip(student.exp().tolist(), teacher.exp().tolist(), strict=True):
        bins = [*zip(mine, other, strict=True), (1 - sum(mine), 1 - sum(other))]
        results.append(sum(p * math.log(p / q) for p, q in bins))
    return torch.tensor(results, dtype=torch.float64)


def test_it_is_the_reverse_divergence_over_k_plus_one_bins():
    student, teacher = (logprobs[:, :4] for logprobs in draw(0))
    torch.testing.assert_close(topk_divergence(student, teacher), by_hand(student, teacher), rtol=1e-10, atol=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 11))
@settings(max_examples=30, deadline=None)
def test_it_is_nonnegative_and_grows_to_the_whole_divergence(seed, width):
    student, teacher = draw(seed)
    part = topk_divergence(student[:, :width], teacher[:, :width])
    whole = (student.exp() * (student - teacher)).sum(-1)
    assert (part >= -1e-12).all()
    assert (part <= whole + 1e-5).all()  # bins put together never differ more than their parts, but for the least tail
    assert topk_divergence(student[:, :width], student[:, :width]).abs().max() < 1e-12


def test_it_stays_finite_where_k_tokens_hold_everything():
    student = torch.tensor([[0.0, -40.0], [math.log(0.5), math.log(0.5) + 1e-6]], requires_grad=True)
    teacher = torch.tensor([[-40.0, 0.0], [math.log(0.5), math.log(0.5)]])
    loss = topk_divergence(student, teacher)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(student.grad).all()


def test_a_step_down_moves_mass_to_what_the_teacher_prefers():
    logits = torch.zeros(1, 6, requires_grad=True)
    teacher = torch.log_softmax(torch.tensor([[2.0, 0.0, 0.0, -2.0, 0.0, 0.0]]), -1)
    topk_divergence(torch.log_softmax(logits, -1)[:, :4], teacher[:, :4]).sum().backward()
    assert logits.grad[0, 0] < 0 < logits.grad[0, 3]


def test_the_head_gives_each_row_the_tokens_it_asked_for(tiny_llama, make_sample, monkeypatch):
    """Two rows ask the same position about the same token, but compare it with others; chunks do not matter."""
    monkeypatch.setattr("clawpipe.learn.training.model.scoring_head._CHUNK", 3)
    model = tiny_llama()
    install_scoring_head(model)
    samples = [make_sample([1, 2, 3, 4], [2, 3], temperature=0.7) for _ in range(3)]
    for sample, top in zip(samples, ([[5, 6], [7, 8]], [[9, 10], [7, 8]], [[5, 6], [7, 8]]), strict=True):
        sample.streams["top_tokens"] = torch.tensor(top).numpy()
    pack = build_pack(samples)
    assert len(pack["targets"]) == 3  # token 3 with 5 6, token 3 with 9 10, token 4 with 7 8
    scores = score_pack(model, pack)
    table = torch.log_softmax(model(input_ids=torch.tensor([[1, 2, 3]])).logits[0] / 0.7, -1)
    expected = torch.stack(
        [table[1, [5, 6]], table[2, [7, 8]], table[1, [9, 10]], table[2, [7, 8]], table[1, [5, 6]], table[2, [7, 8]]]
    )
    torch.testing.assert_close(scores.top[pack["score"]], expected, rtol=0, atol=1e-5)
    assert scores.top.requires_grad


def facts_of(outcome):
    steps = [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]
    volatile = ("seconds", "tokens_per_second")
    return (outcome / "adapter" / "adapter_model.safetensors").read_bytes(), [
        {name: value for name, value in step.items() if name not in volatile} for step in steps
    ]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["token", "topk"])
def test_combine_without_a_term_trains_like_the_other_method(request_for, here, form):
    common = {"opd": Opd(form=form, top_k=4), "epochs": 1, "optimizer_steps": 2}
    weights = {name: common | {"combine": Combine(w_rl=rl, w_opd=opd)} for name, rl, opd in (("rl", 1, 0), ("opd", 0, 1))}
    alone = {name: here(request_for(name, train=common | {"method": name})) for name in ("grpo", "opd")}
    mixed = {name: here(request_for(f"only-{name}", train=part | {"method": "combine"})) for name, part in weights.items()}
    assert facts_of(mixed["rl"]) == facts_of(alone["grpo"])
    assert facts_of(mixed["opd"]) == facts_of(alone["opd"])
    both = here(request_for("both", train=common | {"method": "combine"}))
    assert facts_of(both)[0] not in (facts_of(alone["grpo"])[0], facts_of(alone["opd"])[0])


def test_the_trainers_loss_is_the_weighted_sum_of_both(fit, tiny_llama, make_sample):
    """Once by the trainer; once from the model's own logits, with bins written out, and the second row without a hint."""
    samples = [make_sample([1, 2, 3, 4, 5], [3, 4], -5.7, advantage) for advantage in (0.5, -1.0)]
    _, teacher = draw(3, rows=2)
    for sample, hinted in zip(samples, (1.0, 0.0), strict=True):
        streams = {"distil": [hinted] * 2, "top_tokens": [[7, 8, 9]] * 2, "top_teacher": teacher[:, :3].tolist()}
        sample.streams.update({name: torch.tensor(stream).numpy() for name, stream in streams.items()})
    table = torch.log_softmax(tiny_llama()(input_ids=torch.tensor([[1, 2, 3, 4, 5]])).logits[0], -1).detach()
    divergence = by_hand(table[[2, 3]][:, [7, 8, 9]].double(), teacher[:, :3])
    ratios = (table[[2, 3], [4, 5]] + 5.7).exp()
    policy = [-(ratio * advantage) for advantage in (0.5, -1.0) for ratio in ratios]
    (step,) = fit(tiny_llama(), samples, [[[0, 1]]], Loss(clip_low=0.99, clip_high=9, dual_clip=None), distil=0.3)
    assert step["loss"] == pytest.approx(float((sum(policy) + 0.3 * divergence.sum()) / 4), rel=1e-5)
    assert step["distil_kl"] == pytest.approx(float(divergence.sum()) / 4, rel=1e-4)
    assert step["hinted"] == 0.5


def test_the_divergence_alone_moves_the_policy_to_the_teacher(fit, tiny_llama, make_sample):
    sample = make_sample([1, 2, 3, 4], [2, 3], -5.7, 0.0)
    sample.streams.update(distil=torch.ones(2).numpy(), top_tokens=torch.tensor([[7, 8], [9, 10]]).numpy())
    sample.streams["top_teacher"] = torch.tensor([[0.7, 0.2], [0.1, 0.8]]).log().numpy()
    model = tiny_llama()
    steps = fit(model, [sample], [[[0]]] * 40, learning_rate=1e-2, distil=1.0)
    assert steps[-1]["distil_kl"] < 0.05 < steps[0]["distil_kl"]
    probabilities = torch.softmax(model(input_ids=torch.tensor([[1, 2, 3]])).logits[0], -1).detach()
    assert float(probabilities[1, 7]) == pytest.approx(0.7, abs=0.1)
    assert float(probabilities[2, 10]) == pytest.approx(0.8, abs=0.1)
