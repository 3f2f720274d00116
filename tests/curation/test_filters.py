"""What a setting asks to be set aside, on rows planted for it."""

import json

import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.data.curation.runner import curate


def ask(tables, **filters):
    """What curation sets aside of rows that ppo would all take."""
    result = tables.curate("ppo", filters=filters)
    assert result.rows_in == result.rows_out + sum(result.filtered.values())
    return result.filtered, tables.kept(result)


def test_only_successes_is_one_setting(tables):
    for index, reward in enumerate([0.0, 1.0, 0.5, 1.0]):
        tables.rollout("a", index, reward)
    tables.rollout("a", 4, None)
    tables.score("a-4", 1.0, turn=0)
    assert ask(tables, success_only=True) == ({"no success": 3}, ["a-1", "a-3"])


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"min_score": 0.5}, ["a-1", "a-2"]),
        ({"max_score": 0.5}, ["a-0", "a-1"]),
        ({"min_score": 0.25, "max_score": 0.75}, ["a-1"]),
    ],
)
def test_scores_out_of_range_are_filtered(limits, kept, tables):
    for index, reward in enumerate([0.0, 0.5, 1.0]):
        tables.rollout("a", index, reward)
    tables.rollout("a", 3, None)
    tables.score("a-3", 1.0, turn=0)
    assert ask(tables, **limits) == ({"score out of range": 3 - len(kept), "no verifier score": 1}, kept)


def test_how_an_attempt_ended_is_what_its_source_says(tables):
    endings = [("completed", "length"), ("partial", "stop"), ("truncated", "stop"), ("aborted", "stop")]
    unsaid = [(None, "stop"), (None, "length"), (None, "max_turns")]
    for index, (status, reason) in enumerate(endings + unsaid):
        tables.rollout("a", index, 1.0, status=status, finish_reason=reason)
    only = ask(tables, endings=["completed"])
    assert only == ({"attempt partial": 1, "attempt truncated": 3, "attempt aborted": 1}, ["a-0", "a-4"])
    assert ask(tables, endings=["completed", "partial"])[1] == ["a-0", "a-1", "a-4"]
    assert ask(tables)[0] == {}


METHODS = ["sft", "kto", "grpo", "ppo", "opd", "combine", "dpo"]


@pytest.mark.parametrize("method", METHODS)
def test_cut_answers_of_others_teach_no_method(method, tables):
    """All were learnt from as if they were whole."""
    whole = [("imported", "completed"), ("imported", None), ("rollout", "truncated")]
    for index, (source, status) in enumerate([("imported", "truncated"), ("captured", "aborted"), *whole]):
        tables.rollout("a", index, float(index % 2), source=source, status=status)
        tables.score(f"a-{index}", 1.0, turn=0, hints=["Try again."])
    result = tables.curate(method, imitate="any") if method == "sft" else tables.curate(method)
    assert {reason: count for reason, count in result.filtered.items() if reason.startswith("attempt")} == {
        "attempt truncated": 1,
        "attempt aborted": 1,
    }


TURN_BY_TURN = [
    ("sft", {}),
    ("sft", {"imitate": "any"}),
    ("kto", {}),
    ("grpo", {"credit": "turn"}),
    ("combine", {"credit": "turn"}),
]


@pytest.fixture
def stopped(tables, say):
    """Make a conversation of three answers, the last of which was cut, with a score of each, or none."""

    def talk(*scores, item="a", **fields):
        streams = {"token_ids": [1, 2, 3, 4, 5, 6], "loss_mask": [False] * 3 + [True] * 3, "logprobs": [-0.5] * 6}
        messages = [say(role, f"{role} {turn}") for turn in range(3) for role in ("user", "assistant")]
        given = {"source": "captured", "status": "truncated", "turns": spans("main", "main", "main"), "messages": messages}
        tables.rollout(item, 0, None, **streams, **given | fields)
        for turn, score in enumerate(scores):
            if score is not None:
                tables.score(f"{item}-0", score, turn=turn, scorer="rules", origin="judge")
        tables.score(f"{item}-0", 1.0, scorer="rules", origin="judge")
        return tables

    return talk


@pytest.mark.parametrize(("method", "settings"), TURN_BY_TURN)
def test_turns_that_were_judged_before_the_cut_teach(method, settings, stopped):
    """The whole conversation was lost because somebody stopped its last answer."""
    tables = stopped(1.0, None, 1.0)
    result = tables.curate(method, **settings)
    assert [row["loss_mask"] for row in tables.rows(result)] == [[False] * 3 + [True, False, False]]


def test_of_two_equal_conversations_the_whole_one_is_imitated(stopped):
    stopped(1.0, None, None)
    tables = stopped(1.0, None, None, item="b", status="completed")
    result = tables.curate("sft", imitate="any")
    assert (result.filtered, tables.kept(result)) == ({"duplicate": 1}, ["b-0"])


def test_what_was_said_of_a_cut_answer_moves_no_baseline(stopped):
    stopped(1.0, None, -1.0)
    tables = stopped(1.0, None, None, item="b", status="completed")
    rows = tables.rows(tables.curate(credit="turn", turn_baseline=0.5))
    assert sorted(max(row["advantages"], key=abs) for row in rows) == [0.5, 1.0]  # the running mean: half of 0 and half of 1


def test_a_cut_attempt_is_not_the_best_of_its_group(tables):
    """Where the best one is chosen, turns are not looked at."""
    for index, reward in enumerate([0.5, 0.2, 0.9]):
        tables.rollout("a", index, reward, source="imported", status="truncated" if reward == 0.9 else "completed")
    tables.score("a-2", 1.0, turn=0)
    assert tables.kept(tables.curate("sft", imitate="chosen")) == ["a-0"]


def test_a_hint_on_a_turn_that_nobody_judged_does_not_teach(stopped):
    tables = stopped(1.0, None, None)
    tables.score("a-0", 0.0, turn=1, scorer="hints", origin="judge", hints=["Try again."])
    assert tables.curate("opd", credit="turn").filtered == {"no hint": 1}


@pytest.mark.parametrize("settings", [{}, {"credit": "step"}])
def test_where_rollouts_are_compared_a_cut_one_is_none(settings, tables):
    for index in range(2):
        tables.rollout("a", index, float(index), source="imported", status="truncated")
        tables.score(f"a-{index}", 1.0, turn=0)
    assert tables.curate("grpo", **settings).filtered == {"attempt truncated": 2}


def test_a_setting_lets_cut_answers_teach(tables):
    for index, status in enumerate(["completed", "truncated", "aborted"]):
        tables.rollout("a", index, 1.0, source="imported", status=status)
    assert ask(tables, endings=["completed", "truncated"]) == ({"attempt aborted": 1}, ["a-0", "a-1"])


def spans(*kinds):
    return [{"start": 3 + k, "end": 4 + k, "kind": kind, "finish_reason": "stop"} for k, kind in enumerate(kinds)]


def test_length_is_counted_in_tokens_and_in_main_turns(tables):
    for index, kinds in enumerate([("main",), ("main", "side"), ("main", "main"), ("main", "main", "main")]):
        tokens = 3 + len(kinds)
        streams = {"token_ids": [1] * tokens, "loss_mask": [False] * 3 + [True] * len(kinds), "logprobs": [0.0] * tokens}
        tables.rollout("a", index, 1.0, turns=spans(*kinds), **streams)
    assert ask(tables, min_turns=2) == ({"too few turns": 2}, ["a-2", "a-3"])
    assert ask(tables, max_turns=2) == ({"too many turns": 1}, ["a-0", "a-1", "a-2"])
    assert ask(tables, min_tokens=5) == ({"too short": 1}, ["a-1", "a-2", "a-3"])


LATIN = {  # the share of a text's letters that are Latin
    "All good, 100%!": 1.0,
    "Caf\u00e9 na\u00efve \u00df": 1.0,
    "\u4f60\u597d": 0.0,
    "ab\u4f60\u597d": 0.5,  # two letters of four
    "\u041f\u0440\u0438\u0432\u0435\u0442": 0.0,
    "100 % ... \U0001f600": 1.0,  # no letters: nothing to object to
    "": 1.0,
}


def test_replies_in_another_script_are_filtered(tables, say):
    asked = say("user", "\u4f60\u597d \u4f60\u597d")  # what a user writes does not count
    for index, text in enumerate(LATIN):
        tables.rollout("a", index, 1.0, messages=[asked, say("assistant", text)])
    for share in (0.1, 0.5, 0.51, 1.0):
        kept = [f"a-{index}" for index, latin in enumerate(LATIN.values()) if latin >= share]
        assert ask(tables, scripts=["Latin"], script_share=share) == ({"reply in another script": len(LATIN) - len(kept)}, kept)


def test_several_scripts_may_be_allowed(tables):
    tables.rollout("a", 0, 1.0, text="ab \u4f60 \u3042 \u30a2")
    assert ask(tables, scripts=["Latin", "Han"], script_share=0.9)[0] == {"reply in another script": 1}
    assert ask(tables, scripts=["Latin", "Han", "Hiragana", "Katakana"], script_share=1.0)[0] == {}


REPEATED = {  # the share of a text's pairs of words that it has said before
    "one two three four": 0.0,
    "one": 0.0,
    "": 0.0,
    "yes yes yes yes": 2 / 3,  # yes yes, three times
    "Yes, yes. YES! yes": 2 / 3,
    "a b a b a": 2 / 4,  # ab ba ab ba
    "\u597d\u597d\u597d\u597d": 2 / 3,  # written without spaces
    "yesyesyesyes": 0.0,
}


def test_a_reply_repeats_itself_as_often_as_its_bigrams_do(tables, say):
    for index, text in enumerate(REPEATED):
        tables.rollout("a", index, 1.0, messages=[say("user", f"{index}?"), say("assistant", text)])
    for most in (0.0, 0.49, 0.5, 0.66, 2 / 3):
        kept = [f"a-{index}" for index, share in enumerate(REPEATED.values()) if share <= most]
        filtered = {"reply repeats itself": len(REPEATED) - len(kept)} if len(kept) < len(REPEATED) else {}
        assert ask(tables, repetition_words=2, max_repetition=most) == (filtered, kept)


def test_the_most_repetitive_reply_counts(tables, say):
    loop = "no no no no"
    two = {"turns": spans("main", "main"), "token_ids": [1] * 5, "loss_mask": [False] * 3 + [True] * 2}
    tables.rollout("a", 0, 1.0, messages=[say("user", "q"), say("assistant", loop), say("user", "?"), say("assistant", "b")], **two)
    tables.rollout(
        "a", 1, 1.0, messages=[say("user", loop), say("assistant", "a"), say("tool", loop), say("assistant", "b")], **two
    )
    tables.rollout("a", 2, 1.0, messages=[say("user", "q"), say("assistant", loop), say("user", "?"), say("assistant", "b")])
    # of a-2 the first reply is part of the item: there is one turn
    assert ask(tables, repetition_words=2, max_repetition=0.5) == ({"reply repeats itself": 1}, ["a-1", "a-2"])


def test_tool_errors_come_from_the_source_or_malformed_calls(tables, say):
    good, bad = ("c", "stock", "{}"), ("d", "stock", "{")
    talk = [say("user", "q"), say("assistant", "", good, bad), say("tool", "5"), say("assistant", "5", good)]
    for call in talk[1]["tool_calls"]:
        call["malformed"] = call["arguments"] == "{"
    tables.rollout("a", 0, 1.0, tool_calls=4, tool_errors=1)
    tables.rollout("a", 1, 1.0, tool_calls=4, tool_errors=3)
    tables.rollout("a", 2, 1.0, tool_calls=0, tool_errors=0)
    tables.rollout("a", 3, 1.0)
    tables.rollout("a", 4, 1.0, messages=talk)  # 1 of 3
    assert ask(tables, max_tool_error_rate=0.25) == ({"too many tool errors": 2}, ["a-0", "a-2", "a-3"])
    assert ask(tables, max_tool_error_rate=0.34) == ({"too many tool errors": 1}, ["a-0", "a-2", "a-3", "a-4"])


@pytest.mark.parametrize(
    ("canaries", "kept"),
    [
        ((), ["a-0", "a-1", "a-2", "b5-0"]),
        (("b5",), ["a-0", "a-1", "a-2"]),  # an item's id
        (("canary 7f3e",), ["a-0", "b5-0"]),
        (("nobody says this", "about b?"), ["a-0", "a-1", "a-2"]),
    ],
)
def test_canaries_are_never_learnt(canaries, kept, tables, say):
    tables.rollout("a", 0, 1.0, text="canary 7f3")
    tables.rollout("a", 1, 1.0, messages=[say("user", "The CANARY\n7f3e sings"), say("assistant", "x")])
    tables.rollout(
        "a", 2, 1.0, messages=[say("user", "q"), say("assistant", "", ("c", "find", '{"q": "canary 7f3e"}')), say("tool", "-")]
    )
    tables.rollout("b5", 0, 1.0, messages=[say("user", "about b?"), say("assistant", "y")])
    result = tables.curate("ppo", canaries=canaries)
    assert tables.kept(result) == kept
    assert result.filtered == ({"canary": 4 - len(kept)} if len(kept) < 4 else {})


@pytest.mark.parametrize("method", ["ppo", "dpo", "sft"])
def test_datasets_of_an_older_layout_are_read_beside_newer_ones(method, tables):
    for index in range(4):
        tables.rollout("a", index, float(index % 2), session_id="s")
    later = ["session_id", "user_id", "status", "tool_calls", "tool_errors", "rendered_ids", "rendered_mask"]
    old = tables.publish("trajectories", tables.trajectories[:2], without=later)
    new = tables.publish("trajectories", tables.trajectories[2:])
    scores, items = tables.publish("scores", tables.scores), tables.publish("task_items", [])
    config = Curation(filters={"endings": ["completed"], "max_tool_error_rate": 0.0}, quotas={"per_user": 1, "per_session": 2})
    for refs in ([old, new], [new, old], [old, old]):
        rows = curate(tables.store, refs, [scores], items, config, method, threads=1).rows_out
        expected = {"ppo": 4, "dpo": 3, "sft": 2} if new in refs else {"ppo": 2, "dpo": 1, "sft": 1}
        assert rows == expected[method]


QUESTION = "How many iron kettles and copper pans are in stock today?"


def test_a_held_out_question_is_found_within_other_words(tables, say):
    tables.item("h", QUESTION, split="heldout")
    asked = [
        QUESTION,
        QUESTION[:-1],
        f"please tell me {QUESTION.lower()}",
        f"{QUESTION} Thanks!",
        f"Hm,\n{QUESTION}",
        f"({QUESTION})",
    ]
    for index, text in enumerate([*asked, QUESTION.replace("iron", "tin")]):
        tables.rollout("a", index, 1.0, messages=[say("user", text), say("assistant", "57")])
    assert ask(tables) == ({"held-out question": 6}, ["a-6"])


def test_a_sign_makes_another_question(tables, say):
    tables.item("h", "What is 3 + 4 by the way?", split="heldout")
    for index, sign in enumerate("+-*"):
        tables.rollout("a", index, 1.0, messages=[say("user", f"so what is 3 {sign} 4 by the way?"), say("assistant", "7")])
    assert ask(tables) == ({"held-out question": 1}, ["a-1", "a-2"])


def test_a_chinese_question_is_found_within_others_words(tables, say):
    question = "\u8bf7\u95ee\u4eca\u5929\u5317\u4eac\u7684\u5929\u6c14\u600e\u4e48\u6837"
    tables.item("h", f"{question}\uff1f", split="heldout")
    tables.rollout("a", 0, 1.0, messages=[say("user", f"\u4f60\u597d\uff0c{question}\u5440"), say("assistant", "57")])
    assert ask(tables)[0] == {"held-out question": 1}


def test_a_greeting_filters_copies_of_its_conversation_alone(tables, say):
    """Every row in which somebody said hi was lost."""
    said = [say("user", "hi"), say("assistant", "Hello!"), say("user", "topic"), say("assistant", "answer")]
    tables.item("h", "hi", split="heldout")
    tables.items[-1] |= {"environment": "conversations", "truth": json.dumps({"dialogue": "hi\nHello!\ntopic\nanswer"})}
    for index, messages in enumerate([said, said[:2], [*said[:3], say("assistant", "other")], [*said, say("user", "thanks")]]):
        tables.rollout("a", index, 1.0, messages=messages)
    assert ask(tables) == ({"held-out conversation": 2}, ["a-1", "a-2"])
