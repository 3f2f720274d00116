"""How an answer ended, by the words of engines and APIs."""

import pytest

from clawpipe.core.conversation.endings import ending_of, ending_of_reason, is_cut_short


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("stop", "completed"),
        ("tool_calls", "completed"),
        ("toolUse", "completed"),  # OpenClaw
        ("STOP", "completed"),  # Gemini
        ("eos_token", "completed"),  # TGI
        ("COMPLETE", "completed"),  # Cohere
        ("length", "truncated"),
        ("MAX_TOKENS", "truncated"),
        ("max_output_tokens", "truncated"),  # Responses
        ("model_length", "truncated"),  # Mistral
        ("content_filter", "aborted"),
        ("content-filter", "aborted"),  # the Vercel AI SDK
        ("SAFETY", "aborted"),
        ("refusal", "aborted"),  # Anthropic
        ("abort", "aborted"),  # vLLM and SGLang
        ("insufficient_system_resource", "aborted"),  # DeepSeek
        ("a word of next year", "aborted"),
        ("", None),
        ("  ", None),
    ],
)
def test_an_answer_is_whole_if_its_source_says_so(reason: str, ending: str | None):
    assert ending_of_reason(reason) == ending


@pytest.mark.parametrize(
    ("source", "status", "reason", "cut"),
    [
        ("imported", "completed", "stop", False),
        ("imported", None, "stop", False),
        ("imported", "partial", "stop", False),
        ("imported", "truncated", "length", True),
        ("imported", "aborted", "stop", True),
        ("captured", None, "length", True),
        ("rollout", None, "length", False),
        ("rollout", "aborted", "stop", False),
    ],
)
def test_only_what_others_recorded_is_cut_short(source: str, status: str | None, reason: str, cut: bool):
    assert is_cut_short({"source": source, "status": status, "finish_reason": reason}) == cut


def test_an_episode_without_a_status_may_end_at_its_limit():
    assert ending_of({"status": None, "finish_reason": "max_turns"}) == "truncated"
    assert ending_of({"status": None, "finish_reason": "stop"}) == "completed"
