"""Which settings of a request change what is drawn."""

from __future__ import annotations

import pytest

from clawpipe.data.wire.draw import NEUTRAL, changes_the_draw, is_constrained, sampling_settings

TOOL = {"type": "function", "function": {"name": "look", "strict": True, "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}

CHANGING = [
    {"top_p": 0.9},
    {"top_k": 40},
    {"top_k": 1},
    {"min_p": 0.05},
    {"typical_p": 0.5},
    {"top_a": 0.1},
    {"tfs_z": 0.95},
    {"repetition_penalty": 1.3},
    {"repeat_penalty": 1.1},
    {"presence_penalty": -0.5},
    {"frequency_penalty": 0.2},
    {"no_repeat_ngram_size": 3},
    {"logit_bias": {"5": 100}},
    {"response_format": {"type": "json_object"}},
    {"response_format": SCHEMA},
    {"text": {"format": {"type": "json_schema"}}},  # of the Responses API
    {"format": "json"},  # Ollama's
    {"guided_json": {}},  # any JSON is still JSON
    {"guided_regex": "a+"},
    {"guided_choice": ["a", "b"]},
    {"structured_outputs": {"regex": "a+"}},
    {"regex": "a+"},
    {"ebnf": "root ::= 'a'"},
    {"grammar": "root ::= 'a'"},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
    {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}},
    {"tool_choice": "any"},
    {"function_call": {"name": "look"}},
    {"min_tokens": 50},
    {"bad_words": ["x"]},
    {"allowed_token_ids": [1, 2]},
    {"ignore_eos": True},
    {"use_beam_search": True},
    {"best_of": 4},
    {"n": 2, "best_of": 3},
    {"xtc_probability": 0.1},
    {"dry_multiplier": 0.8},
    {"mirostat": 2},
    {"dynatemp_range": 0.5},
    {"thinking_token_budget": 100},
    {"extra_body": {"guided_json": {"type": "object"}}},
    {"options": {"repeat_penalty": 1.1}},
    {"generationConfig": {"topP": 0.9}},
    {"top_p": "0.9"},
    {"top_p": "most of it"},
    {"a_sampler_of_next_year": 0.5},
    {"temperature": 1e-8},  # drawn at 0.01 by vLLM, greedily by others
    {"temperature": "warm"},
]
FREE = [
    {},
    {**NEUTRAL},
    {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1},
    {"top_p": None, "response_format": None, "tool_choice": None, "guided_json": None},
    {"top_p": "1.0"},
    {"temperature": 0},
    {"temperature": "0.7"},
    {"logit_bias": {}},
    {"logit_bias": {"5": 0}},
    {"response_format": {"type": "text"}},
    {"tools": [TOOL]},  # strict with a free choice is a wish
    {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
    {"tool_choice": "none"},
    {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}},
    {"min_tokens": 0, "bad_words": [], "ignore_eos": False, "use_beam_search": False},
    {"n": 4, "best_of": 4},
    {"xtc_probability": 0, "xtc_threshold": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "mirostat": 0, "mirostat_tau": 5},
    {"temperature": 0.7, "seed": 1, "stop": ["a"], "max_tokens": 5, "logprobs": True, "top_logprobs": 3},
    {
        **{"metadata": {"a": "b"}, "service_tier": "auto", "reasoning_effort": "low", "verbosity": "low", "user": "u"},
        **{"modalities": ["text"], "safety_identifier": "x", "prompt_cache_key": "k", "store": False},
    },
    {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
]


@pytest.mark.parametrize("settings", CHANGING, ids=str)
def test_a_setting_that_masks_or_penalises_changes_the_draw(settings):
    assert changes_the_draw({"model": "m", "messages": []} | settings)


@pytest.mark.parametrize("settings", FREE, ids=str)
def test_a_setting_at_its_neutral_value_changes_nothing(settings):
    assert changes_the_draw({"model": "m", "messages": []} | settings) is None


def test_the_defaults_of_an_engine_hold_where_nothing_is_named():
    defaults = {"top_p": 0.95, "repetition_penalty": 1.05}
    assert changes_the_draw({}, defaults) == "top_p"
    assert changes_the_draw({"top_p": 1}, defaults) == "repetition_penalty"
    assert changes_the_draw({"top_p": 1, "repetition_penalty": 1}, defaults) is None
    assert changes_the_draw({"top_p": None}, defaults) == "top_p"


def test_unknown_defaults_leave_a_draw_free_that_names_all():
    assert changes_the_draw({}, None) == "top_p"
    assert changes_the_draw({"top_p": 1}, None) == "top_k"
    assert changes_the_draw({**NEUTRAL}, None) is None
    assert changes_the_draw({**NEUTRAL, "top_k": 20}, None) == "top_k"


def test_only_known_settings_count_in_records_of_other_things():
    record = {"id": 7, "text": "hello", "format": "chat", "source": "web", "topP": 0.9, "kwargs": {"min_p": 0.1, "x": 1}}
    assert sampling_settings(record) == {"top_p": 0.9, "min_p": 0.1}


@pytest.mark.parametrize(
    ("request_", "held"),
    [
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "stock"}}}, True),
        ({"response_format": {"type": "json_object"}}, True),
        ({"text": {"format": {"type": "json_schema"}}}, True),
        ({"extra_body": {"guided_regex": "a+"}}, True),
        ({"tools": [{"function": {"strict": True}}], "tool_choice": "auto"}, False),
        ({"response_format": {"type": "text"}, "top_p": 0.5, "logit_bias": {"5": 1}, "min_tokens": 3}, False),
    ],
)
def test_a_grammar_is_more_than_another_draw(request_, held):
    assert is_constrained(request_) is held
