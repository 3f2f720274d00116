"""A Modelfile says to Ollama what the policy was trained to read. Its template is run by Go, where Go is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.model.policy.frames import frame_of
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.serve.export.ollama import Episode, template_of, write_modelfile

STOCK = ToolSpec("stock", "Pieces in stock.", {"item": "string"})
PRICE = ToolSpec("price", "What one costs.", {"item": "string", "net": "boolean"})
QUESTION = Message("user", "How many mugs?")
CALL = ToolCall("call_1_0", "stock", '{"item": "mug"}')
OTHER = ToolCall("call_1_1", "price", '{"item": "mug", "net": true}')
TALK = (
    QUESTION,
    Message("assistant", "", (CALL,)),
    Message("tool", "57", tool_call_id="call_1_0", name="stock"),
    Message("assistant", "57.\nAnd the price?"),
    Message("user", "Both, please."),
    Message("assistant", "I look.", (CALL, OTHER)),
    Message("tool", "57", tool_call_id="call_1_0", name="stock"),
    Message("tool", "3.20", tool_call_id="call_1_1", name="price"),
)
SYSTEM = Message("system", "Be brief.")


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def llama3():
    made = byte_tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]})
    return made


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """rendered(template, messages, tools): the text that Go makes of it, as Ollama fills it in."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    program = tmp_path_factory.mktemp("go") / "render"
    source = Path(__file__).with_name("render.go")
    subprocess.run(
        ["go", "build", "-o", str(program), str(source)], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(program.parent)}
    )

    def run(template: str, messages, tools=()) -> str:
        data = {"Messages": [_message(message) for message in messages], "Tools": [_tool(tool) for tool in tools]}
        given = json.dumps({"template": template, "data": data})
        return subprocess.run([str(program)], input=given, capture_output=True, text=True, check=True).stdout

    return run


def _message(message: Message) -> dict:
    calls = [{"Function": {"Name": call.name, "Arguments": json.loads(call.arguments)}} for call in message.tool_calls]
    return {"Role": message.role, "Content": message.content, "ToolCalls": calls}


def _tool(tool: ToolSpec) -> dict:
    return {"Function": {"Name": tool.name, "Description": tool.description, "Parameters": tool.parameters}}


def trained_on(tokenizer, calls, messages, tools=()) -> str:
    return tokenizer.decode(Renderer(tokenizer, calls, tools).prompt(messages))


def template(tokenizer, calls) -> str:
    return template_of(frame_of(tokenizer, calls), calls)


@pytest.mark.parametrize("calls", ["hermes", "llama3", "mistral", "pythonic", "qwen3-coder"])
@pytest.mark.parametrize("start", [(), (SYSTEM,)], ids=["bare", "system"])
def test_ollama_writes_what_the_policy_was_trained_on(rendered, tokenizer, llama3, calls, start):
    words = llama3 if calls == "llama3" else tokenizer
    with_calls = calls in ("hermes", "llama3", "mistral")
    talk = [*start, *(TALK if with_calls else (QUESTION, Message("assistant", "Who?"), Message("tool", "57"), SYSTEM))]
    assert rendered(template(words, calls), talk) == trained_on(words, calls, talk)


@pytest.mark.parametrize("calls", ["hermes", "llama3", "mistral"])
@pytest.mark.parametrize("start", [(), (SYSTEM,)], ids=["bare", "system"])
def test_ollama_describes_tools_as_in_training(rendered, tokenizer, llama3, calls, start):
    words = llama3 if calls == "llama3" else tokenizer
    found = rendered(template(words, calls), [*start, *TALK], (STOCK, PRICE))
    wanted = trained_on(words, calls, [*start, *TALK], (STOCK, PRICE))
    for tool in (STOCK, PRICE):  # Go writes their schemas without spaces, and its keys in the order of the alphabet
        go = json.dumps(tool.parameters, separators=(",", ":"), sort_keys=True)
        wanted = wanted.replace(json.dumps(tool.parameters), go)
    assert found == wanted


def test_text_in_a_call_stays_json(rendered, tokenizer):
    call = ToolCall("call_1_0", "stock", json.dumps({"item": 'a "b" <c>', "more": [1, None, {"x": 2.5}]}))
    text = rendered(template(tokenizer, "hermes"), [QUESTION, Message("assistant", "", (call,))])
    _, spelled, _ = text.split("<|im_start|>assistant\n")
    [read] = Renderer(tokenizer, "hermes", ()).parse(tokenizer.encode(spelled.split("<|im_end|>")[0]), 1).tool_calls
    assert (read.name, json.loads(read.arguments)) == ("stock", json.loads(call.arguments))


CHATML = '''\
# shop version 3: ollama create NAME -f Modelfile
# Ollama reads no calls in pythonic: they stay in the answer's text, and SYSTEM describes the tools
FROM ./model.gguf
TEMPLATE """{{- range $place, $message := .Messages }}{{ $system := and (eq $place 0) (eq .Role "system") }}\
{{ if or $system (and (eq $place 0) $.Tools) }}<|im_start|>system
{{ if $system }}{{ .Content }}{{ end }}<|im_end|>
{{ end }}{{ if eq .Role "tool" }}<|im_start|>tool
{{ .Content }}<|im_end|>
{{ else if not $system }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}{{ end }}<|im_start|>assistant
"""
PARAMETER stop "<|im_end|>"
PARAMETER stop "<|im_start|>"
SYSTEM """Be brief.
Tools: stock(item)"""
MESSAGE user """How many mugs?"""
MESSAGE assistant """stock(item="mug")"""
'''


@pytest.fixture
def modelfile(tokenizer, tmp_path):
    """modelfile(calls, episode): what is left out, and the text."""
    tokenizer.save_pretrained(tmp_path / "base")

    def make(calls, episode):
        left_out = write_modelfile(tmp_path, "model.gguf", tmp_path / "base", calls, episode)
        return left_out, (tmp_path / "Modelfile").read_text()

    return make


def test_a_modelfile_begins_episodes_as_training_did(modelfile):
    episode = Episode("shop version 3", (STOCK,), (SYSTEM, QUESTION, Message("assistant", "", (CALL,))))
    left_out, text = modelfile("pythonic", episode)
    assert text == CHATML
    assert left_out == ["Ollama reads no calls in pythonic: they stay in the answer's text, and SYSTEM describes the tools"]


OWN = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def test_a_models_own_template_stays_in_the_weights(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = OWN
    tokenizer.save_pretrained(tmp_path / "base")
    left_out = write_modelfile(tmp_path, "model.gguf", tmp_path / "base", "own", Episode(preamble=(SYSTEM, QUESTION)))
    text = (tmp_path / "Modelfile").read_text()
    assert left_out == ["no TEMPLATE: Ollama runs the model's own chat template, which is in the file of weights"]
    lines = ["FROM ./model.gguf", 'PARAMETER stop "<|im_end|>"', 'SYSTEM """Be brief."""', 'MESSAGE user """How many mugs?"""']
    assert [line for line in text.splitlines() if not line.startswith("#")] == lines


def test_tools_without_a_system_message_are_in_it(modelfile):
    assert 'SYSTEM """Tools: stock(item)"""\n' in modelfile("pythonic", Episode(tools=(STOCK,)))[1]


def test_what_a_modelfile_cannot_hold_is_said(modelfile):
    left_out, text = modelfile("hermes", Episode(tools=(STOCK,), preamble=(SYSTEM, *TALK)))
    assert 'SYSTEM """Be brief."""' in text
    assert "MESSAGE" not in text
    assert left_out == ["the examples at the beginning of an episode: they hold results of tools, which a Modelfile cannot"]
    left_out, text = modelfile("hermes", Episode(preamble=(Message("system", 'Write """docstrings""".'),)))
    assert "SYSTEM" not in text
    assert "three quotes in a row" in left_out[0]
    assert all(f"# {note}" in text for note in left_out)
