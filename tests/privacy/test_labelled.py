"""How many labelled secrets are found, and how many look-alikes are touched; the figures are printed."""

import random
import re

import pytest

from clawpipe.data.privacy.redact import redactor
from tests.privacy.labelled import LOOK_ALIKES, SECRETS

LETTERS = {
    "w": "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789",
    "h": "0123456789abcdef",
    "d": "0123456789",
    "u": "ABCDEFGHJKLMNPQRSTUVWXYZ234567",
    "l": "abcdefghijklmnopqrstuvwxyz",
}
PLACES = ["{}", "I noted: {}", "Like this:\n{}\nand so on", "({})"]


def drawn(template, number):
    draw = random.Random(f"{template}/{number}")
    text = re.sub(r"\{([whdul]):(\d+)\}", lambda found: letters(draw, found[1], int(found[2])), template)
    return text.replace("{{", "{").replace("}}", "}")


def letters(draw, kind, length):
    made = "".join(draw.choices(LETTERS[kind], k=length))
    return made if kind in "ld" or length < 6 else f"{made[:-2]}7{'a' if kind in 'wh' else 'A'}"


def split(text):
    before, secret, after = re.fullmatch("(.*)«(.*)»(.*)", text, re.DOTALL).groups()
    return before, secret, after


@pytest.fixture(scope="module")
def redact():
    with redactor(1) as found:
        yield found


def test_labelled_secrets_are_found_and_nothing_beside_them(redact, capsys):
    cases = [(kind, split(drawn(text, number))) for kind, texts in SECRETS.items() for text in texts for number in range(3)]
    for place in PLACES:
        result = redact.texts([place.format("".join(parts)) for _, parts in cases])
        missed = []
        for (kind, (before, secret, after)), left in zip(cases, result.texts, strict=True):
            start, end = place.split("{}")
            kept = re.escape(start + before) + r"(?:\S{0,2}|)\[REDACTED:[a-z-]+\](?:\S{0,2}|)" + re.escape(after + end)
            if not re.fullmatch(kept, left, re.DOTALL):
                missed.append((kind, before + secret + after, left))
        found = len(cases) - len(missed)
        with capsys.disabled():
            print(f"\nin {place!r}: {found} of {len(cases)} secrets of {len(SECRETS)} kinds found")
        assert not missed


def test_look_alikes_are_left_alone(redact, capsys):
    result = redact.texts(LOOK_ALIKES)
    touched = [(text, left) for text, left in zip(LOOK_ALIKES, result.texts, strict=True) if text != left]
    with capsys.disabled():
        print(f"\n{len(touched)} of {len(LOOK_ALIKES)} look-alikes touched")
    assert touched == []


def test_the_lists_are_long_enough():
    assert len(SECRETS) >= 40
    assert sum(map(len, SECRETS.values())) >= 120
    assert len(LOOK_ALIKES) >= 100
