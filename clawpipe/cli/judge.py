"""`clawpipe judge`: try a judge on a file of conversations, and see how far judges can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, options_of, print_json
from clawpipe.json_types import JsonObject, Row

if TYPE_CHECKING:
    from rich.table import Table

    from clawpipe.judging.base import Scorer
    from clawpipe.judging.exchanges import Exchange
    from clawpipe.judging.report import Agreement, Judged

app = typer.Typer(help="Judges: who says what was good.", no_args_is_help=True)

_SHOWN = 160  # characters of a text in the list of verdicts


@app.command("try")
def try_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Conversations in any format that `clawpipe ingest` reads.")],
    scorer: Annotated[str, typer.Option("--scorer", "-s", metavar="NAME", help="rules, prm, or path/to/file.py:NAME.")] = "rules",
    options: Annotated[list[str], typer.Option("--option", metavar="NAME=VALUE", help="Option of the judge.")] = [],  # noqa: B006
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Conversations to judge.")] = 20,
    json_output: JsonFlag = False,
) -> None:
    """Judge the turns of a file, and show each verdict with its reason, votes and hints.

    No conversation is stored. The votes of prm are kept, so that the same turn is not asked about twice. A key for endpoints is
    taken from OPENAI_API_KEY.

    clawpipe judge try chats.jsonl --scorer prm --option url=http://127.0.0.1:8000/v1 --option model=judge
    """
    from clawpipe.judging.base import SCORERS, Prepares

    judge: Scorer = SCORERS.make(scorer, options_of(options))
    rows = list(islice(_rows(file), limit))
    if isinstance(judge, Prepares):
        judge.prepare(rows)
    found = _judged(judge, rows)
    if json_output:
        print_json({"scorer": judge.name, "conversations": len(rows), "verdicts": found})
        return
    for verdict in found:
        _print_verdict(verdict)
    judged = sum(verdict["value"] is not None for verdict in found)
    typer.echo(f"{judged} of {len(found)} turns in {len(rows)} conversations have a verdict of {judge.name}")


def _judged(judge: Scorer, rows: Sequence[Row]) -> list[JsonObject]:
    from clawpipe.errors import ClawpipeError, ConfigError

    try:
        return [verdict for row in rows for verdict in _verdicts(judge, row)]
    except ClawpipeError:
        raise
    except Exception as error:  # a judge of the user's may raise anything
        what = " ".join(f"the judge raised {type(error).__name__}: {error}".split())
        raise ConfigError(what, judge.name, "docs/judges.md says what it is given and returns") from None


def _rows(file: str) -> Iterator[JsonObject]:
    """Yield the file's conversations as stored rows of text are."""
    from clawpipe.importers.read import read_stream
    from clawpipe.importers.record import Conversation

    conversations = (record for record in read_stream([file]) if isinstance(record, Conversation))
    for number, record in enumerate(conversations):
        yield {
            "trajectory_id": str(number),
            "source": "imported",
            "messages": [message.as_dict() for message in record.messages],
            "turns": [],
            "kinds": list(record.kinds),
            "tokens": "none",
            "tools": record.tools,
        }


def _verdicts(judge: Scorer, row: Row) -> Iterator[JsonObject]:
    """Yield each main turn with its verdict; `value` None where the judge says nothing."""
    from clawpipe.judging.exchanges import exchanges_of

    by_turn = {score.turn: score for score in judge.score({}, row)}
    for turn in exchanges_of(row):
        score = by_turn.get(turn.turn)
        yield {
            "conversation": int(row["trajectory_id"]),
            "turn": turn.turn,
            "request": turn.request,
            "reply": _reply(turn),
            "following": turn.following,
            "value": score.value if score else None,
            "reason": score.reason if score else "",
            "evidence": dict(score.evidence) if score else {},
            "hints": list(score.hints) if score else [],
        }


def _reply(turn: Exchange) -> str:
    calls = [f"{call.name}({call.arguments})" for call in turn.reply.tool_calls]
    return " ".join([turn.reply.content, *calls]).strip()


def _print_verdict(verdict: JsonObject) -> None:
    value = "  -" if verdict["value"] is None else f"{verdict['value']:+g}"
    votes = [vote["value"] for vote in verdict["evidence"].get("votes", ())]
    shown = "".join(f" {'?' if vote is None else format(vote, '+d')}" for vote in votes)
    typer.echo(f"{verdict['conversation']}/{verdict['turn']}  {value:>3}  {verdict['reason']}{shown}")
    for name in ("request", "reply", "following"):
        if verdict[name]:
            typer.echo(f"      {name + ':':10} {_one_line(verdict[name])}")
    for hint in verdict["hints"]:
        typer.echo(f"      {'hint:':10} {_one_line(hint)}")


def _one_line(text: str) -> str:
    from clawpipe.reporting.wording import one_line

    plain = one_line(text)
    return plain if len(plain) <= _SHOWN else f"{plain[: _SHOWN - 3]}..."


@app.command("report")
def report(json_output: JsonFlag = False) -> None:
    """Show how far the judges of this home can be trusted.

    For each model: its votes, how many could not be read, how often votes on one turn agree, what they cost, and a sample to read.
    For each judge: how often it agrees with verifiers and with users, beyond chance (Cohen's kappa), for turns and trajectories.
    """
    from clawpipe.judging.report import agreements, judged
    from clawpipe.judging.votes import VoteStore
    from clawpipe.store.home import Home

    home = Home.from_env()
    models, agreed = judged(VoteStore.of(home).every()), agreements(_scores(home))
    if json_output:
        print_json({"models": [asdict(one) for one in models], "agreement": [asdict(one) for one in agreed]})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_models(models) if models else "no model has voted yet: `clawpipe judge try FILE --scorer prm` asks one")
    console.print(_agreed(agreed) if agreed else "nothing has been scored by a judge and by somebody else")
    for one in models:
        for vote in one.sample:
            typer.echo(
                f"{one.model} voted {'nothing readable' if vote.value is None else format(vote.value, '+d')}: {_one_line(vote.raw)}"
            )


def _scores(home: object) -> Iterator[Row]:
    """Yield the rows of all stored scores."""
    from clawpipe.store.datasets import read_dataset, stored_datasets
    from clawpipe.store.open import open_store

    store = open_store(home)  # pyright: ignore[reportArgumentType]  # a Home, which is imported where it is needed
    for ref in stored_datasets(store):
        if ref.name == "scores":
            yield from read_dataset(store, ref, ["trajectory_id", "turn", "scorer", "origin", "value", "success"]).to_pylist()


def _models(models: list[Judged]) -> Table:
    from rich.table import Table

    table = Table(
        "model", "votes", "turns", "unread", "agree", "unanimous", "-1/0/+1", "tokens", "seconds", box=None, pad_edge=False
    )
    for one in models:
        shares = (f"{share:.2f}" if share is not None else "-" for share in (one.agreement, one.unanimous))
        values = "/".join(str(one.values[value]) for value in (-1, 0, 1))
        tokens = str(one.prompt_tokens + one.reply_tokens)
        table.add_row(one.model, str(one.votes), str(one.turns), str(one.malformed), *shares, values, tokens, f"{one.seconds:.0f}")
    return table


def _agreed(agreed: list[Agreement]) -> Table:
    from rich.table import Table

    table = Table("judge", "with", "of", "n", "agree", "kappa", box=None, pad_edge=False)
    for one in agreed:
        kappa = "-" if one.kappa is None else f"{one.kappa:.2f}"
        table.add_row(one.judge, f"{one.origin}s", one.kind, str(one.n), f"{one.agree:.2f}", kappa)
    return table
