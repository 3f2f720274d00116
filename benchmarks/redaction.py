"""How many kinds of secrets does redaction find, and how much harmless text does it remove?

    python benchmarks/redaction.py --json > benchmarks/redaction.json

Each kind of `redaction_list.py` is drawn three times and put into five places: a sentence, the arguments of a call (JSON), a
tool's result with JSON in JSON, a block of code, a line of a log. Claims: at least 220 of 238 kinds are caught in each of them,
and of 137 texts that only look like secrets at most 2 are changed in any. A kind is caught if no six letters and digits in a row
of it remain. List and rules have one author, so the result says nothing about formats that the author did not think of.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator

from redaction_list import KINDS, LOOK_ALIKES

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.privacy.redact import redactor

CAUGHT, TOUCHED, DRAWS = 220, 2, 3
PLACES: dict[str, Callable[[str], str]] = {
    "sentence": lambda text: f"I used {text} and it works now.",
    "arguments": lambda text: json.dumps({"command": text, "timeout": 30}),
    "result": lambda text: json.dumps({"output": json.dumps({"stdout": f"ready\n{text}\n", "code": 0})}),
    "code": lambda text: f"Like this:\n```\n{text}\n```\n",
    "log": lambda text: f"2026-11-20 08:01:02,345 INFO agent: {text}\n2026-11-20 08:01:03,002 INFO agent: done",
}
_LETTERS = {
    "w": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "u": string.ascii_uppercase + "234567",
    "l": string.ascii_lowercase,
    "b": string.ascii_letters + string.digits + "+/",
}


def drawn(template: str, draw: random.Random) -> str:
    """Return the text of a template, with the marks around its secret."""
    text = re.sub(r"\{([whdulb]):(\d+)\}", lambda found: _letters(draw, found[1], int(found[2])), template)
    text = text.replace("IBAN", _iban(draw)).replace("CARD4", _card(draw, " ")).replace("CARD", _card(draw, ""))
    return text.replace("{{", "{").replace("}}", "}")


def _letters(draw: random.Random, kind: str, length: int) -> str:
    """Draw letters like those of keys: long ones have a digit and a letter."""
    while True:
        text = "".join(draw.choices(_LETTERS[kind], k=length))
        if length < 8 or kind in "dl" or (re.search(r"\d", text) and re.search("[A-Za-z]", text)):
            return text


def _card(draw: random.Random, between: str) -> str:
    digits = [4, *(draw.randrange(10) for _ in range(14))]
    total = sum(sum(divmod(2 * d, 10)) if i % 2 == 0 else d for i, d in enumerate(digits))
    number = "".join(map(str, [*digits, -total % 10]))
    return between.join(number[i : i + 4] for i in range(0, 16, 4))


def _iban(draw: random.Random) -> str:
    account = f"{draw.randrange(10**18):018d}"
    return f"DE{98 - int(account + '131400') % 97:02d}{account}"


def leaks(secret: str, text: str) -> bool:
    """Return whether six or more letters and digits in a row of the secret remain; of a shorter secret, all."""
    left = re.sub(r"\[REDACTED:[a-z0-9\-]+\]", "", text)
    runs = re.findall(r"[A-Za-z0-9]{6,}", secret.replace("\n", " ")) or [secret]
    return any(run in left for run in runs)


def draws(template: str) -> Iterator[tuple[str, str]]:
    """Yield (text, the secret in it, if any), the same at each call."""
    draw = random.Random(template)
    for _ in range(DRAWS):
        text = drawn(template, draw)
        secret = re.search("«(.*)»", text, re.DOTALL)
        yield text.replace("«", "").replace("»", ""), secret[1] if secret else ""


def places_where(templates: Iterable[str], wrong: Callable[[str, str, bool], bool]) -> dict[str, list[str]]:
    """Return for each template the places where `wrong(secret, remaining text, changed)` is true for one of its draws."""
    each = [(template, *one) for template in templates for one in draws(template)]
    cases = [(template, place, secret, put(text)) for template, text, secret in each for place, put in PLACES.items()]
    with redactor(1) as redact:
        result = redact.texts([text for *_, text in cases])
    found: dict[str, list[str]] = {}
    for (template, place, secret, _), left, changed in zip(cases, result.texts, result.changed, strict=True):
        if wrong(secret, left, changed) and place not in found.setdefault(template, []):
            found[template].append(place)
    return {template: places for template, places in found.items() if places}


def measured() -> JsonObject:
    missed = places_where(KINDS.values(), lambda secret, left, _: leaks(secret, left))
    taken = places_where(LOOK_ALIKES, lambda _secret, _left, changed: changed)
    return {
        "kinds": len(KINDS),
        "places": len(PLACES),
        "caught": len(KINDS) - len(missed),
        "nowhere": sum(len(places) == len(PLACES) for places in missed.values()),
        "look_alikes": len(LOOK_ALIKES),
        "touched": len(taken),
        "missed": {name: missed[template] for name, template in KINDS.items() if template in missed},
        "taken": taken,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = measured()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
    else:
        print(f"caught in every place: {found['caught']} of {found['kinds']}; nowhere: {found['nowhere']}")
        print(f"look-alikes touched: {found['touched']} of {found['look_alikes']}")
        for name, places in found["missed"].items():
            print(f"  missed: {name} ({', '.join(places)})")
        for text, places in found["taken"].items():
            print(f"  taken: {text} ({', '.join(places)})")
    return 0 if found["caught"] >= CAUGHT and found["touched"] <= TOUCHED else 1


if __name__ == "__main__":
    sys.exit(main())
