"""Exports of chat applications: the branch that is shown, thoughts, calls, ends and thumbs."""

import json

import pytest

from tests.importers.logs import only, read, short

THOUGHT = "<think>\nhm\n</think>"


def node(name, parent, role, content, **more):
    content = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {"id": name, "author": {"role": role, "name": more.pop("author", None)}, "content": content, "metadata": {}}
    return {name: {"id": name, "parent": parent, "children": [], "message": message | {"status": "finished_successfully"} | more}}


def chatgpt(*nodes, current):
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    for one in nodes:
        mapping |= one
    return {"title": "t", "create_time": 1.5, "mapping": mapping, "current_node": current, "conversation_id": "c-1"}


def test_chatgpt_keeps_the_branch_that_is_shown(tmp_path):
    record = chatgpt(
        node("u", "root", "user", "2+2?"),
        node("a", "u", "assistant", "5", metadata={"model_slug": "gpt-4o"}),
        node("b", "u", "assistant", "4", metadata={"model_slug": "gpt-4o"}),
        current="b",
    )
    conversation = only(read(tmp_path, record))
    assert short(conversation) == [("user", "2+2?"), ("assistant", "4")]
    assert (conversation.session, conversation.model, conversation.kinds) == ("c-1", "gpt-4o", ("main",))
    [left] = conversation.extra["export"]["not_shown"]
    assert left["content"]["parts"] == ["5"]


def test_chatgpt_calls_its_tools_and_thinks(tmp_path):
    about = {"content_type": "user_editable_context", "user_profile": "", "user_instructions": "be brief"}
    record = chatgpt(
        node("s", "root", "user", about, metadata={"is_visually_hidden_from_conversation": True}),
        node("u", "s", "user", "plot it"),
        node("t", "u", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "hm"}]}),
        node("c", "t", "assistant", {"content_type": "code", "text": "print(1)"}, recipient="python"),
        node("r", "c", "tool", {"content_type": "execution_output", "text": "1"}, author="python"),
        node("n", "r", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 3 s"}),
        node("a", "n", "assistant", "It is 1."),
        current="a",
    )
    conversation = only(read(tmp_path, record))
    assert short(conversation) == [
        ("system", "be brief"),
        ("user", "plot it"),
        ("assistant", f'{THOUGHT} python({{"input": "print(1)"}})'),
        ("tool", "1"),
        ("assistant", "It is 1."),
    ]
    assert (conversation.tool_calls, conversation.tool_errors, conversation.kinds) == (1, 0, ("main", "main"))


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"status": "in_progress"}, "aborted"),
        ({"metadata": {"finish_details": {"type": "max_tokens"}}}, "truncated"),
        ({"metadata": {"finish_details": {"type": "interrupted"}}}, "aborted"),
        ({"metadata": {"finish_details": {"type": "stop"}}}, None),
    ],
)
def test_chatgpt_says_whether_an_answer_is_whole(tmp_path, more, status):
    record = chatgpt(node("u", "root", "user", "q"), node("a", "u", "assistant", "half", **more), current="a")
    assert only(read(tmp_path, record)).status == status


def test_chatgpt_pictures_are_no_text(tmp_path):
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x", "width": 3}
    asked = {"content_type": "multimodal_text", "parts": [picture, "what is it?"]}
    record = chatgpt(node("u", "root", "user", asked), node("a", "u", "assistant", "a cat"), current="a")
    conversation = only(read(tmp_path, record))
    assert short(conversation)[0] == ("user", "[image_asset_pointer: file-service://x]\nwhat is it?")
    assert conversation.unread == {0}


CLAUDE = {
    "uuid": "c-2",
    "name": "n",
    "account": {"uuid": "ann"},
    "chat_messages": [
        {"uuid": "1", "sender": "human", "text": "q", "content": [{"type": "text", "text": "q"}], "attachments": []},
        {
            "uuid": "2",
            "sender": "assistant",
            "text": "a",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "name": "search", "input": {"q": "x"}},
                {"type": "tool_result", "name": "search", "content": [{"type": "text", "text": "found"}], "is_error": False},
                {"type": "text", "text": "a", "citations": []},
                {"type": "token_budget"},
            ],
        },
    ],
}


def test_claude_ai_thinks_calls_and_answers(tmp_path):
    conversation = only(read(tmp_path, CLAUDE))
    assert short(conversation) == [
        ("user", "q"),
        ("assistant", f'{THOUGHT} search({{"q": "x"}})'),
        ("tool", "found"),
        ("assistant", "a"),
    ]
    assert (conversation.session, conversation.user, conversation.kinds) == ("c-2", "ann", ("main", "main"))


def test_claude_ai_reads_texts_of_files_and_branches(tmp_path):
    messages = [
        {"uuid": "1", "sender": "human", "text": "sum up", "attachments": [{"extracted_content": "long text"}]},
        {"uuid": "2", "parent_message_uuid": "1", "sender": "assistant", "text": "bad"},
        {"uuid": "3", "parent_message_uuid": "1", "sender": "assistant", "text": "good", "truncated": True},
    ]
    conversation = only(read(tmp_path, CLAUDE | {"chat_messages": messages}))
    assert short(conversation) == [("user", "long text\nsum up"), ("assistant", "good")]
    assert conversation.status == "truncated"


def open_webui(*messages, current):
    history = {"messages": {message["id"]: message for message in messages}, "currentId": current}
    return {"id": "c-3", "user_id": "ann", "title": "t", "chat": {"models": ["llama3"], "history": history, "messages": []}}


def test_open_webui_reads_details_and_thumbs(tmp_path):
    said = (
        '<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 s</summary>\n&gt; hm\n</details>\n'
        '<details type="tool_calls" done="true" id="c1" name="add" arguments="&quot;{\\&quot;a\\&quot;: 2}&quot;" '
        'result="&quot;4&quot;" files="">\n<summary>Tool Executed</summary>\n</details>\nIt is 4.'
    )
    record = open_webui(
        {"id": "u", "parentId": None, "role": "user", "content": "2+2?"},
        {"id": "x", "parentId": "u", "role": "assistant", "content": "5", "model": "llama3", "done": True},
        {"id": "a", "parentId": "u", "role": "assistant", "content": said, "model": "llama3", "annotation": {"rating": 1}},
        current="a",
    )
    conversation = only(read(tmp_path, record))
    assert short(conversation) == [
        ("user", "2+2?"),
        ("assistant", f'{THOUGHT} add({{"a": 2}})'),
        ("tool", "4"),
        ("assistant", "It is 4."),
    ]
    assert (conversation.session, conversation.user, conversation.model) == ("c-3", "ann", "llama3")
    [judgement] = conversation.judgements
    assert (judgement.value, judgement.origin, judgement.turn) == (1.0, "user", 1)


@pytest.mark.parametrize("more", [{"done": False}, {"error": {"content": "no such model"}}])
def test_open_webui_says_what_is_cut(tmp_path, more):
    record = open_webui(
        {"id": "u", "parentId": None, "role": "user", "content": "q"},
        {"id": "a", "parentId": "u", "role": "assistant", "content": "ha"} | more,
        current="a",
    )
    assert only(read(tmp_path, record)).status == "aborted"


LIBRE = [
    {"messageId": "1", "parentMessageId": "0", "isCreatedByUser": True, "sender": "User", "text": "2+2?"},
    {"messageId": "2", "parentMessageId": "1", "isCreatedByUser": False, "sender": "GPT", "text": "5", "model": "m"},
    {
        "messageId": "3",
        "parentMessageId": "1",
        "isCreatedByUser": False,
        "text": "",
        "model": "m",
        "feedback": {"rating": "thumbsDown"},
        "content": [
            {"type": "think", "think": "hm"},
            {"type": "tool_call", "tool_call": {"id": "c1", "name": "add", "args": '{"a": 2}', "output": "4"}},
            {"type": "text", "text": "It is 4."},
        ],
    },
]


@pytest.mark.parametrize("recursive", [False, True])
def test_librechat_reads_lists_and_trees(tmp_path, recursive):
    tree = [LIBRE[0] | {"children": [one | {"children": []} for one in LIBRE[1:]]}]
    record = {"conversationId": "c-4", "endpoint": "openAI", "options": {"promptPrefix": "be brief"}, "recursive": recursive}
    conversation = only(read(tmp_path, record | {"messages": tree if recursive else LIBRE}))
    assert short(conversation) == [
        ("system", "be brief"),
        ("user", "2+2?"),
        ("assistant", f'{THOUGHT} add({{"a": 2}})'),
        ("tool", "4"),
        ("assistant", "It is 4."),
    ]
    assert (conversation.session, conversation.model) == ("c-4", "m")
    assert [(one.value, one.turn) for one in conversation.judgements] == [(0.0, 1)]
    assert [one["text"] for one in conversation.extra["export"]["not_shown"]] == ["5"]


def test_a_file_of_several_chats_is_an_array(tmp_path):
    record = chatgpt(node("u", "root", "user", "q"), node("a", "u", "assistant", "a"), current="a")
    (tmp_path / "conversations.json").write_text(json.dumps([record, record | {"conversation_id": "c-9"}], indent=2))
    reading = read(tmp_path)
    assert [one.session for one in reading.conversations] == ["c-1", "c-9"]
    assert reading.formats == {"chatgpt": 2}


def test_code_that_open_webui_ran_is_a_call_with_its_output(tmp_path):
    said = (
        '<details type="code_interpreter" done="true" output="{&quot;stdout&quot;: &quot;4&quot;}">\n<summary>Analyzed</summary>\n'
        "```python\nprint(2+2)\n```\n</details>\nIt is 4."
    )
    record = open_webui(
        {"id": "u", "parentId": None, "role": "user", "content": "2+2?"},
        {"id": "a", "parentId": "u", "role": "assistant", "content": said},
        current="a",
    )
    call = 'code_interpreter({"code": "print(2+2)"})'
    assert short(only(read(tmp_path, record)))[1:] == [("assistant", call), ("tool", '{"stdout": "4"}'), ("assistant", "It is 4.")]


def oasst(name, role, text, *replies, **fields):
    node = {"message_id": name, "parent_id": None, "text": text, "role": role, "lang": "en", "review_result": True}
    return node | {"deleted": False, "rank": None, "labels": {"spam": {"value": 0.0}}, "replies": list(replies)} | fields


FOLLOWED = oasst("q2", "prompter", "What?", oasst("a3", "assistant", "Sorry: so."))
OASST = {
    "message_tree_id": "q",
    "tree_state": "ready_for_export",
    "prompt": oasst(
        *("q", "prompter", "Why?"),
        oasst("a1", "assistant", "Because, badly.", FOLLOWED, rank=1),
        oasst("a0", "assistant", "Because, well.", oasst("q4", "prompter", "Thanks."), rank=0),
        oasst("a2", "assistant", "Buy now.", rank=2, deleted=True),
        oasst("a4", "assistant", "Buy it.", rank=3, review_result=False),
    ),
}


def flat(node, parent=None):
    yield {name: value for name, value in node.items() if name != "replies"} | {"parent_id": parent, "message_tree_id": "q"}
    for reply in node["replies"]:
        yield from flat(reply, node["message_id"])


@pytest.mark.parametrize("records", [[OASST], list(flat(OASST["prompt"]))], ids=["trees", "messages"])
def test_the_best_of_ranked_answers_is_taught_and_chosen(tmp_path, records):
    reading = read(tmp_path, *records)
    followed, best = reading.conversations
    assert [text for _, text in short(followed)] == ["Why?", "Because, badly.", "What?", "Sorry: so."]
    assert (followed.kinds, best.kinds, followed.session) == (("side", "main"), ("main",), "q")
    assert short(best) == [("user", "Why?"), ("assistant", "Because, well.")]
    [preference] = reading.preferences
    assert [side[0].content for side in (preference.chosen, preference.rejected)] == ["Because, well.", "Because, badly."]
    assert (reading.reasons(), reading.accepted) == ({}, len(records))


def test_answers_that_nobody_ranked_are_all_taught(tmp_path):
    tree = oasst("q", "prompter", "Why?", oasst("a", "assistant", "So."), oasst("b", "assistant", "Thus."))
    reading = read(tmp_path, OASST | {"prompt": tree})
    assert ([short(one)[-1][1] for one in reading.conversations], reading.preferences) == (["So.", "Thus."], [])
    empty = OASST | {"prompt": oasst("q", "prompter", "Why?")}
    assert read(tmp_path, empty).reasons() == {"a tree of messages without an answer that is left": 1}
