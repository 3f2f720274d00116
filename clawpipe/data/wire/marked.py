"""Conversations that a chat template has written into one text, with its markers: ChatML and Llama 3.

    <|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>
    <|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>

To a model these markers are tokens. Read as words, they would teach it to spell them.
"""

from __future__ import annotations

import re

_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>")
_BEFORE = re.compile(r"\s*(?:<s>|<\|begin_of_text\|>|<\|endoftext\|>)?\s*")
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\s*|(?=<\|im_start\|>)|\Z)", re.DOTALL)
_LLAMA3 = re.compile(
    r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*(.*?)(?:<\|eo[tm]_id\|>\s*|(?=<\|start_header_id\|>)|\Z)", re.DOTALL
)
_OPENED = ("", "<think>")  # what a template may write of the answer that it asks for


def without_end(text: str) -> str:
    """Return a text without the markers at its end, and without space behind and between them."""
    end, kept = len(text.rstrip()), len(text)
    while mark := next((one for one in _ENDS if text.endswith(one, 0, end)), None):
        kept = end = end - len(mark)
        while end and text[end - 1].isspace():
            end -= 1
    return text[:kept]


def marked_dialogue(text: str) -> list[tuple[str, str]]:
    """Return speakers and words in a text that a template wrote, without the beginning of an answer; none for any other text."""
    start = _BEFORE.match(text)
    at = start.end() if start else 0
    pattern = next((one for one in (_CHATML, _LLAMA3) if one.match(text, at)), None)
    found = list[tuple[str, str]]()
    while pattern and at < len(text):
        one = pattern.match(text, at)
        if one is None:
            return []
        found.append((one[1], one[2]))
        at = one.end()
    asks = bool(found) and found[-1][0] == "assistant" and found[-1][1].strip() in _OPENED
    return found[:-1] if asks else found
