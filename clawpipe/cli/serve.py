"""`clawpipe serve`: serve a registered model."""

from __future__ import annotations

from typing import Annotated

import typer

ModelArgument = Annotated[str, typer.Argument(help="models:/NAME@ALIAS or models:/NAME/VERSION.")]
PortOption = Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)]
HostOption = Annotated[str, typer.Option(help="Address to listen on; only this machine can reach the default.")]


CaptureOption = Annotated[bool, typer.Option("--capture", help="Capture every turn, as `clawpipe gateway` before it would.")]


def serve(
    model: ModelArgument = "models:/clawpipe-agent@champion",
    port: PortOption = 8000,
    host: HostOption = "127.0.0.1",
    capture: CaptureOption = False,
) -> None:
    """Serve a registered model over OpenAI's chat completions interface until Ctrl-C.

    Clients must send the key in $CLAWPIPE_API_KEY; with --capture, that one or one of `clawpipe keys`.
    """
    if capture:
        from clawpipe.cli.gateway import serve_captured

        serve_captured([model], host, port)
        return
    from clawpipe.serving.access import api_key, listen

    key = api_key(host)
    listener = listen(host, port)

    from clawpipe.serving.policy import ServedPolicy, find
    from clawpipe.serving.server import serve as serve_policy
    from clawpipe.store.home import Home

    served = find(Home.from_env(), model)
    policy = ServedPolicy(served)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/v1"
    typer.echo(
        f"{served.name} version {served.version} (digest {served.digest[:12]}, policy {served.spec.policy_version}) at {address}"
    )
    serve_policy(policy, key, listener)
