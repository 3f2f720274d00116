"""`clawpipe gateway`: a proxy before an engine that captures every turn."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.behind_gateway import address_of, followed, more_keys
from clawpipe.cli.serve import BaseOption, FormatOption, HostOption, SessionOption, ShadowOption, ShareOption

if TYPE_CHECKING:
    pass

UpstreamOption = Annotated[
    str, typer.Option(metavar="URL", help="The engine, such as http://HOST:8000/v1, or a YAML file that lists several.")
]
_FOLLOW_HELP = "NAME@champion, which is followed: the version that it names answers, as an adapter of the engine."
FollowedArgument = Annotated[str | None, typer.Argument(metavar="MODEL", help=_FOLLOW_HELP)]
GatewayPortOption = Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)]

AtOnceOption = Annotated[int, typer.Option(help="Requests that are answered at a time; more are told to come back.", min=1)]


class WhenFull(StrEnum):
    """What the gateway does while it cannot capture turns: refuse requests, or answer them without capture."""

    refuse = "refuse"
    serve = "serve"


WhenFullOption = Annotated[
    WhenFull, typer.Option(help="While turns cannot be written: refuse requests with 503, or serve them uncaptured.")
]


def gateway(
    upstream: UpstreamOption,
    model: FollowedArgument = None,
    port: GatewayPortOption = 8100,
    host: HostOption = "127.0.0.1",
    when_full: WhenFullOption = WhenFull.refuse,
    at_once: AtOnceOption = 256,
    session_seconds: SessionOption = 3600.0,
    canary_share: ShareOption = 1.0,
    shadow_share: ShadowOption = 0.0,
    base: BaseOption = None,
    tool_call_format: FormatOption = None,
) -> None:
    """Run a proxy before an OpenAI-compatible engine, and capture every turn until Ctrl-C.

    Point your agent at the gateway instead of the engine; nothing else changes. Clients must send a key: one of `clawpipe keys`, or
    the one in $CLAWPIPE_API_KEY. The engine is asked with the key in $CLAWPIPE_UPSTREAM_KEY, if it is set.

    With NAME@champion, requests for the model NAME are answered by the version that the alias names: vLLM loads its adapter within
    seconds of a promotion, new sessions get it, and a bad version goes back by itself, as `clawpipe serve` does it.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.registry.names import version_uri
    from clawpipe.serve.gateway.adapters import Following
    from clawpipe.serve.gateway.clients import Clients
    from clawpipe.serve.gateway.server import serve
    from clawpipe.serve.gateway.upstreams import Upstreams
    from clawpipe.serve.serving.access import listen

    home = Home.from_env()
    engines = Upstreams.named(upstream, os.environ.get("CLAWPIPE_UPSTREAM_KEY", ""))
    clients = Clients(home, more_keys(home, host), at_once)
    listener = listen(host, port)
    typer.echo(f"{engines} behind {address_of(host, listener)}, captured in {home.root / 'captured'}")
    following = None
    if model:
        named = followed(home, version_uri(model), base, tool_call_format)
        following = Following(*named, engines, (canary_share, shadow_share), session_seconds)
    serve(home, engines, clients, listener, when_full.value, following)
