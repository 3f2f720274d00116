"""`clawpipe judge`: try a judge on a file of conversations, and see how far judges can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, options_of, print_json
from clawpipe.core.basics.json_types import JsonObject, Row

if TYPE_CHECKING:
    from rich.table import Table

    from clawpipe.core.store.home import Home
    from clawpipe.play.judging.base import Score, Scorer
    from clawpipe.play.judging.exchanges import Exchange
    from clawpipe.play.judging.report import Agreement, Judged, Spoken

app = typer.Typer(help="Judges: who says what was good.", no_args_is_help=True)

_SHOWN = 160  # characters of a text in the list of verdicts


@app.command("try")
def try_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Conversations in any format that `clawpipe ingest` reads.")],
    scorer: Annotated[str, typer.Option("--scorer", metavar="NAME", help="rules, prm, or path/to/file.py:NAME.")] = "rules",
    options: Annotated[list[str], typer.Option("--option", metavar="NAME=VALUE", help="Option of the judge.")] = [],  # noqa: B006
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Conversations to judge.")] = 20,
    json_output: JsonFlag = False,
) -> None:
    """Judge the turns of a file, and show each verdict with its reason, votes and hints.

    No conversation is stored. The votes of prm are kept, so that the same turn is not asked about twice. A key for endpoints is
    taken from OPENAI_API_KEY.

    clawpipe judge try chats.jsonl --scorer prm --option url=http://127.0.0.1:8000/v1 --option model=judge
    """
    from clawpipe.data.importers.read.reading import Reading
    from clawpipe.play.judging.base import SCORERS, Prepares
    from clawpipe.play.judging.files import conversations_of, rejected_lines

    judge: Scorer = SCORERS.make(scorer, options_of(options))
    reading = Reading()
    rows = [row for _, row in islice(conversations_of(file, reading), limit)]
    if isinstance(judge, Prepares):
        judge.prepare(rows)
    found = _judged(judge, rows)
    if json_output:
        print_json({"scorer": judge.name, "conversations": len(rows), "verdicts": found, "rejected": reading.reasons()})
        return
    for verdict in found:
        _print_verdict(verdict)
    judged = sum(verdict["value"] is not None for verdict in found)
    turns = sum(verdict["turn"] is not None for verdict in found)
    what = f"{len(found)} turns in {len(rows)} conversations" if turns else f"{len(rows)} conversations"
    typer.echo(f"{judged} of {what} have a verdict of {judge.name}")
    if unread := rejected_lines(reading):
        typer.echo(unread)


def _judged(judge: Scorer, rows: Sequence[Row]) -> list[JsonObject]:
    from clawpipe.errors import ClawpipeError, ConfigError

    try:
        return [verdict for row in rows for verdict in _verdicts(judge, row)]
    except ClawpipeError:
        raise
    except Exception as error:  # a judge of the user's may raise anything
        what = " ".join(f"the judge raised {type(error).__name__}: {error}".split())
        raise ConfigError(what, judge.name, "docs/judges.md says what it is given and returns") from None


def _verdicts(judge: Scorer, row: Row) -> Iterator[JsonObject]:
    """Yield each main turn with its verdict, `value` None where the judge says nothing; or the one on the whole, if it is alone."""
    from clawpipe.play.judging.exchanges import exchanges_of

    by_turn = {score.turn: score for score in judge.score({}, row)}
    if by_turn.keys() == {None}:
        yield _verdict(row, by_turn[None], turn=None, request="", reply="", following="")
        return
    for turn in exchanges_of(row):
        said = {"turn": turn.turn, "request": turn.request, "reply": _reply(turn), "following": turn.following}
        yield _verdict(row, by_turn.get(turn.turn), **said)


def _verdict(row: Row, score: Score | None, **about: str | int | None) -> JsonObject:
    return {
        "conversation": int(row["trajectory_id"]),
        **about,
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
    place = "whole" if verdict["turn"] is None else verdict["turn"]
    typer.echo(f"{verdict['conversation']}/{place}  {value:>3}  {verdict['reason']}{shown}")
    for name in ("request", "reply", "following"):
        if verdict[name]:
            typer.echo(f"      {name + ':':10} {_one_line(verdict[name])}")
    for hint in verdict["hints"]:
        typer.echo(f"      {'hint:':10} {_one_line(hint)}")


def _one_line(text: str) -> str:
    from clawpipe.record.reporting.wording import one_line

    plain = one_line(text)
    return plain if len(plain) <= _SHOWN else f"{plain[: _SHOWN - 3]}..."


@app.command("report")
def report(
    night: Annotated[str, typer.Argument(metavar="NIGHT", help="A night, or `latest`; without it all that judges said here.")] = "",
    json_output: JsonFlag = False,
) -> None:
    """Show how far the judges of this home can be trusted, or what those of a night said and spent.

    For each judge, rules too: turns praised, blamed, abstained and unread, by rule and by model, and how often it agrees with
    verifiers, with users and with other judges, beyond chance (Cohen's kappa). For each model: its votes, how many could not be
    read, how often votes on one turn agree, what they cost, and a sample to read.

    clawpipe judge report latest
    """
    from clawpipe.core.store.home import Home

    home = Home.from_env()
    if night:
        _report_night(home, night, json_output)
    else:
        _report_home(home, json_output)


def _report_night(home: Home, night: str, json_output: bool) -> None:
    from clawpipe.record.nights.files import list_nights
    from clawpipe.record.nights.status import read_status
    from clawpipe.record.reporting.judges import judge_lines

    known = list_nights(home)
    status = read_status(home, known[-1] if night == "latest" and known else night)
    if json_output:
        print_json({"night": status.night, "judges": status.judges.model_dump(mode="json") if status.judges else None})
        return
    for name, text in judge_lines(status.judges) or [("", f"no judge has said anything in {status.night}")]:
        typer.echo(f"{name:16} {text}" if name else f"{'':16} {text}")


def _report_home(home: Home, json_output: bool) -> None:
    from clawpipe.play.judging.report import agreements, judged, spoken
    from clawpipe.play.judging.votes import VoteStore

    models, agreed, said = judged(VoteStore.of(home).every()), agreements(_scored(home)), spoken(_scored(home))
    if json_output:
        parts = {"models": models, "judges": said, "agreement": agreed}
        print_json({name: [asdict(one) for one in part] for name, part in parts.items()})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_models(models) if models else "no model has voted yet: `clawpipe judge try FILE --scorer prm` asks one")
    console.print(_said(said) if said else "no judge has scored anything")
    console.print(_agreed(agreed) if agreed else "nothing has been scored by a judge and by somebody else")
    for one in models:
        for vote in one.sample:
            typer.echo(
                f"{one.model} voted {'nothing readable' if vote.value is None else format(vote.value, '+d')}: {_one_line(vote.raw)}"
            )


def _scored(home: Home) -> Iterator[list[Row]]:
    """Yield the scores of each trajectory that a judge has scored, of all that are stored."""
    from clawpipe.core.store.datasets import stored_datasets
    from clawpipe.core.store.open import open_store
    from clawpipe.play.judging.judged_scores import judged_scores

    store = open_store(home)
    yield from judged_scores(store, [ref for ref in stored_datasets(store) if ref.name == "scores"])


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


def _said(said: list[Spoken]) -> Table:
    from rich.table import Table

    table = Table("judge", "turns", "praised", "blamed", "neutral", "rollouts", box=None, pad_edge=False)
    for one in said:
        table.add_row(*map(str, (one.judge, one.turns, one.praised, one.blamed, one.neutral, one.rollouts)))
    return table


def _agreed(agreed: list[Agreement]) -> Table:
    from rich.table import Table

    from clawpipe.play.judging.report import PEOPLE_AND_CHECKS

    table = Table("judge", "with", "of", "n", "agree", "kappa", box=None, pad_edge=False)
    for one in agreed:
        kappa = "-" if one.kappa is None else f"{one.kappa:.2f}"
        other = f"{one.origin}s" if one.origin in PEOPLE_AND_CHECKS else one.origin
        table.add_row(one.judge, other, one.kind, str(one.n), f"{one.agree:.2f}", kappa)
    return table
