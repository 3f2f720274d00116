"""Audit redacted texts: an independent library with other rules searches a sample for secrets.

The library is detect-secrets, of which redaction itself applies some rules. Its detectors of high entropy and of secret-like names
are off, because they match code and random letters everywhere. Of personal data it knows only public IP addresses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.core.scan import scan_line
from detect_secrets.settings import transient_settings

_OFF = ("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector")


@dataclass(frozen=True)
class Audit:
    """The result of an audit, without the secrets themselves.

    Args:
        sampled: number of texts in the sample.
        found: number of secrets by kind, with the library's names.
        places: (index of the text, kind) of each.
    """

    sampled: int
    found: Counter[str]
    places: list[tuple[int, str]]


def audit(texts: Sequence[str], sample: int = 1000, seed: int = 0) -> Audit:
    """Search `sample` of the texts, drawn by `seed`, or all if there are fewer. About 0.5 MB per second."""
    chosen = sorted(random.Random(seed).sample(range(len(texts)), min(sample, len(texts))))
    places = [(number, kind) for number in chosen for kind in _kinds(texts[number])]
    return Audit(len(chosen), Counter(kind for _, kind in places), places)


def _kinds(text: str) -> list[str]:
    plugins = sorted({plugin.__name__ for plugin in get_mapping_from_secret_type_to_class().values()} - set(_OFF))
    with transient_settings({"plugins_used": [{"name": name} for name in plugins]}):
        return [secret.type for line in text.splitlines() for secret in scan_line(line)]
