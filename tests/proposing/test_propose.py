"""What is proposed for files that a user has, and that the settings are a night's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.training import ONE_OF
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.discovery import load_environment
from clawpipe.start.proposing.propose import propose

SAID = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "Seven."}]
CHAT = {"messages": SAID, "session_id": "a"}
PAIR = {"prompt": "How many?", "chosen": "Seven.", "rejected": "No idea."}
GROUP = {
    "tokens": [[7, 8, 9, 20, 2], [7, 8, 9, 21, 2]],
    "masks": [[-100, -100, -100, 20, 2], [-100, -100, -100, 21, 2]],
    "inference_logprobs": [[1.0, 1.0, 1.0, -0.5, -0.2], [1.0, 1.0, 1.0, -0.5, -0.3]],
    "scores": [1.0, 0.0],
    "messages": [SAID, SAID],
}


def written(folder: Path, *lines: dict[str, Any]) -> list[str]:
    file = folder / "data.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return [str(file)]


@pytest.mark.parametrize(
    ("line", "method", "setting", "measure"),
    [
        (CHAT, "sft", "trajectories", "likelihood"),
        (CHAT | {"success": True}, "sft", "trajectories", "likelihood"),
        (PAIR, "dpo", "preferences", "preference accuracy"),
        (GROUP, "grpo", "trajectories", "likelihood"),
        (GROUP | {"inference_logprobs": None}, "sft", "trajectories", "likelihood"),  # no ratio can be taken of them
        ({"prompt": "3 + 4?", "answer": 7}, "grpo", "environment", "success"),
    ],
)
def test_the_method_follows_from_what_the_files_hold(tmp_path, line, method, setting, measure):
    lines = [line | ({"identity": f"{number}"} if "answer" in line else {}) for number in range(20)]
    made = propose(written(tmp_path, *lines), "random", None, "a")
    config = made.config()
    assert (config.train.method, config.measure) == (method, measure)
    assert setting in made.settings
    assert NightConfig.model_validate(yaml.safe_load(made.text())) == config


def test_chats_that_nobody_judged_are_all_imitated(tmp_path):
    judged, unjudged = (
        propose(written(tmp_path, line), "random", None, "a").config().curation.imitate for line in (CHAT | {"success": True}, CHAT)
    )
    assert (judged, unjudged) == ("success", "any")


@pytest.mark.parametrize("own", ["optimizer_steps=4", "batch_tokens=900", "batch_rows=null"])
def test_a_setting_of_ones_own_takes_the_place_of_a_proposed_one(tmp_path, own):
    made = propose(written(tmp_path, CHAT), "random", None, "a")
    assert made.settings["train"]["batch_rows"]
    made.give_way([f"train.{own}"])
    (tmp_path / "night.yaml").write_text(made.text())
    train = load_config(tmp_path / "night.yaml", [f"train.{own}"]).train
    given = {name for names in ONE_OF for name in names if getattr(train, name)}
    assert given == {own.partition("=")[0]} - {"batch_rows"}
    assert train.epochs == 3


@pytest.mark.parametrize(
    ("rewards", "method", "least"),
    [([0, 1, 0, 0], "sft", 1.0), ([0.1, 0.5, 0.9, 0.8], "sft", 0.8), ([1, 1], "sft", 1.0), ([-1, 1, 1], "kto", None)],
)
def test_scores_that_say_no_success_say_what_is_learnt(tmp_path, rewards, method, least):
    """`clawpipe train` on chats with rewards ended with code 65: it imitated successes, and a number is none."""
    config = propose(written(tmp_path, *(CHAT | {"reward": one} for one in rewards)), "random", None, "a").config()
    assert (config.train.method, config.curation.filters.min_score) == (method, least)
    assert config.curation.imitate == ("success" if least is None else "any")


def test_hints_are_trusted_where_there_is_no_task_to_try_them_on(tmp_path):
    assert propose(written(tmp_path, CHAT), "random", "combine", "a").config().train.opd.probe_items == 0


@pytest.mark.parametrize(
    ("answers", "check"),
    [
        ([7, "8", "1,000"], "numeric"),
        (["Paris", "Rome", 3], "normalized"),
        (["A", "B", "C", "D"], "normalized"),
        (["\u22125", "1\u202f000", 2], "numeric"),
        (["nan", "inf"], "normalized"),
        (["?", "!", "+"], "exact"),
        ([{"name": "stock", "arguments": {}}] * 2, "tool_call"),
    ],
)
def test_the_check_follows_from_the_answers(tmp_path, answers, check):
    lines = [{"prompt": f"question {number}", "answer": answer} for number, answer in enumerate(answers * 10)]
    settings = propose(written(tmp_path, *lines), "random", None, "a").settings
    assert settings["environment"]["options"]["check"] == check


def test_multiple_choice_is_checked_letter_by_letter(tmp_path):
    lines = [{"prompt": f"question {number}", "answer": "ABCD"[number % 4]} for number in range(40)]
    made = propose(written(tmp_path, *lines), "random", None, "a").config().environment
    environment = load_environment(made.name, made.options)
    for item in environment.items("train", made.train_items, 0):
        right = [
            environment.verify(item, [*item.messages, Message("assistant", said)]).success for said in ("", "A", "B", "C", "D")
        ]
        assert sum(right) == 1
        assert not right[0]


def test_answers_of_which_nothing_is_left_are_told(tmp_path):
    lines = [{"prompt": f"question {number}", "answer": "Paris" if number % 3 else "?"} for number in range(60)]
    found = propose(written(tmp_path, *lines), "random", None, "a").found
    assert any("40 prompts with answers, 20 lines that are none (the check normalized cannot use" in text for text in found)


def test_too_few_prompts_for_a_verdict_are_told(tmp_path):
    for count, told in ((12, True), (200, False)):
        lines = [{"prompt": f"{number} + 1?", "answer": number + 1} for number in range(count)]
        found = propose(written(tmp_path, *lines), "random", None, "a").found
        assert any("the verdict will be HOLD" in text for text in found) == told


def test_as_many_items_are_asked_for_as_there_are(tmp_path):
    lines = [{"prompt": f"{number} + 1?", "answer": number + 1} for number in range(100)]
    config = propose(written(tmp_path, *lines), "random", None, "a").config()
    assert config.environment.train_items + config.environment.heldout_items == 100
    assert config.rollouts is not None
    assert config.rollouts.items <= config.environment.train_items


@pytest.mark.parametrize(
    ("model", "format_"),
    [
        ("smollm2-135m-instruct", "pythonic"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral"),
    ],
)
def test_a_family_writes_calls_as_it_was_trained_to(tmp_path, model, format_):
    assert propose(written(tmp_path, CHAT), model, None, "a").settings["model"]["tool_call_format"] == format_


def test_a_too_large_model_gets_settings_that_make_it_fit(tmp_path):
    made = propose(written(tmp_path, CHAT), "Qwen/Qwen2.5-7B-Instruct", None, "a")
    fitted = "quantization" in made.settings["model"] or "pack_tokens" in made.settings["train"]
    assert fitted or len(made.found) > 1 or made.config()
    unknown = propose(written(tmp_path, CHAT), str(tmp_path / "nowhere"), None, "a")
    assert "is not known" in unknown.found[-1]


def test_what_cannot_be_learnt_from_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no conversation"):
        propose(written(tmp_path, {"x": 1}), "random", None, "a")
    with pytest.raises(DataError, match="too few prompts"):
        propose(written(tmp_path, {"prompt": "?", "answer": 1}), "random", None, "a")
    with pytest.raises(NotFoundError):
        propose([str(tmp_path / "none")], "random", None, "a")
    with pytest.raises(ConfigError, match="no method"):
        propose(written(tmp_path, CHAT), "random", "magic", "a")


def test_users_who_react_are_read_and_not_imitated_blindly(tmp_path):
    said = [*CHAT["messages"], {"role": "user", "content": "That is wrong."}, {"role": "assistant", "content": "Sorry: 12."}]
    reacting = written(tmp_path, CHAT | {"messages": said})
    made = propose(reacting, "random", None, "a").config()
    assert ([scorer.name for scorer in made.scorers], made.curation.imitate) == (["rules"], "any")
    assert propose(reacting, "random", "dpo", "a").config().curation.pairs.corrections
    assert propose(written(tmp_path, CHAT), "random", None, "a").config().scorers == ()
