"""The list of tools. Descriptions are written for a model that has never seen clawpipe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.start.mcp import choosing, home, training, trying
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import Tool

INSTRUCTIONS = (
    "Train a model by reinforcement learning on this machine. List environments, select one, look at the settings and change some, "
    "try the environment, start a training, and look at it now and then: it takes minutes to hours. Its results name the weights "
    "and a verdict: PROMOTE (put in service), HOLD (registered, not in service) or REJECT."
)

Answer = Callable[[Desk, Any], JsonObject]
_READS, _CHANGES = True, False
_TOOLS: list[tuple[str, type[BaseModel], Answer, bool, str]] = [
    (
        "rl_list_environments",
        training.Nothing,
        choosing.list_environments,
        _READS,
        "List the environments that a model can be trained in, with what each is about. Begin here.",
    ),
    (
        "rl_select_environment",
        choosing.EnvironmentName,
        choosing.select,
        _CHANGES,
        "Select the environment of the next training. Needed before the settings can be seen or a training started.",
    ),
    (
        "rl_get_current_config",
        training.Nothing,
        choosing.current,
        _READS,
        "Show all settings of the next training with type, default, description and current value: those that can be changed, "
        "and those that are locked.",
    ),
    (
        "rl_edit_config",
        choosing.Change,
        choosing.edit,
        _CHANGES,
        "Change one setting of the next training. Takes the name of a configurable field and its new value.",
    ),
    (
        "rl_start_training",
        training.Nothing,
        training.start,
        _CHANGES,
        "Start a training with the current settings. Returns its id at once; it goes on by itself, even if this server ends. One "
        "training runs at a time. Started again with the settings of an interrupted training, it goes on where that was.",
    ),
    (
        "rl_check_status",
        training.OneRun,
        training.check,
        _READS,
        "Tell how a training goes: state, step, processes, log files, reward. A running training answers once in thirty minutes; "
        "`rate_limited` tells when to ask again.",
    ),
    (
        "rl_stop_training",
        training.OneRun,
        training.stop,
        _CHANGES,
        "Stop a training and all its processes. What is finished is kept, and a new start with the same settings goes on there.",
    ),
    (
        "rl_get_results",
        training.OneRun,
        training.results,
        _READS,
        "Return the results of a training: verdict with its reasons, success on held-out tasks before and after, the path of the "
        "trained weights, the registered version, and up to ten samples of the metrics' history.",
    ),
    ("rl_list_runs", training.Nothing, training.list_all, _READS, "List the newest trainings with their ids and states."),
    (
        "rl_test_inference",
        trying.Try,
        trying.try_models,
        _CHANGES,
        "Try the selected environment with models that are not trained yet: play a few tasks several times and count successes. "
        "Use it before a training: tasks of which no episode, or every one, succeeds teach nothing. If it answers that it is "
        "running, call it again with the same arguments.",
    ),
    (
        "inspect",
        home.DataFile,
        home.inspect,
        _READS,
        "Show what a file of recorded conversations holds: format, conversations, what could not be read and why. Stores nothing.",
    ),
    (
        "ingest",
        home.DataFile,
        home.ingest,
        _CHANGES,
        "Read a file of recorded conversations into the store, so that a training can use it. Reading it twice changes nothing.",
    ),
    (
        "plan",
        training.Nothing,
        home.plan,
        _READS,
        "Say what the next training would do step by step, and how much memory it needs, without starting anything.",
    ),
    ("sessions", training.Nothing, home.sessions, _READS, "List the captured chat sessions that a training could learn from."),
    (
        "trace",
        home.Version,
        home.trace,
        _READS,
        "Follow a registered version back to the trainings, datasets and files that it came from.",
    ),
    (
        "promote",
        home.Promotion,
        home.promote,
        _READS,
        "Propose to put a version in service that the gate held. Changes nothing: returns the command that a person confirms with.",
    ),
    (
        "forget",
        home.Subject,
        home.forget,
        _READS,
        "Show what forgetting a session or a user would remove, and which models learned from it. Removes nothing: returns the "
        "command that a person confirms with.",
    ),
]


def tools_of(desk: Desk) -> list[Tool]:
    """Return the tools of a desk."""
    return [
        Tool(name, description, arguments, partial(answer, desk), reads) for name, arguments, answer, reads, description in _TOOLS
    ]
