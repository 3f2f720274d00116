"""Texts that chat templates wrote: the messages in them, and the markers at the end of answers."""

import pytest

from clawpipe.data.wire.marked import marked_dialogue, without_end

CHATML = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
LLAMA3 = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
LLAMA3 += "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
ASKED = [("system", "Be brief."), ("user", "2+2?")]


@pytest.mark.parametrize("prompt", [CHATML, LLAMA3, f"{CHATML}<think>\n"])
def test_a_prompt_is_the_messages_before_its_answer(prompt):
    assert marked_dialogue(prompt) == ASKED


@pytest.mark.parametrize("text", [f"{CHATML}4<|im_end|>\n", f"{CHATML}4", f"{LLAMA3}4<|eot_id|>"])
def test_a_whole_text_has_its_answer(text):
    assert marked_dialogue(text) == [*ASKED, ("assistant", "4")]


@pytest.mark.parametrize(
    "text", ["", "2+2?", "What is <|im_start|>?", "<|im_start|>", f"See:\n{CHATML}", f"{CHATML}4<|im_end|>\nand"]
)
def test_a_text_with_words_outside_markers_is_a_text(text):
    assert marked_dialogue(text) == []


def test_only_markers_at_the_end_are_removed():
    assert without_end("4 <|im_end|>\n<|endoftext|> \n") == "4 "
    assert [without_end(text) for text in ("4 \n", "<|im_end|> ends", "a |>")] == ["4 \n", "<|im_end|> ends", "a |>"]
    assert without_end("<|end|>" * 100_000) == ""
