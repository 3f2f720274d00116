"""A step is called like its function: which call that makes, who runs it, and what is tried again. No server takes part."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import Failed

from clawpipe.core.store.refs import StepResult
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError
from tasks.step import GPU_LIMIT, RETRY_DELAYS, Call, part, run_by, step, together


@step()
def count(rows: int, twice: bool = False) -> StepResult:
    return StepResult(rows_in=rows, rows_out=2 * rows if twice else rows)


@step(heavy=True)
def train(rows: int) -> StepResult:
    return StepResult(rows_in=rows)


@step(cached=False)
def publish(rows: int) -> StepResult:
    return StepResult(rows_in=rows)


class Noting:
    """Writes down what it is asked to run."""

    def __init__(self) -> None:
        self.alone: list[str] = []
        self.side_by_side: list[list[str]] = []

    def run(self, call: Call) -> StepResult:
        self.alone.append(call.name)
        return call.function(**call.arguments)

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        self.side_by_side.append([call.name for call in calls])
        return [call.function(**call.arguments) for call in calls]


def test_a_step_outside_of_any_runner_is_its_function():
    assert count(3, twice=True) == StepResult(rows_in=3, rows_out=6)
    assert [result.rows_out for result in together([count.call(1), count.call(2)])] == [1, 2]


def test_a_call_holds_all_arguments_by_name():
    assert count.call(3).arguments == {"rows": 3, "twice": False}


@pytest.mark.parametrize("wrong", [{}, {"rows": 1, "columns": 2}])
def test_wrong_arguments_are_an_error_before_anything_runs(wrong: dict[str, int]):
    runner = Noting()
    with run_by(runner), pytest.raises(TypeError):
        count(**wrong)
    assert runner.alone == []


def test_a_part_of_the_night_names_the_calls_inside_it_alone():
    runner = Noting()
    with run_by(runner):
        with part("round-1"):
            count(1)
            together([count.call(1), count.named("other").call(2)])
        count(2)
    assert (runner.alone, runner.side_by_side) == (["round-1/count", "count"], [["round-1/count", "round-1/other"]])


def test_another_name_in_the_record_is_no_other_key():
    assert count.named("other").call(3).key == count.call(3).key


def test_the_key_knows_the_arguments_and_the_defaults():
    assert count.call(3).key == count.call(rows=3, twice=False).key
    assert len({count.call(3).key, count.call(4).key, count.call(3, twice=True).key, train.call(3).key}) == 4


def test_a_step_that_runs_every_night_has_no_key():
    assert publish.call(3).key is None
    assert not publish.task.persist_result


def test_only_heavy_steps_wait_for_the_accelerator():
    assert (count.task.tags, train.task.tags) == (set(), {GPU_LIMIT})


def test_the_runner_before_comes_back_even_after_a_failure():
    outer, inner = Noting(), Noting()
    with run_by(outer):
        with pytest.raises(RuntimeError), run_by(inner):
            raise RuntimeError
        count(1)
    assert (outer.alone, inner.alone) == (["count"], [])


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (BusyError("busy"), True),
        (DataError("bad rows"), False),
        (ConfigError("bad setting"), False),
        (TrainingError("not finite"), False),
        (ValueError("a mistake of ours"), False),
    ],
)
def test_only_what_may_go_better_is_tried_again(error: ClawpipeError | ValueError, again: bool):
    state, task_run = Failed(data=error), TaskRun(task_key="count", dynamic_key="0", flow_run_id=uuid4())
    assert count.task.retries == len(RETRY_DELAYS)
    assert count.task.retry_condition_fn is not None
    assert count.task.retry_condition_fn(count.task, task_run, state) is again
