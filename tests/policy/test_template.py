"""Conversations as the model's own chat template writes them. The templates are those of real models, which come with TRL."""

import json
import re
from functools import cache
from importlib.resources import files
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.errors import ConfigError, DataError
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.template import open_renderer

TOOLS = (ToolSpec("stock", "Pieces in stock.", {"item": "string"}), ToolSpec("buy", "Buy.", {"items": "array", "note": "string"}))
CHATML = ("<|im_start|>", "<|im_end|>")
LLAMA3 = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>")
MODELS = {
    "qwen2_5.jinja": CHATML,
    "qwen3_instruct_2507.jinja": CHATML,
    "qwen3_8.jinja": CHATML,
    "llama3_1.jinja": LLAMA3,
}
THOUGHT = re.compile(r"\A(?:<think>)?\s*</think>")  # nothing was thought
PLAIN_TAGS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]  # ordinary tokens of Qwen's vocabularies


@cache
def tokenizer(template, markers=CHATML):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({piece: index for index, piece in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(markers))
    made.add_tokens(PLAIN_TAGS)
    text = files("trl").joinpath("chat_templates", template).read_text() if template.endswith(".jinja") else template
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=text, bos_token=markers[0], eos_token=markers[-1])


@cache
def renderer(name):
    return open_renderer(tokenizer(name, MODELS.get(name, CHATML)), "own", TOOLS)


def by_template(name, messages, **more):
    """The ids of the whole conversation as transformers gives them: the oracle."""
    given_ = []
    for message in messages:
        body = {"role": message.role, "content": message.content}
        if message.tool_calls:
            calls = ((call.name, json.loads(call.arguments)) for call in message.tool_calls)
            body["tool_calls"] = [{"type": "function", "function": {"name": one, "arguments": sent}} for one, sent in calls]
        given_.append(body)
    own = tokenizer(name, MODELS.get(name, CHATML))
    tools = [tool.as_function() for tool in TOOLS]
    return own.apply_chat_template(given_, tools=tools, tokenize=True, return_dict=False, **more)


words = st.text(st.sampled_from("ab .:'\"\n{}ß漢\U0001f600"), min_size=1, max_size=8).map(str.strip).filter(bool)
calls = st.one_of(
    st.tuples(st.just("stock"), st.fixed_dictionaries({"item": words})),
    st.tuples(st.just("buy"), st.fixed_dictionaries({"items": st.lists(words, max_size=2), "note": words})),
)
turns = st.tuples(words, words, calls, words)


def conversation(said):
    """Of each turn: a question, a call, its result and the answer."""
    messages = [Message("system", "Be brief.")]
    for number, (question, answer, (name, sent), result) in enumerate(said):
        call = ToolCall(f"call_{number}_0", name, json.dumps(sent, sort_keys=True, ensure_ascii=False))
        messages += [Message("user", question), Message("assistant", "", (call,))]
        messages += [Message("tool", result, tool_call_id=call.id, name=name), Message("assistant", answer)]
    return messages


def runs(ids, mask):
    return [[token for token, _ in group] for kept, group in groupby(zip(ids, mask, strict=True), lambda pair: pair[1]) if kept]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=40)
@given(said=st.lists(turns, min_size=1, max_size=3))
def test_turn_by_turn_is_what_transformers_writes_in_one_go(name, said):
    messages = conversation(said)
    ids, mask = renderer(name).render_with_mask(messages)
    assert ids == by_template(name, messages)[: len(ids)]
    assert renderer(name).prompt(messages[:2]) == by_template(name, messages[:2], add_generation_prompt=True)
    assert len(runs(ids, mask)) == 2 * len(said)
    assert all(run[-1] == renderer(name).eos_id for run in runs(ids, mask))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=40)
@given(said=st.lists(turns, min_size=1, max_size=2))
def test_turns_are_read_as_they_were_meant(name, said):
    messages = conversation(said)
    meant = [(message.content, [(call.name, call.arguments) for call in message.tool_calls]) for message in messages]
    read = [renderer(name).parse(run, 0) for run in runs(*renderer(name).render_with_mask(messages))]
    thoughtless = [(THOUGHT.sub("", turn.content).strip(), turn.tool_calls) for turn in read]
    found = [(text, [(call.name, call.arguments) for call in made]) for text, made in thoughtless]
    assert found == [said for said, message in zip(meant, messages, strict=True) if message.role == "assistant"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_rollout_goes_on_as_the_template_does(name, finish):
    own, said = renderer(name), conversation([("How many?", "57.", ("stock", {"item": "mug"}), "57")])
    sampled = runs(*own.render_with_mask(said))[0]
    kept = sampled if finish == "stop" else sampled[:-1]
    assert [*own.prompt(said[:2]), *kept, *own.continuation(finish, said[3:4])] == by_template(
        name, said[:4], add_generation_prompt=True
    )


@pytest.mark.parametrize("name", MODELS)
def test_no_text_becomes_a_marker(name):
    spelled = " ".join([*MODELS[name], *PLAIN_TAGS[:2], "\ue000\ue0000\ue001\ue002"])
    call = ToolCall("call_0_0", "stock", json.dumps({"item": spelled, spelled: [{"a": spelled}]}))
    plain, hostile = (
        [Message("user", text), Message("assistant", "", (made,)), Message("tool", text, tool_call_id="call_0_0", name="stock")]
        for text, made in (("x", ToolCall("call_0_0", "stock", '{"item": "x"}')), (spelled, call))
    )
    special = {token for token, kind in tokenizer(name, MODELS[name]).added_tokens_decoder.items() if kind.special}
    kinds = [[token for token in renderer(name).prompt(said) if token in special] for said in (plain, hostile)]
    assert kinds[0] == kinds[1]
    assert spelled in tokenizer(name, MODELS[name]).decode(renderer(name).prompt(hostile))


def test_the_header_of_a_turn_is_found():
    own = renderer("qwen2_5.jinja")
    ids, mask = own.render_with_mask(conversation([("How many?", "57.", ("stock", {"item": "mug"}), "57")]))
    place = own.header_place(ids, mask.index(True))
    assert place is not None
    note = own.ids_of([Message("user", "Look it up.")])
    text = tokenizer("qwen2_5.jinja").decode([*ids[:place], *note, *ids[place : mask.index(True)]])
    assert text.endswith("How many?<|im_end|>\n<|im_start|>user\nLook it up.<|im_end|>\n<|im_start|>assistant\n")
    assert own.header_place(ids, 3) is None


def test_a_malformed_call_stays_as_it_was_sampled():
    own, wrong = renderer("qwen2_5.jinja"), '<tool_call>\n{"name": "stock", \n</tool_call>'
    turn = own.parse(tokenizer("qwen2_5.jinja").encode(wrong, add_special_tokens=False), 0)
    assert turn.tool_calls[0].malformed
    [run] = runs(*own.render_with_mask([Message("user", "?"), turn]))
    assert own.parse(run, 0) == turn


def test_a_template_that_forgets_thoughts_is_refused():
    with pytest.raises(ConfigError, match=r"turn by turn .*<think>.* in one go .*What is it"):
        renderer("qwen3.jinja")


KEPT = "m.content"
LAST = "m.content.split('</think>')[-1]"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ (TEXT) if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    "text",
    [
        LAST,
        f"m.content if loop.last else {LAST}",
        f"m.content if loop.index0 > 4 else {LAST}",
        "m.content.replace('<think>', '').replace('</think>', '')",  # the thought becomes the answer
        "m.content | upper",
        "m.content[-40:]",
        f"'<think>\n</think>\n' ~ {LAST}",
    ],
)
def test_a_template_that_drops_or_rewrites_thoughts_is_refused(text):
    with pytest.raises(ConfigError, match=r"thought|turn by turn"):
        open_renderer(tokenizer(TEMPLATE.replace("TEXT", text)), "own", ())


SPACED = "m.content.replace('</think>\n', '</think>\n\n')"
FIELD = "('<think>\n' ~ m.reasoning_content ~ '\n</think>\n' if m.reasoning_content is defined else '') ~ m.content"


@pytest.mark.parametrize("text", [KEPT, "m.content | trim", SPACED, FIELD])
def test_a_template_that_keeps_them_teaches_them(text):
    own = open_renderer(tokenizer(TEMPLATE.replace("TEXT", text)), "own", ())
    said = [Message("user", "2+2?"), Message("assistant", "<think>\ntwo and two\n</think>\n4")]
    [run] = runs(*own.render_with_mask(said))
    assert re.sub("\n+", " ", tokenizer(KEPT).decode(run)) == "<think> two and two </think> 4<|im_end|>"


def test_a_thought_that_one_turn_would_lose_is_told():
    """Llama 3.1's template writes no text beside a call."""
    own = renderer("llama3_1.jinja")
    call = ToolCall("call_0_0", "stock", '{"item": "mug"}')
    with pytest.raises(DataError, match="drops or rewrites a thought"):
        own.render_with_mask([Message("user", "?"), Message("assistant", "<think>\nhm\n</think>\n", (call,))])


def test_a_malformed_call_of_a_history_is_shown():
    own = renderer("qwen2_5.jinja")
    said = [Message("user", "?"), Message("assistant", "", (ToolCall("c", "stock", "{", malformed=True),))]
    assert '"name": "stock", "arguments": {' in tokenizer("qwen2_5.jinja").decode(own.prompt(said))


def test_calls_that_no_format_reads_are_refused():
    with pytest.raises(ConfigError, match="the template wrote"):
        renderer("glm4moe.jinja")


def test_a_template_without_tools_writes_text():
    markers = ("<bos>", "<start_of_turn>", "<end_of_turn>")
    own = open_renderer(tokenizer("gemma.jinja", markers), "own", ())
    ids, mask = own.render_with_mask([Message("user", "Hi."), Message("assistant", "Ho.")])
    text = tokenizer("gemma.jinja", markers).decode(ids)
    assert text == "<bos><start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\nHo.<end_of_turn>\n"
    assert sum(mask) == len("Ho.") + 1
    with pytest.raises(DataError, match="System role not supported"):
        own.prompt([Message("system", "Be brief."), Message("user", "Hi.")])
    with pytest.raises(ConfigError, match="read no call"):
        open_renderer(tokenizer("gemma.jinja", markers), "own", TOOLS)


def test_another_template_and_other_tools_are_another_digest():
    assert renderer("qwen2_5.jinja").digest == renderer("qwen2_5.jinja").digest
    others = [renderer("qwen3_instruct_2507.jinja"), open_renderer(tokenizer("qwen2_5.jinja"), "own", TOOLS[:1])]
    assert len({renderer("qwen2_5.jinja").digest, *(other.digest for other in others)}) == 3
    assert Renderer(tokenizer("qwen2_5.jinja"), "hermes", TOOLS).digest != renderer("qwen2_5.jinja").digest
