import time
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.judging.base import SCORERS
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.rules import RulesJudge, load_rules


def call(name: str = "price", arguments: str = '{"item": "oak fork"}') -> Message:
    return Message("assistant", "", (ToolCall("c", name, arguments),))


def result(text: str) -> Message:
    return Message("tool", text, tool_call_id="c", name="price")


ASKED = [Message("user", "How much is the oak fork?"), call(), result("12.5"), Message("assistant", "The answer is 12.5.")]


def row(*messages: Message) -> dict[str, Any]:
    """A stored conversation of text."""
    said = [message.as_dict() for message in messages]
    return {"messages": said, "turns": [], "kinds": None, "tokens": "none", "source": "captured"}


def verdicts(*messages: Message, file: Path | None = None) -> dict[int | None, tuple[float, str]]:
    judge = SCORERS.make("rules", {"file": str(file)} if file else {})
    scores = judge.score({}, row(*messages))
    return {score.turn: (score.value, score.reason) for score in scores if score.turn is not None}


@pytest.mark.parametrize(
    "words", ["Thanks!", "Thank you, that is all.", "Perfect.", "That\u2019s right, cheers", "Exactly what I needed"]
)
def test_thanks_are_for_all_turns_of_the_exchange(words):
    assert verdicts(*ASKED, Message("user", words)) == {0: (1, "thanks"), 1: (1, "thanks")}


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("No, I meant the silk fork.", "complaint"),
        ("Thanks, but I asked for the stock.", "complaint"),
        ("That is wrong.", "complaint"),
        ("This isn't what I asked.", "complaint"),
        ("thanks for nothing", "complaint"),
        ("Nope.", "complaint"),
        ("How much is the oak fork?", "repetition"),
        ("Again: how much is the OAK fork, please", "repetition"),
    ],
)
def test_what_speaks_against_a_turn_counts_before_thanks(words, rule):
    assert verdicts(*ASKED, Message("user", words)) == {0: (-1, rule), 1: (-1, rule)}


@pytest.mark.parametrize("words", ["And in Oslo?", "How much is the oak kettle then?", "Fine, next: count the oak bowls.", ""])
def test_words_that_say_nothing_of_the_turn_are_no_verdict(words):
    assert verdicts(*ASKED, Message("user", words)) == {}


def test_a_request_that_goes_on_is_not_asked_again():
    first = [Message("user", "Tell me a joke"), Message("assistant", "No.")]
    assert verdicts(*first, Message("user", "tell me a joke!")) == {0: (-1, "repetition")}
    assert verdicts(*first, Message("user", "Tell me a joke about cats")) == {}
    assert verdicts(*first, Message("user", "Haha, great! Tell me a joke again")) == {0: (1, "thanks")}


def test_nothing_that_a_tool_or_the_model_says_is_the_users_word():
    said = [Message("user", "How much is it?"), call(), result("Thanks! Perfect."), Message("assistant", "Thank you, perfect!")]
    assert verdicts(*said) == {}


def test_words_judge_the_exchange_before_them_alone():
    more = [Message("user", "Thanks! And the weather in Oslo?"), Message("assistant", "Sunny."), Message("user", "That is wrong.")]
    assert verdicts(*ASKED, *more) == {0: (1, "thanks"), 1: (1, "thanks"), 2: (-1, "complaint")}


def test_a_failed_call_counts_where_nobody_spoke_of_its_turn():
    said = [ASKED[0], call(), result("error: unknown item"), *ASKED[1:]]
    assert verdicts(*said) == {0: (-1, "failed-call")}
    assert verdicts(*said, Message("user", "And in Oslo?")) == {0: (-1, "failed-call")}


def test_what_the_user_says_counts_before_what_a_tool_says():
    said = [ASKED[0], call(), result("error: unknown item"), *ASKED[1:], Message("user", "Thanks")]
    assert verdicts(*said) == {0: (1, "thanks"), 1: (1, "thanks"), 2: (1, "thanks")}


def test_repeated_calls_have_equal_names_arguments_and_results():
    again = call(arguments='{"item":"oak fork"}')
    assert verdicts(ASKED[0], call(), result("1"), again) == {1: (-1, "repeated-call")}
    assert verdicts(ASKED[0], call(), result("1"), again, result("1")) == {1: (-1, "repeated-call")}
    assert verdicts(ASKED[0], call(), result("running"), again, result("done")) == {}
    assert verdicts(ASKED[0], call(), result("1"), call("stock")) == {}
    assert verdicts(ASKED[0], call(), result("1"), Message("user", "and now?"), again) == {}


@pytest.mark.parametrize(
    ("words", "value", "success"),
    [(["Thanks!", "Thanks!"], 1.0, True), (["Thanks!", "No."], 1 / 3, True), (["Wrong.", "No."], -1.0, False)],
)
def test_a_conversation_gets_the_mean_score_of_its_turns(words, value, success):
    first, second = (Message("user", word) for word in words)
    *_, whole = RulesJudge().score({}, row(*ASKED, first, Message("assistant", "It is cheap."), second))
    assert (whole.turn, whole.value, whole.success) == (None, pytest.approx(value), success)
    assert list(RulesJudge().score({}, row(*ASKED, Message("user", "Hm.")))) == []


def test_hints_quote_the_users_words(tmp_path):
    said = row(*ASKED, Message("user", "Thanks, but that is wrong: 13."))
    first, *_ = RulesJudge().score({}, said)
    assert first.hints == ('The user was not content with the answer: "Thanks, but that is wrong: 13".',)


def test_rules_of_ones_own_use_the_reader(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: a, when: blame, value: -0.5, hints: ['Heard: {said}.']}]")
    (score, *_) = RulesJudge(str(file)).score({}, row(*ASKED, Message("user", "Hm. That is wrong.")))
    assert (score.value, score.hints) == (-0.5, ("Heard: that is wrong.",))
    assert list(RulesJudge(str(file)).score({}, row(*ASKED, Message("user", "Thanks")))) == []


def test_a_quotation_has_a_limit(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: a, when: reply, any: ['no'], value: -1, hints: ['{words}', 'Do {said}!']}]")
    (score, *_) = RulesJudge(str(file)).score({}, row(*ASKED, Message("user", "no " * 500)))
    assert [len(hint) for hint in score.hints] == [200, len("Do no!")]


def test_an_answers_rule_leaves_the_other_turns_alone(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: a, when: reply, reach: answer, any: ['no'], value: -0.5}]")
    assert verdicts(*ASKED, Message("user", "no"), file=file) == {1: (-0.5, "a")}


@pytest.mark.parametrize("pattern", ["(?:a+)+$", "(?:a|aa)+$", "(?:.*,){20}x"])
def test_hostile_words_take_no_longer_than_others(tmp_path, pattern):
    """Python's `re` would take longer than the universe lasts."""
    file = tmp_path / "rules.yaml"
    file.write_text(f"rules: [{{name: a, when: reply, any: ['{pattern}'], value: -1}}]")
    started = time.monotonic()
    assert verdicts(*ASKED, Message("user", "a," * 20_000 + "a" * 50_000 + "!"), file=file) == {}
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("rules:\n  - name: a\n    when: reply\n    any: ['(']\n    value: 1\n", 2, "no pattern"),
        ("rules:\n  - name: a\n    when: reply\n    any: ['(?=x)']\n    value: 1\n", 2, "no pattern"),
        ("rules:\n  - name: a\n    when: reply\n    any: ['x*']\n    value: 1\n", 2, "occurs in every text"),
        ("rules:\n  - name: a\n    when: reply\n    value: 1\n", 2, "needs patterns"),
        ("rules:\n  - name: a\n    when: reply\n    any: [x]\n    value: 2\n", 5, "less than or equal to 1"),
        ("rules:\n  - name: a\n    when: repeated-call\n    value: 1\n    hints: ['{truth}']\n", 2, "nothing else in braces"),
        ("rules:\n  - name: a\n    when: reply\n    any: [x]\n    value: 1\n    wehn: x\n", 6, "no such setting"),
        ("rules: []\n", 1, "at least 1"),
    ],
)
def test_a_mistake_is_shown_with_file_and_line(tmp_path, text, line, what):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=what) as raised:
        load_rules(file)
    assert raised.value.where == f"{file}:{line}"


def test_a_file_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        load_rules(tmp_path / "none.yaml")


def test_the_turns_of_an_exchange_end_with_the_users_words():
    turns = exchanges_of(row(*ASKED, Message("user", "So?"), Message("user", "Well?")))
    assert [(turn.turn, turn.words, turn.closes, len(turn.earlier)) for turn in turns] == [
        (0, "So?\nWell?", False, 0),
        (1, "So?\nWell?", True, 2),
    ]
    assert [[result.content for result in turn.results] for turn in turns] == [["12.5"], []]
