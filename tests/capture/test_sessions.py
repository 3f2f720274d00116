"""What a turn continues, repeats and is followed by."""

from __future__ import annotations

from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.records import Answer, Done, Feedback, Turn
from clawpipe.data.capture.sessions import sessions_of
from clawpipe.data.capture.settings import IDLE_SECONDS

USER, CALL = {"role": "user", "content": "How many mugs?"}, {"id": "c1", "type": "function"}
CALLING = {
    "role": "assistant",
    "content": None,
    "tool_calls": [CALL | {"function": {"name": "stock", "arguments": '{"a": 1, "b": 2}'}}],
}


def turn(number, messages, *answers, session="s", key="k", time=None, prompt=None, tokens=None, **fields):
    """A turn that ended at second `number`; its answers are texts or messages."""
    made = [
        Answer(
            one if isinstance(one, dict) else {"role": "assistant", "content": one},
            "stop",
            None if tokens is None else tokens,
            None if tokens is None else [-0.5] * len(tokens),
        )
        for one in answers
    ]
    fields = {"turn_type": "main", "session_from": "x-session-id", "turn_type_from": "x-turn-type"} | fields
    request = {"model": "agent", "messages": messages}
    return Turn(f"t{number}", time or number, key, session, request=request, answers=made, prompt_token_ids=prompt, **fields)


def said(text):
    return {"role": "assistant", "content": text}


def only(records):
    [session] = sessions_of(records).values()
    return session


def test_a_turn_continues_the_one_whose_answer_it_holds():
    results = [{"role": "tool", "tool_call_id": "x", "content": "57"}, {"role": "tool", "tool_call_id": "y", "content": "58"}]
    again = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "other", "function": {"name": "stock", "arguments": '{"b":2,"a":1}'}}],
    }
    first, second = turn(1, [USER], CALLING), turn(2, [USER, again, *results], "It is 57.")
    one, two = only([first, second]).turns
    assert two.parent is one.replies[0]
    assert (one.relation, two.relation) == ("starts", "continues")
    assert one.replies[0].next_state == results  # all of them
    assert two.replies[0].next_state == []


def test_a_new_time_or_a_missing_thought_changes_nothing():
    def system(text):
        return {"role": "system", "content": text}

    first = turn(1, [system("It is 12:00."), USER], "<think>Mugs?</think>\n57 ")
    second = turn(
        2, [system("It is 12:01."), USER, said("57"), {"role": "user", "content": [{"type": "text", "text": "Sure?"}]}], "Yes"
    )
    assert only([first, second]).turns[1].relation == "continues"


def test_a_repeated_prompt_keeps_both_answers():
    records = [turn(1, [USER], "57"), turn(2, [USER], "58"), turn(3, [USER, said("58"), USER], "59")]
    one, two, three = only(records).turns
    assert (two.relation, two.repeats) == ("regenerates", one)
    assert three.parent is two.replies[0]
    assert one.replies[0].follower is None
    assert [[reply.turn.number for reply in chain] for chain in chains_of(only(records))] == [[1], [2, 3]]


def test_an_edited_history_is_a_branch():
    edited = {"role": "user", "content": "How many cups?"}
    records = [turn(1, [USER], "57"), turn(2, [USER, said("57"), USER], "x"), turn(3, [USER, said("57"), edited], "y")]
    assert [one.relation for one in only(records).turns] == ["starts", "continues", "branches"]
    assert only([*records, turn(4, [USER, said("never said"), USER], "z")]).turns[3].relation == "branches"


def test_requests_of_one_session_at_the_same_time_do_not_mix():
    """Counting turns would give the second conversation's request to the first one."""
    a, b = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
    records = [turn(1, [a], "A"), turn(2, [b], "B"), turn(3, [b, said("B"), b], "BB"), turn(4, [a, said("A"), a], "AA")]
    turns = only(records).turns
    assert turns[2].parent is turns[1].replies[0]
    assert turns[3].parent is turns[0].replies[0]
    assert turns[0].replies[0].next_state == [a]


def test_of_several_answers_the_continued_one_is_chosen():
    records = [turn(1, [USER], "a", "b", "c"), turn(2, [USER, said("b"), USER], "d")]
    one, two = only(records).turns
    assert one.chosen is one.replies[1]
    chains = [[(reply.turn.number, reply.index) for reply in chain] for chain in chains_of(only(records))]
    assert sorted(chains) == [[(1, 0)], [(1, 1), (2, 0)], [(1, 2)]]
    assert two.chosen is two.replies[0]


def test_sessions_of_two_keys_never_mix():
    opinions = [
        Feedback("f1", 3, "k", response_id="t1", value=1.0),
        Feedback("f2", 3, "other", response_id="t1", value=-1.0),
        Feedback("f3", 3, "other", session="s", turn=1, value=0.5),
        Feedback("f4", 3, "k", session="s", turn=9, value=0.5),
    ]
    found = sessions_of([turn(1, [USER], "57"), turn(2, [USER], "58", key="other"), *opinions])
    assert [[one.id for one in session.turns[0].feedback] for session in found.values()] == [["f1"], ["f3"]]


def test_a_session_ends_when_its_client_says_so_or_after_an_hour():
    session = only([turn(1, [USER], "57")])
    assert not session.is_closed(1 + IDLE_SECONDS)
    assert session.is_closed(2 + IDLE_SECONDS)
    assert only([turn(1, [USER], "57", done=True)]).is_closed(2)
    assert only([turn(1, [USER], "57"), Done(5, "k", "s")]).is_closed(6)
    assert not only([turn(1, [USER], "57"), Done(5, "k", "s"), turn(7, [USER], "58")]).is_closed(8)


def test_a_row_ends_where_a_prompt_changes_sampled_tokens():
    history = [USER, said("57"), USER]
    first = turn(1, [USER], "57", prompt=[1, 2], tokens=[10, 11])
    for prompt, fields, chains in [
        ([1, 2, 10, 11, 3], {}, [[1, 2]]),
        ([1, 2, 10, 12, 3], {}, [[1], [2]]),  # tokenized anew
        ([1, 2, 10, 11, 3], {"policy_version": "other"}, [[1], [2]]),
        ([1, 2, 10, 11, 3], {"temperature": 0.5}, [[1], [2]]),
    ]:
        records = [first, turn(2, history, "58", prompt=prompt, tokens=[12], **fields)]
        assert [[reply.turn.number for reply in chain] for chain in chains_of(only(records))] == chains
    assert [len(chain) for chain in chains_of(only([first, turn(2, history, "58")]))] == [1, 1]  # text does not join tokens
    assert [len(chain) for chain in chains_of(only([first, turn(2, history, "58")]), {"t1"})] == [1]  # nor is one stored twice
