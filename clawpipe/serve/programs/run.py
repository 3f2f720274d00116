"""Run an episode's program in a sandbox, and the program that judges what it left."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import DataError
from clawpipe.play.environments.agent import answer_text
from clawpipe.play.environments.base import Reason, Verdict
from clawpipe.play.environments.ending import written
from clawpipe.play.environments.program import Program, home_of, named_file, why_untold
from clawpipe.play.environments.world import APART, Needs, Site, TaskError, TaskTimeoutError, World, of_task
from clawpipe.play.sandbox.base import Result, Sandbox, open_sandbox, put
from clawpipe.serve.programs.bridge import bridged
from clawpipe.serve.programs.episode import Episode

_SHOWN = 200  # characters of what a program said last
_NAME = re.compile(r"\{(prompt|url|key|model)\}")
_START = 'mkdir -p -- "$HOME" && cd -- "$1" && shift && exec "$@"'
_NO_PROXY = "127.0.0.1,localhost"
_QUIET = {"PYTHONNOUSERSITE": "1"}  # of the check: Python would run start-up files that the program has left in its home
# Where programs look for the address, by the names that OpenAI's and Anthropic's clients, LiteLLM and others read.
_ADDRESS = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "LLM_BASE_URL", "CLAWPIPE_BASE_URL")
_KEY = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "LLM_API_KEY", "CLAWPIPE_API_KEY")
_MODEL = ("OPENAI_MODEL", "OPENAI_MODEL_NAME", "ANTHROPIC_MODEL", "LLM_MODEL", "CLAWPIPE_MODEL")


@dataclass(frozen=True)
class Ran:
    """How a run ended, and what judges it has said; None: it was not asked.

    Attributes:
        error: why there was no run, or nobody can judge it: its task cannot be set up, or its tests take too long.
        reason: for which an episode with an error ended.
    """

    result: Result
    check: JsonObject | None = None
    error: str = ""
    reason: Reason = "error"

    @property
    def said_last(self) -> str:
        """The last line that the program wrote, of its errors if there are any."""
        lines = (self.result.stderr or self.result.stdout).decode(errors="replace").strip().splitlines()
        return lines[-1].strip()[:_SHOWN] if lines else "it wrote nothing"


@dataclass(frozen=True)
class Place:
    """Where an episode's program finds the endpoint, and the model's name."""

    port: int
    model: str
    socket: str


def run_program(program: Program, episode: Episode, prompt: str, place: Place, test_seconds: float = math.inf) -> Ran:
    """Run the program to its end, then let it be judged; the episode takes no requests from there on.

    The task's text is the program's standard input, too.

    Args:
        test_seconds: that the tests of a world's task may take.

    Raises:
        ConfigError, BusyError, NotFoundError: the sandbox cannot be started.
        DataError: a file cannot be put into it.
    """
    socket = Needs((str(Path(place.socket).parent),))
    if program.world:
        needs = replace(program.needs, paths=socket.paths, seconds=test_seconds)
        return _in_world(program.world, needs, program, episode, prompt, place)
    options = socket.options(program.sandbox, program.sandbox_options)
    with closing(open_sandbox(program.sandbox, program.limits, options)) as sandbox:
        site = Site(sandbox, program.sandbox)
        result = _run(program, site, episode, prompt, place)
        sandbox.end_processes()
        check = _judged(site, program, episode.item.truth, prompt) if program.check and result.ended != "died" else None
    return Ran(result, check)


def _in_world(world: World, needs: Needs, program: Program, episode: Episode, prompt: str, place: Place) -> Ran:
    """Run the program where a task of the world lies, which says what was achieved."""
    result = Result(None, b"", b"")
    if why := why_untold(prompt, "text", "program"):
        return Ran(result, error=why)
    try:
        with closing(world.open(episode.item, needs)) as work:
            site = work.site()
            with of_task(site.provider == "container"):  # whose image may have nothing by which a program is run
                result = _run(program, site, episode, prompt, place)
            is_judged = result.ended in (None, "timeout")
            return Ran(result, _recorded(work.finish(reason_of(result, episode))) if is_judged else None)
    except (TaskError, DataError) as error:
        reason = "timeout" if isinstance(error, TaskTimeoutError) else "error"
        return Ran(result, error=" ".join(str(error).split()), reason=reason)


def _recorded(verdict: Verdict) -> JsonObject:
    """Return the evidence of a verdict.

    Raises:
        DataError: it cannot be stored.
    """
    try:
        written(verdict)
    except ValueError as error:
        raise DataError(f"what was left cannot be recorded: {error}") from None
    return verdict.evidence


def reason_of(result: Result, episode: Episode) -> Reason:
    """Return why a run ended that exceeded no other limit than its time."""
    return "timeout" if result.ended else episode.reached or "done"


def _run(program: Program, site: Site, episode: Episode, prompt: str, place: Place) -> Result:
    """Run the program to its end."""
    names = {"prompt": prompt, "key": episode.key, "model": place.model, "url": f"http://127.0.0.1:{place.port}/v1"}
    argv = _placed(site, program.command, names)
    given = {name: _filled(value, names) for name, value in program.variables.items()}
    env = _variables(names, episode.seed) | dict(site.variables) | given
    if "PATH" in site.variables and "PATH" not in given:  # which is for what the program starts, and not for itself
        argv[0] = _path_of(site.sandbox, argv[0])
    start = ["/bin/sh", "-c", _START, "sh", site.folder, *bridged(site, argv, place.port, place.socket)]
    result = site.sandbox.exec(start, stdin=prompt.encode(), seconds=program.limits.seconds, env=env)
    episode.close()
    return result


def _path_of(sandbox: Sandbox, program: str) -> str:
    """Return where a program is in a sandbox; its name if it is nowhere."""
    return sandbox.exec(["/bin/sh", "-c", 'command -v -- "$1"', "sh", program]).stdout.decode(errors="replace").strip() or program


def _filled(text: str, names: Mapping[str, str]) -> str:
    """Replace names in braces; other braces stay, since arguments may be JSON, and so do those of a task's text."""
    return _NAME.sub(lambda found: names.get(found[1], found[0]), text)


def _variables(names: Mapping[str, str], seed: int) -> dict[str, str]:
    root = names["url"].removesuffix("/v1")
    env = dict.fromkeys(_ADDRESS, names["url"]) | dict.fromkeys(_KEY, names["key"]) | dict.fromkeys(_MODEL, names["model"])
    own = {"ANTHROPIC_BASE_URL": root, "CLAWPIPE_TASK": names["prompt"], "CLAWPIPE_SEED": str(seed), "PYTHONHASHSEED": "0"}
    return env | own | {"NO_PROXY": _NO_PROXY, "no_proxy": _NO_PROXY}


def _placed(site: Site, command: Sequence[str], names: Mapping[str, str] | None = None) -> list[str]:
    """Put files of this machine that a command names beside its site; return it with their names there, and with `names` filled in.
    What is filled in names no file: a task's text must not fetch one."""
    placed = [_program_in(site, command[0], names or {})]
    for part in command[1:]:
        file = named_file(part)
        placed.append(_put(site, file) if file else _filled(part, names or {}))
    return placed


def _program_in(site: Site, program: str, names: Mapping[str, str]) -> str:
    """Return the name of a program, or where it is in a sandbox: a file of this machine that is not inside is put there. An
    absolute path is an image's own."""
    name, file = _filled(program, names), named_file(program)
    if "/" not in name:
        return name
    path = (home_of(name) or Path(name)).absolute()  # links stay: inside they may lead elsewhere
    is_own = site.provider == "container" and program.startswith("/")
    if site.provider not in APART or is_own or not file or site.sandbox.exec(["test", "-e", str(path)]).code == 0:
        return str(path)
    placed = _put(site, file)
    return placed if "/" in placed else f"./{placed}"  # no program of PATH


def _put(site: Site, file: Path) -> str:
    """Put a file beside a site; return its path there."""
    path = str(PurePosixPath(site.beside, file.name))
    put(site.sandbox, path, file.read_bytes(), executable=True)
    return path


def _judged(site: Site, program: Program, truth: str, prompt: str) -> JsonObject:
    """Return what the program that judges says: by a JSON object with `value` or `success` in its last line, or by its exit code,
    of which 0 is success.

    One that does not fit beside what was left, as on a disk that is full, says that it is no success.
    """
    try:
        argv = _placed(site, program.check)
    except DataError as error:
        return {"value": 0.0, "success": False, "reason": f"the check does not fit beside what was left: {error.what}"[:_SHOWN]}
    answer = answer_text(json.loads(truth).get("answer"))
    result = site.sandbox.exec(argv, env={"CLAWPIPE_ANSWER": answer, "CLAWPIPE_TASK": prompt} | _QUIET)
    lines = result.stdout.decode(errors="replace").strip().splitlines()
    said = _object(lines[-1]) if lines and result.code == 0 else {}
    if said.keys() & {"value", "success"}:
        return _said(said)
    right = result.code == 0
    reason = "" if right else f"the check ended with {result.ended or result.code}"
    return {"value": float(right), "success": right, "reason": reason}


def _said(said: JsonObject) -> JsonObject:
    """Return a verdict that a program wrote. A value that is no number from 0 to 1 is no success: nobody knows what it means."""
    value = said.get("value")
    if value is None:
        value = float(said.get("success") is True)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        reason = f"the check says {json.dumps(value)[: _SHOWN // 2]}, which is no value from 0 to 1"
        return {"value": 0.0, "success": False, "reason": reason}
    success = said.get("success", value >= 1)
    reason = str(said.get("reason", "")).encode(errors="replace").decode()  # half a surrogate pair could not be stored
    return {"value": float(value), "success": success is True, "reason": reason[:_SHOWN]}


def _object(line: str) -> JsonObject:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
