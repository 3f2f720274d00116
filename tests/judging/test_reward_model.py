"""A checkpoint for sequence classification as a judge. The oracle: the same model asked by hand, one turn at a time."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.judging.base import SCORERS
from tests.judging.test_prm import stored

ROW = stored(
    Message("user", "How many?"),
    Message("assistant", "Let me see.", (ToolCall("1", "stock", "{}"),)),
    Message("tool", "3", tool_call_id="1", name="stock"),
    Message("assistant", "3."),
    Message("user", "Thanks!"),
)
CHAT = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
ANSWERS = ["Let me see.\nstock({})", "Let me see.\nstock({})\n3\n3."]


def written(path, labels=1):
    """Write a tiny random reward model with the tokenizer of the built-in tiny policy."""
    tokenizer = load_tokenizer(resolve_base("random").path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_labels=labels,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForSequenceClassification(config).save_pretrained(path)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(path)
    return str(path)


def by_hand(path, request, answer):
    tokenizer, model = load_tokenizer(path), AutoModelForSequenceClassification.from_pretrained(path).eval()
    messages = [{"role": "user", "content": request}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    with torch.no_grad():
        return float(model(**tokenizer(text, add_special_tokens=False, return_tensors="pt")).logits)


def test_a_turns_score_does_not_depend_on_its_batch(tmp_path):
    path = written(tmp_path / "model")
    judge = SCORERS.make("reward-model", {"model": path, "batch": 2, "device": "cpu"})
    judge.prepare([ROW])
    *turns, whole = judge.score({}, ROW)
    found = {score.turn: score.value for score in turns}
    assert (whole.value, whole.success) == (pytest.approx(sum(found.values()) / 2), None)  # its sign says nothing
    assert found == pytest.approx({turn: by_hand(path, "How many?", answer) for turn, answer in enumerate(ANSWERS)}, abs=1e-5)
    assert len({round(value, 4) for value in found.values()}) == 2


def test_a_turn_that_is_too_long_has_no_score(tmp_path):
    judge = SCORERS.make("reward-model", {"model": written(tmp_path / "model"), "longest": 3, "device": "cpu"})
    judge.prepare([ROW])
    assert list(judge.score({}, ROW)) == []


def test_a_model_with_several_labels_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="2 labels"):
        SCORERS.make("reward-model", {"model": written(tmp_path / "model", labels=2)})


def test_a_policy_is_no_reward_model():
    with pytest.raises(ConfigError, match="no sequence classifier"):
        SCORERS.make("reward-model", {"model": "random"})


def test_options_are_typed():
    with pytest.raises(ConfigError, match="batch"):
        SCORERS.make("reward-model", {"model": "random", "batch": 0})
