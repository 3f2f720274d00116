"""Read prompts, with an answer to imitate or alone, under the names that data sets and logs give them.

    {"prompt": ..., "completion": ...}      an answer; `label` (true or false) scores it
    {"question": ..., "answer": ...}        the same, as are `instruction` with `response`, `input` with `output` and so on
    {"user": ..., "assistant": ...}         the same: words that say a prompt or an answer only where the other one stands beside
    {"prompt": ...}                         a task

A prompt is a text, a list of messages, one message, or a request with `messages`; an answer is a text, messages, one message, or a
response of an API. A row that has a field for an answer is never a task: where it holds none, the row is rejected. An `answer` that
is no text, or stands beside a `check`, is the truth of a task.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.fields import Fields, take_tools
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.formats.huggingface import beside_messages, messages_of, with_system
from clawpipe.data.importers.names import take_names
from clawpipe.data.importers.outcome import sounding, take_outcome
from clawpipe.data.importers.record import Conversation, Kind, Prompt, counted, first_request, main_but_muted
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.untaught import ENDS, reason_in

_ASKING = (
    *("prompt", "instruction", "question", "query", "input", "user_prompt", "user_message", "user_input", "user_query"),
    *("input_text", "prompt_text", "problem_statement"),
)
_TRUTH = "answer"  # also the name of a task's truth
_ANSWERING = (
    *("completion", "response", "output", _TRUTH, "reply", "chosen_response", "model_response", "model_output"),
    *("assistant_response", "bot_response", "generation", "generated_text", "assistant_message", "ai_response", "llm_response"),
    *("llm_output", "output_text", "prediction", "response_text", "answer_text", "completion_text"),
)
_PAIRS = (  # of names that say something else alone
    *(("user", "assistant"), ("human", "assistant"), ("human", "bot"), ("user", "bot"), ("human", "gpt"), ("user", "ai")),
    *(("human", "ai"), ("q", "a"), ("inputs", "targets"), ("inputs", "outputs"), ("source", "target"), ("problem", "solution")),
    *(("request", "reply"), ("task", "solution"), ("question", "solution"), ("context", "response")),
)
_ALONE = ("user", "model")  # the owner of a call and what was called, in any row that says more
_BELOW = ("input", "context")  # texts that belong to a request
_LOGGED = ("choices", "candidates", "message", *ENDS)  # fields of a response of an API
_SOUNDS = frozenset(
    (
        *("completion", "completions", "response", "responses", "answer", "answers", "reply", "replies", "output", "outputs"),
        *("generation", "generations", "generated", "solution", "solutions"),
    )
)


def is_completion(record: JsonObject) -> bool:
    """Whether a row has a prompt, and a field for its answer, whatever that holds."""
    record = _plainly_named(record)
    asking = _asking(record)
    return asking is not None and _answering(record, asking) is not None


def _plainly_named(record: JsonObject) -> JsonObject:
    """Return a row with its pair of a prompt and an answer under their common names; any other row as it is."""
    names = {name.lower(): name for name in reversed(record)}
    if any(name in record for name in _ASKING) and any(name in record for name in _ANSWERING):
        return record
    capitals = tuple((asking, answering) for asking in _ASKING for answering in _ANSWERING)
    alone = (_ALONE,) if names.keys() <= {*_ALONE, "system"} else ()
    found = next((pair for pair in (*_PAIRS, *capitals, *alone) if _is_pair(record, [names.get(name) for name in pair])), None)
    if found is None:
        return record
    renamed = {names[found[0]]: "prompt", names[found[1]]: "completion"}
    return {renamed.get(name, name): value for name, value in record.items() if name in renamed or name not in renamed.values()}


def _is_pair(record: JsonObject, names: list[str | None]) -> bool:
    return all(name is not None and isinstance(record[name], str) and record[name] for name in names)


def is_prompt(record: JsonObject) -> bool:
    return isinstance(record.get("prompt"), str | list)


def unread_answers(columns: Iterable[str]) -> list[str]:
    """Return the columns with a word for an answer in their name."""
    return sounding(columns, _SOUNDS)


def read_completion(record: JsonObject) -> Conversation:
    """Read a prompt with its answer, the only main turns; a label good or bad becomes the score 1 or 0.

    Raises:
        RefusedError: the row is not a question with its answer.
    """
    record = _plainly_named(record)
    asking = _asking(record) or "prompt"
    answering = _answering(record, asking) or "completion"
    given = record.get(answering)
    ended = next((name for name in ENDS if name in record), None)
    if isinstance(given, dict) and any(name in given for name in _LOGGED):
        return _logged(record, asking, answering, _response(given))
    if ended and isinstance(given, str | dict):
        message = given if isinstance(given, dict) else {"content": given}
        rest = {name: value for name, value in record.items() if name != ended}
        return _logged(rest, asking, answering, _response(message | {"finish_reason": record[ended]}))
    return _imitated(Fields(record), asking, answering)


def _response(given: JsonObject) -> JsonObject:
    """Return a response with one choice of a message that says beside its text why it ended; any other response as it is."""
    if "finish_reason" not in given or "choices" in given:
        return given
    message = {name: value for name, value in given.items() if name != "finish_reason"}
    return {"choices": [{"message": message, "finish_reason": given["finish_reason"]}]}


def read_prompt(record: JsonObject) -> Prompt:
    """Read a task without an attempt.

    Raises:
        RefusedError: there is no user message, or the last message is an answer.
    """
    fields = Fields(record)
    unknown: list[JsonObject] = []
    messages = messages_of(fields.take("prompt", str, list), "prompt", "user", unknown).messages
    messages = with_system(fields, messages, unknown)
    first_request(messages)
    if messages[-1].role == "assistant":
        raise RefusedError("prompt: ends with an answer")
    tools, names = take_tools(fields), take_names(fields)
    return Prompt(messages, tools, beside_messages(fields, unknown), **names)


def _asking(record: JsonObject) -> str | None:
    """Return the name of the field with the prompt; None if there is none."""
    return next((name for name in _ASKING if _asks(record.get(name))), None)


def _asks(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, dict) for part in value)
    return isinstance(value, str) or (isinstance(value, dict) and ("role" in value or isinstance(value.get("messages"), list)))


def _answering(record: JsonObject, asking: str) -> str | None:
    """Return the name of the field for the answer: the first that holds something, else the first that is there."""
    names = [name for name in _ANSWERING if name in record and name != asking and not (name == _TRUTH and _is_truth(record))]
    return next((name for name in names if record[name] is not None), names[0] if names else None)


def _is_truth(record: JsonObject) -> bool:
    """Whether the `answer` of a row is what a check compares with, such as a number or a call, and not what somebody replied."""
    answer = record[_TRUTH]
    parts = answer if isinstance(answer, list) else [answer]
    replied = isinstance(answer, str | None) or all(isinstance(part, dict) and _says(part) for part in parts)
    return "check" in record or not replied


def _says(part: JsonObject) -> bool:
    return any(name in part for name in ("role", "from", "content", "tool_calls", *_LOGGED))


def _logged(record: JsonObject, asking: str, answering: str, response: JsonObject) -> Conversation:
    """Read a prompt and a response of an API as a log of both.

    Raises:
        RefusedError: the response has several answers, or none.
    """
    request = record[asking]
    if not isinstance(request, dict) or "role" in request:
        request = {"messages": [request] if isinstance(request, dict) else _listed(request)}
    rest = {name: value for name, value in record.items() if name not in (asking, answering)}
    read = read_chat(rest | {"request": request, "response": response})
    if len(read) != 1:
        raise RefusedError(f"{answering}: {len(read)} answers")
    return read[0]


def _listed(prompt: str | list[Any]) -> list[Any]:
    return prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]


def _imitated(fields: Fields, asking: str, answering: str) -> Conversation:
    unknown: list[JsonObject] = []
    asked, shown = _asked(fields, asking, unknown)
    given = fields.take(answering, str, list, dict)
    read = messages_of([_spoken(given)] if isinstance(given, dict) else given, answering, "assistant", unknown)
    answer = read.messages
    if not answer or answer[0].role != "assistant":
        raise RefusedError(f"{answering}: no answer in it")
    judged = take_outcome(fields)
    context: tuple[Kind, ...] = tuple("side" for message in asked if message.role == "assistant")
    names = take_names(fields)
    return Conversation(
        (*asked, *answer),
        (*context, *main_but_muted(answer, read.muted)),
        first_request(asked),
        judgements=judged,
        tools=take_tools(fields),
        extra=beside_messages(fields, unknown),
        unread=frozenset((*shown, *(len(asked) + place for place in read.unread))),
        status=next((ending for part in reversed(unknown) if part["of"] == answering and (ending := reason_in(part))), None),
        **names,
        **counted((*asked, *answer)),
    )


def _spoken(message: JsonObject) -> JsonObject:
    """Return a message with the role that an answer has if it names none."""
    return message if "role" in message or "from" in message else {"role": "assistant"} | message


def _asked(fields: Fields, asking: str, unknown: list[JsonObject]) -> tuple[tuple[Message, ...], Iterable[int]]:
    """Take what was asked: the messages, and the places of those with parts that are no text."""
    value = fields.take(asking, str, list, dict)
    if isinstance(value, str):
        below = [fields.take(name, str) for name in _BELOW if isinstance(fields.peek(name), str)] if asking != "prompt" else []
        value = "\n".join(filter(None, [value, *below]))
    listed = value.get("messages") or [value] if isinstance(value, dict) else value
    read = messages_of(listed, asking, "user", unknown)
    messages = with_system(fields, read.messages, unknown)
    return messages, [len(messages) - len(read.messages) + place for place in read.unread]
