"""Answers end at every marker that a model's generation settings name, and no marker is text."""

from __future__ import annotations

import json
import shutil

import pytest

from clawpipe.serve.serving.policy import ServedPolicy

END, PAD, ORDINARY = 257, 258, 7


@pytest.fixture(scope="module")
def client(base, served_as, start, tmp_path_factory):
    """A client of the random model, whose generation settings name three ends."""
    directory = tmp_path_factory.mktemp("base") / "model"
    shutil.copytree(base.path, directory, ignore=shutil.ignore_patterns("digest.json"))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [END, PAD, ORDINARY]}))
    with start(ServedPolicy(served_as(directory), "cpu")) as running, running.client() as client:
        yield client


@pytest.mark.parametrize("end", [END, PAD, ORDINARY])
@pytest.mark.parametrize("stream", [False, True])
def test_every_marker_of_the_generation_settings_ends_an_answer(client, end, stream):
    asked = {"model": "agent", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "logit_bias": {str(end): 100}}
    answer = client.chat.completions.create(**asked, stream=stream)
    choices = [choice for part in answer for choice in part.choices] if stream else answer.choices
    texts = [(choice.delta if stream else choice.message).content or "" for choice in choices]
    assert ("".join(texts), choices[-1].finish_reason) == ("", "stop")


def test_plain_text_ends_there_too_and_at_no_other_token(client, tokenizer):
    asked = {"model": "agent", "prompt": "Hello", "max_tokens": 4}
    [ended] = client.completions.create(**asked, logit_bias={str(PAD): 100}).choices
    [full] = client.completions.create(**asked, logit_bias={str(tokenizer("b").input_ids[0]): 100}).choices
    assert (ended.text, ended.finish_reason) == ("", "stop")
    assert (full.text, full.finish_reason) == ("bbbb", "length")
