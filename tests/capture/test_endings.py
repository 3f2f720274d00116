"""How an answer ended, for the failure forms of the engines that people run, and which replies teach."""

from __future__ import annotations

import pytest

from clawpipe.data.capture.endings import ending_of_answer
from clawpipe.data.capture.records import Answer, Turn
from clawpipe.data.capture.untaught import fault_of, holds_more_than_text

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}


@pytest.mark.parametrize(
    ("reasons", "transport", "failed", "ending"),
    [
        (["stop"], "marked", False, "complete"),
        (["length"], "marked", False, "complete"),
        (["tool_calls"], "marked", False, "complete"),
        (["function_call"], "marked", False, "complete"),
        (["content_filter"], "marked", False, "complete"),  # the engine ended it in order; what it says is not whole
        (["stop", "length"], "marked", False, "complete"),
        (["stop"], "left", False, "complete"),  # its client had all of it
        (["stop"], "marked", True, "broken"),
        (["stop"], "left", True, "broken"),
        (["stop"], "lost", False, "broken"),
        ([None], "marked", False, "broken"),
        ([""], "marked", False, "broken"),
        (["stop", None], "marked", False, "broken"),
        ([None], "left", False, "cancelled"),
        (["stop", None], "left", False, "cancelled"),
        (["error"], "marked", False, "broken"),
        (["abort"], "marked", False, "broken"),
        (["Abort"], "left", False, "broken"),
        (["insufficient_system_resource"], "marked", False, "broken"),
        (["load"], "marked", False, "broken"),
        ([], "marked", False, "broken"),
        ([], "left", False, "cancelled"),
    ],
)
def test_the_ending_follows_from_what_was_said(reasons, transport, failed, ending):
    assert ending_of_answer(reasons, transport, failed) == ending


def turn(messages=(), ending="complete", **fields):
    fields = {"turn_type": "main", "session_from": "x", "turn_type_from": "x"} | fields
    return Turn("t", 1.0, "k", "s", request={"messages": [*messages]}, answers=[], ending=ending, **fields)


@pytest.mark.parametrize(
    ("messages", "ending", "reason", "fault"),
    [
        ([], "complete", "stop", None),
        ([], "complete", "length", None),  # truncated, which its row says
        ([], "complete", "end_turn", None),
        ([], "complete", None, "no finish reason"),  # as segments of earlier versions hold
        ([], "complete", "", "no finish reason"),
        ([], "complete", "content_filter", "filtered or aborted"),
        ([], "complete", "SAFETY", "filtered or aborted"),
        ([], "complete", "a word of tomorrow", "filtered or aborted"),
        ([], "broken", "stop", "broken"),
        ([], "cancelled", None, "cancelled"),
        ([{"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]}], "complete", "stop", "parts that are no text"),
    ],
)
def test_a_reply_with_a_fault_does_not_teach(messages, ending, reason, fault):
    assert fault_of(turn(messages, ending), Answer({"role": "assistant", "content": "so"}, reason)) == fault


def test_a_drawn_or_spoken_answer_does_not_teach():
    for beside in ({"images": [PICTURE]}, {"audio": {"id": "a", "data": "UklGR"}}, {"content": [PICTURE]}):
        assert fault_of(turn(), Answer({"role": "assistant", "content": ""} | beside, "stop")) == "parts that are no text"


@pytest.mark.parametrize(
    "message",
    [
        {"content": [PICTURE]},
        {"content": [{"type": "input_image", "image_url": "https://x.example/a.png"}]},
        {"content": [{"type": "image", "source": {"type": "base64", "data": "iVBOR"}}]},
        {"content": [{"type": "input_audio", "input_audio": {"data": "UklGR", "format": "wav"}}]},
        {"content": [{"type": "file", "file": {"file_id": "f"}}]},
        {"content": [{"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}}]},
        {"content": [{"image_url": {"url": "https://x.example/a.png"}}]},
        {"content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "seen"}, PICTURE]}]},
        {"content": PICTURE},
        {"content": "look", "images": ["iVBOR"]},
        {"content": "look", "attachments": [{"name": "a.pdf"}]},
    ],
)
def test_pictures_sounds_and_files_are_found_wherever_they_are(message):
    assert holds_more_than_text([{"role": "system", "content": "Look."}, {"role": "user"} | message])


@pytest.mark.parametrize(
    "message",
    [
        {"content": "a text"},
        {"content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"text": "c"}, "d"]},
        {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "refusal", "refusal": "No."}]},
        {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "57"}]},
        {"content": "a", "images": [], "audio": None},
    ],
)
def test_texts_thoughts_and_calls_are_text(message):
    assert not holds_more_than_text([{"role": "user"} | message])
