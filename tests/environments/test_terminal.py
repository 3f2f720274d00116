"""The environment `terminal`: generated tasks, who solves them and who does not, and what an episode records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ClawpipeError, ConfigError, DataError
from clawpipe.play.environments.base import TaskItem, Verdict
from clawpipe.play.environments.demonstration import play_out, play_solution, solution_of
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.hosted import HostedEnvironment, open_environment
from clawpipe.play.environments.shell import ShellLimits
from clawpipe.play.environments.terminal.environment import Config, TerminalEnvironment, TerminalEpisode
from clawpipe.play.environments.terminal.families import FAMILIES, NUMBERS, make
from clawpipe.play.environments.terminal.files import FOLDER, Tree, equal, link, look, text, write
from clawpipe.play.environments.terminal.generated import GeneratedTasks, judge
from clawpipe.play.environments.terminal.tasks import Place
from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.unsafe_local import UnsafeLocal

PLAIN = {"sandbox": "unsafe_local"}


def terminal(**options: object) -> TerminalEnvironment:
    return TerminalEnvironment(Config.model_validate(PLAIN | options))


def truth_of(family: str, number: int) -> dict[str, object]:
    task = make(family, number)
    kept = {path: task.start[path] for path in task.kept}
    return {"family": family, "number": number, "wanted": dict(task.wanted), "kept": kept}


def says(*commands: str) -> list[Message]:
    return [Message("assistant", "", (ToolCall("c", "bash", json.dumps({"command": command})),)) for command in commands]


@pytest.fixture(scope="module")
def box() -> Iterator[UnsafeLocal]:
    with closing(UnsafeLocal(Limits())) as sandbox:
        yield sandbox


def test_there_are_twelve_families_and_thousands_of_tasks():
    environment = terminal()
    assert len(FAMILIES) >= 12
    for split in ("train", "heldout"):
        assert environment.distinct_items(split) >= 2000 * 12 * 0.9


@pytest.mark.parametrize("family", FAMILIES)
def test_who_does_nothing_gets_nothing_of_any_task(family: str):
    for number in range(0, NUMBERS, 31):
        truth, task = truth_of(family, number), make(family, number)
        assert judge(truth, task.start).value == 0.0
        assert judge(truth, {**task.start, **task.wanted}).success


@pytest.mark.parametrize("family", FAMILIES)
def test_no_two_numbers_of_a_family_are_one_task(family: str):
    numbers = range(0, NUMBERS, 9)
    assert len({make(family, number).instruction for number in numbers}) == len(numbers)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, NUMBERS - 1))
def test_a_solution_gets_all_of_its_task(box: UnsafeLocal, family: str, number: int):
    task = make(family, number)
    write(box, task.start)
    for command in task.solution:
        assert box.exec(command).text == ""
    assert judge(truth_of(family, number), look(box, [*task.wanted, *task.kept])).success


def test_every_family_is_solved_by_its_demonstration():
    environment = terminal()
    for item in environment.items("heldout", len(FAMILIES), seed=3):
        shown = environment.hindsight(item, []).demonstration
        messages, ending = play_solution(environment, item, solution_of(environment, item))
        assert [(m.role, m.content) for m in messages[1:]] == [(m.role, m.content) for m in shown]
        assert outcome_of(environment, item, messages, ending).value == 1.0
        assert sum(filter(None, ending.turn_rewards)) == pytest.approx(1.0)


def item_of(environment: TerminalEnvironment, family: str) -> TaskItem:
    return next(item for item in environment.items("train", 40, seed=0) if item.slice == family)


def played(family: str, commands: Callable[[dict], list[str]]) -> tuple[float, str]:
    environment = terminal()
    item = item_of(environment, family)
    turns = says(*commands(json.loads(item.truth)))
    messages, ending = play_out(environment, item, lambda number: turns[number] if number < len(turns) else None, 8)
    outcome = outcome_of(environment, item, messages, ending)
    return outcome.value, outcome.reason.partition(":")[0]


def test_half_of_a_task_is_worth_half():
    def copies(truth: dict) -> list[str]:
        return [f"cp *.* {path}" for path, entry in truth["wanted"].items() if entry]

    assert played("rename", copies) == (0.5, "not as wanted")


def test_what_has_to_stay_counts_against_a_task():
    def spoils(truth: dict) -> list[str]:
        (gone,), (kept, *_) = truth["wanted"], truth["kept"]
        return [f"rm {gone}", f"echo x >> {kept}"]

    assert played("delete", spoils) == (0.0, "changed")


def test_a_folder_in_the_place_of_a_file_is_not_it():
    assert played("count-lines", lambda truth: [f"mkdir {next(iter(truth['wanted']))}"]) == (0.0, "not as wanted")


def test_saying_that_a_task_is_done_does_not_do_it():
    assert played("write-word", lambda truth: ["echo as wanted; echo '{\"files\": {}}'"]) == (0.0, "not as wanted")


def test_what_still_runs_is_ended_before_the_end_is_taken_down():
    done: list[str] = []

    class Watched(UnsafeLocal):
        def end_processes(self) -> None:
            done.append("end")
            super().end_processes()

        def exec(self, command, **options):
            done.append("exec")
            return super().exec(command, **options)

    with closing(Watched(Limits())) as sandbox:
        truth = truth_of("copy", 3)
        place = Place("unsafe_local", Limits(), {})
        episode = TerminalEpisode(GeneratedTasks((), (), place), truth, sandbox, place, ShellLimits(), rewarded=False)
        assert episode.finish("done").evidence["steps"] == 0
        assert done == ["end", "exec"]


def test_an_episode_ends_after_its_steps():
    environment = terminal(max_steps=2)
    item = item_of(environment, "copy")
    messages, ending = play_out(environment, item, lambda _: says("true")[0], 8)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert ending.reason == "done"
    assert ending.verdict
    assert ending.verdict.evidence["steps"] == 2


def test_turns_have_no_reward_where_none_is_asked_for():
    environment = terminal(step_rewards=False)
    item = item_of(environment, "copy")
    _, ending = play_solution(environment, item, solution_of(environment, item))
    assert set(ending.turn_rewards) == {None}


def test_an_untrained_family_is_held_out_alone():
    environment = terminal(families=("copy", "delete"), untrained=("rename",))
    assert {item.slice for item in environment.items("train", 30, 0)} == {"copy", "delete"}
    assert {item.slice for item in environment.items("heldout", 30, 0)} == {"copy", "delete", "rename"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"families": ["fly"]}, "no family 'fly'"),
        ({"families": ["copy"], "untrained": ["copy"]}, "no family is left"),
        ({"max_steps": 0}, "greater than or equal to 1"),
        ({"steps": 3}, "has no option 'steps'"),
        ({"sandbox": "nowhere"}, "nowhere"),
    ],
)
def test_an_option_that_is_wrong_is_told_in_one_line(options: dict, said: str):
    def begin() -> None:
        environment = load_environment("terminal", options)
        environment.start(environment.items("train", 1, 0)[0])

    with pytest.raises(ClawpipeError, match=said) as raised:
        begin()
    assert "\n" not in raised.value.what + raised.value.fix


def test_a_kernel_that_refuses_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path):
    refuses = tmp_path / "bwrap"
    refuses.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refuses.chmod(0o755)
    refuses.parent.chmod(0o755)
    for tool in ("nsenter", "setpriv", "prlimit"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path))
    environment = load_environment("terminal", {})
    item = environment.items("train", 1, 0)[0]
    with pytest.raises(ConfigError, match=r"unprivileged_userns_clone=1") as raised:
        environment.start(item)
    assert "\n" not in raised.value.what + raised.value.fix


def test_more_items_than_there_are_is_refused():
    with pytest.raises(DataError, match="items wanted"):
        terminal(families=("copy",)).items("train", NUMBERS, 0)


def test_an_episode_without_a_verdict_has_failed():
    environment = terminal()
    item = item_of(environment, "copy")
    assert environment.verify(item, [], None).value == 0.0
    wanted = json.loads(item.truth)
    assert environment.verify(item, [], Verdict({"files": wanted["wanted"] | wanted["kept"]})).success


def test_it_runs_in_a_process_of_its_own():
    with open_environment("terminal", PLAIN, 60.0) as environment:
        assert isinstance(environment, HostedEnvironment)
        item = environment.items("train", 1, 0)[0]
        messages, ending = play_solution(environment, item, solution_of(environment, item))
        assert outcome_of(environment, item, messages, ending).success
        assert environment.left_running == []


def test_what_is_written_is_what_is_looked_at(box: UnsafeLocal):
    tree: Tree = {
        "a.txt": text("one\n"),
        "b/run.sh": text("#!/bin/sh\n", executable=True),
        "c": link("a.txt"),
        "d": dict(FOLDER),
        "-n": text("dash"),
    }
    write(box, tree)
    assert look(box, [*tree, "no such"]) == tree | {"no such": None}
    write(box, {})
    assert set(look(box, tree).values()) == {None}


def test_too_much_to_look_at_is_nothing(box: UnsafeLocal):
    write(box, {})
    box.exec("head -c 1000000 /dev/zero > big; echo 1 > small")
    assert look(box, ["big", "small"]) == {"big": None, "small": None}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (text("a\n"), text("a"), True),
        (text("a"), text(" a"), False),
        (text("a"), text("a", executable=True), False),
        (None, text(""), False),
        (None, None, True),
        (link("a"), link("a"), True),
        (link("a"), text("a"), False),
        (dict(FOLDER), dict(FOLDER), True),
    ],
)
def test_entries_are_compared(one, other, same: bool):
    assert equal(one, other) is equal(other, one) is same
