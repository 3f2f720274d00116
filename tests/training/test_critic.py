"""PPO's critic: advantages, value loss, and the value head in training, files and resumption."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.signal import lfilter

from clawpipe.core.config.training import Loss, Ppo
from clawpipe.core.store.digests import canonical
from clawpipe.learn.training.data.packing import plan_packs
from clawpipe.learn.training.losses.gae import estimates, gae, with_advantages
from clawpipe.learn.training.losses.policy import value_loss
from clawpipe.learn.training.model.value_head import VALUE_HEAD, add_value_head, predict_values


@given(st.integers(1, 20), st.floats(0.1, 1), st.floats(0, 1), st.integers(0, 1000))
@settings(deadline=None)
def test_advantages_are_the_discounted_sum_of_errors(length, gamma, decay, seed):
    rewards, values = np.random.default_rng(seed).normal(size=(2, length))
    errors = [rewards[t] + gamma * (values[t + 1] if t + 1 < length else 0.0) - values[t] for t in range(length)]
    expected = [sum((gamma * decay) ** (s - t) * errors[s] for s in range(t, length)) for t in range(length)]
    np.testing.assert_allclose(gae(rewards, values, gamma, decay), expected, rtol=1e-9, atol=1e-12)
    filtered = lfilter([1], [1, -gamma * decay], errors[::-1])[::-1]
    np.testing.assert_allclose(gae(rewards, values, gamma, decay), filtered, rtol=1e-9, atol=1e-12)


def test_advantages_by_hand():
    """V = 1 everywhere, one reward of 3 at the end: errors are 0 and 2 with gamma 1; lambda 0.5 halves what comes back."""
    np.testing.assert_allclose(gae(np.array([0, 0, 3.0]), np.ones(3), 1.0, 0.5), [0.5, 1, 2])
    np.testing.assert_allclose(gae(np.array([0, 0, 3.0]), np.ones(3), 1.0, 1.0), [2, 2, 2])  # the return less the value


def test_advantages_of_turns_by_hand():
    """Turns of 3, 1 and 2 tokens with gamma 0.5 and lambda 0.5. Rewards of turns: 1, 0 (its tokens' cancel), 4. Values where they
    begin: 2, 1, 3; values within a turn count for nothing. Errors: 1 + 0.5 - 2 = -0.5, 0 + 1.5 - 1 = 0.5, 4 - 3 = 1. Advantages
    from the end, a quarter of the next one added: 1, 0.75, -0.3125. Returns: 4, 1.75, 1.6875."""
    trained = np.array([5, 6, 7, 12, 20, 21])
    rewards, values = np.array([0, 0, 1, 0, 0, 4.0]), np.array([2, 9, -9, 1, 3, 8.0])
    found = estimates(rewards, values, trained, Ppo(gamma=0.5, gae_lambda=0.5, steps="turn"))
    np.testing.assert_allclose(found.advantages, [-0.3125, -0.3125, -0.3125, 0.75, 1, 1])
    np.testing.assert_allclose(found.returns, [1.6875, 1.6875, 1.6875, 1.75, 4, 4])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.floats(0.1, 1), st.floats(0, 1), st.integers(0, 1000))
@settings(deadline=None)
def test_a_discount_per_turn_forgets_the_length_of_turns(lengths, gamma, decay, seed):
    """The oracle is the same trajectory with turns of one token each, which is what GAE per token computes."""
    generator = np.random.default_rng(seed)
    rewards, values = generator.normal(size=(2, len(lengths)))
    ends = np.cumsum(lengths)
    trained = np.concatenate([np.arange(length) + 10 * turn for turn, length in enumerate(lengths)])
    paid, said = np.zeros(len(trained)), generator.normal(size=len(trained))
    paid[ends - 1], said[ends - lengths] = rewards, values
    found = estimates(paid, said, trained, Ppo(gamma=gamma, gae_lambda=decay, steps="turn"))
    expected = gae(rewards, values, gamma, decay)
    np.testing.assert_allclose(found.advantages, np.repeat(expected, lengths), atol=1e-12)
    np.testing.assert_allclose(found.returns, np.repeat(expected + values, lengths), atol=1e-12)


def test_turns_of_one_token_are_the_same_either_way():
    trained, rewards, values = np.array([3, 6, 9]), np.array([1, 0, 2.0]), np.array([0.5, 1, -1])
    by_token, by_turn = (estimates(rewards, values, trained, Ppo(gamma=0.9, steps=steps)) for steps in ("token", "turn"))
    np.testing.assert_allclose(by_token, by_turn)


def test_a_steps_default_is_in_no_key():
    assert canonical(Ppo()) == canonical(Ppo(steps="token"))
    assert "steps" not in canonical(Ppo())
    assert canonical(Ppo(steps="turn")) != canonical(Ppo())


def test_advantages_are_normalised_over_rows_but_returns_not(make_sample):
    samples = [make_sample([1, 2, 3], [1, 2]), make_sample([1, 4], [1])]
    for sample, rewards in zip(samples, ([0.0, 1.0], [-3.0]), strict=True):
        sample.streams["rewards"] = np.array(rewards, np.float32)
    values = [np.zeros(2, np.float32), np.zeros(1, np.float32)]
    done = with_advantages(samples, values, Ppo(gamma=1.0, gae_lambda=1.0))
    together = np.concatenate([sample.streams["advantages"] for sample in done])
    assert together.mean() == pytest.approx(0, abs=1e-6)
    assert together.std() == pytest.approx(1, abs=1e-6)
    assert [sample.streams["returns"].tolist() for sample in done] == [[1, 1], [-3]]
    assert "rewards" not in done[0].streams


def test_a_value_cannot_gain_by_going_beyond_the_clip():
    values, old, returns = torch.tensor([0.1, 0.5, -0.5]), torch.zeros(3), torch.tensor([1.0, 1.0, 1.0])
    assert value_loss(values, old, returns, None).tolist() == pytest.approx([0.405, 0.125, 1.125])
    assert value_loss(values, old, returns, 0.2).tolist() == pytest.approx([0.405, 0.32, 1.125])


def test_values_are_the_heads_word_on_the_state_before_the_token(tiny_llama, make_sample):
    model = tiny_llama()
    add_value_head(model)
    samples = [make_sample([1, 2, 3, 4], [2, 3]), make_sample([1, 2, 5], [1, 2]), make_sample([1, 2, 3, 4], [2, 3])]
    packs = plan_packs(samples, 1000, 1, seed=0)[0]
    assert all(not part.any() for part in predict_values(model, samples, packs))
    torch.nn.init.normal_(model.value_head.weight)
    values = predict_values(model, samples, packs)
    states = model.model(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]
    said = model.value_head(states).squeeze(-1).detach().numpy()
    for part, places in zip(values, ([1, 2], [0, 1], [1, 2]), strict=True):
        np.testing.assert_allclose(part, said[places], rtol=1e-4, atol=1e-6)


def test_the_critic_learns_returns_and_says_how_much_it_explains(fit, tiny_llama, make_sample):
    samples = [make_sample([1, 2, token, 3, 4], [3, 4], -5.7, 0.0) for token in (5, 6)]
    for sample, returned in zip(samples, (1.0, -1.0), strict=True):
        sample.streams.update(values=np.zeros(2, np.float32), returns=np.full(2, returned, np.float32))
    model = tiny_llama()
    add_value_head(model)
    critic = Ppo(value_clip=None, value_coef=1.0)
    steps = fit(model, samples, [[[0, 1]]] * 30, Loss(), learning_rate=1e-2, critic=critic)
    assert steps[0]["value_loss"] == pytest.approx(0.5)
    assert steps[0]["explained_variance"] == pytest.approx(0)
    assert steps[0]["loss"] == pytest.approx(0.5)  # advantages are 0: nothing but the critic
    assert steps[-1]["value_loss"] < 0.05
    assert steps[-1]["explained_variance"] > 0.9
    assert steps[-1]["return_mean"] == pytest.approx(0)


PPO = {"method": "ppo", "ppo": Ppo(value_coef=0.5), "learning_rate": 3e-3}


def test_the_value_head_is_saved_with_the_adapter_and_reloaded(request_for, here):
    first = here(request_for("first", train=PPO))
    summary = json.loads((first / "summary.json").read_text())
    assert set(summary["files"]) == {"adapter_config.json", "adapter_model.safetensors", VALUE_HEAD}
    head = load_file(first / "adapter" / VALUE_HEAD)
    assert head["weight"].shape == (1, 64)
    assert head["weight"].any()
    second = here(request_for("second", train=PPO | {"optimizer_steps": 1, "epochs": 1}, init_adapter=str(first / "adapter")))
    moved = (load_file(second / "adapter" / VALUE_HEAD)["weight"] - head["weight"]).abs().max()
    assert 0 < moved < 0.01  # one update away from where it was, not from 0


@pytest.mark.slow
def test_a_stopped_critic_goes_on_to_the_same_bytes(request_for, here, cut):
    first = here(request_for("first", train=PPO | {"epochs": 1}))
    request = {"train": PPO, "init_adapter": str(first / "adapter")}  # values that must be computed, under weights that change
    straight = here(request_for("straight", **request))

    work = cut(request_for("cut", **request))
    shutil.rmtree(work / "checkpoints" / "checkpoint-6")
    again = here(request_for("cut", **request))
    for name in ("adapter_model.safetensors", VALUE_HEAD):
        assert (again / "adapter" / name).read_bytes() == (straight / "adapter" / name).read_bytes()
