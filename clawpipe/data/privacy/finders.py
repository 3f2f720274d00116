"""Find secrets that no pattern tells: seed phrases by their list of words, and what the rules of detect-secrets know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from detect_secrets.plugins import artifactory, cloudant, ibm_cloud_iam, ibm_cos_hmac, softlayer, twilio
from mnemonic import Mnemonic

Span = tuple[int, int]
Finder = Callable[[str], Iterator[Span]]

_WORDS = 12  # of the shortest seed phrase
_DIFFERENT = 8  # words of a phrase that was drawn: twelve of 2,048 hardly repeat one; a text that only repeats a word is none
_WORD = re.compile(r"[A-Za-z]+")
_BETWEEN = re.compile(r"(?:\s|\\n|,|[0-9]{1,2}[.):]?)+")
_RUN = re.compile(rf"\b[A-Za-z]{{3,8}}+(?:{_BETWEEN.pattern}+[A-Za-z]{{3,8}}+\b){{11,}}+")
_SPACED = str.maketrans({chr(code): chr(code).lower() if chr(code).isalpha() else " " for code in range(128)})
_SHORTEST = 8  # characters of a group that holds a secret; shorter ones are parts of it
_BOTH = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])", re.DOTALL)
_OPENING = re.compile(r"(?<!\\)\((?!\?)")
_DETECTORS = (  # those whose kinds the rules of this room do not know, or know by other patterns
    artifactory.ArtifactoryDetector,
    cloudant.CloudantDetector,
    ibm_cloud_iam.IbmCloudIamDetector,
    ibm_cos_hmac.IbmCosHmacDetector,
    softlayer.SoftlayerDetector,
    twilio.TwilioKeyDetector,
)
_PATTERNS: tuple[re.Pattern[str], ...] = tuple(pattern for one in _DETECTORS for pattern in one.denylist)  # type: ignore[attr-defined]


@cache
def _mnemonic() -> Mnemonic:
    return Mnemonic("english")


@cache
def _listed() -> frozenset[str]:
    return frozenset(_mnemonic().wordlist)


def seed_phrases(text: str) -> Iterator[Span]:
    """Yield the spans of at least twelve words of the English list of BIP-39 that follow each other, perhaps numbered: most of them
    differ, or their checksum is right."""
    if not _may_hold_a_phrase(text):
        return
    for found in _RUN.finditer(text):
        run = list[re.Match[str]]()
        for word in _WORD.finditer(text, found.start(), found.end()):
            if word[0] != "n" and word[0].lower() in _listed():  # the n of a line break that is spelt
                run.append(word)
            elif word[0] != "n":
                yield from _whole(run)
                run = []
        yield from _whole(run)


def _may_hold_a_phrase(text: str) -> bool:
    """Whether every third word of a part of the text is listed: much faster than to look for runs of listed words.

    The first and the last word of a phrase may touch a character that is not ASCII; of the ten between them three are looked up.
    """
    words = text.replace("\\n", " ").translate(_SPACED).split()
    return sum(map(_listed().__contains__, words[2::3])) >= (_WORDS - 2) // 3


def _whole(run: list[re.Match[str]]) -> Iterator[Span]:
    words = [word[0].lower() for word in run]
    if len(words) >= _WORDS and (len({*words}) >= _DIFFERENT or _mnemonic().check(" ".join(words))):
        yield run[0].start(), run[-1].end()


def known_elsewhere(text: str) -> Iterator[Span]:
    """Yield the spans of what detect-secrets takes for secrets, if they have a letter and a digit; they do not overlap."""
    end = 0
    for span in sorted({_secret_in(match) for pattern in _PATTERNS for match in pattern.finditer(text)}):
        if span[0] >= end and _BOTH.match(text[slice(*span)]):
            yield span
            end = span[1]


def _secret_in(match: re.Match[str]) -> Span:
    """Return the span of the longest group, or of the whole match if groups are parts of the secret."""
    groups = [match.span(number) for number in range(1, (match.re.groups or 0) + 1) if match[number]]
    longest = max(groups, key=lambda span: span[1] - span[0], default=match.span())
    return longest if longest[1] - longest[0] >= _SHORTEST else match.span()


def patterns_elsewhere() -> str:
    """Return one pattern, without capturing groups, for all that `known_elsewhere` may find."""
    return "|".join(_inlined(pattern) for pattern in _PATTERNS)


def _inlined(pattern: re.Pattern[str]) -> str:
    flags = "".join(letter for letter, flag in (("i", re.IGNORECASE), ("x", re.VERBOSE)) if pattern.flags & flag)
    return f"(?{flags}:{_OPENING.sub('(?:', pattern.pattern)})"


FINDERS: dict[str, Finder] = {"seed_phrases": seed_phrases, "known_elsewhere": known_elsewhere}
