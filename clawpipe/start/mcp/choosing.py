"""The tools that choose an environment and change the settings of the training to come."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ClawpipeError
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import RefusedError
from clawpipe.start.mcp.training import Nothing

_TIPS = [
    "rl_select_environment takes a name of this list",
    "rl_test_inference tries the selected environment on a few tasks, before a training spends hours on it",
]


class EnvironmentName(BaseModel):
    """A tool about one environment."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, description="Name of an environment, as rl_list_environments gives it.")


class Change(BaseModel):
    """A change of one setting."""

    model_config = ConfigDict(extra="forbid")

    field: str = Field(min_length=1, description="Name of a field, as rl_get_current_config gives it, such as train.learning_rate.")
    value: Any = Field(description="Its new value: a number, a switch, or one of the choices that its type names.")


def list_environments(desk: Desk, _: Nothing) -> JsonObject:
    """List what an agent can be trained in."""
    shown = [
        {
            "name": one.name,
            "class_name": one.reference.rpartition(":")[2] or one.name,
            "file_path": one.reference.rpartition(":")[0],
            "description": one.summary,
        }
        for one in desk.environments()
    ]
    return {"environments": shown, "count": len(shown), "tips": _TIPS}


def select(desk: Desk, asked: EnvironmentName) -> JsonObject:
    """Select the environment of the training to come."""
    try:
        found = desk.select(asked.name)
    except ClawpipeError as error:
        raise RefusedError(error, available=[one.name for one in desk.environments()]) from None
    message = f"the next training is in {found.name}; rl_get_current_config shows its settings"
    return {"message": message, "environment": found.name, "file_path": found.reference.rpartition(":")[0]}


def current(desk: Desk, _: Nothing) -> JsonObject:
    """Show the settings of the training to come."""
    fields = desk.fields()
    return {
        "environment": desk.settings().environment.name,
        "configurable_fields": [field.shown() for field in fields if not field.locked],
        "locked_fields": [field.shown() for field in fields if field.locked],
        "tip": "rl_edit_config changes a configurable field; locked ones are changed by a person",
    }


def edit(desk: Desk, asked: Change) -> JsonObject:
    """Change one setting of the training to come."""
    try:
        field = desk.change(asked.field, asked.value)
    except ClawpipeError as error:
        fields = {one.name: one for one in desk.fields()}
        at_fault = fields.get(asked.field)
        if at_fault is None:
            raise RefusedError(error, available_fields=[name for name, one in fields.items() if not one.locked]) from None
        raise RefusedError(error, **({"locked_value": at_fault.value} if at_fault.locked else {})) from None
    config = {one.name: one.value for one in desk.fields() if not one.locked}
    return {"message": f"{field.name} is changed", "field": field.name, "value": field.value, "config": config}
