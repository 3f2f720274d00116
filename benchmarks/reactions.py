"""How often are people's reactions read as they are meant?

    python benchmarks/reactions.py --json > benchmarks/reactions.json
    python benchmarks/reactions.py --file labelled.jsonl
    python benchmarks/reactions.py --chats chats.jsonl

Follow-ups to answers, in two halves of one set (`reactions/`), each labelled praise, blame or none by somebody who had not seen the
words of the reader: `read`, which their author has read, and `kept`, which he has not. Lines: id, language, previous, reply, text,
label, kind; `second` is the label of a second person. Claims, on the half that was kept: precision 0.9 for each sign, of which the
lower end of the 95 % interval is at least 0.85, and recall 0.5. The figures at the top of the output are those of that half.

`--file` measures labelled follow-ups of somebody else's. `--chats` counts what the reader makes of conversations in any format that
`clawpipe ingest` reads, and shows some of its verdicts; such files are measured and not kept here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading
from clawpipe.learn.evaluation.verdict.statistics import wilson
from clawpipe.play.judging.reactions.reader import reactions_to, read_reaction

HERE = Path(__file__).with_name("reactions")
HALVES = ("read", "kept")
LABELS = {"praise": 1, "blame": -1, "none": 0}
PRECISION, LOWEST, RECALL, CONFIDENCE = 0.9, 0.85, 0.5, 0.95
_SHOWN = 20


def measured(rows: Sequence[JsonObject]) -> JsonObject:
    """Return precision and recall of each sign, over all rows and by language, and how far two people agree on the labels."""
    languages = sorted({row["language"] for row in rows})
    by_language = {name: _figures([row for row in rows if row["language"] == name]) for name in languages}
    wrong = [{**row, "read": read} for row in rows if (read := _verdict(row)) and read != LABELS[row["label"]]]
    return _figures(rows) | {"kappa": kappa(rows), "by_language": by_language, "wrong": wrong}


def kappa(rows: Iterable[JsonObject]) -> float | None:
    """Return Cohen's kappa of the two labels; None where no row has a second one.

    Source: J. Cohen, Educational and Psychological Measurement 20 (1960) 37-46.
    """
    pairs = [(row["label"], row["second"]) for row in rows if row.get("second")]
    if not pairs:
        return None
    first, second = (Counter(pair[place] for pair in pairs) for place in (0, 1))
    chance = sum(first[label] * second[label] for label in LABELS) / len(pairs) ** 2
    agreed = sum(one == other for one, other in pairs) / len(pairs)
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)


def _figures(rows: Sequence[JsonObject]) -> JsonObject:
    """Return `precision_praise`, `recall_blame` and so on; a rate of nothing is absent. `interval_...` is its Wilson interval."""
    seen = Counter((_verdict(row), LABELS[row["label"]]) for row in rows)
    figures: JsonObject = {"n": len(rows), "labels": dict(Counter(row["label"] for row in rows))}
    for name, sign in (("praise", 1), ("blame", -1)):
        right = seen[sign, sign]
        said = sum(count for (verdict, _), count in seen.items() if verdict == sign)
        meant = sum(count for (_, label), count in seen.items() if label == sign)
        figures |= _rate(f"precision_{name}", right, said) | _rate(f"recall_{name}", right, meant)
    return figures


def _rate(name: str, right: int, of: int) -> JsonObject:
    if not of:
        return {}
    low, high = wilson(right, of, CONFIDENCE)
    return {name: round(right / of, 4), f"of_{name}": [right, of], f"interval_{name}": [round(low, 4), round(high, 4)]}


def _verdict(row: JsonObject) -> int:
    reaction = read_reaction(row["text"], row["reply"])
    return reaction.sign if reaction else 0


def in_chats(file: str) -> JsonObject:
    """Return how many follow-ups of conversations are praise, blame or no reaction, and some of the former."""
    counts, shown = Counter[str](), list[JsonObject]()
    for record in read_stream([file], "auto", Reading()):
        messages: Sequence[Message] = getattr(record, "messages", ())
        counts["follow_ups"] += sum(one.role == "user" for one in messages[1:])
        for said, reaction in reactions_to(messages):
            counts["praise" if reaction.sign > 0 else "blame"] += 1
            shown.append({"sign": reaction.sign, "text": said[:200]})
    return dict(counts) | {"shown": shown[:_SHOWN]}


def missed_claims(figures: JsonObject) -> list[str]:
    """Return the claims that do not hold."""
    found = []
    for sign in ("praise", "blame"):
        precision, low = figures.get(f"precision_{sign}", 0.0), figures.get(f"interval_precision_{sign}", [0.0])[0]
        if precision < PRECISION or low < LOWEST:
            found.append(f"precision of {sign} {precision:.3f}, lower end {low:.3f}")
        if figures.get(f"recall_{sign}", 0.0) < RECALL:
            found.append(f"recall of {sign} {figures.get(f'recall_{sign}', 0.0):.3f}")
    return found


def table(figures: JsonObject) -> Iterator[str]:
    """Yield a Markdown table: all rows, then each language."""
    yield "| | n | praise: precision | recall | blame: precision | recall |"
    yield "|---|---|---|---|---|---|"
    for name, one in [("all", figures), *figures["by_language"].items()]:
        rates = [_cell(one, f"{rate}_{sign}") for sign in ("praise", "blame") for rate in ("precision", "recall")]
        yield f"| {name} | {one['n']} | {' | '.join(rates)} |"


def _cell(figures: JsonObject, name: str) -> str:
    if name not in figures:
        return ""
    (right, of), (low, high) = figures[f"of_{name}"], figures[f"interval_{name}"]
    return f"{right}/{of} ({low:.2f} to {high:.2f})"


def _rows(file: Path) -> list[JsonObject]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="labelled follow-ups to measure instead of the two halves")
    parser.add_argument("--chats", help="conversations in which reactions are counted")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if given.chats:
        print(json.dumps(in_chats(given.chats), indent=1, ensure_ascii=False))
        return 0
    files = [given.file] if given.file else [file for half in HALVES if (file := HERE / f"{half}.jsonl").is_file()]
    halves = {file.stem: measured(_rows(file)) for file in files}
    *_, last = halves.values()
    missed = missed_claims(last)
    if given.json:
        print(json.dumps({**last, "missed_claims": missed, "halves": halves}, indent=1, ensure_ascii=False))
    else:
        for name, figures in halves.items():
            print("\n".join([f"## {name}", *table(figures), ""]))
        print("\n".join(missed) or "all claims hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
