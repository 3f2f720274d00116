"""Token scores of other policies for recorded tokens, compared with a plain forward of each row alone."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.config.night import EnvironmentConfig, Runtime
from clawpipe.core.config.training import Lora, Opd
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset, write_parquet
from clawpipe.core.store.digests import canonical
from clawpipe.errors import ConfigError
from clawpipe.learn.annotation.produce import HintSource, annotate_dataset
from clawpipe.learn.annotation.request import AnnotateRequest, Hindsight
from clawpipe.learn.annotation.run import annotate, choose
from clawpipe.learn.evaluation.heldout.draw import make_task_items
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.learn.training.model.likelihoods import likelihoods
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base, load_policy
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.environments.openings import openings

TEMPERATURE = 0.7
EXACT = {"abs": 2e-5}
HINTS = {"t0": ["Say it.", "Lowercase letters only.", "Say it."], "t1": ["Letters!"], "t2": None}
SHOWN = (Message("assistant", "bado"), Message("user", "again"), Message("assistant", "bado"))
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def letters_setup(tmp_path_factory):
    """The letters environment, the renderer of the built-in tiny model, and an adapter that is not zero."""
    base = resolve_base("random").path
    torch.manual_seed(1)
    model = attach_trainable(load_base(base, "float32", CPU), Lora(rank=4, alpha=8))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapter = tmp_path_factory.mktemp("policy") / "adapter"
    save_adapter(model, adapter, "ab12")
    environment = LettersEnvironment()
    return {
        "base": base,
        "adapter": adapter,
        "environment": environment,
        "renderer": Renderer(load_tokenizer(base), "pythonic", environment.tools()),
        "item": environment.items("train", 1, 0)[0],
    }


def spec(letters_setup, adapter=False, base=None):
    return PolicySpec(
        base=str(base or letters_setup["base"]),
        adapter=str(letters_setup["adapter"]) if adapter else None,
        dtype="float32",
        tool_call_format="pythonic",
        policy_version="v",
    )


def conversation(letters_setup, seed, **messages):
    """A two-turn row as rollouts record it: the second turn was cut off, the environment speaks between them."""
    renderer, letters = letters_setup["renderer"], np.random.default_rng(seed).integers(97, 123, 5).tolist()
    prompt = renderer.prompt([*letters_setup["environment"].preamble(), *letters_setup["item"].messages])
    first, between, second = [*letters[:2], renderer.eos_id], renderer.continuation("stop", [Message("user", "again")]), letters[2:]
    mask = [False] * len(prompt) + [True] * 3 + [False] * len(between) + [True] * 3
    return [*prompt, *first, *between, *second], mask, len(prompt)


def sample_row(letters_setup, number, **changes):
    ids, mask, prompt_tokens = conversation(letters_setup, seed=number)
    row = {"trajectory_id": f"t{number}", "item_id": letters_setup["item"].item_id, "group_id": "g", "temperature": TEMPERATURE}
    return row | {"token_ids": ids, "loss_mask": mask, "prompt_tokens": prompt_tokens} | changes


@pytest.fixture
def ask(letters_setup, tmp_path):
    """ask(policies, rows, ...): the token scores of samples, and the facts about them."""

    def run(policies, rows, config=None, name="outcome", hints=HINTS, kind="samples", by_turn={}, **changes):  # noqa: B006
        files = {table: tmp_path / f"{table}.parquet" for table in ("rows", "scores", "items")}
        write_parquet(pa.Table.from_pylist(rows), files["rows"])
        demonstration = [message.as_dict() for message in SHOWN]
        scores = [{"trajectory_id": key, "hints": texts, "demonstration": texts and demonstration} for key, texts in hints.items()]
        scores += [{"trajectory_id": key, "turn": turn, "hints": texts} for (key, turn), texts in by_turn.items()]
        names = ["trajectory_id", "turn", "hints", "demonstration"]
        schema = pa.schema([schema_of("scores").field(field) for field in names])
        write_parquet(pa.Table.from_pylist(scores, schema), files["scores"])
        write_parquet(pa.Table.from_pylist([letters_setup["item"].as_row()], schema_of("task_items")), files["items"])
        paths = {table: (str(file),) for table, file in files.items()}
        hindsight = Hindsight(scores=paths["scores"], items=paths["items"], openings=openings(EnvironmentSpec(name="letters")))
        facts = {
            "kind": kind,
            "rows": paths["rows"],
            "policies": policies,
            "hindsight": hindsight if "teacher" in policies else None,
            "config": config or Opd(top_k=4),
            "pack_tokens": 256,
            "temperature": 1.0,
            "device": "cpu",
            "threads": 1,
            "output": str(tmp_path / name),
        }
        annotate(AnnotateRequest(**(facts | changes)))
        outcome = Path(facts["output"])
        return pq.read_table(outcome / "token_scores.parquet").to_pylist(), json.loads((outcome / "facts.json").read_text())

    return run


def plain(letters_setup, ids, trained, temperature=TEMPERATURE, adapter=False):
    """Log-probs of the whole vocabulary [N, V] before each trained token, by the model's ordinary forward of one row."""
    model = load_policy(letters_setup["base"], letters_setup["adapter"] if adapter else None, "float32", CPU)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0] / temperature
    return torch.log_softmax(logits, -1)[np.asarray(trained) - 1].numpy()


def of_tokens(logprobs, ids, trained):
    return logprobs[np.arange(len(trained)), np.asarray(ids)[trained]]


def hinted(letters_setup, row, said):
    """Return the row after another prompt, assembled independently, and the positions of its trained tokens."""
    prompt = letters_setup["renderer"].prompt([*letters_setup["environment"].preamble(), *said])
    ids = prompt + row["token_ids"][row["prompt_tokens"] :]
    return ids, np.flatnonzero(row["loss_mask"]) + len(prompt) - row["prompt_tokens"]


def note(letters_setup, text):
    (question,) = letters_setup["item"].messages
    return [Message("user", f"{question.content}\n\n<hint>\n{text}\n</hint>")]


# ---- who says what


def test_reference_and_proximal_are_what_each_policy_says(ask, letters_setup):
    rows = [sample_row(letters_setup, number) for number in range(3)]
    scores, facts = ask({"reference": spec(letters_setup), "proximal": spec(letters_setup, adapter=True)}, rows)
    assert [score["row_id"] for score in scores] == ["t0", "t1", "t2"]
    for row, score in zip(rows, scores, strict=True):
        trained = np.flatnonzero(row["loss_mask"])
        for name, adapter in (("reference", False), ("proximal", True)):
            expected = of_tokens(plain(letters_setup, row["token_ids"], trained, adapter=adapter), row["token_ids"], trained)
            assert score[name] == pytest.approx(expected.tolist(), **EXACT)
        assert [score[name] for name in ("teacher", "top_k", "top_tokens", "top_teacher", "hint")] == [None] * 5
    assert facts == {"filtered": {}, "without_hint": {}, "hinted": 0}


def test_a_row_without_temperature_takes_the_requests(ask, letters_setup):
    row = sample_row(letters_setup, 0, temperature=0.0)
    [score], _ = ask({"reference": spec(letters_setup)}, [row], temperature=0.5)
    trained = np.flatnonzero(row["loss_mask"])
    expected = of_tokens(plain(letters_setup, row["token_ids"], trained, temperature=0.5), row["token_ids"], trained)
    assert score["reference"] == pytest.approx(expected.tolist(), **EXACT)


def test_a_teacher_scores_the_same_tokens_after_the_hint(ask, letters_setup):
    policies = {"student": spec(letters_setup), "teacher": spec(letters_setup, adapter=True)}
    rows = [sample_row(letters_setup, number) for number in range(3)]
    scores, facts = ask(policies, rows)
    (own, trained) = rows[1]["token_ids"], np.flatnonzero(rows[1]["loss_mask"])
    ids, moved = hinted(letters_setup, rows[1], note(letters_setup, "Letters!"))
    teacher = plain(letters_setup, ids, moved, adapter=True)
    assert np.asarray(ids)[moved].tolist() == np.asarray(own)[trained].tolist()
    assert scores[1]["teacher"] == pytest.approx(of_tokens(teacher, ids, moved).tolist(), **EXACT)
    tokens = np.asarray(scores[1]["top_tokens"]).reshape(6, 4)
    expected = np.argsort(-plain(letters_setup, own, trained), axis=1)[:, :4]
    assert tokens.tolist() == expected.tolist()
    assert scores[1]["top_teacher"] == pytest.approx(np.take_along_axis(teacher, expected, 1).ravel().tolist(), **EXACT)
    assert (scores[1]["top_k"], scores[1]["hint"]) == (4, 0)
    assert facts["hinted"] == 2


def test_a_row_without_a_hint_has_no_teacher(ask, letters_setup):
    scores, facts = ask(
        {"student": spec(letters_setup), "teacher": spec(letters_setup)},
        [sample_row(letters_setup, number) for number in (1, 2, 3)],
    )
    assert [score["teacher"] is None for score in scores] == [False, True, True]
    for score in scores[1:]:
        assert {score[name] for name in ("top_k", "top_tokens", "top_teacher", "hint")} == {None}
    assert facts["without_hint"] == {"no hint": 2}


def test_the_likeliest_tokens_may_be_the_teachers(ask, letters_setup):
    row = sample_row(letters_setup, 1)
    [score], _ = ask(
        {"student": spec(letters_setup, adapter=True), "teacher": spec(letters_setup)}, [row], Opd(top_k=3, top_k_of="teacher")
    )
    teacher = plain(letters_setup, *hinted(letters_setup, row, note(letters_setup, "Letters!")))
    expected = np.argsort(-teacher, axis=1)[:, :3]
    assert np.asarray(score["top_tokens"]).reshape(6, 3).tolist() == expected.tolist()
    assert score["top_teacher"] == pytest.approx(np.take_along_axis(teacher, expected, 1).ravel().tolist(), **EXACT)


def test_the_token_form_compares_no_vocabulary(ask, letters_setup):
    [score], _ = ask(
        {"student": spec(letters_setup), "teacher": spec(letters_setup)}, [sample_row(letters_setup, 1)], Opd(form="token")
    )
    assert len(score["teacher"]) == 6
    assert (score["top_k"], score["top_tokens"], score["top_teacher"], score["hint"]) == (None, None, None, 0)


def test_a_demonstration_is_shown_before_the_question(ask, letters_setup):
    row, question = sample_row(letters_setup, 0), list(letters_setup["item"].messages)
    [score], _ = ask(
        {"student": spec(letters_setup), "teacher": spec(letters_setup)}, [row], Opd(top_k=2, hint="demonstration", repeats=2)
    )
    ids, moved = hinted(letters_setup, row, [*question, *SHOWN, *question, *SHOWN, *question])
    assert score["teacher"] == pytest.approx(of_tokens(plain(letters_setup, ids, moved), ids, moved).tolist(), **EXACT)


# ---- hints of turns


def with_turns(row):
    """The two turns of a row, and the tokens that open a message."""
    mask = np.array([False, *row["loss_mask"], False])
    starts, ends = np.flatnonzero(mask[1:] & ~mask[:-1]), np.flatnonzero(mask[:-1] & ~mask[1:])
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return row | {"turns": [{"turn": number, "start": start, "end": end} for number, (start, end) in enumerate(spans)]}


def told_before(letters_setup, row, number, text):
    """The row up to the end of a turn, with a note before the turn, assembled by hand; and where the turn's tokens are."""
    turn, renderer = row["turns"][number], letters_setup["renderer"]
    header = renderer.prompt([])[-len("assistant\n") - 1 :]
    place = turn["start"] - len(header)
    assert row["token_ids"][place : turn["start"]] == header
    note = renderer.prompt([Message("user", f"<hint>\n{text}\n</hint>")])[: -len(header)]
    ids = row["token_ids"][:place] + note + header + row["token_ids"][turn["start"] : turn["end"]]
    return ids, np.arange(turn["start"], turn["end"]) + len(note)


@pytest.mark.parametrize("number", [0, 1])
def test_a_hint_of_a_turn_teaches_the_tokens_of_that_turn_alone(ask, letters_setup, number):
    """Such hints were once dropped, so that nothing could be learnt from a judge's hint for a turn."""
    row, policies = (
        with_turns(sample_row(letters_setup, 3)),
        {"student": spec(letters_setup), "teacher": spec(letters_setup, adapter=True)},
    )
    [score], facts = ask(policies, [row], hints={}, by_turn={("t3", number): ["Say it."], ("t3", 7): ["nobody's turn"]})
    ids, moved = told_before(letters_setup, row, number, "Say it.")
    trained, own = np.flatnonzero(row["loss_mask"]), plain(letters_setup, row["token_ids"], np.flatnonzero(row["loss_mask"]))
    mine = [row["turns"][number]["start"] <= place < row["turns"][number]["end"] for place in trained]
    assert (score["taught"], score["hint"], facts["hinted"], facts["without_hint"]) == (mine, 0, 1, {})
    teacher = plain(letters_setup, ids, moved, adapter=True)
    expected = of_tokens(own, row["token_ids"], trained)
    expected[mine] = of_tokens(teacher, ids, moved)
    assert score["teacher"] == pytest.approx(expected.tolist(), **EXACT)
    tokens = np.asarray(score["top_tokens"]).reshape(6, 4)
    assert tokens.tolist() == np.argsort(-own, axis=1)[:, :4].tolist()
    compared = np.asarray(score["top_teacher"]).reshape(6, 4)[mine]
    np.testing.assert_allclose(compared, np.take_along_axis(teacher, tokens[mine], 1), atol=2e-5)


def test_a_turns_hint_applies_there_and_the_rows_hint_elsewhere(ask, letters_setup):
    row, policies = with_turns(sample_row(letters_setup, 1)), {"student": spec(letters_setup), "teacher": spec(letters_setup)}
    [score], _ = ask(policies, [row], Opd(form="token"), by_turn={("t1", 1): ["Say it."]})
    whole, turn = hinted(letters_setup, row, note(letters_setup, "Letters!")), told_before(letters_setup, row, 1, "Say it.")
    expected = [of_tokens(plain(letters_setup, *part), *part) for part in (whole, turn)]
    assert score["teacher"] == pytest.approx([*expected[0][:3], *expected[1]], **EXACT)
    assert (score["taught"], score["hint"]) == (None, 0)  # every token is taught


def test_a_turn_after_a_foreign_header_is_found_or_not_taught(ask, letters_setup):
    row, policies = with_turns(sample_row(letters_setup, 3)), {"student": spec(letters_setup), "teacher": spec(letters_setup)}
    ids = [65 if token == letters_setup["renderer"].prompt([])[0] else token for token in row["token_ids"]]
    [score], facts = ask(policies, [row | {"token_ids": ids}], hints={}, by_turn={("t3", 1): ["Say it."]})
    assert (score["teacher"], facts["without_hint"]) == (None, {"turn without a header": 1})


def test_rows_of_an_older_version_have_no_turns_to_teach(ask, letters_setup):
    scores, facts = ask(
        {"student": spec(letters_setup), "teacher": spec(letters_setup)},
        [sample_row(letters_setup, 3)],
        hints={},
        by_turn={("t3", 0): ["x"]},
    )
    assert (scores[0]["teacher"], facts["without_hint"]) == (None, {"no hint": 1})


# ---- which hint


def test_the_hint_with_the_most_agreement_over_the_row_is_used(ask, letters_setup):
    row, config = sample_row(letters_setup, 0), Opd(top_k=8)
    [score], facts = ask({"student": spec(letters_setup), "teacher": spec(letters_setup)}, [row], config)
    own = np.argsort(-plain(letters_setup, row["token_ids"], np.flatnonzero(row["loss_mask"])), axis=1)[:, :8]
    overlaps = []
    for text in ("Say it.", "Lowercase letters only."):  # once each, the shorter first
        teacher = np.argsort(-plain(letters_setup, *hinted(letters_setup, row, note(letters_setup, text))), axis=1)[:, :8]
        overlaps.append(sum(len(set(a) & set(b)) for a, b in zip(own.tolist(), teacher.tolist(), strict=True)))
    assert overlaps[0] != overlaps[1]
    assert score["hint"] == int(np.argmax(overlaps))
    assert facts["hints"] == {str(score["hint"]): 1}


def test_each_token_may_have_a_hint_of_its_own(ask, letters_setup):
    """The oracle: sets of the likeliest tokens by plain forward passes, token by token."""
    row = sample_row(letters_setup, 0)
    policies = {"student": spec(letters_setup), "teacher": spec(letters_setup)}
    [score], facts = ask(policies, [row], Opd(top_k=8, hint_per="token"))
    mine = plain(letters_setup, row["token_ids"], np.flatnonzero(row["loss_mask"]))
    own = np.argsort(-mine, axis=1)[:, :8]
    told = [hinted(letters_setup, row, note(letters_setup, text)) for text in ("Say it.", "Lowercase letters only.")]
    teachers = [plain(letters_setup, *part) for part in told]
    tops = [np.argsort(-teacher, axis=1)[:, :8] for teacher in teachers]
    counts = [[len(set(a) & set(b)) for a, b in zip(own.tolist(), top.tolist(), strict=True)] for top in tops]
    chosen = [0 if first >= second else 1 for first, second in zip(*counts, strict=True)]
    assert len(set(chosen)) == 2  # else the row would do
    expected = [of_tokens(teachers[hint], *told[hint])[place] for place, hint in enumerate(chosen)]
    assert score["teacher"] == pytest.approx(expected, **EXACT)
    compared = np.asarray(score["top_teacher"]).reshape(6, 8)
    by_hand = [teachers[hint][place][own[place]] for place, hint in enumerate(chosen)]
    np.testing.assert_allclose(compared, by_hand, atol=2e-5)
    assert facts["hints"] == {str(score["hint"]): 1}
    assert score["hint"] == max(chosen, key=chosen.count)


def test_of_equals_the_first_hint_is_taken():
    student = np.array([[1, 2], [3, 4]])
    tops = {0: np.array([[1, 9], [9, 9]]), 1: np.array([[2, 1], [9, 8]]), 2: np.array([[1, 9], [4, 9]])}
    assert choose(tops, student, "row").tolist() == [1, 1]  # two of four agree, in another order
    assert choose({hint: tops[hint] for hint in (0, 2)}, student, "row").tolist() == [2, 2]
    assert choose({5: tops[0], 6: tops[0]}, student, "row").tolist() == [5, 5]
    assert choose(tops, student, "token").tolist() == [1, 2]  # 1, 2, 1 agree at the first token, 0, 0, 1 at the second
    assert choose({5: tops[0], 6: tops[0]}, student, "token").tolist() == [5, 5]


def test_one_hint_for_the_row_is_in_no_key():
    assert canonical(Opd()) == canonical(Opd(hint_per="row"))
    assert "hint_per" not in canonical(Opd())
    assert canonical(Opd(hint_per="token")) != canonical(Opd())


# ---- what cannot be scored


def test_rows_that_cannot_be_scored_stay_in_place_without_scores(ask, letters_setup):
    good = sample_row(letters_setup, 1)
    size = len(good["token_ids"])
    rows = [
        good | {"trajectory_id": "short", "loss_mask": [True]},
        good | {"trajectory_id": "nothing", "loss_mask": [False] * size},
        good,
        good | {"trajectory_id": "first", "loss_mask": [True] * size},
    ]
    scores, facts = ask({"proximal": spec(letters_setup), "student": spec(letters_setup), "teacher": spec(letters_setup)}, rows)
    assert [score["row_id"] for score in scores] == ["short", "nothing", "t1", "first"]
    assert [score["proximal"] is None for score in scores] == [True, True, False, True]
    assert facts["filtered"] == {"first_token_has_no_predecessor": 1, "lengths_differ": 1, "no_trained_tokens": 1}


def test_a_hint_is_put_into_no_prompt_but_the_task_items_own(ask, letters_setup):
    row = sample_row(letters_setup, 1)
    other = row | {
        "token_ids": [65, *row["token_ids"]],
        "loss_mask": [False, *row["loss_mask"]],
        "prompt_tokens": row["prompt_tokens"] + 1,
    }
    unknown = row | {"item_id": "elsewhere"}
    scores, facts = ask({"student": spec(letters_setup), "teacher": spec(letters_setup)}, [other, unknown])
    assert [score["teacher"] for score in scores] == [None, None]
    assert facts["without_hint"] == {"prompt is not the task item's": 1, "task item unknown": 1}


def test_a_hint_that_the_teacher_cannot_hold_is_left_out(ask, letters_setup):
    hints = {"t1": ["x" * 2000, "short"], "t3": ["y" * 2000]}
    scores, facts = ask(
        {"student": spec(letters_setup), "teacher": spec(letters_setup)},
        [sample_row(letters_setup, 1), sample_row(letters_setup, 3)],
        hints=hints,
    )
    assert [score["hint"] for score in scores] == [0, None]
    assert facts["without_hint"] == {"hinted prompt too long": 1}


def test_more_tokens_than_the_vocabulary_has_cannot_be_compared(ask, letters_setup):
    with pytest.raises(ConfigError, match="vocabulary of 259"):
        ask({"student": spec(letters_setup), "teacher": spec(letters_setup)}, [sample_row(letters_setup, 1)], Opd(top_k=260))


def test_both_sides_of_a_pair_are_scored_and_text_is_not(ask, letters_setup):
    (chosen, mask, prompt), (rejected, other, _) = conversation(letters_setup, 1), conversation(letters_setup, 2)
    pair = {
        "pair_id": "p",
        "item_id": "i",
        "group_id": "g",
        "prompt_tokens": prompt,
        "temperature": TEMPERATURE,
        "tokens": "recorded",
    }
    pair |= {"chosen_token_ids": chosen, "chosen_loss_mask": mask, "rejected_token_ids": rejected, "rejected_loss_mask": other}
    empty = {f"{side}_{name}": [] for side in ("chosen", "rejected") for name in ("token_ids", "loss_mask")}
    text = pair | empty | {"pair_id": "q", "tokens": "none", "temperature": 0.0, "prompt_tokens": None}
    scores, facts = ask({"reference": spec(letters_setup)}, [pair, text], kind="preference_pairs")
    assert [score["row_id"] for score in scores] == ["p/chosen", "p/rejected", "q/chosen", "q/rejected"]
    for score, ids in zip(scores, (chosen, rejected), strict=False):
        trained = np.flatnonzero(mask)
        assert score["reference"] == pytest.approx(of_tokens(plain(letters_setup, ids, trained), ids, trained).tolist(), **EXACT)
    assert [score["reference"] for score in scores[2:]] == [None, None]
    assert facts["filtered"] == {"text_only": 2}


def test_padding_tokens_are_never_among_the_likeliest(tiny_llama):
    sample = Sample("g", np.array([1, 2, 3, 4]), np.array([2, 3]), 1.0, 1.0, {})
    [whole] = likelihoods(tiny_llama().eval(), [sample], 64, top_k=300)
    [known] = likelihoods(tiny_llama().eval(), [sample], 64, top_k=20, vocabulary=20)
    for every, some in zip(whole.top.tolist(), known.top.tolist(), strict=True):
        assert some == [token for token in every if token < 20]


# ---- packing, bytes


def test_output_depends_on_the_request_and_not_on_packs(ask, letters_setup, tmp_path):
    rows, policies = (
        [sample_row(letters_setup, number) for number in range(3)],
        {"student": spec(letters_setup), "teacher": spec(letters_setup, True)},
    )
    first, _ = ask(policies, rows, name="one")
    ask(policies, rows, name="two")
    assert (tmp_path / "one" / "token_scores.parquet").read_bytes() == (tmp_path / "two" / "token_scores.parquet").read_bytes()
    alone, _ = ask(policies, rows, name="three", pack_tokens=64)  # a pack a row
    for score, other in zip(first[:2], alone[:2], strict=True):
        assert score["teacher"] == pytest.approx(other["teacher"], **EXACT)
        assert score["top_teacher"] == pytest.approx(other["top_teacher"], **EXACT)


TOKENS = st.lists(st.integers(0, 258), min_size=2, max_size=9)


@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=4), st.integers(8, 40))
@settings(deadline=None, max_examples=20)
def test_without_a_hint_the_teacher_says_what_the_student_says(rows, pack_tokens):
    """The same policy after the same prompt: an advantage of 0 except for rounding, however rows are packed."""
    model = load_base(resolve_base("random").path, "float32", CPU)
    samples = []
    for prompt, answer in rows:
        ids = np.array(prompt + answer)
        samples.append(Sample("g", ids, np.arange(len(prompt), len(ids)), 0.8, 1.0, {}))
    one = likelihoods(model, samples, pack_tokens, top_k=3)
    two = likelihoods(model, samples, 10_000)
    for sample, first, second in zip(samples, one, two, strict=True):
        np.testing.assert_allclose(first.logprobs, second.logprobs, atol=2e-5)
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(sample.token_ids)[None]).logits[0] / 0.8
        alone = torch.log_softmax(logits, -1)[sample.trained - 1].numpy()
        np.testing.assert_allclose(first.logprobs, alone[np.arange(len(alone)), sample.token_ids[sample.trained]], atol=2e-5)
        np.testing.assert_allclose(first.top_logprobs, -np.sort(-alone, axis=1)[:, :3], atol=2e-5)


# ---- as a step


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_a_step_leaves_token_scores_that_keep_their_contract(letters_setup, tmp_path):
    store = Store(tmp_path / "store")
    environment = EnvironmentConfig(name="letters", train_items=1, heldout_items=1)
    items = make_task_items(store, environment).dataset
    rows = [_stored_sample(letters_setup, number) for number in range(3)]
    samples = publish_dataset(store, "samples", [pa.Table.from_pylist(rows, schema_of("samples"))])
    scores = publish_dataset(store, "scores", [pa.Table.from_pylist([_score(name) for name in HINTS], schema_of("scores"))])
    base = base_ref("random", resolve_base("random").digest, "pythonic", "float32")
    digest, _ = store.publish("adapter", lambda directory: _copy(letters_setup["adapter"], directory))
    start = adapter_ref(base, digest, ())
    seen = []

    def step():
        return annotate_dataset(
            store,
            tmp_path / "work",
            samples,
            {"reference": base, "proximal": start, "student": start, "teacher": start},
            HintSource([scores], items, environment),
            Opd(top_k=4),
            pack_tokens=256,
            temperature=1.0,
            runtime=Runtime(device="cpu", train_threads=1),
            on_progress=seen.append,
        )

    result = step()
    assert result.dataset.name == "token_scores"
    assert set(result.dataset.parents) == {samples.digest, scores.digest, items.digest, base.digest, start.digest}
    assert (result.rows_in, result.rows_out, result.filtered) == (3, 3, {})
    assert result.details["without_hint"] == {"no hint": 1}
    assert validate(store, result.dataset, "token_scores").rows_out == 3
    own, by_teacher = (
        [row[name] for row in read_dataset(store, result.dataset).to_pylist()[:2]] for name in ("proximal", "teacher")
    )
    gain = np.concatenate(by_teacher).mean() - np.concatenate(own).mean()
    assert result.details["teacher_gain"] == pytest.approx(gain, abs=1e-5)
    assert [facts["note"] for facts in seen] == [
        "reference",
        "proximal",
        "teacher",
    ]  # the start policy is asked once, for both roles
    assert list((tmp_path / "work" / "annotate").iterdir()) == []


def _copy(source, directory):
    for file in source.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    return {"kind": "model", "name": "adapter"}


def _stored_sample(letters_setup, number):
    row = sample_row(letters_setup, number)
    size = len(row["token_ids"])
    row |= {"policy_version": "v", "renderer_digest": "r", "rollout_index": number, "weight": 1.0}
    return row | {"logprobs": [0.0] * size, "advantages": [0.0] * size}


def _score(trajectory):
    score = {"trajectory_id": trajectory, "scorer": "s", "origin": "verifier", "value": 0.0, "reason": "", "evidence": "{}"}
    return score | {"hints": HINTS[trajectory]}
