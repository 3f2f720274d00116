"""Sessions of OpenClaw and pi: trees of entries, compactions, what nobody asked for, and what no model said."""

from tests.importers.logs import only, read, short

NAME = "b7300bff-a214-4c11-97ae-eab26883c67a"
HEADER = {"type": "session", "version": 3, "id": NAME, "timestamp": "t", "cwd": "/w"}
SET = {"type": "custom", "customType": "model-snapshot", "data": {"provider": "p"}, "id": "c", "parentId": None, "timestamp": "t"}


def entry(name, before, role, text, **fields):
    message = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1} | fields
    return {"type": "message", "id": name, "parentId": before, "timestamp": "t", "message": message}


def reply(name, before, text, **fields):
    return entry(name, before, "assistant", text, **{"provider": "p", "model": "m", "stopReason": "stop"} | fields)


ASKED = entry("u1", "c", "user", "List files")
CALL = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}}
CALLED = reply("a1", "u1", "", content=[{"type": "thinking", "thinking": "Look."}, CALL], stopReason="toolUse")
RESULT = entry("r1", "a1", "toolResult", "no such file", toolCallId="c1", toolName="exec", isError=True)
SESSION = (HEADER, SET, ASKED, CALLED, RESULT, reply("a2", "r1", "None."))


def said(reading):
    return [([text for _, text in short(one)], one.kinds) for one in reading.conversations]


def test_a_session_has_its_calls_results_and_model(tmp_path):
    conversation = only(read(tmp_path, *SESSION, name=f"{NAME}.jsonl"))
    thought = "<think>\nLook.\n</think>"
    assert short(conversation) == [
        ("user", "List files"),
        ("assistant", f'{thought} exec({{"command": "ls"}})'),
        ("tool", "no such file"),
        ("assistant", "None."),
    ]
    assert (conversation.session, conversation.model, conversation.tool_errors) == (NAME, "m", 1)
    assert conversation.extra["lines"] == [HEADER, SET]


def test_another_branch_repeats_its_history_as_context(tmp_path):
    again = (entry("u2", "r1", "user", "Again"), reply("a3", "u2", "Still none."))
    first, second = said(read(tmp_path, *SESSION, *again))
    assert first[1] == ("main", "main")
    assert (second[0][-2:], second[1]) == (["Again", "Still none."], ("side", "main"))


def test_a_compaction_goes_on_from_its_summary(tmp_path):
    compacted = {"type": "compaction", "id": "k", "parentId": "a2", "timestamp": "t", "summary": "Sum.", "firstKeptEntryId": "r1"}
    _, second = said(read(tmp_path, *SESSION, compacted, entry("u2", "k", "user", "More"), reply("a3", "u2", "Sure.")))
    assert second == (["Sum.", "no such file", "None.", "More", "Sure."], ("side", "main"))


def test_heartbeats_are_side_turns_and_copies_are_none(tmp_path):
    """OpenClaw writes what it delivered once more as the assistant; a request that failed leaves an empty answer."""
    copy = reply("m", "a2", "None.", provider="openclaw", model="delivery-mirror")
    failed = reply("e", "m", "", content=[], stopReason="error")
    beat = (entry("u2", "e", "user", "[OpenClaw heartbeat poll]"), reply("a3", "u2", "HEARTBEAT_OK"))
    after = (entry("u3", "a3", "user", "Bye"), reply("a4", "u3", "Bye.", stopReason="aborted"))
    reading = read(tmp_path, *SESSION, copy, failed, *beat, *after)
    [(texts, kinds)] = said(reading)
    assert (texts[3:], kinds) == (
        ["None.", "[OpenClaw heartbeat poll]", "HEARTBEAT_OK", "Bye", "Bye."],
        ("main", "main", "side", "main"),
    )
    assert reading.conversations[0].status == "aborted"


def test_lines_of_older_versions_have_no_ids(tmp_path):
    lines = [{name: value for name, value in one.items() if name not in ("id", "parentId")} for one in SESSION[2:]]
    assert len(only(read(tmp_path, HEADER, *lines)).messages) == 4


def test_branches_read_the_messages_that_they_share_once(tmp_path):
    """A hundred branches with one long history would else take a hundred times as long to read."""
    turns = [entry(f"m{n}", f"m{n - 1}" if n else None, ("user", "assistant")[n % 2], f"text {n}") for n in range(20)]
    ends = [
        one for n in range(5) for one in (entry(f"u{n}", "m19", "user", "more"), entry(f"a{n}", f"u{n}", "assistant", f"end {n}"))
    ]
    conversations = read(tmp_path, *turns, *ends).conversations
    assert [one.messages[-1].content for one in conversations] == [f"end {n}" for n in range(5)]
    assert all(one.messages[3] is conversations[0].messages[3] for one in conversations)
    assert [sum(kind == "main" for kind in one.kinds) for one in conversations] == [11, 1, 1, 1, 1]
