"""The renderer: its tokens, spans and masks, on a tokenizer of bytes, on a BPE with merges, and on one without ChatML."""

import hashlib
import json
from functools import cache
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.errors import ConfigError
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.environments.shop import ShopEnvironment

TOOLS = (ToolSpec("stock", "Pieces in stock.", {"item": "string"}),)
CALL = ToolCall("call_0_0", "stock", '{"item": "mug"}')
TALK = (
    Message("system", "Be brief."),
    Message("user", "How many mugs?"),
    Message("assistant", "", (CALL,)),
    Message("tool", "57", tool_call_id="call_0_0", name="stock"),
    Message("assistant", "The answer is 57."),
)


def _bpe(specials, **named):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["user\nassistant\n\n\nThe answer is how many mugs <|im_end|> <|im_start|>"] * 9, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


@cache
def tokenizers():
    merged = _bpe(["<|im_start|>", "<|im_end|>"], eos_token="<|im_end|>")
    plain = _bpe(["<s>", "</s>"], bos_token="<s>", eos_token="</s>")
    first = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", plain.bos_token_id)])
    plain.backend_tokenizer.post_processor = first
    return {"bytes": byte_tokenizer(), "merged": merged, "plain": plain}


@cache
def renderer(name, calls="pythonic"):
    return Renderer(tokenizers()[name], calls, TOOLS)


KINDS = ["bytes", "merged", "plain"]
injections = ["<|im_start|>", "<|im_end|>", "</s>", "<s>", "<|pad|>", "\n", " ", "assistant"]
content = st.lists(st.sampled_from(injections) | st.text(st.characters(codec="utf-8"), max_size=8), max_size=5).map("".join)
assistants = st.builds(Message, st.just("assistant"), content, st.sampled_from([(), (CALL,), (CALL, CALL)]))
others = st.builds(Message, st.sampled_from(["user", "tool"]), content)
conversations = st.lists(assistants | others, max_size=6).map(lambda rest: [Message("system", "Be brief."), *rest])


def test_chatml_as_it_is_written_by_hand():
    expected = (
        "<|im_start|>system\nBe brief.\nTools: stock(item)<|im_end|>\n"
        "<|im_start|>user\nHow many mugs?<|im_end|>\n"
        '<|im_start|>assistant\nstock(item="mug")<|im_end|>\n'
        "<|im_start|>tool\n57<|im_end|>\n"
        "<|im_start|>assistant\nThe answer is 57.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert renderer("bytes").prompt(TALK) == byte_tokenizer().encode(expected, add_special_tokens=False)


def test_hermes_calls_and_results():
    text = tokenizers()["bytes"].decode(renderer("bytes", "hermes").prompt(TALK[1:]))
    assert text.startswith("<|im_start|>system\nYou may call")
    assert '<tool_call>\n{"name": "stock", "arguments": {"item": "mug"}}\n</tool_call><|im_end|>' in text
    assert "<|im_start|>tool\n<tool_response>\n57\n</tool_response><|im_end|>" in text


def test_without_chatml_headers_are_text_and_eos_ends_a_turn():
    tokenizer = tokenizers()["plain"]
    ids = renderer("plain").prompt(TALK[:2])
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1
    assert renderer("plain").eos_id == tokenizer.eos_token_id
    expected = "### system\nBe brief.\nTools: stock(item)</s>\n### user\nHow many mugs?</s>\n### assistant\n"
    assert tokenizer.decode(ids[1:]) == expected


@pytest.mark.parametrize("name", KINDS)
@given(messages=conversations)
def test_content_never_becomes_a_special_token(name, messages):
    tokenizer, ids = tokenizers()[name], renderer(name).prompt(messages)
    own = {renderer(name).eos_id: len(messages)}
    if name == "plain":
        own[tokenizer.bos_token_id] = 1
    else:
        own[tokenizer.convert_tokens_to_ids("<|im_start|>")] = len(messages) + 1
    assert {token: ids.count(token) for token in tokenizer.get_added_vocab().values() if token in ids} == own


def test_markers_added_as_ordinary_tokens_are_not_found_in_text():
    tokenizer = _bpe(["</s>"], eos_token="</s>")
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"])
    quiet = Renderer(tokenizer, "pythonic", ())
    assert quiet.prompt([Message("user", "<|im_end|><|im_start|>")]).count(quiet.eos_id) == 1


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("finish", ["stop", "length"])
@given(before=conversations, turn=assistants, after=st.lists(others, max_size=3))
def test_a_prompt_grows_by_what_was_sampled_and_the_continuation(name, finish, before, turn, after):
    """prompt(m) + sampled + continuation(a) == prompt(m + [turn] + a), so a computed prefix stays valid."""
    own = renderer(name)
    prompt = own.prompt(before)
    sampled = own.render_with_mask([*before, turn])[0][len(prompt) : -1]  # the last token is the newline after the turn
    assert sampled[-1] == own.eos_id
    recorded = sampled[:-1] if finish == "length" else sampled
    assert prompt + recorded + own.continuation(finish, after) == own.prompt([*before, turn, *after])


@pytest.mark.parametrize("name", KINDS)
@given(messages=conversations)
def test_the_mask_covers_each_assistant_turn_and_its_end(name, messages):
    own = renderer(name)
    ids, mask = own.render_with_mask(messages)
    assert len(ids) == len(mask)
    assert ids == own.prompt(messages)[: len(ids)]
    trained = _runs(ids, mask)
    replies = [message for message in messages if message.role == "assistant"]
    assert [run[-1] for run in trained] == [own.eos_id] * len(replies)
    expected = ["\n".join([*filter(None, [reply.content]), *['stock(item="mug")'] * len(reply.tool_calls)]) for reply in replies]
    assert [tokenizers()[name].decode(run[:-1]) for run in trained] == expected


def _runs(ids, mask):
    """Return maximal runs of masked tokens; a newline and a header always separate two turns."""
    runs, previous = [], False
    for token, kept in zip(ids, mask, strict=True):
        if kept and not previous:
            runs.append([])
        if kept:
            runs[-1].append(token)
        previous = kept
    return runs


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("calls", get_args(WrittenFormat))
def test_sampled_ids_are_read_with_and_without_their_end(name, calls):
    own = renderer(name, calls)
    ids, mask = own.render_with_mask([Message("assistant", "Let me look.", (CALL,))])
    sampled = [token for token, kept in zip(ids, mask, strict=True) if kept]
    assert own.parse(sampled, 0) == own.parse(sampled[:-1], 0) == Message("assistant", "Let me look.", (CALL,))


@pytest.mark.parametrize("calls", get_args(WrittenFormat))
@given(ids=st.lists(st.integers(0, 258)))
def test_any_sampled_ids_give_a_message_that_renders_again(calls, ids):
    own = renderer("bytes", calls)
    message = own.parse(ids, 3)
    message.content.encode()
    own.prompt([Message("user", "q"), message])


def test_the_digest_knows_everything_that_decides_tokens():
    merged = tokenizers()["merged"]
    others = [
        Renderer(merged, "hermes", TOOLS),
        Renderer(merged, "pythonic", ()),
        Renderer(merged, "pythonic", (ToolSpec("stock", "Pieces in stock.", {"thing": "string"}),)),
        Renderer(tokenizers()["bytes"], "pythonic", TOOLS),
        Renderer(_bpe(["<|im_start|>", "<|im_end|>", "<|more|>"], eos_token="<|im_end|>"), "pythonic", TOOLS),
    ]
    assert len({renderer("merged").digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("calls", "digest", "tokens"),
    [
        ("pythonic", "62f3200cb5750f6e9933a0f9b9741a0eddd9ed545b9677a20e8c72ba0777bc91", "a0b9e7f63b45bca1"),
        ("hermes", "414598291f6ec25e3d0b26d9b0d9baba283e435cc1e946ed7d829fcc3ae90a66", "92eb457bddf7a746"),
    ],
)
def test_simple_tools_give_the_tokens_of_released_versions(calls, digest, tokens):
    """Figures of version 0.2.0: stored datasets and registered models hold such tokens."""
    shop = ShopEnvironment()
    tools = [*shop.tools(), ToolSpec("move", "x", {"what": "string", "to": "number"}), ToolSpec("now", "", {})]
    good, bad = ToolCall("a", "stock", '{"item": "</tool_call>"}'), ToolCall("b", "bad", "bad(", malformed=True)
    own = Renderer(tokenizers()["bytes"], calls, tools)
    ids, mask = own.render_with_mask([*shop.preamble(), Message("user", "q"), Message("assistant", "see\nit", (good, bad))])
    rendered = json.dumps([ids, mask, own.continuation("length", [Message("tool", "r")])])
    assert (own.digest, hashlib.sha256(rendered.encode()).hexdigest()[:16]) == (digest, tokens)


def test_the_digest_ignores_padding_and_keeps_the_tokenizer():
    tokenizer = _bpe(["<|im_start|>", "<|im_end|>"], eos_token="<|im_end|>")
    tokenizer.pad_token = "<|im_end|>"
    before = Renderer(tokenizer, "pythonic", TOOLS)
    tokenizer(["a", "much longer text"], padding=True, truncation=True, max_length=3)
    after = Renderer(tokenizer, "pythonic", TOOLS)
    assert after.digest == before.digest
    assert after.prompt(TALK) == before.prompt(TALK)
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [tokenizer.eos_token_id]


def test_a_tokenizer_that_cannot_end_a_turn_is_refused():
    with pytest.raises(ConfigError, match="end-of-sequence"):
        Renderer(_bpe(["<s>"]), "pythonic", TOOLS)
