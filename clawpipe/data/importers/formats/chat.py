"""Read OpenAI chat JSON Lines: messages with tools and tool calls, logged requests with their responses, exported sessions.

    {"messages": [...], "tools": [...]}                                fine-tuning rows, sessions (with "id" or "session_id")
    {"request": {"messages": ...}, "response": {"choices": [...]}}     a proxy's log; `messages` and `choices` side by side too
    {"request": {"contents": ...}, "response": {"candidates": [...]}}  the same of Gemini; Anthropic's response is the message
    {"request": {"prompt": "..."}, "response": {...}}                  a text without roles: a completion, Ollama's response

An assistant message of weight 0 is a side turn, and so are assistant messages in the history of a logged request: only the response
was sampled, and not even that where it goes on with an answer in the request. Each choice of a response is a conversation. Token
ids and log-probs are read if the engine gave both (`prompt_token_ids`, and a choice's `token_ids` and `logprobs`); else the
conversation is text only. LiteLLM moves a choice's ids into its `provider_specific_fields`, and vLLM may write them in place of the
tokens' texts (`return_tokens_as_token_ids`). The log-probs are raw, as OpenAI and vLLM report them by default, unless
`logprobs.kind` says that they are tempered, as those of `clawpipe serve` beside token ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.endings import ending_of_reason
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.fields import Fields, as_list, take_tools
from clawpipe.data.importers.formats.sharegpt import read_dialogue
from clawpipe.data.importers.message import ROLES, ReadMessages, are_messages, take_system
from clawpipe.data.importers.names import SESSIONS, USERS
from clawpipe.data.importers.outcome import take_outcome
from clawpipe.data.importers.record import SIDE, Conversation, Judgement, Kind, Status, Tokens, all_main, counted, first_request
from clawpipe.data.importers.strict_json import Reasons, RefusedError
from clawpipe.data.importers.untaught import ENDS
from clawpipe.data.wire.arguments import parsed_object
from clawpipe.data.wire.draw import changes_the_draw, sampling_settings
from clawpipe.data.wire.marked import marked_dialogue, without_end

_HEADERS = {"x-session-id": "session_id", "x-turn-type": "turn_type", "x-user-id": "user_id"}
_MOVED, _IDS = "provider_specific_fields", ("token_ids", "prompt_token_ids")
_TOOLS = ("tools", "functions")
_MESSAGES = ("messages", "contents")
_ANSWERS = ("choices", "candidates", "message", "content", "tool_calls")
_SPELLED_ID = re.compile(r"token_id:(\d{1,10})")
_NAMED_IN_PROMPT = re.compile(r"\bsession=(agent:\S+)")  # an agent's system prompt names its session


class _Known(NamedTuple):
    """The fields of a record beside its messages."""

    session: str | None
    user: str | None
    model: str | None
    turn_type: str | None
    judgements: tuple[Judgement, ...]
    temperature: float | None
    free_draw: bool
    tools: str | None


def is_chat(record: JsonObject) -> bool:
    request = _object(record.get("request"))
    if any(isinstance(part.get(name), list) for part in (record, request) for name in _MESSAGES):
        return True
    return are_messages(record.get("conversation")) or (isinstance(request.get("prompt"), str) and "response" in record)


def read_chat(record: JsonObject, session: str | None = None) -> list[Conversation]:
    """Read a row of chat messages, or one conversation for each choice of a logged response.

    Args:
        session: name of the session, if the record does not name one.

    Raises:
        RefusedError: the record is not a conversation.
    """
    fields, free_draw = Fields(record), _is_free_draw(record)
    request = Fields(_object(fields.take("request", dict, str, default={})), "request.")
    given = _first((fields, request), _MESSAGES, list)
    if given is None and are_messages(fields.peek("conversation")):
        given = fields.take("conversation", list)
    if given is None and (given := _prompted(request)) is None:
        raise RefusedError("messages: missing")
    given = take_system(request, take_system(fields, given))
    response = Fields(_response(fields, given), "response.")
    choices = list(as_list(fields.take("choices", list, default=None) or _answers(response), "choices"))
    reasons = Reasons()
    with reasons:
        known = _known((fields, request, response), not choices, free_draw)
        parts = {"request": request, "response": response}
        prompt_ids = _first((fields, response), ("prompt_token_ids",), list)
        extra = fields.rest | {name: part.rest for name, part in parts.items() if part.rest}
        return [_conversation(given, Fields(_as_sampled(choice)), known, prompt_ids, extra, session) for choice in choices or [{}]]
    with reasons:  # what is wrong with the messages as well
        read_dialogue(given, "messages")
    reasons.raise_all()
    return []


def _conversation(
    given: list[Any],
    choice: Fields,
    known: _Known,
    prompt_ids: list[int] | None,
    extra: JsonObject,
    session: str | None,
) -> Conversation:
    answer = _answer(choice)
    whole = given if answer is None else [*given, {"role": "assistant"} | answer]
    read = read_dialogue(whole, "messages")
    messages = read.messages
    status = _status(choice)
    tokens = _tokens(choice, prompt_ids or choice.take("prompt_token_ids", list, default=None), known)
    more = {"messages": read.unknown, "choice": choice.rest}
    return Conversation(
        messages,
        _kinds(read, known.turn_type, answered=answer is not None),
        first_request(messages),
        session=known.session or session_in(messages) or session,
        user=known.user,
        model=known.model,
        tokens=tokens,
        judgements=(*known.judgements, *take_outcome(choice)),
        extra=extra | {name: value for name, value in more.items() if value},
        status=status,
        tools=known.tools,
        unread=read.unread,
        continued=answer is not None and [message.role for message in messages[-2:]] == ["assistant", "assistant"],
        **counted(messages, read.failed),
    )


def _known(parts: tuple[Fields, Fields, Fields], is_row: bool, free_draw: bool) -> _Known:
    """Read the fields beside the messages. `id` names the session of a row, but the request of a log."""
    fields, request, response = parts
    beside = [Fields(found) for part in parts for found in (_headers(part), _metadata(part)) if found]
    holders = [*(part for part in parts if part), *beside]
    return _Known(
        session=_name(holders, SESSIONS) or (_name([fields], ("id",)) if is_row else None),
        user=_name(holders, USERS),
        model=_name([response, request, fields], ("model",)),
        turn_type=_name(holders, ("turn_type",)) or fields.peek("platform"),
        judgements=take_outcome(fields),
        temperature=next((found for part in (request, fields) if (found := part.take_number("temperature")) is not None), None),
        free_draw=free_draw,
        tools=take_tools(fields, _TOOLS) or take_tools(request, _TOOLS),
    )


def _prompted(request: Fields) -> list[JsonObject] | None:
    """Take the prompt of a request that has no messages, as what the user said."""
    if not isinstance(request.peek("prompt"), str):
        return None
    prompt = request.take("prompt", str)
    said = marked_dialogue(prompt) or [("user", prompt)]
    return [{"role": role, "content": words} for role, words in said]


def _status(choice: Fields) -> Status | None:
    """Return how an answer ended; one that has the field for it and null in it never did."""
    return "aborted" if choice.says_null("finish_reason") else ending_of_reason(choice.take("finish_reason", str, default=""))


def _is_free_draw(record: JsonObject) -> bool:
    """Whether a log's request, or the settings beside its messages, leave the draw of tokens to the policy."""
    request = _object(record.get("request"))
    return not (changes_the_draw(request) or changes_the_draw(sampling_settings(record)))


def _object(value: Any) -> JsonObject:
    """Return a JSON object, also from a JSON text; an empty one for any other value."""
    return value if isinstance(value, dict) else (parsed_object(value) or {}) if isinstance(value, str) else {}


def _response(fields: Fields, given: Sequence[Any]) -> JsonObject:
    """Take the response to the request. A text beside messages that end with an answer is not a response, and stays."""
    value = fields.peek("response")
    if not isinstance(value, str):
        return fields.take("response", dict, default={})
    last = given[-1] if given and isinstance(given[-1], dict) else {}
    if ROLES.get(str(last.get("role"))) == "assistant":
        return {}
    fields.take("response", str)
    spelled = _object(value)
    return spelled if any(name in spelled for name in _ANSWERS) else {"content": value} if value else {}


def _answers(response: Fields) -> list[Any]:
    """Return the choices of a response: OpenAI's, Gemini's candidates, or the one message or text of Anthropic and Ollama.

    Raises:
        RefusedError: the response holds no answer, such as an error.
    """
    if response.peek("choices") is not None or not response:
        return response.take("choices", list, default=[])
    if response.peek("candidates") is not None:
        return [_candidate(one) for one in as_list(response.take("candidates", list), "response.candidates")]
    reason = _reason(response)
    if isinstance(response.peek("message"), dict):
        return [{"message": response.take("message", dict)} | reason]
    if isinstance(response.peek("response"), str):
        return [{"text": response.take("response", str)} | reason]
    message = {
        name: response.take(name, str, list) for name in ("content", "tool_calls") if isinstance(response.peek(name), str | list)
    }
    if not message:
        raise RefusedError("response: no answer in it")
    return [{"message": message} | reason]


def _reason(response: Fields) -> JsonObject:
    """Return why a response ended, as a choice says it; one that is not done, as of Ollama, or says null never did."""
    said = [name for name in ENDS if isinstance(response.peek(name), str)]
    ended = next(iter([*said, *filter(response.says_null, ENDS)]), None)
    if ended:
        return {"finish_reason": response.take(ended, str, default=None)}
    return {"finish_reason": None} if response.peek("done") is False else {}


def _candidate(one: JsonObject) -> JsonObject:
    return {"message" if name == "content" else name: value for name, value in one.items()}


def _answer(choice: Fields) -> JsonObject | None:
    """Return the message of a choice; None for a row, which has no choices.

    Raises:
        RefusedError: a choice without one.
    """
    if not choice:
        return None
    if isinstance(choice.peek("text"), str) and choice.peek("message") is None:
        return {"content": without_end(choice.take("text", str))}
    message = {name: value for name, value in choice.take("message", dict).items() if name != "role"}
    return message | ({"content": without_end(message["content"])} if isinstance(message.get("content"), str) else {})


def _headers(part: Fields) -> JsonObject:
    headers = part.peek("headers")
    pairs = headers.items() if isinstance(headers, dict) else ()
    return {_HEADERS[name.lower()]: value for name, value in pairs if name.lower() in _HEADERS and isinstance(value, str)}


def _metadata(part: Fields) -> JsonObject:
    metadata = part.peek("metadata")
    return {name: value for name, value in metadata.items() if isinstance(value, str)} if isinstance(metadata, dict) else {}


def session_in(messages: Sequence[Message]) -> str | None:
    """Return the session that a system message names."""
    found = (_NAMED_IN_PROMPT.search(message.content) for message in messages if message.role == "system")
    return next((match.group(1) for match in found if match), None)


def _kinds(read: ReadMessages, turn_type: str | None, answered: bool) -> tuple[Kind, ...]:
    all_main(read.messages)
    replies = [place for place, message in enumerate(read.messages) if message.role == "assistant"]
    is_side = [turn_type in SIDE or place in read.muted or (answered and place != replies[-1]) for place in replies]
    return tuple("side" if side else "main" for side in is_side)


def _as_sampled(choice: JsonObject) -> JsonObject:
    """Return a choice as engines write it: its reason by that name, its token ids out of `provider_specific_fields`."""
    ended = next((name for name in ENDS if name in choice), "")
    choice = {"finish_reason" if name == ended else name: value for name, value in choice.items()}
    moved = choice.get(_MOVED)
    if not isinstance(moved, dict):
        return choice
    ids = {name: moved[name] for name in _IDS if moved.get(name) is not None and choice.get(name) is None}
    return choice | ids | {_MOVED: {name: value for name, value in moved.items() if name not in ids} or None}


def _spelled_ids(entries: Any) -> list[int] | None:
    """Return the ids from token texts of the form `token_id:N`; None unless all have it."""
    texts = [entry.get("token") if isinstance(entry, dict) else None for entry in entries] if isinstance(entries, list) else []
    found = [_SPELLED_ID.fullmatch(text) if isinstance(text, str) else None for text in texts]
    return [int(match[1]) for match in found if match] if found and all(found) else None


def _tokens(choice: Fields, prompt: list[int] | None, known: _Known) -> Tokens | None:
    """Take the ids and log-probs of a turn if all are present; else leave those that are in `choice`."""
    logprobs = choice.peek("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    ids = choice.peek("token_ids") or _spelled_ids(entries)
    if not prompt or not isinstance(ids, list) or not isinstance(entries, list):
        return None
    values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    if len(ids) != len(values) or not all(type(value) in (int, float) for value in values):
        raise RefusedError("choices[].logprobs: not one number a token")
    if not all(type(token) is int and 0 <= token < 2**31 for token in [*prompt, *ids]):
        raise RefusedError("token_ids: not token ids")
    choice.take("token_ids", list, default=None)
    choice.take("logprobs", dict)
    before = len(prompt)
    mask = [False] * before + [True] * len(ids)
    recorded = [0.0] * before + [float(value) for value in values]  # type: ignore[arg-type]
    kind = "tempered" if isinstance(logprobs, dict) and logprobs.get("kind") == "tempered" else "raw"
    return Tokens([*prompt, *ids], mask, recorded, temperature=known.temperature, kind=kind if known.free_draw else "none")


def _first(parts: Sequence[Fields], names: Sequence[str], *kinds: type) -> Any:
    """Take the first of the fields `names` that any part has."""
    found = (part.take(name, *kinds, default=None) for part in parts for name in names)
    return next((value for value in found if value is not None), None)


def _name(parts: Sequence[Fields], names: Sequence[str]) -> str | None:
    found: Iterator[str] = (str(part.take(name, str, int)) for part in parts for name in names if part.peek(name) not in (None, ""))
    return next(found, None)
