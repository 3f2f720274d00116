"""`prm` with a model in its own process: the same votes, however often a night was killed, and the model's own text."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from clawpipe.core.store.home import Home
from clawpipe.errors import NotFoundError
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.judge_prompt import turn_prompt
from clawpipe.play.judging.prm import make_prm
from clawpipe.play.judging.votes import Vote, VoteStore
from tests.judging.test_prm import chat

TOKENS = 16


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The tiny model, with room for the judge's instructions."""
    directory = Path(shutil.copytree(resolve_base("random").path, tmp_path / "judge"))
    (directory / "digest.json").unlink()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return directory


def votes(home: Home, model: object, *rows: dict, **options: object) -> dict[str, Vote]:
    """What the judge said; a random model's answers are no verdicts."""
    make_prm(model=str(model), max_tokens=TOKENS, failed_share=1.0, **options).prepare(rows)
    return {vote.key: vote for vote in VoteStore.of(home).every()}


def test_its_votes_are_what_the_model_says(home: Home, model: Path):
    """The oracle is transformers' own greedy generation."""
    (vote,) = votes(home, model, chat(), temperature=0.0, votes=1).values()
    tokenizer = load_tokenizer(model)
    ids = Renderer(tokenizer, "pythonic", ()).prompt(turn_prompt(exchanges_of(chat())[0]).messages)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    said = plain.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=TOKENS, eos_token_id=tokenizer.eos_token_id)
    assert vote.raw == tokenizer.decode(said[0, len(ids) :], skip_special_tokens=True)
    assert (vote.value, vote.prompt_tokens, vote.reply_tokens) == (None, len(ids), said.shape[1] - len(ids))


def test_a_vote_that_a_killed_night_lost_is_the_same_again(home: Home, model: Path):
    before = votes(home, model, chat(), chat("No!"))
    assert len({vote.raw for vote in before.values()}) == 6
    lost = sorted(before)[::2]
    with closing(sqlite3.connect(home.root / "judging" / "votes.sqlite")) as database, database:
        database.executemany("delete from votes where key = ?", [(key,) for key in lost])
    after = votes(home, model, chat("No!"), chat())
    assert {key: vote.raw for key, vote in after.items()} == {key: vote.raw for key, vote in before.items()}
    assert {key for key in after if after[key].seconds == before[key].seconds} == set(before) - set(lost)


def test_another_model_at_the_same_place_is_asked_anew(home: Home, model: Path):
    first = votes(home, model, chat())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rope_theta": 5000.0}))
    assert len(votes(home, model, chat())) == 2 * len(first)


def test_a_turn_that_fills_the_context_gets_no_vote(home: Home):
    (vote,) = votes(home, "random", chat(), votes=1).values()
    assert (vote.raw, vote.value) == ("", None)


def test_a_turn_with_and_without_tools_is_two_questions(home: Home):
    """Only where tools were on offer is a claim noticed; the other question was never asked, and counted as a tie."""
    said = chat(reply="I have booked the table.")
    assert len(votes(home, "random", said, said | {"tools": '[{"name": "book"}]'}, votes=1)) == 2


def test_a_model_that_is_not_there_is_refused(home: Home, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotFoundError):
        make_prm(model=str(tmp_path / "none")).prepare([chat()])
