"""Continuous batching: each row as it is alone, whoever shares its passes."""

import importlib
import random
import sys
from pathlib import Path

import pytest
import torch

from clawpipe.model.engines import rows as held_rows
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.continuous import ContinuousBatch, FairQueue
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Place, TurnSampling, _penalise, sample_tokens
from clawpipe.model.policy.base import resolve_base

ENOUGH = 100_000  # tokens of memory
STEM = list(range(30, 70))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def base():
    return resolve_base("random").path


class Alone:
    """The same turns from the engine that nights sample with, in a load of its own."""

    def __init__(self, base):
        self.engine = EmbeddedEngine(base, None, device="cpu")

    def __call__(self, row):
        own = row.sampling
        sampling = Sampling(own.temperature, own.max_new_tokens, own.stop_ids, own.top_p)
        return self.engine.begin([row.prompt]).sample({0: row.seed}, sampling)[0]

    def check(self, row, logprobs=()):
        """Compare a row's tokens and log-probs up to a token whose draw hits the border of two tokens, to within rounding."""
        expected = self(row)
        same = next((place for place, pair in enumerate(zip(row.turn, expected.ids, strict=True)) if len(set(pair)) == 2), None)
        assert same is None or self.margin(row, same) < 1e-5, f"token {same} of {row.turn} is not the one of {expected.ids}"
        assert list(logprobs)[:same] == pytest.approx(expected.logprobs[: len(logprobs)][:same], abs=1e-4)

    def margin(self, row, place):
        """How far a draw is from the next token's part of the distribution; for a greedy row, the likeliest from its rival."""
        history = [*row.prompt, *row.turn[:place]]
        likely = self.engine.distributions([*history, 0], [len(history)], row.sampling.temperature or 1.0)[0]
        if not row.sampling.temperature:
            return (likely.topk(2).values * torch.tensor([1, -1])).sum().abs().item()
        draw = [drawing.random() for drawing in [random.Random(row.seed)] for _ in range(place + 1)][-1]
        return (likely.exp().double().cumsum(-1) - draw).abs().min().item()


@pytest.fixture(scope="module")
def alone(base):
    return Alone(base)


@pytest.fixture
def batch(base):
    return ContinuousBatch(EmbeddedEngine(base, None, device="cpu"), ENOUGH)


@pytest.fixture(scope="module")
def families():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("families")
    sys.path.pop(0)


def prompt(seed, length=None):
    draw = random.Random(seed)
    return [draw.randrange(3, 200) for _ in range(length or draw.randrange(1, 30))]


def rows(count, temperature=0.8, new=12, **more):
    return [Row(prompt(seed), TurnSampling(temperature, new, **more), seed) for seed in range(count)]


def run(batch, joining, first=1):
    """Let `first` rows join before each step; return each row's sampled log-probs."""
    found, waiting = {row: [] for row in joining}, list(joining)
    while waiting or not batch.idle:
        for row in waiting[:first]:
            batch.add(row)
        waiting = waiting[first:]
        for row, token in batch.step():
            found[row].append(token.logprob)
    return found


def check(found, alone):
    for row, logprobs in found.items():
        alone.check(row, logprobs)


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("first", [1, 3, 16])
def test_rows_that_join_one_by_one_or_together_are_as_alone(batch, alone, temperature, first):
    check(run(batch, rows(16, temperature), first), alone)


def test_rows_of_different_settings_share_a_pass(batch, alone):
    mixed = [*rows(3, 0.0), *rows(3, 0.5), *rows(3, 1.0, top_p=0.4)]
    check(run(batch, mixed, 9), alone)


def test_the_next_turn_goes_on_where_the_last_one_ended(batch, alone):
    first = Row(prompt(1, 40), TurnSampling(1.0, 10), 1)
    check(run(batch, [first]), alone)
    second = Row([*first.history, 5, 6, 7], TurnSampling(1.0, 10), 2)
    batch.add(second)
    computed = passes_of(batch)
    batch.step()
    assert computed == [4]  # the last sampled token and three new ones
    while not batch.idle:
        batch.step()
    alone.check(second)


def passes_of(batch):
    """Record how many tokens each pass computes."""
    counts, model = [], batch._held._model
    model.get_decoder().register_forward_pre_hook(lambda _, inputs: counts.extend(ids.shape[1] for ids in inputs))
    return counts


def test_a_prefix_that_many_share_is_computed_once(batch, alone):
    shared = [Row([*STEM, *prompt(seed, 3)], TurnSampling(0.8, 4), seed) for seed in range(8)]
    counts = passes_of(batch)
    check(run(batch, shared, 8), alone)
    assert counts[:2] == [43, 1 + 7 * 3]  # the first row; its next token and what is the others' own


def test_choices_of_one_prompt_compute_it_once(batch, alone):
    choices = [Row(STEM, TurnSampling(0.8, 4), seed) for seed in range(8)]
    counts = passes_of(batch)
    check(run(batch, choices, 8), alone)
    assert counts[:2] == [40, 8]


def test_a_long_prompt_does_not_hold_up_a_running_turn(batch, alone):
    short, long = Row(prompt(1, 5), TurnSampling(0.0, 12), 0), Row(prompt(2, 900), TurnSampling(0.0, 2), 0)
    batch.add(short)
    batch.step()
    batch.add(long)
    for passed in range(1, 4):
        batch.step()
        assert (len(short.turn), len(long.turn)) == (1 + passed, 0)
    while not batch.idle:
        batch.step()
    check({short: (), long: ()}, alone)


def test_little_memory_interrupts_rows_and_changes_nothing(base, alone):
    small = ContinuousBatch(EmbeddedEngine(base, None, device="cpu"), 256)
    many = rows(6, 0.8, new=150)
    ran, waited = [], False
    for row in many:
        small.add(row)
    while not small.idle:
        small.step()
        ran.append(len(small.rows))
        waited |= any(row.turn and row not in small.rows for row in small.queue)
    assert max(ran) > 1
    assert waited  # one that had begun
    check(dict.fromkeys(many, ()), alone)


def test_freed_memory_goes_back_to_the_system(base, monkeypatch):
    returned = []
    monkeypatch.setattr(held_rows, "trim_heap", lambda: returned.append(1))
    for memory, freed in ((256, True), (ENOUGH, False)):
        small = ContinuousBatch(EmbeddedEngine(base, None, device="cpu"), memory)
        for row in rows(6, 0.8, new=150):
            small.add(row)
        while not small.idle:
            small.step()
        assert bool(returned) == freed
        returned.clear()


def test_a_row_that_is_removed_leaves_the_others_alone(batch, alone):
    staying, leaving, waiting = rows(3)
    for row in (staying, leaving):
        batch.add(row)
    batch.step()
    batch.add(waiting)
    batch.remove(leaving)
    batch.remove(waiting)
    while not batch.idle:
        batch.step()
    assert (len(leaving.turn), waiting.turn) == (1, [])
    alone.check(staying)


def test_kept_rows_are_given_back_when_not_wanted(base, alone):
    batch = ContinuousBatch(EmbeddedEngine(base, None, device="cpu"), ENOUGH)
    first, second, third, fourth = rows(4)
    check(run(batch, [first, second]), alone)
    assert len(batch._held._kept) == 2  # the next turn of a conversation begins with them
    batch.add(third)
    batch.step()
    batch.keep_ended(False)
    assert batch._held._kept  # a row runs
    while not batch.idle:
        batch.step()
    assert not batch._held._kept
    check(run(batch, [fourth]), alone)
    assert not batch._held._kept
    batch.keep_ended(True)
    check(run(batch, rows(1)), alone)
    assert batch._held._kept


def test_clients_take_turns():
    queue = FairQueue()
    many = [Row([1], TurnSampling(0, 1), number, client="a") for number in range(3)]
    one = Row([1], TurnSampling(0, 1), 9, client="b")
    for row in (*many, one):
        queue.put(row)
    interrupted = many[0]
    assert queue.first() is many[0]
    queue.pop()
    assert queue.first() is one
    queue.put_back(interrupted)
    assert queue.first() is interrupted
    queue.pop()
    queue.pop()
    assert list(queue) == many[1:]
    queue.remove(many[1])
    queue.remove(many[2])
    assert queue.first() is None


def test_penalties_are_those_of_the_formula():
    """vLLM's: repetition over prompt and turn, the others over the turn."""
    logits = [1.0, 2.0, -1.0, 0.5, 3.0]
    sampling = TurnSampling(0.0, 8, presence=0.5, frequency=0.25, repetition=2.0, bias={3: 4.0})
    place = Place([2, 4], [1, 4, 4], sampling, 0.0, 0, None)
    changed = [1.0, 2 / 2 - 0.75, -1.0 * 2, 4.5, 3 / 2 - 1.0]
    row = torch.tensor(logits)
    _penalise(row, place)
    assert row.tolist() == pytest.approx(changed)
    [token] = sample_tokens(torch.tensor([logits]), [place])
    assert token.id == 3
    assert token.logprob == pytest.approx(torch.tensor(logits).log_softmax(-1)[3].item())  # of the model, not of the penalties


def draws(logits, sampling, count=400):
    rows = torch.tensor([logits] * count)
    places = [Place([], [], sampling, (number + 0.5) / count, 0, None) for number in range(count)]
    return {token.id for token in sample_tokens(rows, places)}


LOGITS = [3.0, 2.0, 1.0, 0.0, -1.0]  # probabilities 0.636, 0.234, 0.086, 0.032, 0.012


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, {0, 1, 2, 3, 4}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 9}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.6}, {0}),
        ({"top_p": 0.8}, {0, 1}),
        ({"min_p": 0.1}, {0, 1, 2}),  # at least 0.0636
        ({"top_k": 3, "top_p": 0.9}, {0, 1}),  # of what top_k leaves, 0 and 1 hold 0.909
        ({"bias": {4: 100.0}}, {4}),
        ({"bias": {0: -100.0, 1: -100.0}}, {2, 3, 4}),
    ],
)
def test_what_may_be_drawn(settings, left):
    assert draws(LOGITS, TurnSampling(1.0, 1, **settings)) == left


FAMILIES = ["gemma2", "gemma3_text", "gpt_oss", "mistral", "qwen3_moe", "deepseek_v3", "qwen3_next", "lfm2", "granite"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_other_families_are_as_alone(families, tmp_path, family, caplog):
    """Sliding windows, soft caps, sinks, experts; those with a state run one at a time, and the log says so."""
    base = families.write_model(family, tmp_path)
    batch = ContinuousBatch(EmbeddedEngine(base, None, device="cpu"), ENOUGH)
    check(run(batch, rows(5, 0.9, new=40), 2), Alone(base))
    apart = family in ("qwen3_next", "lfm2")
    assert (batch.at_once == 1) == apart
    assert ("computed one by one" in caplog.text) == apart
