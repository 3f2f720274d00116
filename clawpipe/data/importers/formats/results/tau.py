"""Read results of tau-bench: a JSON array of trials at tasks, with the reward of the environment.

    {"task_id": 0, "trial": 0, "reward": 1.0, "traj": [...], "info": {"task": {"instruction": ...}, "reward_info": ...}}

Trials with the same instruction are attempts at one task: the messages of the simulated user differ from trial to trial.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import Fields, as_list
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.record import Conversation, Judgement, Status, counted, first_request, main_but_muted
from clawpipe.data.importers.strict_json import RefusedError

_ENDS: dict[str, Status] = {
    **dict.fromkeys(("user_stop", "agent_stop"), "completed"),
    **dict.fromkeys(("max_steps", "timeout", "too_many_errors"), "partial"),  # with whole answers
}  # any other reason is an error of the agent, the user or the machine


def is_tau(record: JsonObject) -> bool:
    return isinstance(record.get("traj"), list) and "task_id" in record


def read_tau(record: JsonObject) -> Conversation:
    """Read a trial.

    Raises:
        RefusedError: the record is not a conversation.
    """
    fields = Fields(record)
    read = read_messages(fields.take("traj", list), "traj")
    reward = fields.take("reward", int, float, default=None)
    task = _inner(fields.peek("info"), "task")
    evidence = _inner(fields.peek("info"), "reward_info")
    judged = (
        ()
        if reward is None
        else (Judgement(float(reward), "verifier", reward >= 1, reason="reward of the task", evidence=evidence),)
    )
    asked = first_request(read.messages)
    instruction = task.get("instruction")
    return Conversation(
        read.messages,
        main_but_muted(read.messages, read.muted),
        instruction if isinstance(instruction, str) and instruction.strip() else asked,
        judgements=judged,
        extra=fields.rest | ({"messages": read.unknown} if read.unknown else {}),
        unread=read.unread,
        **counted(read.messages, read.failed),
    )


def _inner(value: Any, name: str) -> JsonObject:
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def is_tau2(record: JsonObject) -> bool:
    simulations = record.get("simulations")
    if isinstance(simulations, list) and simulations:
        return all(map(_is_simulation, simulations))
    return _is_simulation(record)


def _is_simulation(value: Any) -> bool:
    return isinstance(value, dict) and {"task_id", "termination_reason"} <= value.keys() and "simulations" not in value


def read_tau2(record: JsonObject) -> Iterator[Conversation]:
    """Yield a conversation for each simulation; the first holds the common fields and simulations without messages in `extra`.

    Raises:
        RefusedError: no simulation holds a conversation.
    """
    if _is_simulation(record):
        yield _conversation(record, {}, {}, {})
        return
    common = {name: value for name, value in record.items() if name not in ("simulations", "tasks")}
    tasks = {str(task.get("id")): task for task in as_list(record.get("tasks") or [], "tasks")}
    with_messages = [simulation for simulation in record["simulations"] if simulation.get("messages")]
    if not with_messages:
        raise RefusedError("simulations: no messages")
    lost = [simulation for simulation in record["simulations"] if not simulation.get("messages")]
    whole = {"results": common} | ({"without_messages": lost} if lost else {})
    for number, simulation in enumerate(with_messages):
        task = tasks.get(str(simulation["task_id"]), {})
        yield _conversation(simulation, task, _object(common, "info"), {} if number else whole)


def _conversation(
    simulation: Mapping[str, Any], task: Mapping[str, Any], info: Mapping[str, Any], others: Mapping[str, Any]
) -> Conversation:
    fields = Fields(simulation)
    environment = _object(info, "environment_info")
    given, users = _agent_and_user(fields.take("messages", list))
    read = read_messages([*_policy(fields, environment), *_mute_greeting(given)])
    reward = _object(simulation, "reward_info").get("reward")
    more = {"task": task, "user_tools": users, "messages": read.unknown}
    return Conversation(
        read.messages,
        main_but_muted(read.messages, read.muted),
        _task_name(simulation, task, environment) or first_request(read.messages),
        session=simulation["id"] if isinstance(simulation.get("id"), str) else None,
        model=_text(_object(info, "agent_info").get("llm")),
        judgements=_judged(reward, _object(simulation, "reward_info")),
        extra=fields.rest | {name: value for name, value in more.items() if value} | dict(others),
        status=_ENDS.get(str(simulation["termination_reason"]), "aborted"),
        unread=read.unread,
        **counted(read.messages, read.failed),
    )


def _judged(reward: Any, evidence: Mapping[str, Any]) -> tuple[Judgement, ...]:
    if not isinstance(reward, int | float) or isinstance(reward, bool):
        return ()
    return (Judgement(float(reward), "verifier", reward >= 1, reason="reward of the task", evidence=evidence),)


def _task_name(simulation: Mapping[str, Any], task: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """Return the identity of the task: the instructions of the user, else the task's name."""
    if scenario := task.get("user_scenario"):
        return json.dumps(scenario, ensure_ascii=False, sort_keys=True)
    domain = _text(environment.get("domain_name"))
    return f"tau2-bench/{domain}/{simulation['task_id']}" if domain else ""


def _policy(fields: Fields, environment: Mapping[str, Any]) -> list[JsonObject]:
    """Return the system message: the rules of the domain."""
    policy = fields.take("policy", str, default=None) or _text(environment.get("policy"))
    return [{"role": "system", "content": policy}] if policy else []


def _agent_and_user(messages: Sequence[Any]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Separate the agent's messages from the calls that the user made with their own tools."""
    seen, users = list[JsonObject](), list[JsonObject]()
    for message in as_list(messages, "messages"):
        inner = message.get("tool_messages") if message.get("role") == "tool" else None
        for part in as_list(inner, "messages[].tool_messages") if isinstance(inner, list) else [message]:
            of_user = part.get("requestor") == "user" or (part.get("role") == "user" and part.get("tool_calls"))
            if of_user:
                users.append({"before": len(seen)} | part)
            if not of_user or (part.get("role") == "user" and part.get("content")):
                seen.append(_as_chat(part))
    return seen, users


def _as_chat(part: JsonObject) -> JsonObject:
    kept = {name: value for name, value in part.items() if value is not None and name != "requestor"}
    if part.get("role") == "tool" and isinstance(kept.get("id"), str):
        return kept | {"tool_call_id": kept.pop("id")}
    return {name: value for name, value in kept.items() if name != "tool_calls"} if part.get("role") == "user" else kept


def _mute_greeting(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Give weight 0 to assistant messages before the first user message."""
    asked = next((place for place, message in enumerate(messages) if message.get("role") == "user"), 0)
    return [message | {"weight": 0} if place < asked else message for place, message in enumerate(messages)]


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
