"""An episode of `swe`: a shell in a sandbox with a task's repository, which is graded at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.play.environments.base import Answer, Reason, Verdict
from clawpipe.play.environments.shell import Shell, ShellLimits
from clawpipe.play.environments.swe.grading import grade
from clawpipe.play.environments.swe.sources import Sources
from clawpipe.play.environments.swe.tasks import Task
from clawpipe.play.environments.swe.workbench import VARIABLES, Place, Workbench
from clawpipe.play.environments.world import Needs, Site, TaskError
from clawpipe.play.sandbox.base import WORK

_SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # mini-swe-agent ends an episode by a command that writes this first


class SweEpisode:
    """A shell in a sandbox with a task's repository.

    Args:
        place: where what was left is graded; the policy's sandbox has what a program needs as well.
    """

    def __init__(self, task: Task, place: Place, needs: Needs, sources: Sources, limits: ShellLimits) -> None:
        self._task, self._needs, self._sources, self._seconds = task, needs, sources, place.seconds
        self._place = replace(place, seconds=min(place.seconds, needs.seconds))
        self._bench = Workbench(place.with_needs(needs), place.image(task))
        try:
            self._bench.set_up(task, sources)
        except DataError as error:
            self.close()
            raise TaskError(str(error)) from error
        self._shell = Shell(self._bench.sandbox, limits, WORK, VARIABLES)

    def respond(self, messages: Sequence[Message]) -> Answer:
        answer = self._shell.respond(messages)
        submitted = any(message.content.lstrip().startswith(_SUBMITTED) for message in answer.messages)
        return replace(answer, done=answer.done or submitted)

    def site(self) -> Site:
        variables = self._bench.offer_python()
        return Site.of_task(self._bench.sandbox, self._place.provider, WORK, variables)

    def finish(self, reason: Reason) -> Verdict:
        """Grade what the policy has left.

        Raises:
            TaskError: the task cannot be set up for that; TaskTimeoutError: its tests take too long.
        """
        try:
            evidence = grade(self._place, self._sources, self._task, self._bench.sandbox)
        except DataError as error:
            raise TaskError(str(error)) from error
        self._needs.require_in_time(evidence.get("ended"), self._seconds)
        return Verdict(evidence)

    def close(self) -> None:
        self._bench.close()
