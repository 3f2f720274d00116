"""A model's own chat template says which tool-call format the model was trained on: calls that it writes are read back."""

import json
from functools import cache
from importlib.resources import files

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clawpipe.model.policy.own_template import difference, own_format
from clawpipe.start.proposing.propose import propose

FRAME = """{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% CALLS %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
HERMES = """for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor"""
ONE_ONLY = HERMES.replace(
    "for call", "if message.tool_calls|length > 1 %}{{ raise_exception('one call') }}{% endif %}{% for call", 1
)
LIST = """if message.tool_calls %}[TOOL_CALLS] [{% for call in message.tool_calls %}{% if not loop.first %}, {% endif %}{"name":
"{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}{% endfor %}]{% endif"""
DESCRIBED = HERMES + """ %}{% if loop.first and tools %}{{ tools | tojson }}{% endif"""
NO_CALLS = "if false %}{% endif"
UNESCAPED = HERMES.replace("{{ call.function.arguments | tojson }}", "{{ call.function.arguments | string }}")  # Python, no JSON
OWN_TAGS = HERMES.replace("tool_call>", "my_call>")


@cache
def tokenizer(template):
    made = Tokenizer(models.BPE({piece: index for index, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>"])
    markers = {"eos_token": "<|im_end|>", "bos_token": "<|begin_of_text|>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **markers)


def with_calls(part):
    return tokenizer(FRAME.replace("CALLS", part))


def of_trl(name):
    return tokenizer(files("trl").joinpath("chat_templates", name).read_text())


@pytest.mark.parametrize(("part", "format_"), [(HERMES, "hermes"), (LIST, "mistral"), (ONE_ONLY, "hermes")])
def test_the_format_that_reads_the_template_is_found(part, format_):
    assert own_format(with_calls(part)) == format_


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("qwen2_5.jinja", "hermes"),
        ("qwen3.jinja", "hermes"),
        ("qwen3_6.jinja", "qwen3-coder"),
        ("llama3_1.jinja", "llama3"),
        ("glm4moe.jinja", None),
        ("gptoss.jinja", "harmony"),
    ],
)
def test_templates_of_known_models(name, format_):
    assert own_format(of_trl(name)) == format_


@pytest.mark.parametrize("part", [NO_CALLS, UNESCAPED, OWN_TAGS])
def test_a_template_that_no_format_reads_is_refused(part):
    assert own_format(with_calls(part)) is None


def test_a_tokenizer_without_template_is_refused():
    assert own_format(tokenizer(None)) is None


def test_the_difference_shows_what_was_meant_and_written():
    wrong = difference(with_calls(OWN_TAGS), "hermes")
    assert wrong is not None
    assert not wrong.several
    assert wrong.read.calls == ()
    assert "<my_call>" in str(wrong)
    assert wrong.meant[0].name in str(wrong)


def test_a_template_of_one_call_a_turn_is_recognised():
    wrong = difference(with_calls(ONE_ONLY), "hermes")
    assert wrong is not None
    assert (wrong.several, len(wrong.meant)) == (True, 2)
    assert "one call" in wrong.written
    assert difference(with_calls(HERMES), "hermes") is None


@pytest.mark.parametrize(
    ("part", "format_", "said"),
    [
        (HERMES, "hermes", "reads all calls that the model's own chat template writes"),
        (ONE_ONLY, "hermes", "one call at most"),
        (OWN_TAGS, "mistral", "<my_call>"),
        (DESCRIBED, "own", "own chat template writes all"),
    ],
)
def test_init_prefers_a_directorys_template_to_its_name(tmp_path, part, format_, said):
    """A directory named after nothing known got the pythonic format, whatever its model was trained on."""
    with_calls(part).save_pretrained(tmp_path / "my-mistral")
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(chat) + "\n")
    made = propose([str(tmp_path / "chats.jsonl")], str(tmp_path / "my-mistral"), None, "a")
    assert made.settings["model"]["tool_call_format"] == format_
    assert said in made.reasons["model"]
    assert f"tool_call_format: {format_}" in made.text()
