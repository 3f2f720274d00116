"""Sessions and results of other agents' tools.

Shapes are those of real files of each tool (public session files, tau-bench's historical trajectories, SWE-agent's
demonstrations) and of OpenTelemetry's conventions; what is said in them is made up.
"""

import json

import pytest

from tests.importers.reading import read_files


def written(folder, *records, name="a.jsonl"):
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_files([str(folder / name)])


def said(conversation):
    return [(message.role, message.content) for message in conversation.messages]


class Claude:
    """Lines of a session of Claude Code."""

    def __init__(self, **more):
        self._number, self._more = 0, {"sessionId": "s1", "cwd": "/work", "isSidechain": False, "version": "2.1"} | more

    def line(self, kind, parent, **fields):
        self._number += 1
        uuid = f"{kind[0]}{self._number}"
        return self._more | {"type": kind, "uuid": uuid, "parentUuid": parent} | fields

    def user(self, parent, content, **more):
        return self.line("user", parent, message={"role": "user", "content": content}, **more)

    def model(self, parent, name, *blocks, ended=None):
        message = {"id": name, "type": "message", "role": "assistant", "model": "m", "content": list(blocks), "stop_reason": ended}
        return self.line("assistant", parent, message=message)


def text(words):
    return {"type": "text", "text": words}


def use(call_id, **given):
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": given}


def result(call_id, answer):
    return [{"type": "tool_result", "tool_use_id": call_id, "content": answer}]


def test_a_session_of_claude_code_is_one_conversation(tmp_path):
    """Lines of one message are one message; answers of calls that are made side by side hang on their own call."""
    line = Claude()
    records = [
        {"type": "summary", "summary": "Two files", "leafUuid": "x"},
        asked := line.user(None, "List them."),
        thought := line.model(asked["uuid"], "msg_1", {"type": "thinking", "thinking": "Hm.", "signature": "z"}),
        first := line.model(thought["uuid"], "msg_1", use("t1", command="ls")),
        second := line.model(first["uuid"], "msg_1", use("t2", command="pwd")),
        line.user(first["uuid"], result("t1", "a.txt"), toolUseResult={"stdout": "a.txt"}),
        heard := line.user(second["uuid"], result("t2", "/work")),
        line.model(heard["uuid"], "msg_2", text("One file.")),
    ]
    reading = written(tmp_path, *records)
    [conversation] = reading.conversations
    assert said(conversation) == [
        ("user", "List them."),
        ("assistant", "<think>\nHm.\n</think>\n"),
        ("tool", "a.txt"),
        ("tool", "/work"),
        ("assistant", "One file."),
    ]
    assert [call.id for call in conversation.messages[1].tool_calls] == ["t1", "t2"]
    assert (conversation.kinds, conversation.session, conversation.model) == (("main", "main"), "s1", "m")
    assert (reading.lines, reading.accepted, dict(reading.formats)) == (8, 8, {"claude-code": 8})
    kept = json.dumps(conversation.extra)
    assert all(word in kept for word in ("Two files", "stdout", "/work", '"signature": "z"', "2.1"))


def test_a_way_that_was_left_and_one_that_was_taken_are_two(tmp_path):
    line = Claude()
    records = [
        asked := line.user(None, "Start."),
        ready := line.model(asked["uuid"], "m1", text("Ready.")),
        once := line.user(ready["uuid"], "First try."),
        line.model(once["uuid"], "m2", text("First.")),
        again := line.user(ready["uuid"], "Second try."),
        line.model(again["uuid"], "m3", text("Second.")),
    ]
    left, taken = written(tmp_path, *records).conversations
    assert [content for _, content in said(left)] == ["Start.", "Ready.", "First try.", "First."]
    assert [content for _, content in said(taken)] == ["Start.", "Ready.", "Second try.", "Second."]
    assert (left.kinds, taken.kinds) == (("main", "main"), ("side", "main"))


def test_a_compacted_history_begins_anew(tmp_path):
    line = Claude()
    records = [
        asked := line.user(None, "Start."),
        ready := line.model(asked["uuid"], "m1", text("Ready.")),
        cut := line.line("system", None, subtype="compact_boundary", logicalParentUuid=ready["uuid"]),
        summed := line.user(cut["uuid"], "So far: ready.", isCompactSummary=True),
        line.model(summed["uuid"], "m2", text("Going on.")),
    ]
    before, after = written(tmp_path, *records).conversations
    assert [content for _, content in said(after)] == ["So far: ready.", "Going on."]
    assert (before.kinds, after.kinds) == (("main",), ("main",))


def test_sub_agents_are_conversations_program_text_is_context(tmp_path):
    line = Claude()
    aside = Claude(isSidechain=True, agentId="a7")
    records = [
        asked := line.user(None, "Look."),
        told := aside.user(None, "Search."),
        aside.model(told["uuid"], "m9", text("Found.")),
        failed := line.model(asked["uuid"], "m1", text("API Error: overloaded")),
        line.model(failed["uuid"], "m2", text("Done.")),
    ]
    records[3]["message"]["model"] = "<synthetic>"
    main, agent = written(tmp_path, *records).conversations
    assert (main.kinds, agent.kinds) == (("side", "main"), ("main",))
    assert [content for _, content in said(agent)] == ["Search.", "Found."]


def test_the_last_line_of_an_answer_says_that_it_was_cut(tmp_path):
    line = Claude()
    records = [
        asked := line.user(None, "Report."),
        thought := line.model(asked["uuid"], "m1", {"type": "thinking", "thinking": "Hm.", "signature": "z"}),
        cut := line.model(thought["uuid"], "m1", text("It begins and"), ended="max_tokens"),
        more := line.user(cut["uuid"], "Go on."),
        line.model(more["uuid"], "m2", text("ends."), ended="end_turn"),
    ]
    reading = written(tmp_path, *records)
    [conversation] = reading.conversations
    assert (conversation.kinds, conversation.status) == (("side", "main"), "completed")
    assert dict(reading.silent) == {"turns that were cut short": 1}


def test_sub_agents_of_one_file_without_ids_are_told_apart(tmp_path):
    """As versions without `agentId` write them, one after the other and side by side."""
    line = Claude()
    asked, aside = line.user(None, "Look."), Claude(isSidechain=True)
    one, two = aside.user(None, "Search a."), aside.user(None, "Search b.")
    call = aside.model(one["uuid"], "m2", use("t1", command="ls"))
    heard = aside.user(call["uuid"], result("t1", "a.txt"))
    records = [
        *(asked, line.model(asked["uuid"], "m1", text("Done."))),
        *(one, two, call, aside.model(two["uuid"], "m3", text("No b.")), heard, aside.model(heard["uuid"], "m4", text("An a."))),
    ]
    main, first, second = written(tmp_path, *records).conversations
    assert [content for _, content in said(main)] == ["Look.", "Done."]
    assert [content for _, content in said(first)] == ["Search a.", "", "a.txt", "An a."]
    assert [content for _, content in said(second)] == ["Search b.", "No b."]
    assert (main.kinds, first.kinds, second.kinds) == (("main",), ("main", "main"), ("main",))


def test_a_user_line_without_a_parent_begins_anew(tmp_path):
    line = Claude()
    records = [
        asked := line.user(None, "Start."),
        line.model(asked["uuid"], "m1", text("Ready.")),
        other := line.user(None, "Something else."),
        line.model(other["uuid"], "m2", text("Else.")),
    ]
    before, after = written(tmp_path, *records).conversations
    assert [content for _, content in said(before)] == ["Start.", "Ready."]
    assert [content for _, content in said(after)] == ["Something else.", "Else."]


def test_an_answer_that_was_asked_for_again_is_a_branch(tmp_path):
    """Both were given to the same request; what follows stands behind the answer that it names."""
    line = Claude()
    records = [
        asked := line.user(None, "Try."),
        once := line.model(asked["uuid"], "m1", text("First.")),
        again := line.model(asked["uuid"], "m2", text("Second.")),
        taken := line.user(again["uuid"], "Go on."),
        line.model(taken["uuid"], "m3", text("On.")),
        back := line.user(once["uuid"], "No, the first."),
        line.model(back["uuid"], "m4", text("As you like.")),
    ]
    left, right = written(tmp_path, *records).conversations
    assert [content for _, content in said(left)] == ["Try.", "First.", "No, the first.", "As you like."]
    assert [content for _, content in said(right)] == ["Try.", "Second.", "Go on.", "On."]
    assert (left.kinds, right.kinds) == (("main", "main"), ("main", "main"))


def test_lines_that_name_no_parent_are_one_conversation(tmp_path):
    line = Claude()
    records = [
        line.user(None, "Start."),
        line.model(None, "m1", text("Ready.")),
        line.user(None, "Go."),
        line.model(None, "m2", text("Gone.")),
    ]
    [conversation] = written(tmp_path, *records).conversations
    assert [content for _, content in said(conversation)] == ["Start.", "Ready.", "Go.", "Gone."]


def test_a_session_without_answers_is_rejected_line_by_line(tmp_path):
    line = Claude()
    reading = written(tmp_path, {"type": "summary", "summary": "x", "leafUuid": "y"}, line.user(None, "Hello?"))
    assert [(refusal.line, refusal.reason) for refusal in reading.refused] == [
        (1, "no assistant message"),
        (2, "no assistant message"),
    ]
    assert (reading.lines, reading.accepted) == (2, 0)
    assert all(refusal.data for refusal in reading.refused)


def event(kind, **payload):
    return {"timestamp": "2026-11-01T08:00:00Z", "type": kind, "payload": payload}


def item(kind, **fields):
    return event("response_item", type=kind, **fields)


def message(role, words):
    part = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": part, "text": words}])


CODEX = [
    event("session_meta", id="c1", cwd="/work", instructions="Be brief."),
    event("turn_context", model="gpt", cwd="/work"),
    message("user", "<environment_context>\n/work</environment_context>"),
    message("user", "List them."),
    event("event_msg", type="user_message", message="List them."),
    item("reasoning", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="gAAA"),
    item("function_call", name="exec", arguments='{"cmd": "ls"}', call_id="k1"),
    item("function_call_output", call_id="k1", output="a.txt"),
    item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="k2"),
    item("custom_tool_call_output", call_id="k2", output=[{"type": "output_text", "text": "Done!"}]),
    message("assistant", "One file."),
    event("a_later_kind", what=1),
]


def test_a_session_of_codex_is_one_conversation(tmp_path):
    reading = written(tmp_path, *CODEX, name="rollout-2026-11-01-c1.jsonl")
    [conversation] = reading.conversations
    assert said(conversation) == [
        ("system", "Be brief."),
        ("user", "<environment_context>\n/work</environment_context>"),
        ("user", "List them."),
        ("assistant", "<think>\nLook.\n</think>\n"),
        ("tool", "a.txt"),
        ("assistant", ""),
        ("tool", "Done!"),
        ("assistant", "One file."),
    ]
    calls = [call for part in conversation.messages for call in part.tool_calls]
    assert [(call.name, call.id) for call in calls] == [("exec", "k1"), ("apply_patch", "k2")]
    assert (calls[0].arguments, calls[1].arguments, calls[1].malformed) == ('{"cmd": "ls"}', '{"input": "*** Begin Patch"}', False)
    assert (conversation.prompt, conversation.session, conversation.model) == ("List them.", "c1", "gpt")
    assert conversation.kinds == ("main", "main", "main")
    assert reading.accepted == len(CODEX)
    assert "a_later_kind" in json.dumps(conversation.extra)


def test_rollback_and_compaction_begin_new_branches(tmp_path):
    records = [
        message("user", "a"),
        message("assistant", "A"),
        message("user", "b"),
        message("assistant", "B"),
        event("event_msg", type="thread_rolled_back", num_turns=1),
        message("user", "c"),
        message("assistant", "C"),
        event("compacted", message="So far: a, c."),
        message("user", "d"),
        message("assistant", "D"),
    ]
    conversations = written(tmp_path, *records).conversations
    assert [[content for _, content in said(one)] for one in conversations] == [
        ["a", "A", "b", "B"],
        ["a", "A", "c", "C"],
        ["So far: a, c.", "d", "D"],
    ]
    assert [one.kinds for one in conversations] == [("main", "main"), ("side", "main"), ("main",)]


@pytest.mark.parametrize(
    ("turns", "kept"),
    [(1, ["<environment_context>/a", "one", "One."]), (2, ["<environment_context>/a"]), (9, ["<environment_context>/a"])],
)
def test_a_rollback_counts_what_persons_asked(tmp_path, turns, kept):
    """The environment stands before a turn and falls with it; what stands before the first turn stays."""
    records = [
        message("user", "<environment_context>/a"),
        message("user", "one"),
        message("assistant", "One."),
        message("user", "<environment_context>/b"),
        message("user", "two"),
        message("assistant", "Two."),
        message("user", "<turn_aborted>\nBy the user.\n</turn_aborted>"),
        event("event_msg", type="thread_rolled_back", num_turns=turns),
        message("user", "three"),
        message("assistant", "Three."),
    ]
    _, conversation = written(tmp_path, *records).conversations
    assert [content for _, content in said(conversation)] == [*kept, "three", "Three."]
    assert conversation.prompt == next(content for content in [*kept, "three"] if "<" not in content)


@pytest.mark.parametrize(("platform", "kind"), [("telegram", "main"), ("cron", "side")])
def test_a_transcript_of_hermes_is_a_session_named_by_its_file(platform, kind, tmp_path):
    records = [
        {"role": "session_meta", "tools": [{"type": "function", "function": {"name": "f"}}], "model": "m", "platform": platform},
        {"role": "user", "content": "q", "timestamp": "2026-11-01T08:00:00"},
        {"role": "assistant", "content": "", "reasoning": "r", "finish_reason": "tool_calls",
         "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "7", "tool_call_id": "c"},
        {"role": "assistant", "content": "Seven."},
    ]  # fmt: skip
    reading = written(tmp_path, *records, name="20261101_080000_ab12.jsonl")
    [conversation] = reading.conversations
    assert (conversation.session, conversation.kinds) == ("20261101_080000_ab12", (kind, kind))
    assert [name for name, _ in said(conversation)] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(conversation.tools)[0]["function"]["name"] == "f"
    assert (reading.accepted, dict(reading.formats)) == (5, {"hermes-transcript": 5})


def cline(answer, *more):
    return [
        {"role": "user", "content": [{"type": "text", "text": "<task>Do it.</task>"}]},
        {"role": "assistant", "content": answer},
        *more,
    ]


RESUMED = ({"role": "user", "content": "[TASK RESUMPTION]"}, {"role": "assistant", "content": "Done."})


@pytest.mark.parametrize("why", ["user", "API Error", "user feedback"])
@pytest.mark.parametrize("spelled", [lambda words: words, lambda words: [text(words), use("t1", command="ls")]])
def test_an_answer_that_cline_interrupted_was_cut(tmp_path, why, spelled):
    said_so = spelled(f"I edit the fi\n\n[Response interrupted by {why}]")
    reading = written(tmp_path, *cline(said_so, *RESUMED), name="api_conversation_history.json")
    [conversation] = reading.conversations
    assert said(conversation)[1] == ("assistant", "I edit the fi")
    assert (conversation.kinds, dict(reading.silent)) == (("side", "main"), {"turns that were cut short": 1})
    [last] = written(tmp_path, *cline(said_so), name="api_conversation_history.json").conversations
    assert last.status == "aborted"


def test_cline_stops_an_answer_at_its_call(tmp_path):
    mark = "[Response interrupted by a tool use result. Only one tool may be used at a time.]"
    answer = [text(f"<read_file>a</read_file>\n\n{mark}")]
    [conversation] = written(tmp_path, *cline(answer, *RESUMED), name="api_conversation_history.json").conversations
    assert (said(conversation)[1], conversation.kinds) == (("assistant", "<read_file>a</read_file>"), ("main", "main"))


def test_a_trial_of_tau_bench_is_scored_and_grouped_by_its_task(tmp_path):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    def trial(number, reward, greeting):
        traj = [
            {"role": "system", "content": "policy"},
            {"role": "user", "content": greeting},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "name": "f", "content": "ok"},
            {"role": "assistant", "content": "Done."},
        ]  # fmt: skip
        info = {"task": {"instruction": "You want a refund.", "actions": []}, "reward_info": {"r_actions": reward}}
        return {"task_id": 3, "trial": number, "reward": reward, "traj": traj, "info": info}

    (tmp_path / "a.json").write_text(json.dumps([trial(0, 1.0, "Hi"), trial(1, 0.0, "Hello")]))
    first, second = read_files([str(tmp_path / "a.json")]).conversations
    assert first.prompt == second.prompt == "You want a refund."
    told = [(one.value, one.success, one.origin) for conversation in (first, second) for one in conversation.judgements]
    assert told == [(1.0, True, "verifier"), (0.0, False, "verifier")]
    assert first.extra["trial"] == 0


def simulation(number, reward, *messages, **more):
    facts = {"id": f"sim-{number}", "task_id": "7", "trial": number, "termination_reason": "user_stop"}
    return (
        facts | {"reward_info": None if reward is None else {"reward": reward, "db_check": None}, "messages": list(messages)} | more
    )


def spoken(role, content, **more):
    return {"role": role, "content": content, "tool_calls": None, "turn_idx": 0, "timestamp": "t", "cost": 0.0} | more


GREETING = spoken("assistant", "How can I help?")
TAU2_CALL = {"id": "c1", "name": "find", "arguments": {"order": 7}, "requestor": "assistant"}
TAU2_USER_CALL = {"id": "u1", "name": "toggle", "arguments": {}, "requestor": "user"}
TAU2_TALK = (
    GREETING,
    spoken("user", "My phone is dead."),
    spoken("assistant", None, tool_calls=[TAU2_CALL]),
    {"role": "tool", "id": "c1", "content": "no such order", "requestor": "assistant", "error": True, "turn_idx": 3},
    spoken("assistant", "Toggle it, please."),
    spoken("user", None, tool_calls=[TAU2_USER_CALL]),
    {"role": "tool", "id": "u1", "content": "it is on", "requestor": "user", "error": False, "turn_idx": 6},
    spoken("user", "Done."),
)


@pytest.mark.parametrize("indent", [None, 2])
def test_tau2_bench_simulations_are_scored_and_grouped_by_task(tmp_path, indent):
    """After the results that `tau2 run` writes, their shape taken from its data model and from published simulations."""
    info = {"agent_info": {"llm": "m"}, "environment_info": {"domain_name": "telecom", "policy": "Be kind."}}
    tasks = [{"id": "7", "user_scenario": {"instructions": "Your phone is dead."}, "evaluation_criteria": None}]
    done = [simulation(0, 1.0, *TAU2_TALK), simulation(1, 0.0, *TAU2_TALK, termination_reason="max_steps"), simulation(2, None)]
    (tmp_path / "a.json").write_text(
        json.dumps({"timestamp": "t", "info": info, "tasks": tasks, "simulations": done}, indent=indent)
    )
    reading = read_files([str(tmp_path / "a.json")])
    first, second = reading.conversations
    assert (reading.formats, reading.refused) == ({"tau2-bench": 1}, [])
    assert said(first) == [
        ("system", "Be kind."),
        ("assistant", "How can I help?"),
        ("user", "My phone is dead."),
        ("assistant", ""),
        ("tool", "no such order"),
        ("assistant", "Toggle it, please."),
        ("user", "Done."),
    ]
    assert first.kinds == ("side", "main", "main")
    assert (first.messages[3].tool_calls[0].arguments, first.messages[4].tool_call_id) == ('{"order": 7}', "c1")
    assert (first.tool_calls, first.tool_errors, first.session, first.model) == (1, 1, "sim-0", "m")
    assert first.prompt == second.prompt
    assert "phone is dead" in first.prompt
    assert [one.value for conversation in (first, second) for one in conversation.judgements] == [1.0, 0.0]
    assert (first.status, second.status) == ("completed", "partial")
    assert [one["content"] for one in first.extra["user_tools"]] == [None, "it is on"]
    assert (first.extra["results"]["info"], first.extra["without_messages"][0]["id"]) == (info, "sim-2")


def test_a_simulation_of_tau2_bench_may_stand_alone(tmp_path):
    [conversation] = written(tmp_path, simulation(0, 1.0, *TAU2_TALK, policy="Be kind.")).conversations
    assert (conversation.messages[0].content, conversation.prompt) == ("Be kind.", "My phone is dead.")


def test_swe_agent_trajectories_with_demonstrations_as_context(tmp_path):
    history = [
        {"role": "system", "content": "s", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "Here is a demonstration", "is_demo": True, "agent": "main"},
        {"role": "user", "content": "Fix it.", "agent": "main", "message_type": "observation"},
        {"role": "assistant", "content": "I look.", "thought": "I look.", "action": "ls", "agent": "main",
         "tool_calls": [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}]},
        {"role": "tool", "content": "a.py", "agent": "main", "message_type": "observation", "tool_call_ids": ["c"]},
        {"role": "assistant", "content": "Done.", "thought": "Done.", "action": "submit", "agent": "main"},
    ]  # fmt: skip
    record = {"environment": "e", "trajectory": [{"action": "ls"}], "history": history, "info": {"exit_status": "submitted"}}
    (tmp_path / "a.traj").write_text(json.dumps(record, indent=2))
    [conversation] = read_files([str(tmp_path)]).conversations
    assert conversation.prompt == "Fix it."
    assert (conversation.kinds, conversation.status) == (("main", "main"), "completed")
    assert conversation.messages[4].tool_call_id == "c"
    assert conversation.extra["trajectory"] == [{"action": "ls"}]


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [
        {"type": "reasoning", "id": "r", "summary": []},
        {
            "type": "message",
            "id": "x",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "id": "y", "call_id": "c2", "name": "f", "arguments": "{}"},
    ],
}
GIVEN = [
    {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
]


@pytest.mark.parametrize("flat", [False, True])
def test_a_call_of_the_responses_api_is_a_turn(flat, tmp_path):
    request = {"input": GIVEN, "instructions": "Be brief.", "tools": [{"type": "function", "name": "f", "parameters": {}}]}
    record = request | RESPONSE if flat else {"request": request, "response": RESPONSE}
    [conversation] = written(tmp_path, record).conversations
    assert said(conversation) == [
        ("system", "Be brief."),
        ("user", "q"),
        ("assistant", ""),
        ("tool", "1"),
        ("assistant", "I look."),
    ]
    assert [call.id for call in conversation.messages[-1].tool_calls] == ["c2"]
    assert (conversation.kinds, conversation.model, conversation.status) == (("side", "main"), "m", "completed")
    assert "resp_1" in json.dumps(conversation.extra)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_0"}, {"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}]
)
def test_a_call_whose_context_is_on_the_server_is_refused(flat, more, tmp_path):
    for asked, answered in ((more, {}), ({}, more)):
        request, response = {"input": "And in Rome?"} | asked, RESPONSE | answered
        record = request | response if flat else {"request": request, "response": response}
        assert written(tmp_path, record).reasons() == {"a response that goes on with one that only the server has": 1}


def test_calls_side_by_side_may_have_a_conversation_of_the_log(tmp_path):
    record = {"input": "q", "conversation": "monday", "previous_response_id": None} | RESPONSE
    assert written(tmp_path, record).conversations[0].kinds == ("main",)


ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.conversation.id": "s9",
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "q"}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}]
    ),
}
PAIRS = [{"key": key, "value": {"stringValue": value}} for key, value in ATTRIBUTES.items()]
OTHER = {"name": "GET /", "spanId": "1", "attributes": [{"key": "http.method", "value": {"stringValue": "GET"}}]}


@pytest.mark.parametrize(
    "record",
    [
        {"resourceSpans": [{"scopeSpans": [{"spans": [OTHER, {"name": "chat m", "spanId": "2", "attributes": PAIRS}]}]}]},
        {"name": "chat m", "spanId": "2", "attributes": ATTRIBUTES},
        {"name": "chat m", "events": [{"name": "gen_ai.client.inference.operation.details", "attributes": ATTRIBUTES}]},
    ],
    ids=["collector", "span", "event"],
)
def test_a_span_with_messages_is_a_turn(record, tmp_path):
    [conversation] = written(tmp_path, record).conversations
    assert said(conversation) == [("system", "Be brief."), ("user", "q"), ("assistant", "a")]
    assert (conversation.session, conversation.model, conversation.status) == ("s9", "m", "completed")
    assert ("GET /" in json.dumps(conversation.extra)) == ("resourceSpans" in record)


def test_numbered_attributes_are_messages(tmp_path):
    told = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q", "gen_ai.completion.0.content": "a"}
    [conversation] = written(tmp_path, {"name": "chat", "attributes": told}).conversations
    assert said(conversation) == [("user", "q"), ("assistant", "a")]


ASKED = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Weather?"}
CALLED = {"tool_calls.0.id": "c1", "tool_calls.0.name": "look", "tool_calls.0.arguments": '{"city": "Oslo"}'}


def numbered(prefix, fields):
    return {f"{prefix}.{name}": value for name, value in fields.items()}


@pytest.mark.parametrize(
    "called",
    [
        CALLED,
        {"tool_calls": json.dumps([{"id": "c1", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}])},
        {"function_call.name": "look", "function_call.arguments": '{"city": "Oslo"}'},
    ],
    ids=["numbered", "spelled", "older"],
)
def test_numbered_calls_belong_to_their_answer(tmp_path, called):
    answer = {"role": "assistant", "content": "I look.", "finish_reason": "tool_calls"} | called
    tool = {"name": "look", "description": "Looks.", "parameters": '{"type": "object"}'}
    told = ASKED | numbered("gen_ai.completion.0", answer) | numbered("llm.request.functions.0", tool)
    [conversation] = written(tmp_path, {"name": "openai.chat", "attributes": told}).conversations
    [call] = conversation.messages[1].tool_calls
    assert (said(conversation)[1], call.name, call.arguments) == (("assistant", "I look."), "look", '{"city": "Oslo"}')
    assert json.loads(conversation.tools) == [{"type": "function", "function": tool | {"parameters": {"type": "object"}}}]
    assert conversation.kinds == ("main",)


def test_numbered_calls_of_a_prompt_have_their_results(tmp_path):
    called = numbered("gen_ai.prompt.1", {"role": "assistant"} | CALLED)
    heard = numbered("gen_ai.prompt.2", {"role": "tool", "tool_call_id": "c1", "content": "sunny"})
    told = ASKED | called | heard | {"gen_ai.completion.0.content": "Sunny."}
    [conversation] = written(tmp_path, {"name": "openai.chat", "attributes": told}).conversations
    assert [(call.id, call.name) for call in conversation.messages[1].tool_calls] == [("c1", "look")]
    assert (conversation.messages[2].role, conversation.messages[2].tool_call_id) == ("tool", "c1")
    assert conversation.kinds == ("side", "main")


@pytest.mark.parametrize("name", ["tool_calls.0.what", "tool_calls", "tool_uses.0.name"])
def test_a_numbered_call_that_is_not_understood(tmp_path, name):
    told = ASKED | {"gen_ai.completion.0.content": "I look.", f"gen_ai.completion.0.{name}": "look"}
    reading = written(tmp_path, {"name": "openai.chat", "attributes": told})
    assert reading.reasons() == {"a span with a tool call that is not understood": 1}


def test_a_numbered_thought_is_part_of_its_answer(tmp_path):
    """As the instrumentation of Anthropic writes it."""
    thought = numbered("gen_ai.completion.0", {"role": "thinking", "content": "Hm."})
    told = ASKED | thought | numbered("gen_ai.completion.1", {"role": "assistant", "content": "Sunny."})
    [conversation] = written(tmp_path, {"name": "anthropic.chat", "attributes": told}).conversations
    assert said(conversation)[1:] == [("assistant", "<think>\nHm.\n</think>\nSunny.")]


@pytest.mark.parametrize(
    "failure",
    [
        {"status": {"code": 2, "message": "timeout"}},
        {"status": {"code": "STATUS_CODE_ERROR"}},
        {"status": {"status_code": "ERROR"}},
        {"attributes": ATTRIBUTES | {"error.type": "timeout"}},
    ],
)
def test_a_span_that_failed_is_rejected(tmp_path, failure):
    failed = {"name": "chat m", "attributes": ATTRIBUTES} | failure
    reading = written(tmp_path, failed, failed | {"status": {"code": "STATUS_CODE_OK"}, "attributes": ATTRIBUTES})
    assert (reading.reasons(), len(reading.conversations)) == ({"a span that failed": 1}, 1)


def test_a_failed_span_leaves_the_others_of_its_line(tmp_path):
    good, failed = (
        {"name": "chat m", "spanId": "2", "attributes": PAIRS},
        {"status": {"code": 2}, "spanId": "3", "attributes": PAIRS},
    )
    reading = written(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [failed, good, OTHER]}]}]})
    [conversation] = reading.conversations
    assert [(one["refused"], one["spanId"]) for one in conversation.extra["spans"]] == [
        ("a span that failed", "3"),
        ("no messages in its spans", "1"),
    ]


def test_spans_of_anything_else_are_rejected(tmp_path):
    reading = written(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [OTHER]}]}]})
    assert reading.reasons() == {"no messages in its spans": 1}


@pytest.mark.parametrize(("ended", "kinds"), [(None, ("side", "main")), ("end_turn", ("main", "main"))])
def test_an_answer_of_claude_code_that_was_interrupted_was_cut(tmp_path, ended, kinds):
    """One that says why it ended was whole."""
    line = Claude()
    asked = line.user(None, "Do it.")
    cut = line.model(asked["uuid"], "msg_1", text("I will st"), ended=ended)
    mark = line.user(cut["uuid"], [text("[Request interrupted by user]")])
    other = line.user(mark["uuid"], "Do less.")
    records = (asked, cut, mark, other, line.model(other["uuid"], "msg_2", text("Done."), ended="end_turn"))
    [conversation] = written(tmp_path, *records).conversations
    assert conversation.kinds == kinds


def test_snapshots_of_codex_are_no_messages(tmp_path):
    before, after = CODEX[:8], CODEX[8:]
    [conversation] = written(tmp_path, *before, item("ghost_snapshot", ghost_commit={"id": "x"}), *after).conversations
    [plain] = written(tmp_path, *CODEX).conversations
    assert conversation.messages == plain.messages
    assert any(line.get("payload", {}).get("type") == "ghost_snapshot" for line in conversation.extra["lines"])


def test_what_a_server_ran_comes_before_what_it_says_then(tmp_path):
    searched = item("web_search_call", status="completed", action={"type": "search", "query": "x"})
    ran = item("code_interpreter_call", id="k", code="1", outputs=[{"type": "logs", "logs": "1"}])
    [conversation] = written(tmp_path, *CODEX[:4], searched, ran, CODEX[10]).conversations
    assert said(conversation)[3:] == [("assistant", ""), ("tool", ""), ("assistant", ""), ("tool", "1"), ("assistant", "One file.")]
    assert (conversation.tool_calls, conversation.tool_errors) == (2, 0)


def test_a_result_of_cline_names_the_id_of_its_call(tmp_path):
    """Of models with the Responses API it keeps another id beside it."""
    answer = [use("t1", command="ls") | {"call_id": "fc_1"}]
    rows = cline(answer, {"role": "user", "content": result("t1", "a.txt")}, {"role": "assistant", "content": "One."})
    [conversation] = written(tmp_path, *rows, name="api_conversation_history.json").conversations
    assert [call.id for call in conversation.messages[1].tool_calls] == [conversation.messages[2].tool_call_id]


def test_what_hermes_sent_from_elsewhere_is_context(tmp_path):
    copied = {"role": "assistant", "content": "Your reminder.", "mirror": True, "mirror_source": "cron"}
    lines = ({"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}, copied)
    [conversation] = written(tmp_path, *lines).conversations
    assert conversation.kinds == ("main", "side")
