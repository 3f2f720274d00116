"""Rows that are too long become shorter text, and say what was cut."""

from __future__ import annotations

import json

import pytest

from clawpipe.core.config.curation import Compress
from clawpipe.core.config.environment import EnvironmentConfig
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.datasets import read_dataset
from clawpipe.errors import BusyError
from clawpipe.play.recorded import summaries
from clawpipe.play.recorded.compress import compress_rows, compressed_row
from clawpipe.play.recorded.notes import NOTE, notes_of
from clawpipe.play.recorded.shorten import Shortened, shorten
from clawpipe.play.recorded.summaries import summariser
from clawpipe.play.recorded.text_rows import render_text
from tests.recorded.test_shorten import AGENT, count, said, user
from tests.recorded.test_text_rows import row

LETTERS = EnvironmentConfig(name="letters")
TALK = tuple(message for number in range(16) for message in (user(f"question {number}"), said(f"answer {number} " + "y" * 60)))

BUDGET = 900


def compressed(store, published, base, rows, budget, summarise=None, **settings):
    done = compress_rows(store, published(rows), base, LETTERS, Compress(**settings), budget, summarise)
    return done, read_dataset(store, done.output).to_pylist()


def test_a_row_is_as_long_as_it_is_trained_on(store, published, base):
    """The budget counts the very tokens that are rendered later, with the environment's preamble and the tools."""
    done, rows = compressed(store, published, base, [row(*TALK), row(*TALK[:2], trajectory_id="u")], BUDGET)
    rendered = read_dataset(store, render_text(store, done.output, base, LETTERS).output).to_pylist()
    note = json.loads(rows[0]["extra"])[NOTE]
    assert note["tokens"][1] == len(rendered[0]["rendered_ids"]) <= BUDGET < note["tokens"][0]
    assert (rows[1]["messages"], rows[1]["extra"]) == ([one.as_dict() | {"tool_calls": []} for one in TALK[:2]], None)
    gone = len(note["messages"]) // 2
    figures = {"rows": 1, "tokens": note["tokens"][0] - note["tokens"][1], "messages": 2 * gone, "tool_results": 0}
    assert done.details["compressed"] == figures
    assert note["turns"] == [0, *range(gone + 1, 16)]
    assert note["asked"] == [f"question {number}" for number in range(1, gone + 1)]


def test_a_dataset_without_long_rows_is_the_same_one(store, published, base):
    given = published([row(*TALK)])
    done = compress_rows(store, given, base, LETTERS, Compress(), 4096)
    assert done.output == given
    assert done.details == {"compressed": {}, "not_compressed": {}}


def test_a_shortened_dataset_is_not_shortened_again(store, published, base):
    done, _ = compressed(store, published, base, [row(*TALK)], BUDGET)
    assert compress_rows(store, done.output, base, LETTERS, Compress(), BUDGET).output == done.output


def test_what_cannot_be_shortened_stays_and_is_counted(store, published, base):
    done, rows = compressed(store, published, base, [row(user("q"), said("z" * 900))], 400)
    assert done.details["not_compressed"] == {"what has to stay is too long": 1}
    assert rows[0]["messages"][1]["content"] == "z" * 900
    assert done.rows_in == done.rows_out == 1


def test_recorded_tokens_are_not_kept_for_what_nobody_sampled(store, published, base, talks):
    long = talks.sampled(1, 1.0)[0]
    long |= {"messages": [one.as_dict() for one in TALK]}
    long |= {
        "turns": [
            {"start": at, "end": at + 1, "kind": "side" if at == 2 else "main", "finish_reason": "stop"} for at in range(1, 17)
        ]
    }
    long |= {
        "token_ids": [65] * 1000,
        "loss_mask": [False] + [True] * 16 + [False] * 983,
        "logprobs": [0.0] * 1000,
        "prompt_tokens": 1,
    }
    done, (found,) = compressed(store, published, base, [long], BUDGET)
    assert (found["tokens"], found["token_ids"], found["turns"], found["prompt_tokens"]) == ("none", [], [], 0)
    assert found["kinds"] == ["main"] * sum(one["role"] == "assistant" for one in found["messages"])
    assert found["policy_version"] == long["policy_version"]
    assert done.details["compressed"]["rows"] == 1


def cut(messages, places) -> Shortened:
    kept = [place for place in range(len(messages)) if place not in places]
    summary = Message("user", "s")
    order = [*[place for place in kept if place < places[0]], None, *[place for place in kept if place > places[-1]]]
    return Shortened(tuple(summary if place is None else messages[place] for place in order), tuple(order), 0, tuple(places), 9)


def test_turns_of_rollouts_are_numbered_from_the_policys_first():
    """A prompt with an example of an answer: that one has no number, as no score names it."""
    shown = (user("1+1?"), said("2"), user("2+2?"), said("4"), user("3+3?"), said("6"), user("4+4?"), said("8"))
    turns = [{"start": at, "end": at + 1, "kind": "main", "finish_reason": "stop"} for at in range(3)]
    given = row(*shown, source="rollout", tokens="recorded", turns=turns, turn_rewards=[0.1, 0.2, 0.3], extra='{"mine": 1}')
    found = compressed_row(given, shown, cut(shown, range(4, 6)), 99)
    extra = json.loads(found["extra"])
    assert (extra["mine"], extra[NOTE]["turns"]) == (1, [0, 2])
    assert (found["kinds"], found["turn_rewards"]) == (["side", "main", "main"], [0.1, 0.3])


def test_an_endpoints_summary_stands_where_the_rules_would(store, published, base):
    asked = []
    summarise = lambda messages: asked.append(messages) or "They asked five things."  # noqa: E731
    _, (found,) = compressed(
        store, published, base, [row(*TALK)], BUDGET, summarise, by="endpoint", url="u", model="m", summary_tokens=64
    )
    (summary,) = [one["content"] for one in found["messages"] if one["content"].startswith("[Summary")]
    assert summary == f"[Summary of {len(asked[0])} messages that are left out here] They asked five things."


@pytest.mark.parametrize("text", [None, "w" * 5000])
def test_a_summary_that_is_missing_or_too_long_breaks_no_budget(store, published, base, text):
    settings = {"by": "endpoint", "url": "u", "model": "m", "summary_tokens": 64}
    done, (found,) = compressed(store, published, base, [row(*TALK)], BUDGET, lambda _: text, **settings)
    assert json.loads(found["extra"])[NOTE]["tokens"][1] <= BUDGET
    assert done.details["compressed"]["summaries_by_rule"] == (text is None)


def test_an_endpoint_that_is_busy_leaves_the_rules_summary(monkeypatch):
    class Model:
        def ask(self, messages, seed):
            raise BusyError("no answer")

    assert summaries._asked(Model(), AGENT) is None
    with summariser(Compress()) as summarise:
        assert summarise is None


def test_a_conversation_that_fits_is_left_alone():
    short = shorten(AGENT, 10_000, count, 1, 2)
    assert (short.messages, short.cut, short.results) == (AGENT, (), 0)


def test_a_note_is_found_in_rows_that_were_shortened_alone():
    rows = [
        {"trajectory_id": "a", "extra": json.dumps({NOTE: {"tokens": [9, 5]}, "mine": 1})},
        {"trajectory_id": "b", "extra": None},
    ]
    assert list(notes_of([*rows, {"trajectory_id": "c", "extra": json.dumps({NOTE: 3})}])) == [("a", {"tokens": [9, 5]})]
