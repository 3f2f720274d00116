"""`clawpipe serve`: serve a model."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.behind_gateway import alias_of
from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home
    from clawpipe.serve.serving.found import Served

ModelArgument = Annotated[
    str, typer.Argument(help="NAME@ALIAS, which is followed; NAME@3; or a base model: built-in name, hub id or directory.")
]
PortOption = Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)]
HostOption = Annotated[str, typer.Option(help="Address to listen on; only this machine can reach the default.")]
_SESSION_HELP = "Seconds that a silent session keeps its version; with 0 its next turn gets the version in service."
SessionOption = Annotated[float, typer.Option(help=_SESSION_HELP, min=0)]
_SHARE_HELP = "Share of new sessions that a promoted version answers before all of them get it."
ShareOption = Annotated[float, typer.Option(help=_SHARE_HELP, min=0.01, max=1)]
_SHADOW_HELP = "Share of requests that a promoted version answers first, beside the one in service; nobody sees these answers."
ShadowOption = Annotated[float, typer.Option(help=_SHADOW_HELP, min=0, max=1)]
FormatOption = Annotated[
    ToolCallFormat | None,
    typer.Option(help="How a base model writes tool calls (default: pythonic); registered ones have their own."),
]
BaseOption = Annotated[str | None, typer.Option(metavar="NAME", help="Base model to serve as long as the alias names no version.")]
_REGISTERED = "models:/"
CHAMPION = "champion"  # as in clawpipe.record.registry.versions, which loads MLflow


class EngineName(StrEnum):
    """The engine that computes the answers of `clawpipe serve`."""

    embedded = "embedded"
    vllm = "vllm"


_ENGINE_HELP = "vllm starts a vLLM server with the alias's adapter, behind the gateway: it takes --python and --capture."
EngineOption = Annotated[EngineName, typer.Option(help=_ENGINE_HELP)]
PythonOption = Annotated[str | None, typer.Option(metavar="FILE", help="The Python of an environment that has vLLM.")]
ArgumentOption = Annotated[
    list[str] | None, typer.Option("--argument", metavar="WORD", help="A word for vLLM's command line, such as --enforce-eager.")
]
_PER_USER_HELP = "Let each user get the champion of NAME-user-DIGEST, if there is one; all others get the model that is named."
PerUserOption = Annotated[bool, typer.Option("--per-user", help=_PER_USER_HELP)]
_ALSO_HELP = "Also serve NAME@champion, an adapter on the same base, to requests for the model NAME; once for each."
AlsoOption = Annotated[list[str] | None, typer.Option("--also", metavar="MODEL", help=_ALSO_HELP)]
CaptureOption = Annotated[
    bool, typer.Option("--capture", help="Capture every turn, like `clawpipe gateway` in front of this server.")
]


def serve(
    model: ModelArgument = "clawpipe-agent@champion",
    port: PortOption = 8000,
    host: HostOption = "127.0.0.1",
    session_seconds: SessionOption = 3600.0,
    canary_share: ShareOption = 1.0,
    shadow_share: ShadowOption = 0.0,
    base: BaseOption = None,
    tool_call_format: FormatOption = None,
    capture: CaptureOption = False,
    engine: EngineOption = EngineName.embedded,
    python: PythonOption = None,
    argument: ArgumentOption = None,
    per_user: PerUserOption = False,
    also: AlsoOption = None,
) -> None:
    """Serve a model over OpenAI's interface until Ctrl-C.

    Clients must send the key in $CLAWPIPE_API_KEY; with --capture, that one or one of `clawpipe keys`. A version that is promoted
    or rolled back is in service within seconds.
    """
    from clawpipe.record.registry.names import version_name, version_uri

    model = version_uri(model)
    if per_user and (engine == EngineName.vllm or not _is_alias(model)):
        fix = "serve NAME@champion with the embedded engine"
        raise ConfigError("users have models of their own beside an alias, on the embedded engine", "--per-user", fix)
    others = _champions(also or [], engine)
    if engine == EngineName.vllm:
        from clawpipe.cli.behind_gateway import serve_vllm

        if not (python and capture):
            fix = "add --python /path/to/its/python --capture; keys of `clawpipe keys make NAME --no-capture` are not captured"
            raise ConfigError("vLLM runs in an environment of its own, behind the gateway", "--engine vllm", fix)
        shares = canary_share, shadow_share
        serve_vllm(model, (base, tool_call_format), python, argument or [], host, port, shares, session_seconds)
        return
    if capture:
        from clawpipe.cli.behind_gateway import serve_captured

        words = [model, "--session-seconds", str(session_seconds), "--canary-share", str(canary_share)]
        words += ["--shadow-share", str(shadow_share)]
        words += ["--base", base] if base else []
        words += ["--per-user"] if per_user else []
        words += [word for name in others for word in ("--also", f"{name}@{CHAMPION}")]
        serve_captured([*words, *(["--tool-call-format", tool_call_format] if tool_call_format else [])], host, port, per_user)
        return
    from clawpipe.record.reporting.terminal import waiting
    from clawpipe.serve.serving.access import api_key, is_behind_gateway, listen

    key = api_key(host)
    listener = listen(host, port)

    follows, apart = _is_alias(model), per_user or bool(others)
    if base and not follows:
        raise ConfigError("only an alias may name no version yet", "--base", "leave it out, or serve NAME@ALIAS")
    with waiting(f"loading {version_name(model)}"):  # the libraries as well, which take longer on a busy machine
        from clawpipe.core.store.home import Home
        from clawpipe.serve.serving.follow import Follower
        from clawpipe.serve.serving.found import champion_of, champion_of_user
        from clawpipe.serve.serving.live import Live, loader
        from clawpipe.serve.serving.other_models import OtherModels
        from clawpipe.serve.serving.own_models import OwnModels
        from clawpipe.serve.serving.policy import ServedPolicy
        from clawpipe.serve.serving.server import serve as serve_versions
        from clawpipe.serve.serving.versions import Versions

        home = Home.from_env()
        quiet_libraries()
        alias = alias_of(home, model, base, tool_call_format) if follows else None
        served = alias.find(alias.version()) if alias else _find(home, model, tool_call_format)
        versions = Versions(Live(ServedPolicy(served, apart=apart)), session_seconds)
    follower = Follower(versions, alias, loader(apart=apart), canary_share, shadow_share) if alias else None
    own_models = OwnModels(partial(champion_of_user, home, served.name)) if per_user else None
    address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/v1"
    typer.echo(
        f"{served.name} version {served.version} (digest {served.digest[:12]}, policy {served.spec.policy_version}) at {address}"
    )
    beside = OtherModels(others, partial(champion_of, home))
    serve_versions(versions, key, listener, follower, is_behind_gateway(), own_models, beside)


def _champions(also: Sequence[str], engine: EngineName) -> list[str]:
    """Return the names of the models that are served beside the first one.

    Raises:
        ConfigError: one is no champion, or the engine is not the embedded one.
    """
    if also and engine == EngineName.vllm:
        raise ConfigError("several models share the embedded engine alone", "--also", "leave it out, or serve each on a vLLM")
    names = [one.removeprefix(_REGISTERED).removesuffix(f"@{CHAMPION}") for one in also]
    if wrong := [one for one, name in zip(also, names, strict=True) if "@" in name or "/" in name]:
        raise ConfigError(f"{wrong[0]!r} is no model's champion", "--also", f"such as clawpipe-agent@{CHAMPION}")
    return names


def quiet_libraries() -> None:
    """Keep what libraries say of themselves off the terminal: bars of weights that load, and their own deprecations."""
    import warnings

    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    for module in ("peft", "torch", "transformers"):
        warnings.filterwarnings("ignore", category=FutureWarning, module=module)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=module)


def _is_alias(model: str) -> bool:
    return model.startswith(_REGISTERED) and "@" in model


def _find(home: Home, model: str, tool_call_format: ToolCallFormat | None) -> Served:
    """Return the registered version, the adapter or the base model that is named."""
    from clawpipe.serve.serving.found import find, find_local

    if not model.startswith(_REGISTERED):
        try:
            return find_local(model, tool_call_format or "pythonic")
        except NotFoundError as error:
            fix = f"{error.fix}; a registered model is named with its version, such as {model}@champion"
            raise NotFoundError(error.what, "MODEL", fix) from None
    if tool_call_format:
        raise ConfigError("a registered model has its own format of tool calls", "--tool-call-format", "leave it out")
    return find(home, model)
