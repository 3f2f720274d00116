"""The token tree: which tokens it shares, and that sharing changes neither log-probs nor gradients."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from clawpipe.core.config.training import Lora, Loss
from clawpipe.learn.training.data.packing import TokenTree, build_pack, inputs_of, plan_packs
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.policy import policy_loss
from clawpipe.learn.training.model.adapter import attach_trainable
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack
from clawpipe.learn.training.model.tree_attention import BLOCKS, PackTree, blocks, blocks_work, tree_of, use_packs, visible
from clawpipe.learn.training.run import job_of

OF_TORCH = "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"  # as its compiler loads
SHORT_ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6)


@given(SHORT_ROWS, st.booleans())
def test_a_tree_shows_each_token_its_own_row_and_nothing_else(rows, share):
    tree = TokenTree(share)
    paths = [tree.add(row) for row in sorted(rows)]
    shown = visible(torch.from_numpy(tree.ends()), torch.tensor(tree.depths))[0, 0].numpy()
    for row, path in zip(sorted(rows), paths, strict=True):
        assert [tree.tokens[node] for node in path] == row
        assert [tree.depths[node] for node in path] == list(range(len(row)))
        for place, node in enumerate(path):
            assert np.flatnonzero(shown[node]).tolist() == path[: place + 1]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_blocks_are_those_that_looking_at_every_pair_finds(shapes, seed):
    """Rows of up to 600 tokens that share their beginnings, against FlexAttention's own search of the whole square."""
    stem, generator = [0] * 300, np.random.default_rng(seed)
    tree = TokenTree()
    for row in sorted(stem[:shared] + generator.integers(1, 5, own).tolist() for shared, own in shapes):
        tree.add(row)
    made = blocks(torch.from_numpy(tree.ends()), torch.tensor(tree.depths))
    size = len(tree.tokens)
    found = create_block_mask(made.mask_mod, None, None, size, size, device="cpu")
    assert made.shape == found.shape
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "full_q_num_blocks"):
        torch.testing.assert_close(getattr(made, name), getattr(found, name), msg=name)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=4), st.integers(1, 400))
@settings(deadline=None, max_examples=40)
def test_block_masks_equal_the_dense_mask_of_a_window(shapes, window):
    """Rows of up to 600 tokens, against the dense mask."""
    stem, generator = [0] * 300, np.random.default_rng(window)
    tree = TokenTree()
    for row in sorted(stem[:shared] + generator.integers(1, 5, own).tolist() for shared, own in shapes):
        tree.add(row)
    ends, depths = torch.from_numpy(tree.ends()), torch.tensor(tree.depths)
    made, shown = blocks(ends, depths, window), visible(ends, depths, window)[0, 0]
    node = torch.arange(len(ends))
    assert torch.equal(made.mask_mod(0, 0, node[:, None], node), shown)
    whole = listed(made.full_kv_num_blocks, made.full_kv_indices)
    for query, key in itertools.product(range(len(whole)), repeat=2):
        part = shown[query * 128 : (query + 1) * 128, key * 128 : (key + 1) * 128]
        assert part.all() or not whole[query, key]
        assert not part.any() or whole[query, key] or listed(made.kv_num_blocks, made.kv_indices)[query, key]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=4), st.none() | st.integers(1, 400))
@settings(deadline=None, max_examples=40)
def test_blocks_of_tokens_see_what_the_dense_mask_shows(shapes, window):
    """Rows of up to 600 tokens, against the dense mask: each key that a token sees is there, and no other."""
    stem, generator = [0] * 300, np.random.default_rng(len(shapes))
    tree = TokenTree()
    for row in sorted(stem[:shared] + generator.integers(1, 5, own).tolist() for shared, own in shapes):
        tree.add(row)
    pack = PackTree(torch.from_numpy(tree.ends()), torch.tensor(tree.depths), torch.float32, by_blocks=False)
    found = torch.full((len(tree.tokens),) * 2, -torch.inf)
    for seen in pack.seen(window):
        found[seen.start : seen.stop, seen.keys] = seen.mask[0, 0]
    assert torch.equal(found, pack.mask(window)[0, 0])


def listed(counts, numbers):
    """bool [Q, K]: the key blocks that each query block looks at."""
    return torch.stack([torch.isin(torch.arange(row.numel()), row[:count]) for count, row in zip(counts[0, 0], numbers[0, 0])])  # noqa: B905


@given(SHORT_ROWS)
def test_a_tree_holds_each_prefix_once_and_predicts_its_growth(rows):
    tree = TokenTree()
    for row in rows:
        before = len(tree.tokens)
        growth = tree.growth(row)
        tree.add(row)
        assert len(tree.tokens) - before == growth
    assert len(tree.tokens) == len({tuple(row[: end + 1]) for row in rows for end in range(len(row))})


def test_a_pack_of_two_rollouts_by_hand(make_sample):
    # preamble 1 2, question 3; the rollouts sample 4 5 and 4 6, the second after a tool's 9 also 7
    first = make_sample([1, 2, 3, 4, 5], [3, 4], behaviour=[-1, -2], advantage=1.0, temperature=0.5)
    second = make_sample(
        [1, 2, 3, 4, 6, 9, 7, 8, 8], [3, 4, 6], behaviour=[-1, -3, -4], advantage=-1.0, temperature=0.5, weight=2.0
    )
    pack = build_pack([first, second])
    assert pack["input_ids"].tolist() == [[1, 2, 3, 4, 6, 9]]  # 5, 7 and the tail predict nothing
    assert pack["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    asked = list(zip(pack["score_index"].tolist(), pack["targets"].tolist(), pack["temperatures"].tolist(), strict=True))
    assert [asked[index] for index in pack["score"]] == [(2, 4, 0.5), (3, 5, 0.5), (2, 4, 0.5), (3, 6, 0.5), (5, 7, 0.5)]
    assert len(asked) == 4  # the token that both sampled after the question is scored once
    assert pack["behaviour"].tolist() == [-1, -2, -1, -3, -4]
    assert pack["advantages"].tolist() == [1, 1, -1, -1, -1]
    assert pack["weights"].tolist() == [1, 1, 2, 2, 2]
    assert pack["rows"].tolist() == [0, 0, 1, 1, 1]


def test_an_empty_pack_has_one_token_and_nothing_to_train():
    pack = build_pack([])
    assert pack["input_ids"].shape == (1, 1)
    assert all(pack[name].numel() == 0 for name in ("score", "score_index", "weights", "rows"))


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=7),
    st.integers(1, 5),
    st.integers(10, 60),
    st.integers(0, 3),
    st.integers(1, 3),
)
@settings(deadline=None)
def test_a_plan_trains_every_sample_once_and_keeps_groups(sizes, updates, limit, seed, epochs):
    samples = _samples(sizes)
    plan = plan_packs(samples, limit, updates, seed, epochs)
    per_epoch = min(updates, len(sizes))
    assert len(plan) == per_epoch * epochs
    assert len({len(update) for update in plan}) == 1
    for epoch in range(epochs):
        part = plan[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(index for update in part for pack in update for index in pack) == list(range(len(samples)))
        homes = [{samples[index].group for pack in update for index in pack} for update in part]
        assert sum(len(home) for home in homes) == len(sizes)
    for pack in (pack for update in plan for pack in update if pack):
        assert len(pack) == 1 or build_pack([samples[index] for index in pack])["input_ids"].numel() <= limit
    assert plan == plan_packs(samples, limit, updates, seed, epochs)


@pytest.mark.parametrize(("sizes", "steps"), [([12], 4), ([7, 3, 2], 4), ([2], 4)])
def test_rows_that_are_not_compared_fill_all_steps(sizes, steps):
    """Conversations that begin with one greeting are one group, and were one optimizer step."""
    samples = _samples(sizes)
    plan = plan_packs(samples, 1000, steps, seed=0, epochs=2, whole=False)
    rows = [[index for pack in step for index in pack] for step in plan]
    per_epoch = min(steps, len(samples))
    assert len(plan) == 2 * per_epoch
    assert {len(step) for step in rows} == {len(samples) // per_epoch}
    for epoch in (rows[:per_epoch], rows[per_epoch:]):
        assert sorted(index for step in epoch for index in step) == list(range(len(samples)))


def test_groups_that_fill_all_steps_stay_whole():
    samples = _samples([3, 3, 3, 3])
    assert plan_packs(samples, 1000, 4, seed=0, whole=False) == plan_packs(samples, 1000, 4, seed=0)


@pytest.mark.parametrize(("method", "steps"), [("sft", 2), ("kto", 4), ("grpo", 1)])
def test_one_group_is_one_step_where_its_rows_are_compared(request_for, method, steps):
    """Of the four rows of a group sft imitates two."""
    job = job_of(request_for("job", train={"method": method}))
    rows = [row for row in job.rows if row.group == job.rows[0].group]
    assert len(job.plan(rows, 10_000, 4, 0)) == steps


def _samples(sizes):
    one = np.ones(2, np.float32)
    return [
        Sample(f"g{group}", np.array([1, 2, 3, 100 + group, row, 5, 6]), np.array([4, 5]), 1.0, 1.0, {"behaviour": one})
        for group, size in enumerate(sizes)
        for row in range(size)
    ]


def test_epochs_and_seeds_shuffle_groups_differently():
    samples = _samples([1] * 12)
    plan = plan_packs(samples, 1000, 1, seed=0, epochs=2)
    assert plan[0] != plan[1]
    assert plan[0] != plan_packs(samples, 1000, 1, seed=1)[0]


@pytest.fixture
def scoring_model(tiny_llama):
    """A float64 model (but for its norms, which round to float32) with an adapter that is not zero."""
    base = tiny_llama().double()
    use_packs(base, torch.device("cpu"))
    model = attach_trainable(base, Lora(rank=4, alpha=8))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.1
    install_scoring_head(model)
    return model


def _packed(model, samples, share=True):
    pack = build_pack(samples, share)
    scores = score_pack(model, pack)
    return pack, scores.logprobs[pack["score"]], scores.entropy[pack["score"]]


def _one_by_one(model, sample):
    """Log-probs and entropies of a row by the model's ordinary forward, without mask, positions or chunks."""
    logits = model(input_ids=torch.from_numpy(sample.token_ids)[None]).logits[0] / sample.temperature
    logprobs = torch.log_softmax(logits, -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    before = torch.from_numpy(sample.trained - 1)
    return logprobs[before, torch.from_numpy(sample.token_ids[sample.trained])], entropy[before]


def _gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def test_packed_rows_equal_rows_one_by_one(scoring_model, rollouts):
    samples = rollouts(groups=3, each=4, temperature=0.75)
    pack, logprobs, entropy = _packed(scoring_model, samples)
    assert pack["input_ids"].numel() < sum(len(inputs_of(sample)) for sample in samples) / 2
    alone = [_one_by_one(scoring_model, sample) for sample in samples]
    expected = torch.cat([part for part, _ in alone])
    torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy, torch.cat([part for _, part in alone]).detach(), rtol=0, atol=1e-6)

    streams = (pack["behaviour"], pack["advantages"], pack["rows"], Loss())
    packed = _gradients(scoring_model, policy_loss(logprobs, *streams)[0].sum())
    single = _gradients(scoring_model, policy_loss(expected, *streams)[0].sum())
    assert single.norm() > 0
    assert (packed - single).norm() / single.norm() < 1e-6


def test_sharing_keeps_log_probs_and_gradients_in_float32(tiny_llama, rollouts):
    """Shared prefixes against rows that share nothing, in the precision that runs use; trees of several blocks of 128 tokens."""
    base, samples = tiny_llama(), rollouts(groups=9, each=4, temperature=0.75)
    use_packs(base, torch.device("cpu"))
    model = attach_trainable(base, Lora(rank=4, alpha=8))
    install_scoring_head(model)
    results = {}
    for share in (True, False):
        pack, logprobs, _ = _packed(model, samples, share)
        loss, _ = policy_loss(logprobs, pack["behaviour"], pack["advantages"], pack["rows"], Loss())
        results[share] = pack, logprobs, _gradients(model, loss.sum())
    (shared, one, gradient), (whole, other, expected) = results[True], results[False]
    assert whole["input_ids"].numel() == sum(len(inputs_of(sample)) for sample in samples) > 2 * shared["input_ids"].numel() > 512
    assert len(whole["targets"]) == len(whole["score"])  # nothing is asked for two rows at once
    torch.testing.assert_close(one, other, rtol=0, atol=5e-5)
    assert (gradient - expected).norm() / expected.norm() < 1e-5


def test_rows_of_one_branch_need_no_mask(scoring_model, make_sample):
    """The turns of a session, each with its whole history: causal attention, as the plain forward has it."""
    turns = [make_sample(range(1, end + 1), [end - 2, end - 1]) for end in (6, 9, 12)]
    pack, logprobs, _ = _packed(scoring_model, turns)
    assert int(pack["ends"].min()) == len(pack["ends"])
    torch.testing.assert_close(logprobs, torch.cat([_one_by_one(scoring_model, turn)[0] for turn in turns]), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings(OF_TORCH)
def test_flex_attention_sees_what_a_dense_mask_shows(tiny_llama, rollouts):
    """On a CPU it is interpreted, forward only. Another test covers CUDA."""
    model, samples = tiny_llama(), rollouts(groups=3, each=4)
    use_packs(model, torch.device("cpu"))
    install_scoring_head(model)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        _, dense, _ = _packed(model, samples)
        model.set_attn_implementation(f"{BLOCKS}_sdpa")
        pack, flexible, _ = _packed(model, samples)
    assert isinstance(tree_of(model, pack["ends"], pack["position_ids"][0]).mask(None), BlockMask)
    torch.testing.assert_close(flexible, dense, rtol=0, atol=5e-5)


@pytest.mark.filterwarnings(OF_TORCH)
def test_where_flex_attention_does_not_work_dense_masks_stay(tiny_llama, caplog):
    assert not blocks_work(tiny_llama(), torch.device("cpu"))
    assert "does not support backward on CPU" in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention has a backward pass on CUDA only")
def test_flex_attention_keeps_log_probs_and_gradients_on_cuda(tiny_llama, rollouts):
    samples, results = rollouts(groups=3, each=4, temperature=0.75), {}
    assert blocks_work(tiny_llama(), torch.device("cuda"))
    for implementation in ("clawpipe_dense_sdpa", f"{BLOCKS}_sdpa"):
        model = attach_trainable(tiny_llama().cuda(), Lora(rank=4, alpha=8))
        model.get_base_model().set_attn_implementation(implementation)
        install_scoring_head(model)
        pack = {name: stream.cuda() for name, stream in build_pack(samples).items()}
        logprobs = score_pack(model, pack).logprobs[pack["score"]]
        loss, _ = policy_loss(logprobs, pack["behaviour"], pack["advantages"], pack["rows"], Loss())
        results[implementation] = logprobs, _gradients(model, loss.sum())
    (dense, expected), (flexible, gradient) = results.values()
    torch.testing.assert_close(flexible, dense, rtol=0, atol=5e-5)
    assert (gradient - expected).norm() / expected.norm() < 1e-5


def test_packs_of_whole_rows_are_planned_by_their_whole_length():
    plan = plan_packs(_samples([3]), 12, 1, seed=0, share=False)  # rows of five tokens that the model reads
    assert [len(pack) for pack in plan[0]] == [2, 1]


def test_scores_do_not_depend_on_the_chunk(scoring_model, rollouts, monkeypatch):
    samples = rollouts()
    _, whole, _ = _packed(scoring_model, samples)
    monkeypatch.setattr("clawpipe.learn.training.model.scoring_head._CHUNK", 7)
    _, chunked, _ = _packed(scoring_model, samples)
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6)


def test_the_ordinary_forward_stays(tiny_llama):
    ids = torch.tensor([[1, 2, 3]])
    expected = tiny_llama()(input_ids=ids).logits
    model = tiny_llama()
    install_scoring_head(model)
    torch.testing.assert_close(model(input_ids=ids).logits, expected)
