"""The shop: what is asked, that tools really run, and what counts as success."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.environments.shop_data import CITIES, EXAMPLES, FRAMES, OBJECTS, QUESTIONS
from clawpipe.play.environments.shop_tools import Shop, ToolError

SHOP = ShopEnvironment()
TRAIN, HELDOUT = SHOP.items("train", 320, 0), SHOP.items("heldout", 320, 0)
PARAMETER = {"stock": "item", "price": "item", "weather": "city", "calc": "expression"}


def call(name, subject, turn=0, index=0):
    return ToolCall(f"call_{turn}_{index}", name, json.dumps({PARAMETER.get(name, "item"): subject}))


def play(item, *turns):
    """An episode in which the policy says `turns`, each a text or a tuple of calls."""
    episode, messages = SHOP.start(item), list(item.messages)
    for turn in turns:
        messages.append(Message("assistant", turn) if isinstance(turn, str) else Message("assistant", "", turn))
        answer = episode.respond(messages)
        if answer is None:
            break
        messages += answer
    episode.close()
    return messages


def truth(item):
    return json.loads(item.truth)


def right_call(item):
    return call(truth(item)["tool"], truth(item)["subject"])


@pytest.mark.parametrize("seed", [0, 1])
def test_whoever_calls_right_and_reads_the_result_succeeds(seed):
    for item in SHOP.items("train", 60, seed) + SHOP.items("heldout", 60, seed):
        messages = play(item, (right_call(item),))
        messages.append(Message("assistant", f"The answer is {messages[-1].content}."))
        outcome = SHOP.verify(item, messages)
        assert (outcome.value, outcome.success) == (1.0, True), outcome


def test_whoever_follows_the_demonstration_succeeds():
    for item in TRAIN[:40]:
        shown = SHOP.hindsight(item, item.messages).demonstration
        assert [message.role for message in shown] == ["assistant", "tool", "assistant"]
        played = play(item, shown[0].tool_calls, shown[2].content)
        assert [message.content for message in played[1:]] == [message.content for message in shown]
        assert SHOP.verify(item, [*item.messages, *shown]).success


def test_hints_name_the_tool_then_its_argument_then_the_result():
    assert SHOP.hindsight(STOCK, []).hints == (
        f'Use the tool stock with the item "{truth(STOCK)["subject"]}".',
        f'Use the tool stock with the item "{truth(STOCK)["subject"]}". It returns {RESULT}, so say: The answer is {RESULT}.',
    )


def test_items_are_distinct_balanced_and_in_order():
    for items in (TRAIN, HELDOUT):
        assert len({item.item_id for item in items}) == 320
        assert Counter(item.slice for item in items) == dict.fromkeys(QUESTIONS, 80)
        assert [item.ordinal for item in items] == list(range(320))


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize("seed", [0, 1])
def test_thirty_nights_of_160_items_find_an_unseen_identity_each(split, seed):
    """On either side; it was 27 objects. The tools keep taking turns to the end."""
    distinct = SHOP.distinct_items(split)
    assert distinct >= 30 * 160 + 64
    items = SHOP.items(split, distinct, seed)
    assert len({item.identity for item in items}) == distinct
    assert len({item.item_id for item in items}) == distinct
    assert set(Counter(item.slice for item in items).values()) == {distinct // 4}


def test_subjects_that_come_again_are_asked_about_otherwise():
    items = SHOP.items("heldout", 2 * SHOP.distinct_items("heldout"), 0)
    assert len({item.item_id for item in items}) == len(items)


def test_the_sides_share_no_subject_and_no_phrasing():
    for what in (_subjects, _phrasings, lambda items: {item.identity for item in items}):
        assert what(TRAIN)
        assert not what(TRAIN) & what(HELDOUT)


def test_a_sum_is_on_one_side_whichever_way_round_it_is_written():
    everything = [SHOP.items(split, 800, seed) for split in ("train", "heldout") for seed in range(8)]
    sides = [
        {_unordered(item) for items in half for item in items if item.slice == "calc"} for half in (everything[:8], everything[8:])
    ]
    assert len(sides[0]) > 300
    assert not sides[0] & sides[1]


def _unordered(item):
    left, sign, right = truth(item)["subject"].split()
    return (sign, left, right) if sign == "-" else (sign, *sorted((left, right)))


def _subjects(items):
    return {truth(item)["subject"] for item in items}


def _phrasings(items):
    return {item.messages[0].content.replace(truth(item)["subject"], "{x}") for item in items}


def test_every_tool_has_a_fair_share_of_phrasings_on_either_side():
    for items in (TRAIN, HELDOUT):
        for tool, questions in QUESTIONS.items():
            used = _phrasings(item for item in items if item.slice == tool)
            asked = {text for text in questions if {frame.format(q=text) for frame in FRAMES} & used}
            assert used <= {frame.format(q=text) for text in asked for frame in FRAMES}
            assert len(asked) >= 4


def test_the_preamble_shows_nothing_that_is_asked():
    for tool, question, subject, _ in EXAMPLES:
        assert subject not in {*OBJECTS, *CITIES} | _subjects(TRAIN) | _subjects(HELDOUT)
        assert question not in QUESTIONS[tool]
    roles = [message.role for message in SHOP.preamble()]
    assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 4]
    assert not any(tool.name in SHOP.preamble()[0].content for tool in SHOP.tools())


def test_items_depend_on_the_seed_and_on_nothing_else():
    assert SHOP.items("train", 320, 0) == TRAIN
    assert ShopEnvironment().items("train", 40, 0) == TRAIN[:40]
    assert SHOP.items("train", 320, 1) != TRAIN
    assert _subjects(ShopEnvironment(inventory_seed=1).items("train", 320, 0)) == _subjects(TRAIN)
    assert ShopEnvironment(inventory_seed=1).items("train", 320, 0)[0].truth != TRAIN[0].truth


def test_wrong_requests_for_items():
    with pytest.raises(DataError, match="to be had"):
        SHOP.items("train", 1_000_000, 0)
    with pytest.raises(ConfigError, match="splits"):
        SHOP.items("test", 1, 0)


def test_items_survive_arrow():
    table = pa.Table.from_pylist([item.as_row() for item in HELDOUT])
    assert [TaskItem.from_row(row) for row in table.to_pylist()] == HELDOUT


STOCK = next(item for item in TRAIN if item.slice == "stock")
CALC = next(item for item in TRAIN if item.slice == "calc")
RESULT = truth(STOCK)["result"]
OTHER = next(name for name in OBJECTS if name != truth(STOCK)["subject"])


@pytest.mark.parametrize(
    ("turns", "value", "reason"),
    [
        ([f"The answer is {RESULT}."], 0.0, "no call"),
        ([(ToolCall("c", "stock", "stock(item=", malformed=True),)], 0.0, "malformed call"),
        ([(call("price", truth(STOCK)["subject"]),), "The answer is 3."], 0.1, "wrong tool"),
        ([(call("shop", "x"),), f"The answer is {RESULT}."], 0.1, "wrong tool"),
        ([(right_call(STOCK), call("price", OTHER, index=1)), f"The answer is {RESULT}."], 0.1, "several calls at once"),
        ([(call("stock", OTHER),), f"The answer is {RESULT}."], 0.3, "wrong arguments"),
        ([(call("stock", "no such thing"),), "The answer is none."], 0.3, "wrong arguments"),
        ([(ToolCall("c", "stock", '{"item": 3}'),)], 0.3, "wrong arguments"),
        ([(ToolCall("c", "stock", '{"thing": "x"}'),)], 0.3, "wrong arguments"),
        ([(right_call(STOCK),), "The answer is -1."], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), RESULT], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), f"The answer is 1 2 3 {RESULT}."], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), f"The answer is 1. The answer is {RESULT}."], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), f"The answer is {RESULT}.\nThe answer is 1."], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), ""], 0.5, "right call, wrong answer"),
        ([(right_call(STOCK),), f"the answer is  {RESULT}"], 1.0, "right call, right answer"),
        (
            [(call("stock", OTHER),), (call("stock", truth(STOCK)["subject"], 1),), f"The answer is {RESULT}."],
            1.0,
            "right call, right answer",
        ),
        ([(right_call(STOCK),), (call("stock", OTHER, 1),), f"The answer is {RESULT}."], 0.3, "wrong arguments"),
    ],
)
def test_what_counts(turns, value, reason):
    outcome = SHOP.verify(STOCK, play(STOCK, *turns))
    assert (outcome.value, outcome.reason, outcome.success) == (value, reason, value == 1.0)
    json.dumps(outcome.evidence)


def test_a_call_that_was_never_executed_is_not_right():
    messages = [*STOCK.messages, Message("assistant", "", (right_call(STOCK),))]
    assert SHOP.verify(STOCK, messages).value == 0.3


def test_another_item_with_equal_stock_is_still_wrong():
    messages = play(STOCK, (call("stock", OTHER),), f"The answer is {RESULT}.")
    forged = [Message("tool", RESULT, tool_call_id="call_0_0", name="stock") if m.role == "tool" else m for m in messages]
    assert SHOP.verify(STOCK, forged).value == 0.3


def test_any_expression_of_the_right_value_will_do():
    subject, result = truth(CALC)["subject"], truth(CALC)["result"]
    messages = play(CALC, (call("calc", f"({subject.replace(' ', '')})"),), f"The answer is {result}.")
    assert SHOP.verify(CALC, messages).success


@given(
    st.lists(
        st.builds(
            Message,
            st.sampled_from(["user", "assistant", "tool"]),
            st.text(),
            st.lists(st.builds(ToolCall, st.text(), st.text(), st.text(), st.booleans())).map(tuple),
        )
    )
)
def test_verify_takes_any_conversation(messages):
    outcome = SHOP.verify(STOCK, messages)
    assert 0 <= outcome.value < 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ToolCall("c", "sell", "{}"), "unknown tool"),
        (ToolCall("c", "stock", "stock(", malformed=True), "malformed call"),
        (ToolCall("c", "stock", "{}"), "stock takes item"),
        (ToolCall("c", "stock", '{"item": "mug", "city": "Rome"}'), "stock takes item"),
        (ToolCall("c", "stock", "not json"), "stock takes item"),
        (ToolCall("c", "stock", '{"item": 3}'), "item is a string"),
        (ToolCall("c", "stock", """{"item": "' OR 1=1 --"}"""), "unknown item"),
        (ToolCall("c", "weather", '{"city": "iron kettle"}'), "unknown city"),
        (ToolCall("c", "calc", '{"expression": "2 ** 99"}'), "not arithmetic"),
        (ToolCall("c", "calc", '{"expression": "1/0"}'), "division by zero"),
    ],
)
def test_what_the_policy_is_told_about_a_wrong_call(wrong, told):
    messages = play(STOCK, (wrong,))
    assert messages[-1] == Message("tool", f"error: {told}", tool_call_id="c", name=wrong.name)


def test_each_of_several_calls_gets_its_reply():
    replies = play(STOCK, (right_call(STOCK), call("price", OTHER, index=1)))[-2:]
    assert [(reply.tool_call_id, reply.content) for reply in replies] == [
        (f"call_0_{k}", "error: one call at a time") for k in (0, 1)
    ]


def test_the_tables():
    shop = Shop(0)
    stock = [int(shop.look_up("stock", name)) for name in OBJECTS]
    prices = [float(shop.look_up("price", name.upper())) for name in OBJECTS]
    assert (min(stock) >= 2, max(stock) <= 240, min(prices) >= 1, max(prices) <= 60.5) == (True,) * 4
    assert len(set(stock)) > 200
    assert len({shop.look_up("weather", city) for city in CITIES}) >= 6
    with pytest.raises(ToolError):
        shop.look_up("stock", "clay pot")
    shop.close()
