"""Which word counts: a user's on a turn, a user's on the whole, a judge's; for methods that learn from text and for grpo."""

import pytest

from tests.curation.test_terms import judge, masked, streams

SPANS = [(2, 3), (4, 5), (6, 7), (8, 9)]
MASK = [False, False, *[True, False] * 3, True]
LINES = ["user q", "assistant one", "user no", "assistant two", "user no!", "assistant three", "user thanks", "assistant four"]


def talk(tables, say, *scores, origin="judge", whole=None, judged=True, name="talk", first=0):
    """A conversation of four turns of one token; `scores` in order, None for none, and their mean if it is `judged`."""
    lines = [f"user q{first}", *LINES[1:]]
    tables.rollout(
        f"a{first}", 0, None, trajectory_id=name, source="imported",
        messages=[say(*line.split(" ", 1)) for line in lines],
        token_ids=list(range(first, first + 9)), loss_mask=MASK, logprobs=[-0.5 * m for m in MASK], prompt_tokens=2,
        turns=[{"start": s, "end": e, "kind": "main", "finish_reason": "stop"} for s, e in SPANS],
    )  # fmt: skip
    said = {turn: value for turn, value in enumerate(scores) if value is not None}
    for turn, value in said.items():
        judge(tables, name, turn, value, origin=origin, scorer=origin)
    if said and judged:
        mean = sum(said.values()) / len(said)
        tables.score(name, mean, origin=origin, scorer=origin, success=mean > 0 if mean else None)
    if whole is not None:
        tables.score(name, whole, origin="user", scorer="thumb", success=whole > 0 if whole else None)


def credit(tables, method, **config):
    """The advantage of each turn, None where it is not trained; None for all if the row was filtered."""
    rows = tables.rows(tables.curate(method, **config))
    return [rows[0]["advantages"][s] if rows[0]["loss_mask"][s] else None for s, _ in SPANS] if rows else None


NINE = [  # turn, whole: what sft, kto and grpo (turn by turn) make of the turn
    (1.0, 1.0, 1.0, 1.0, 1.0),
    (0.0, 1.0, 1.0, 1.0, None),
    (-1.0, 1.0, None, None, None),
    (1.0, 0.0, 1.0, 1.0, 1.0),
    (0.0, 0.0, 1.0, None, None),
    (-1.0, 0.0, None, -1.0, -1.0),
    (1.0, -1.0, None, None, None),
    (0.0, -1.0, None, -1.0, None),
    (-1.0, -1.0, None, -1.0, -1.0),
]


METHODS = (("sft", {"imitate": "any"}), ("kto", {}), ("grpo", {"credit": "turn"}))


def first_turns(tables, method, config, talks):
    """What a method makes of the first turn of each conversation; None if it is not trained."""
    rows, (start, _) = by_number(tables, tables.curate(method, **config)), SPANS[0]
    return [rows[n]["advantages"][start] if n in rows and rows[n]["loss_mask"][start] else None for n in range(talks)]


def test_a_judges_word_on_a_turn_by_a_users_on_the_whole(tables, say):
    for number, (turn, whole, *_) in enumerate(NINE):
        talk(tables, say, turn, whole=whole, name=f"talk{number}", first=100 * number)
    for place, (method, config) in enumerate(METHODS, 2):
        assert first_turns(tables, method, config, 9) == [row[place] for row in NINE]


@pytest.fixture
def nine(tables, say):
    """The nine conversations of the table, by number; the second turn of each is praised."""
    for number, (turn, whole, *_) in enumerate(NINE):
        talk(tables, say, turn, 1.0, whole=whole, name=f"talk{number}", first=100 * number)
    return tables


def by_number(tables, result):
    return {int(row["trajectory_id"][4:]): row for row in tables.rows(result)}


def test_combine_takes_turns_as_grpo_does(nine):
    rows, (start, _) = by_number(nine, nine.curate("combine", credit="turn")), SPANS[0]
    found = [rows[n]["advantages"][start] if n in rows and rows[n]["loss_mask"][start] else None for n in range(9)]
    assert found == [grpo for *_, grpo in NINE]


def test_a_critic_is_given_no_word_that_a_user_disputes(nine):
    rows, (_, end) = by_number(nine, nine.curate("ppo")), SPANS[0]
    assert [rows[n]["rewards"][end - 1] for n in range(9)] == [0.0 if turn * whole < 0 else turn for turn, whole, *_ in NINE]


def test_a_correction_needs_blame_and_an_accepted_reply(nine):
    """Under a thumb down no reply was accepted; a thumb up says that it went well in the end."""
    rows = nine.rows(nine.curate("dpo", pairs={"corrections": True}))
    assert {row["rejected_id"] for row in rows} == {f"talk{n}#0" for n, (turn, whole, *_) in enumerate(NINE) if turn < 0 <= whole}


def test_a_users_own_word_on_a_turn_stands(tables, say):
    said = [(turn, whole) for turn in (1.0, -1.0) for whole in (1.0, 0.0, -1.0)]
    for number, (turn, whole) in enumerate(said):
        talk(tables, say, turn, whole=whole, origin="user", judged=False, name=f"talk{number}", first=100 * number)
    for method, config in METHODS:
        imitates = method == "sft"
        expected = [None if imitates and turn < 0 else turn for turn, _ in said]
        assert first_turns(tables, method, config, 6) == expected


def test_imitation_leaves_out_the_turn_that_was_called_wrong(tables, say):
    talk(tables, say, 1.0, -1.0, None, 1.0)
    assert credit(tables, "sft") == [1.0, None, 1.0, 1.0]
    assert credit(tables, "sft", imitate="any") == [1.0, None, 1.0, 1.0]
    assert credit(tables, "kto") == [1.0, -1.0, None, 1.0]
    assert tables.curate("sft").details["trained_tokens"] == 3


def test_one_praised_turn_of_a_bad_talk_is_imitated_alone(tables, say):
    talk(tables, say, -1.0, -1.0, 1.0, None)
    assert credit(tables, "sft") == credit(tables, "sft", imitate="any") == [None, None, 1.0, None]


def test_a_talk_in_which_every_turn_was_blamed_is_filtered(tables, say):
    talk(tables, say, -1.0, -1.0, -1.0, -1.0)
    for imitate, reason in (("any", "no success"), ("success", "no success"), ("chosen", "group of one")):
        assert tables.curate("sft", imitate=imitate).filtered == {reason: 1}
    assert credit(tables, "kto") == [-1.0] * 4


def test_turns_that_users_judged_need_no_score_of_the_whole(tables, say):
    talk(tables, say, 1.0, -1.0, origin="user", judged=False)
    assert credit(tables, "sft") == [1.0, None, None, None]
    assert credit(tables, "kto") == [1.0, -1.0, None, None]


def test_a_verifiers_failure_outranks_a_judges_praise(tables, say):
    talk(tables, say, 1.0)
    tables.score("talk", 0.0)
    assert tables.curate("sft").filtered == {"no success": 1}
    assert credit(tables, "kto") == [None, -1.0, -1.0, -1.0]


def test_numbers_without_a_sign_blame_nobody(tables, say):
    """A reward model's logits say of no trajectory whether it is a success."""
    talk(tables, say, -2.0, -3.0, judged=False)
    tables.score("talk", -2.5, origin="judge", scorer="judge", success=None)
    assert credit(tables, "sft", imitate="any") == [1.0] * 4
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == 0


def test_the_reply_that_was_accepted_corrects_all_before_it(tables, say):
    talk(tables, say, -1.0, -1.0, 1.0, None)
    rows = tables.rows(tables.curate("dpo", pairs={"corrections": True}))
    pairs = {row["rejected_id"]: (row["chosen_token_ids"], row["rejected_token_ids"]) for row in rows}
    assert pairs == {"talk#0": ([0, 1, 6], [0, 1, 2]), "talk#1": ([0, 1, 2, 3, 6], [0, 1, 2, 3, 4])}


@pytest.mark.parametrize(("accepted", "pairs"), [(2, 2), (3, 0)])
def test_a_reply_before_the_cut_corrects_the_cut_one_does_not(accepted, pairs, tables, say):
    talk(tables, say, *[-1.0] * accepted, 1.0)
    tables.trajectories[0]["status"] = "truncated"
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == pairs


@pytest.mark.parametrize(("whole", "pairs"), [(1.0, 2), (0.0, 2), (-1.0, 0)])
def test_a_thumb_down_on_the_whole_leaves_no_accepted_reply(whole, pairs, tables, say):
    talk(tables, say, -1.0, -1.0, 1.0, None, whole=whole)
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == pairs


def test_praise_does_not_reach_back_over_a_reply_nobody_blamed(tables, say):
    talk(tables, say, -1.0, 0.0, 1.0, None)
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == 0


def test_streams_of_a_thumb_down_have_no_praise(tables, say):
    talk(tables, say, 1.0, -1.0, whole=-1.0)
    [(mask, advantages)] = streams(tables, tables.curate(credit="turn")).values()
    assert (mask, advantages) == masked(None, None, None, None, -1.0, None, None, None, None)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_thumb_given_again_counts_by_its_last_word(sign, tables, say):
    """Accidental thumbs that were taken back taught what their user did not mean; the tenth is later than the second."""
    talk(tables, say)
    for time in range(1, 11):
        name = "imported/capture/user" + (f"/{time}" if time > 1 else "")
        judge(tables, "talk", 0, sign if time == 10 else -sign, origin="user", scorer=name)
    assert credit(tables, "kto") == [sign, None, None, None]


def test_a_number_without_a_sign_is_no_label(tables, say):
    """All that a reward model says may be above 0, or below."""
    for number, logit in enumerate((2.0, -2.0)):
        talk(tables, say, logit, judged=False, name=f"talk{number}", first=100 * number)
        tables.score(f"talk{number}", logit, origin="judge", scorer="judge", success=None)
    assert tables.curate("kto").filtered == {"no verifier score but a neutral one": 2}


def test_a_number_without_a_sign_accepts_no_reply(tables, say):
    talk(tables, say, None, 0.5, judged=False)
    judge(tables, "talk", 0, -1.0, origin="user", scorer="thumb")
    tables.score("talk", 0.5, origin="judge", scorer="judge", success=None)
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == 0
