"""`clawpipe deploy`, `undeploy` and `deployments`: put a version in service at Tinker or Fireworks, end it, and see where it is."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from clawpipe.serve.deploying.plan import Plan

_NAMED = "NAME@champion or NAME@3."
NameArgument = Annotated[str, typer.Argument(help=_NAMED)]


class Service(StrEnum):
    tinker = "tinker"
    fireworks = "fireworks"


class Method(StrEnum):
    lora = "lora"
    merged = "merged"


def deploy(
    model_version: NameArgument,
    to: Annotated[Service, typer.Option("--to", help="The service.")],
    method: Annotated[
        Method, typer.Option("--method", help="Send the adapter, or the weights with the adapter merged.")
    ] = Method.lora,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs of a replica; without it the service chooses.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="Their type, e.g. NVIDIA_H200_141GB.")] = None,
    base: Annotated[str | None, typer.Option("--base", metavar="NAME", help="The base model's name at the service.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="The account there that pays, where a key has several.")] = None,
    gpu_hour: Annotated[
        float | None,
        typer.Option("--gpu-hour", metavar="USD", help="What one GPU costs you in an hour, for the price that is shown."),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Another place of the service.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it costs money.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Put a registered version in service at Tinker or Fireworks.

    The price is shown, and you are asked, before anything is sent that costs money. The keys come from TINKER_API_KEY and
    FIREWORKS_API_KEY alone. The same command again finds what is there; `clawpipe trace` shows where a version is in service.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.serve.deploying.plan import Wanted
    from clawpipe.serve.deploying.run import deploy as put_in_service

    wanted = Wanted(method=method.value, gpus=gpus, gpu=gpu, project=project, base=base, gpu_hour=gpu_hour, url=url)

    def agree(plan: Plan) -> bool:
        if not json_output:
            typer.echo("\n".join(_lines(plan)))
        return not dry_run and (yes or _confirmed())

    plan, record = put_in_service(Home.from_env(), model_version, to.value, wanted, agree)
    if json_output:
        print_json({"plan": plan.model_dump(mode="json"), "deployed": record and record.model_dump(mode="json")})
    elif record:
        typer.echo(f"{plan.version} is in service at {plan.target}: ask {plan.endpoint} for {plan.model}")
    elif not dry_run:
        typer.echo("nothing was sent")


def undeploy(
    model_version: NameArgument,
    at: Annotated[Service, typer.Option("--from", help="The service.")],
    json_output: JsonFlag = False,
) -> None:
    """End a version's deployment. What was uploaded stays there, at Tinker for a week."""
    from clawpipe.core.store.home import Home
    from clawpipe.serve.deploying.run import end

    record = end(Home.from_env(), model_version, at.value)
    if json_output:
        print_json(record.model_dump(mode="json"))
    else:
        typer.echo(f"{model_version}: no longer in service at {record.target}")


def deployments(model_version: NameArgument, json_output: JsonFlag = False) -> None:
    """Show where a version is in service, and each deployment's present state there."""
    from rich.table import Table

    from clawpipe.core.store.home import Home
    from clawpipe.serve.deploying.run import states

    found = states(Home.from_env(), model_version)
    if json_output:
        print_json({"deployments": [record.model_dump(mode="json") | {"now": state} for record, state in found]})
        return
    if not found:
        typer.echo("nowhere: `clawpipe deploy` puts a version in service")
        return
    table = Table("service", "now", "method", "since", "by", "model", box=None, pad_edge=False)
    for record, state in found:
        table.add_row(record.target, state, record.method, record.at[:16], record.by, record.model)
    print_table(table)


def _confirmed() -> bool:
    from clawpipe.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("nobody is there to confirm it", "--yes", "add --yes, or --dry-run to see what would be sent")
    return typer.confirm("Go on?")


def _lines(plan: Plan) -> list[str]:
    calls = [f"  {call.method} {call.path}  ({call.note})" + _body(call.body) for call in plan.calls]
    return [f"{plan.version} (policy {plan.policy_version}) to {plan.where}", *calls, f"price: {plan.price}"]


def _body(body: object) -> str:
    return f"\n    {json.dumps(body)}" if body else ""
