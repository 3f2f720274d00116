"""Secrets, made at run time so that none stands in the source."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

import pytest

UPPER, LOWER = string.ascii_uppercase, string.ascii_lowercase
WORD = UPPER + LOWER + string.digits
Draw = random.Random


def _of(draw: Draw, letters: str, length: int) -> str:
    return "".join(draw.choices(letters, k=length - 2)) + "a7"  # a digit, and an end that is a word's


def _pem(draw: Draw) -> str:
    body = "\n".join(_of(draw, WORD + "+/", 64) for _ in range(4))
    return f"-----BEGIN RSA PRIVATE{' '}KEY-----\n{body}\n{_of(draw, WORD, 20)}==\n-----END RSA PRIVATE{' '}KEY-----"


def _with_check_digit(draw: Draw) -> str:
    """A card number, by the schoolbook form of Luhn's rule."""
    digits = [4, *(draw.randrange(10) for _ in range(14))]
    total = sum(sum(divmod(2 * d, 10)) if i % 2 == 0 else d for i, d in enumerate(digits))
    number = "".join(map(str, [*digits, -total % 10]))
    return draw.choice([number, " ".join(number[i : i + 4] for i in range(0, 16, 4))])


def _iban(draw: Draw) -> str:
    account = f"{draw.randrange(10**18):018d}"
    return f"DE{98 - int(account + '131400') % 97:02d}{account}"


MAKERS: dict[str, Callable[[Draw], str]] = {
    "private-key": _pem,
    "encoded-key": lambda d: base64.b64encode(_pem(d).encode()).decode(),
    "password-hash": lambda d: d.choice(["$2b$12$" + _of(d, WORD, 53), "$6$" + _of(d, WORD, 16) + "$" + _of(d, WORD, 86)]),
    "cloud-key": lambda d: d.choice(["hvs." + _of(d, WORD, 90), "do" + "p_v1_" + _of(d, "0123456789abcdef", 62) + "a7"]),
    "jwt": lambda d: f"eyJ{_of(d, WORD, 20)}.{_of(d, WORD, 30)}.{_of(d, WORD + '-_', 43)}",
    "aws-key": lambda d: d.choice(["AKIA", "ASIA"]) + "".join(d.choices(UPPER + "234567", k=16)),
    "github-token": lambda d: d.choice(["ghp_" + _of(d, WORD, 36), "github_pat_" + _of(d, WORD, 40)]),
    "gitlab-token": lambda d: "glpat-" + _of(d, WORD, 20),
    "model-api-key": lambda d: d.choice(["sk-proj-", "sk-ant-api03-", "sk-", "hf_", "gsk_"]) + _of(d, WORD, 48),
    "hugging-face-token": lambda d: d.choice(["hf_", "api_org_"]) + "".join(d.choices(string.ascii_letters, k=34)),
    "slack-token": lambda d: "xoxb-" + _of(d, string.digits, 12) + "-" + _of(d, WORD, 24),
    "chat-bot-token": lambda d: f"{d.randrange(10**9, 10**10 - 1)}:{_of(d, WORD + '-_', 35)}",
    "google-key": lambda d: "AIza" + _of(d, WORD + "-_", 35),
    "service-key": lambda d: d.choice(["sk_live_" + _of(d, WORD, 24), "npm_" + _of(d, WORD, 36)]),
    "newer-key": lambda d: d.choice(["e2b_" + _of(d, "0123456789abcdef", 38) + "a7", "essu_" + _of(d, WORD, 44)]),
    "known-key": lambda d: "SK" + _of(d, "0123456789abcdef", 32),
    "email-spelled": lambda d: f"{_of(d, LOWER, 6)} at {_of(d, LOWER, 8)} dot org",
    "email": lambda d: f"{_of(d, LOWER, 6)}.{_of(d, LOWER, 5)}@{_of(d, LOWER, 8)}.org",
    "iban": _iban,
    "card": _with_check_digit,
    "phone": lambda d: f"+{d.choice(['49', '1', '44'])} {d.randrange(200, 999)} {d.randrange(200, 999)} {d.randrange(1000, 9999)}",
    "phone-national": lambda d: f"{d.randrange(212, 989)}-{d.randrange(200, 999)}-{d.randrange(1000, 9999)}",
    "ipv6": lambda d: f"2a01:4f8:{d.randrange(1, 65535):x}:{d.randrange(1, 65535):x}::{d.randrange(1, 65535):x}",
    "ssn": lambda d: f"{d.randrange(100, 600)}-{d.randrange(10, 99)}-{d.randrange(1000, 9999)}",
    "ip": lambda d: f"{d.choice([93, 151, 185, 212])}.{d.randrange(256)}.{d.randrange(256)}.{d.randrange(100, 256)}",
}


@pytest.fixture(scope="session")
def make_secret():
    """`make_secret(rule, seed)`: a secret that the rule is about."""
    return lambda rule, seed: MAKERS[rule](random.Random(f"{rule}/{seed}"))
