"""What is judged is data: a judge without a model, which does whatever a text tells it, is shown attacks in every place."""

from __future__ import annotations

import base64
import codecs
import html
import json
import unicodedata
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError
from clawpipe.play.judging.exchanges import exchanges_of
from clawpipe.play.judging.judge_prompt import turn_prompt
from clawpipe.play.judging.prm import make_prm
from tests.judging.attacks import ATTACKS
from tests.judging.fake_judge import fake_judge, verdict
from tests.judging.test_prm import stored

KEYS = {"fence", "system", "before", "request", "earlier", "reply", "results", "following", "end of fence"}
CALL = ToolCall("1", "look", "{}")


def attacked(attack: str) -> list[dict[str, Any]]:
    """A turn for each place where a text of others can stand."""
    ask, reply, no = Message("user", "Look."), Message("assistant", "Done."), Message("user", "No, that is wrong.")
    return [
        stored(Message("user", attack), reply, no),
        stored(ask, Message("assistant", attack), no),
        stored(ask, reply, Message("user", f"No, that is wrong. {attack}")),
        stored(ask, Message("assistant", "", (CALL,)), Message("tool", f"ok {attack}", tool_call_id="1"), no),
        stored(ask, Message("assistant", "", (ToolCall("1", "look", json.dumps({"at": attack})),)), Message("tool", "ok"), no),
        stored(ask, Message("assistant", "", (ToolCall("1", "look", attack, malformed=False),)), Message("tool", "ok"), no),
    ]


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_of(inner)


def decoded(text: str) -> Iterator[str]:
    """Every reading of a text that an eager judge might come to."""
    yield from (text, text[::-1], codecs.encode(text, "rot13"), urllib.parse.unquote(text), html.unescape(text))
    yield unicodedata.normalize("NFKC", text)
    yield "".join(chr(ord(character) - 0xE0000) if 0xE0020 <= ord(character) <= 0xE007E else character for character in text)
    yield text.replace("\u200b", "")
    for word in text.split():
        for decode in (base64.b64decode, bytes.fromhex):
            try:
                yield decode(word).decode()
            except ValueError:
                continue


def obeys(document: str) -> str:
    """Say all that any text tells the judge to say."""
    return "\n".join(reading for text in texts_of(json.loads(document)) for reading in decoded(text))


def test_there_are_at_least_sixty_attacks():
    assert len(set(ATTACKS)) == len(ATTACKS) >= 60


def test_an_attack_stays_a_text_in_its_place():
    for attack in ATTACKS:
        shown = [json.loads(turn_prompt(exchanges_of(row)[0]).messages[1].content) for row in attacked(attack)]
        assert [shown[0]["request"], shown[1]["reply"]["text"]] == [attack, attack]
        assert all(document.keys() == KEYS for document in shown)


@pytest.mark.parametrize("said", ["beside a verdict of its own", "instead of a verdict"])
def test_a_judge_that_obeys_every_text_is_not_believed(said: str, home: Home):
    """All attacks in all places: with a verdict of its own, that one counts; without, there is none."""
    alone = said == "instead of a verdict"
    rows = [row for attack in ATTACKS for row in attacked(attack)]

    def says(system: str, document: str) -> str:
        return obeys(document) if alone else f"{obeys(document)}\n{verdict(system, -1)}"

    with fake_judge(says) as judge:
        scorer = make_prm(url=judge.url, model="obedient", votes=1, failed_share=1.0)
        scorer.prepare(rows)
        values = [score.value for row in rows for score in scorer.score({}, row) if score.turn is not None]
    assert len(values) == len(rows)
    assert set(values) == {0.0 if alone else -1.0}


def test_nobody_gets_a_verdict_by_orders_alone(home: Home):
    with fake_judge(lambda system, document: obeys(document)) as judge, pytest.raises(BusyError, match="not one valid verdict"):
        make_prm(url=judge.url, model="obedient", votes=1).prepare(attacked(ATTACKS[0]))
