"""`clawpipe keys`: the keys of the gateway's clients."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.serve.gateway.keys import Key

app = typer.Typer(help="Keys of the gateway's clients: make one, list them, revoke one.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose or what for; captured turns carry it.")]


@app.command("make")
def make(
    name: NameArgument,
    owner: Annotated[
        str | None, typer.Option(help="User of its turns that name none; `clawpipe forget --user` finds them.")
    ] = None,
    capture: Annotated[bool, typer.Option("--capture/--no-capture", help="Whether its turns are captured.")] = True,
    per_minute: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    per_day: Annotated[
        int | None, typer.Option(min=1, help="Requests a day (UTC), counted by each gateway since it started.")
    ] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="Requests at a time.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Make a key and print it. It is shown this once: the home holds only its digest. Running gateways know it within a second."""
    from clawpipe.core.store.home import Home
    from clawpipe.serve.gateway.keys import make_key

    limits = {"per_minute": per_minute, "per_day": per_day, "at_once": at_once}
    secret = make_key(Home.from_env(), name, owner=owner, capture=capture, **limits)
    if json_output:
        print_json({"name": name, "key": secret})
    else:
        typer.echo(secret)


@app.command("list")
def list_keys(json_output: JsonFlag = False) -> None:
    """List the keys without the keys themselves: names, owners, limits, and since when each is good or no longer good."""
    from clawpipe.core.store.home import Home
    from clawpipe.serve.gateway.keys import read_keys

    keys = read_keys(Home.from_env())
    if json_output:
        print_json({"keys": [key.model_dump(mode="json", exclude={"sha256"}) for key in keys]})
        return
    for key in keys:
        typer.echo(_line(key))
    if not keys:
        typer.echo("no keys yet: `clawpipe keys make NAME` makes one")


@app.command("revoke")
def revoke(name: NameArgument, json_output: JsonFlag = False) -> None:
    """Make a key useless. Running gateways know it within a second."""
    from clawpipe.core.store.home import Home
    from clawpipe.serve.gateway.keys import revoke_key

    key = revoke_key(Home.from_env(), name)
    if json_output:
        print_json(key.model_dump(mode="json", exclude={"sha256"}))
    else:
        typer.echo(f"{name} is revoked")


def _line(key: Key) -> str:
    limits = {"a minute": key.per_minute, "a day": key.per_day, "at once": key.at_once}
    words = [f"{count} {unit}" for unit, count in limits.items() if count]
    words += [] if key.capture else ["not captured"]
    state = f"revoked {_day(key.revoked)}" if key.revoked else f"good since {_day(key.made)}"
    return f"{key.name:<20} {key.owner or '-':<20} {state}" + (f"  ({', '.join(words)})" if words else "")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
