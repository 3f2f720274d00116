"""Whether a request changes the draw of tokens: whether they are sampled from anything but softmax(logits / temperature).

Log-probs of a changed draw are of no use to an importance ratio, whatever their kind. Raw ones are those of the model's own
distribution, which was not sampled from; tempered ones are those of what a mask or a penalty left, which a trainer cannot
repeat: it computes them over the whole vocabulary.

Settings count by their values: `top_p: 1` or a penalty of 0 changes nothing. A field that is not known here is taken to change the
draw, because engines keep adding samplers; the fields that do not are listed in `_HARMLESS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from clawpipe.core.basics.json_types import JsonObject

# What a request has to name to be independent of the engine's own defaults, with the values that change nothing.
NEUTRAL: JsonObject = {
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
_RANGES: Mapping[str, tuple[float, float]] = {  # of the values that change nothing
    **dict.fromkeys(("top_p", "typical_p", "typical", "tfs", "tfs_z"), (1, inf)),
    **dict.fromkeys(("top_k", "top_a", "min_p", "top_n_sigma", "epsilon_cutoff", "eta_cutoff"), (-inf, 0)),
    **dict.fromkeys(("repetition_penalty", "repeat_penalty", "encoder_repetition_penalty"), (1, 1)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "penalty_alpha", "no_repeat_ngram_size"), (0, 0)),
    **dict.fromkeys(("dry_multiplier", "xtc_probability", "smoothing_factor", "dynatemp_range"), (-inf, 0)),
    **dict.fromkeys(("mirostat", "mirostat_mode", "min_tokens", "min_length", "min_new_tokens"), (-inf, 0)),
    **dict.fromkeys(("guidance_scale", "cfg_scale", "num_beams"), (-inf, 1)),
}
_GRAMMARS = (  # also an empty schema: any JSON is still JSON
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "structural_tag"),
    *("json_schema", "regex", "ebnf", "grammar", "response_schema"),
)
_FORMATS = ("tool_choice", "function_call", "response_format", "format", "text")  # by their values
_SWITCHES = (  # what is off or empty changes nothing
    *("bad_words", "bad_words_ids", "allowed_token_ids", "logits_processors", "logits_processor", "custom_logit_processor"),
    *("samplers", "sampler_order", "ignore_eos", "use_beam_search", "watermark", "negative_prompt", "suppress_tokens"),
    *("vllm_xargs", "thinking_token_budget", "thinking_budget", "max_thinking_tokens"),
)
_HARMLESS = frozenset(
    (
        # what is asked, and how long and how often it is answered
        *("model", "models", "messages", "prompt", "input", "system", "instructions", "tools", "functions", "documents", "suffix"),
        *("n", "candidate_count", "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"),
        *("stop", "stop_sequences", "stop_token_ids", "include_stop_str_in_output", "seed", "truncation"),
        *("reasoning_effort", "reasoning", "thinking", "enable_thinking", "verbosity", "modalities", "audio", "prediction"),
        *("parallel_tool_calls", "web_search_options", "previous_response_id", "conversation", "background", "think"),
        # how the prompt is written
        *("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "add_special_tokens"),
        *("truncate_prompt_tokens", "mm_processor_kwargs", "num_ctx", "num_keep", "safety_settings"),
        # what is returned, and how
        *("stream", "stream_options", "logprobs", "top_logprobs", "prompt_logprobs", "return_token_ids", "echo", "include"),
        *("return_tokens_as_token_ids", "include_reasoning", "skip_special_tokens", "spaces_between_special_tokens", "usage"),
        *("timings_per_token", "return_progress", "details", "decoder_input_details", "response_mime_type", "response_logprobs"),
        # who asks, and where it runs
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("session_id", "parent_session_id", "turn_type", "session_done", "request_id", "priority", "cache_salt", "keep_alive"),
        *("cache_prompt", "id_slot", "kv_transfer_params", "provider", "route", "transforms", "plugins", "timeout", "num_retries"),
        *("api_base", "base_url", "custom_llm_provider", "extra_headers", "extra_query", "caching", "headers"),
        # settings of samplers that are off unless another field turns them on
        *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_threshold", "mirostat_eta"),
        *("mirostat_tau", "dynatemp_exponent", "smoothing_curve", "repeat_last_n", "penalize_nl", "min_keep", "length_penalty"),
        "early_stopping",
    )
)
_HOLDERS = (  # objects in which clients of other libraries put the same settings
    *("extra_body", "options", "sampling_params", "generation_config", "generation_params", "parameters", "model_kwargs"),
    *("optional_params", "model_parameters", "invocation_params", "inference_config", "kwargs"),
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_COLDEST = 0.01  # temperature at which every engine draws as it is told
_ELSEWHERE = ("text", "format", "regex", "grammar")  # names that records of other kinds give to other things
_NEUTRAL_DEFAULTS: Mapping[str, Any] = {}


def changes_the_draw(request: Mapping[str, Any], engine_defaults: Mapping[str, Any] | None = _NEUTRAL_DEFAULTS) -> str | None:
    """Return a setting by which a request changes the draw; None if tokens are drawn from the policy itself.

    Args:
        request: a request of any of the interfaces, as it was sent or logged.
        engine_defaults: the engine's values of settings that the request does not name; None: they are unknown, or known to change
            the draw, so that the request has to name each setting of `NEUTRAL` itself.
    """
    asked = dict(_settings(request))
    if engine_defaults is None:
        unnamed = next((name for name in NEUTRAL if name not in asked), None)
        if unnamed:
            return unnamed
    settings = {**dict(_settings(engine_defaults or {})), **asked}
    return next((name for name, value in settings.items() if _changes(name, value, settings)), None)


def is_constrained(request: Mapping[str, Any]) -> bool:
    """Whether a request holds its answer to a grammar: a forced call, a JSON Schema, a regular expression. Such a turn says less of
    the policy than of the grammar, so it is a side turn."""
    settings = dict(_settings(request))
    return any(name in settings and _changes(name, settings[name], settings) for name in (*_GRAMMARS, *_FORMATS))


def sampling_settings(record: Mapping[str, Any]) -> JsonObject:
    """Return the settings in a record that holds other things beside them, where a field that is not known says nothing."""
    known = {*_RANGES, *_GRAMMARS, *_SWITCHES, *_RULES} - {*_ELSEWHERE}
    return {name: value for name, value in _settings(record) if name in known}


def _settings(request: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are not null, by their names in snake case, with those of nested objects of settings."""
    for given, value in request.items():
        name = _CAPITAL.sub("_", given).lower()
        if name in _HOLDERS and isinstance(value, Mapping):
            yield from _settings(value)
        elif value is not None:
            yield name, value


def _changes(name: str, value: Any, settings: Mapping[str, Any]) -> bool:
    if name in _HARMLESS:
        return False
    if name in _RANGES:
        low, high = _RANGES[name]
        return not low <= number_of(value) <= high
    if name in _GRAMMARS:
        return value is not False
    if name in _SWITCHES:
        return bool(value)
    return _RULES[name](value, settings) if name in _RULES else True


def number_of(value: Any) -> float:
    """Return a number, also of a text that engines take for one; NaN, which is in no range, for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _is_forced(choice: Any) -> bool:
    """Whether a choice of tools forces a call. `auto` leaves the draw free, also with strict tools: there strict is a wish."""
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        inner = choice.get("allowed_tools")
        allowed = inner if isinstance(inner, Mapping) else choice
        return allowed.get("mode") == "required" if kind == "allowed_tools" else kind not in ("auto", "none")
    return choice not in ("auto", "none")


def _is_format(form: Any) -> bool:
    """Whether a format of answers is more than plain text."""
    kind = form.get("type") if isinstance(form, Mapping) else form
    return bool(form) and kind != "text"


_RULES = {
    # vLLM draws at 0.01 for anything below it, and others take the likeliest token, so nobody knows what was drawn from.
    "temperature": lambda heat, _: not (number_of(heat) == 0 or number_of(heat) >= _COLDEST),
    "tool_choice": lambda choice, _: _is_forced(choice),
    "function_call": lambda choice, _: _is_forced(choice),
    "response_format": lambda form, _: _is_format(form),
    "format": lambda form, _: _is_format(form),
    "text": lambda text, _: isinstance(text, Mapping) and _is_format(text.get("format")),
    "logit_bias": lambda bias, _: any(map(number_of, bias.values())) if isinstance(bias, Mapping) else bool(bias),
    "best_of": lambda count, settings: number_of(count) > number_of(settings.get("n", 1)),
    "do_sample": lambda sampled, _: not sampled,
}
