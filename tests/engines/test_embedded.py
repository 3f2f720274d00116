import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from clawpipe.model.engines import attention, embedded, row_cache
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import ApartConversations, EmbeddedEngine, RowConversations, RowModel
from clawpipe.model.engines.row_cache import Group
from clawpipe.model.policy.base import resolve_base

STOP = 0
PREFIX = [5, 9, 33, 80, 41, 7]


@pytest.fixture(scope="module")
def base():
    return resolve_base("random").path


@pytest.fixture(scope="module")
def engine(base):
    return EmbeddedEngine(base, None, device="cpu")


def prompts(count, seed=1):
    draw = random.Random(seed)
    return [PREFIX + [draw.randrange(3, 200) for _ in range(draw.randrange(1, 9))] for _ in range(count)]


def reference(base, ids, start, temperature):
    """Log-probs by transformers' own forward, one row, no cache."""
    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        logprobs = (model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
    return [logprobs[place - 1, ids[place]].item() for place in range(start, len(ids))]


def test_logprobs_equal_a_teacher_forced_pass_over_two_turns(engine, base):
    batch = prompts(5)
    conversations = engine.begin(batch)
    sampling = Sampling(0.8, 12, (STOP,))
    first = conversations.sample(dict(enumerate(range(5))), sampling)
    conversations.extend({row: [60 + row, 61] for row in (0, 2, 4)})
    second = conversations.sample({row: row + 50 for row in (0, 2, 4)}, sampling)
    for row in (0, 2, 4):
        history = batch[row] + first[row].ids
        assert reference(base, history, len(batch[row]), 0.8) == pytest.approx(first[row].logprobs, abs=1e-4)
        history += [60 + row, 61]
        assert reference(base, history + second[row].ids, len(history), 0.8) == pytest.approx(second[row].logprobs, abs=1e-4)


def test_score_agrees_with_transformers(engine, base):
    ids = prompts(1)[0] + [4, 5, 6]
    assert engine.score(ids, 2) == pytest.approx(reference(base, ids, 2, 1.0), abs=1e-5)


def test_rows_that_begin_alike_are_scored_by_their_rest(engine, base, monkeypatch):
    ran: list[int] = []
    hidden = RowModel.hidden
    monkeypatch.setattr(RowModel, "hidden", lambda self, tokens, *rest: ran.append(tokens.shape[1]) or hidden(self, tokens, *rest))
    begin = [random.Random(1).randrange(256) for _ in range(90)]
    rows = [[*begin, *(random.Random(seed).randrange(256) for _ in range(7))] for seed in (2, 3)]
    found = [engine.score_rest(row, 90, temperature=0.7) for row in rows]
    assert ran == [89, 8, 8]
    for row, one in zip(rows, found, strict=True):
        assert one == pytest.approx(engine.score(row, 90, temperature=0.7), abs=1e-4)
    other = EmbeddedEngine(base, None, device="cpu")
    assert other.score_rest(rows[1], 90, temperature=0.7) == found[1]  # whatever was scored before
    assert engine.score_rest(rows[0], 5) == engine.score(rows[0], 5)


def test_the_same_batch_gives_the_same_bits_whatever_ran_before(engine):
    sampling = Sampling(1.0, 8, (STOP,))
    first = engine.begin(prompts(4)).sample(dict(enumerate(range(4))), sampling)
    engine.begin(prompts(3, seed=2)).sample({0: 1}, sampling)
    assert engine.begin(prompts(4)).sample(dict(enumerate(range(4))), sampling) == first


def test_equal_prompts_and_seeds_give_equal_turns(engine):
    turns = engine.begin([prompts(1)[0]] * 3).sample({0: 7, 1: 8, 2: 7}, Sampling(1.0, 8, (STOP,)))
    assert turns[0].ids == turns[2].ids != turns[1].ids
    assert turns[0].logprobs == pytest.approx(turns[2].logprobs, abs=1e-5)


def test_greedy_takes_the_most_likely_token(engine, base):
    prompt = prompts(1)[0]
    turn = engine.begin([prompt]).sample({0: 0}, Sampling(0.0, 4, (STOP,)))[0]
    model = AutoModelForCausalLM.from_pretrained(base)
    expected = list(prompt)
    for _ in turn.ids:
        with torch.no_grad():
            expected.append(int(model(torch.tensor([expected])).logits[0, -1].argmax()))
    assert turn.ids == expected[len(prompt) :]


def test_sampled_frequencies_are_the_models_probabilities(engine, base):
    """400 draws of one token against the exact distribution; the bound is 5 standard errors of the likeliest token."""
    prompt = prompts(1)[0]
    turns = engine.begin([prompt] * 400).sample({row: row for row in range(400)}, Sampling(0.3, 1, (STOP,)))
    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        probabilities = (model(torch.tensor([prompt])).logits[0, -1] / 0.3).softmax(-1)
    likeliest = int(probabilities.argmax())
    p = probabilities[likeliest].item()
    share = sum(turn.ids == [likeliest] for turn in turns.values()) / 400
    assert abs(share - p) < 5 * (p * (1 - p) / 400) ** 0.5


@pytest.mark.parametrize("stops", [(17,), (17, 30, 99)])
def test_a_turn_ends_at_a_stop_token_or_the_limit(engine, stops):
    everything = engine.begin([prompts(1)[0]] * 40).sample({row: row for row in range(40)}, Sampling(1.0, 6, stops))
    for turn in everything.values():
        stopped = turn.ids[-1] in stops
        assert turn.finish_reason == ("stop" if stopped else "length")
        assert not set(stops) & set(turn.ids[:-1])
        assert stopped or len(turn.ids) == 6


@pytest.mark.parametrize("layout", ["packed", "apart"])
def test_a_turn_ends_where_the_context_does(engine, base, layout):
    held = {
        "packed": lambda prompts: RowConversations(32, prompts, RowModel(engine.model)),
        "apart": lambda prompts: ApartConversations(32, prompts, AutoModelForCausalLM.from_pretrained(base)),
    }[layout]([[7] * 28, [7] * 4])
    first = held.sample({0: 1, 1: 1}, Sampling(1.0, 12, ()))
    assert [(len(first[row].ids), first[row].finish_reason) for row in (0, 1)] == [(4, "length"), (12, "length")]
    held.extend({1: [8] * 10})
    assert len(held.sample({1: 2}, Sampling(1.0, 12, ()))[1].ids) == 32 - 4 - 12 - 10


def test_streaming_gives_the_same_turn(engine):
    prompt, sampling = prompts(1)[0], Sampling(1.0, 8, (STOP,))
    whole = engine.begin([prompt]).sample({0: 3}, sampling)[0]
    assert [token for token, _ in engine.begin([prompt]).stream(0, 3, sampling)] == whole.ids


def played(engine, batch, long):
    """Three turns of every row; before the second and third, some rows read much more than the others."""
    conversations, turns, draw = engine.begin(batch), [], random.Random(3)
    for number in range(3):
        turns.append(conversations.sample({row: 10 * number + row for row in range(len(batch))}, Sampling(0.8, 4, ())))
        read = {row: long if row in (1, 4 + number) else 2 + row for row in range(len(batch))}
        conversations.extend({row: [draw.randrange(3, 200) for _ in range(count)] for row, count in read.items()})
    return [(turn[row].ids, turn[row].logprobs) for turn in turns for row in range(len(batch))]


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(row_cache, "_WASTED", 8), (attention, "_MOST_SCORES", 64), (embedded, "_PASS", 40)],
)
def test_a_row_that_reads_much_changes_no_turn(engine, monkeypatch, module, name, value):
    batch = [*prompts(6), prompts(1)[0] + [9] * 50, prompts(1)[0]]
    whole = played(engine, batch, 60)
    monkeypatch.setattr(module, name, value)
    split = played(engine, batch, 60)
    assert [ids for ids, _ in split] == [ids for ids, _ in whole]
    for (_, first), (_, second) in zip(split, whole, strict=True):
        assert first == pytest.approx(second, abs=1e-4)


def test_rows_of_about_one_length_stay_in_one_group():
    assert [group.rows for group in Group(range(64)).split([60 + row for row in range(64)])] == [[*range(64)]]
    lengths = [2500 if row in (7, 9) else 40000 if row == 20 else 100 for row in range(64)]
    groups = Group(range(64)).split(lengths)
    assert [group.rows for group in groups] == [[row for row in range(64) if row not in (7, 9, 20)], [7, 9], [20]]
    assert sum(len(group.rows) * max(lengths[row] for row in group.rows) for group in groups) == sum(lengths)
