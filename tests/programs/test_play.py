"""Programs play episodes: what is recorded of them, how they end, and that one that fails disturbs no other."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.sampled import failed_with
from clawpipe.errors import ConfigError
from clawpipe.model.engines.continuous import ContinuousBatch
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import Ending, FailedEpisodeError, messages_of, outcome_of
from clawpipe.play.sandbox.base import Result
from clawpipe.play.workers.episodes import EpisodeLimits
from clawpipe.serve.programs.endpoint import Endpoint
from clawpipe.serve.programs.episode import Episode
from clawpipe.serve.programs.rows import ending_of
from clawpipe.serve.programs.run import Ran
from clawpipe.serve.serving.errors import cancelled_error
from tests.programs.conftest import Play, scripted

ASK = """
import os, sys, httpx
def ask(messages, key=os.environ["OPENAI_API_KEY"], **more):
    body = {"model": "any", "messages": messages, **more}
    return httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body, timeout=300,
                      headers={"authorization": f"Bearer {key}"})
def user(text):
    return {"role": "user", "content": text}
def said(answer):
    return answer.json()["choices"][0]["message"]
"""
ASK_INSIDE = """
import json, os, urllib.request
body = json.dumps({'model': 'm', 'max_tokens': 2, 'messages': [{'role': 'user', 'content': 'Hi.'}]}).encode()
head = {'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'], 'content-type': 'application/json'}
ask = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body, head)
print(urllib.request.urlopen(ask, timeout=300).read())
"""


@pytest.fixture
def program(tmp_path: Path):
    """program(code): the command of a program that may use `ask`, `user` and `said`."""

    def program(code: str) -> list[str]:
        file = tmp_path / "program.py"
        file.write_text(ASK + code)
        return [sys.executable, str(file)]

    return program


def sampled(row: Row) -> int:
    return sum(row["loss_mask"])


def test_a_loop_is_one_row_with_every_token(play: Play, loop: list[str], policy: PolicySpec):
    rows = play(loop, items=2, group=2)
    assert [(row["rollout_index"], row["ended"], row["error"]) for row in rows[:2]] == [(0, "length", None), (1, "length", None)]
    engine = EmbeddedEngine(Path(policy.base), None, device="cpu")
    for row in rows:
        assert [turn["kind"] for turn in row["turns"]] == ["main", "main"]
        assert [message["role"] for message in row["messages"]] == ["user", "assistant", "user", "assistant"]
        assert len(row["token_ids"]) == len(row["loss_mask"]) == len(row["logprobs"])
        assert sampled(row) == sum(turn["end"] - turn["start"] for turn in row["turns"]) <= 12
        plain = [0.0] * row["prompt_tokens"] + engine.score(row["token_ids"], row["prompt_tokens"])
        assert row["logprobs"] == pytest.approx(
            [value * mask for value, mask in zip(plain, row["loss_mask"], strict=True)], abs=1e-5
        )
    assert rows[0]["token_ids"] != rows[1]["token_ids"]  # the program asks for temperature 0, the settings for draws


def test_equal_programs_give_equal_rows_whoever_shares_the_batch(play: Play, loop: list[str]):
    assert play(loop, items=4, group=2)[:4] == play(loop, items=2, group=2)


def test_nothing_of_a_batch_outlives_its_shard(play: Play, loop: list[str]):
    """A worker plays many: what one of them kept of its prompts, and the policy of a round before, would fill its memory."""
    for _ in range(2):
        play(loop, items=2, group=2)
    assert not [one for one in gc.get_objects() if isinstance(one, ContinuousBatch | Endpoint)]


def test_each_limit_ends_an_episode_and_is_named(play: Play, loop: list[str]):
    [short] = play(loop, max_turns=1)
    assert (short["ended"], len(short["turns"])) == ("max_turns", 1)
    [spent] = play(loop, tokens=1)
    assert (spent["ended"], len(spent["turns"])) == ("length", 1)


@pytest.mark.slow
def test_a_program_that_takes_too_long_is_ended_and_counts(play: Play, program):
    [late] = play(program('ask([user("Hi.")], max_tokens=1)\nimport time; time.sleep(600)'), limits={"seconds": 20})
    assert (late["ended"], late["error"], len(late["turns"])) == ("timeout", None, 1)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["no-such-program"], "exit code 127"),
        (["sh", "-c", "echo It broke. >&2; exit 127"], "exit code 127 before it was answered: It broke."),
        (["true"], "exit code 0 before it was answered: it wrote nothing"),
        (["yes"], "the limit `output`"),
    ],
)
def test_a_program_that_asks_nothing_is_set_aside(play: Play, tasks: Path, command: list[str], told: str):
    [row] = play(command)
    assert (row["ended"], row["tokens"]) == ("error", "none")
    assert told in row["error"]
    assert "\n" not in row["error"]
    environment = AgentEnvironment(["true"], tasks=str(tasks))
    with pytest.raises(FailedEpisodeError):
        outcome_of(environment, _item(row), messages_of(row), Ending.from_row(row))


def test_one_that_waits_when_its_time_is_over_says_so():
    """Its request was given up with it, as those of a server that stops."""
    item = TaskItem("i", "i", "agent", "tool-call", "train", "all", (), "{}", 0)
    episode = Episode(item, 0, 7, EpisodeLimits(1.0, 6, 8, 1024), 100, ())
    episode.asked = 1
    episode.refused(cancelled_error())
    ending = ending_of(episode, Ran(Result(None, b"", b"", "timeout")))
    assert (ending.reason, ending.error) == (
        "timeout",
        "its program took too long before it was answered: it still waited for an answer",
    )


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        ('ask([user("Hi.")]); raise KeyError("text")', True),
        ('ask([user("Hi.")]); ask([]).raise_for_status()', True),
        ('[ask([user("Hi.")]).raise_for_status() for _ in range(3)]', False),  # it was told that it is over
        ('ask([user("Hi.")])', False),
    ],
)
def test_a_program_that_breaks_after_an_answer_is_told(play: Play, program, capfd, code: str, failed: bool):
    row = play(program(code), max_turns=2)[0]
    assert json.loads(row["verdict"]).get("failed") == (True if failed else None)
    assert ("its program ended with exit code 1: " in capfd.readouterr().err) == failed
    assert failed_with(row) == (1 if failed else None)


def test_one_that_fails_disturbs_no_other(play: Play, program, tmp_path: Path):
    first = f"try: os.mkdir({str(tmp_path / 'taken')!r}); sys.exit(127)\nexcept FileExistsError: pass\n"
    rows = play(program(first + 'ask([user("Hi.")], max_tokens=1)'), items=2, group=2)
    assert sorted(bool(row["error"]) for row in rows) == [False, False, False, True]
    assert [len(row["turns"] or ()) for row in rows if not row["error"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("ask([])", "400: "),
        ('ask([user("Hi.")], tool_choice="required")', "400: "),
        ('ask([user("Hi." * 2000)])', "400: 6"),
        ('httpx.post(os.environ["OPENAI_BASE_URL"] + "/embeddings", headers={"x-api-key": os.environ["OPENAI_API_KEY"]})', "404: "),
    ],
)
def test_the_row_says_what_was_refused(play: Play, program, asked: str, told: str):
    [row] = play(program(asked))
    assert row["error"].startswith(
        f"its program ended with exit code 0 before it was answered: its last request was refused with {told}"
    )
    assert "\n" not in row["error"]


def test_a_limit_beyond_the_context_is_cut(play: Play, program):
    [row] = play(program('sys.exit(ask([user("Hi.")], max_tokens=65536).status_code != 200)'))
    assert (row["error"], json.loads(row["verdict"])["exit"]) == (None, 0)


def test_a_request_after_the_end_is_refused(play: Play, program, tmp_path: Path):
    """The second program asks with the key of the first, which has ended."""
    code = f"""
import json, pathlib, time
place = pathlib.Path({str(tmp_path)!r})
mine = ask([user("Hi.")], max_tokens=1).status_code
try:
    (place / "first").mkdir()
    (place / "key").write_text(os.environ["OPENAI_API_KEY"])
    os.rename(place / "key", place / "first" / "key")
except FileExistsError:
    while not (place / "first" / "key").exists(): time.sleep(0.01)
    key = (place / "first" / "key").read_text()
    while (late := ask([user("Hi.")], key, max_tokens=1)).status_code == 200: time.sleep(0.05)
    (place / "late").write_text(json.dumps([late.status_code, late.json()["error"]["code"]]))
"""
    rows = play(program(code), group=2, max_turns=1000)
    assert [(row["ended"], row["error"]) for row in rows[:2]] == [("length", None)] * 2
    assert json.loads((tmp_path / "late").read_text()) == [403, "episode_over"]


def test_a_loop_that_puts_its_stop_string_back_is_one_row(play: Play, program):
    code = """
talk = [user("One.")]
talk.append({"role": "assistant", "content": said(ask(talk, stop=["</code>"]))["content"] + "</code>"})
ask([*talk, user("Two.")], stop=["</code>"])
"""
    [row] = play(program(code), engine=scripted("x</code> and more"), max_new_tokens=20)
    assert [turn["kind"] for turn in row["turns"]] == ["main", "main"]
    assert sampled(row) == 2 * len("x</code>")
    assert [message["content"] for message in row["messages"][1::2]] == ["x", "x"]


def _item(row: Row) -> TaskItem:
    truth = json.dumps({"answer": "a", "check": "contains"})
    return TaskItem(row["item_id"], "i", "agent", "tool-call", "train", "all", (), truth, 0)


def test_keys_of_others_and_late_requests_are_refused(play: Play, program, tmp_path: Path):
    """Each of two programs asks with its own key, then with the other's after that one has ended, and with none."""
    code = f"""
import pathlib, time
mine = pathlib.Path({str(tmp_path)!r}) / os.environ["OPENAI_API_KEY"]
statuses = [ask([user("Hi.")], key="sk-another").status_code, ask([user("Hi.")], max_tokens=1).status_code]
print(statuses); sys.exit(0 if statuses == [401, 200] else 3)
"""
    rows = play(program(code), group=2)
    assert [json.loads(row["verdict"])["exit"] for row in rows] == [0, 0]


def test_side_turns_branches_and_compaction_are_further_rows(play: Play, program):
    code = """
first = [user("One.")]
one = said(ask(first, max_tokens=2))
ask([*first, one, user("Two.")], max_tokens=3)
ask([user("Compacted: one, two."), ], max_tokens=1)
ask([*first, one, user("Another way.")], max_tokens=1)
ask([user("Title?")], max_tokens=1, turn_type="side")
"""
    rows = play(program(code))
    kinds = [[turn["kind"] for turn in row["turns"]] for row in rows]
    assert sorted(kinds) == [["main"], ["main"], ["main", "main"], ["side"]]
    assert kinds[0] == ["main", "main"]
    assert [json.loads(row["extra"])["part"] for row in rows[1:]] == [1, 2, 3]
    assert {json.loads(row["extra"])["episode"] for row in rows} == {rows[0]["trajectory_id"]}
    assert len({row["trajectory_id"] for row in rows}) == 4
    assert {row["verdict"] for row in rows} == {rows[0]["verdict"]}


def test_the_last_reply_counts_in_whichever_row_it_stands(play: Play, program, tasks: Path):
    """The longest chain of turns stands for the episode; what the program was told last is in another one."""
    code = """
first = [user("One.")]
ask([*first, said(ask(first)), user("Two.")])
ask([user("Compacted.")])
"""
    rows = play(program(code), engine=scripted("long and wrong", "wrong"), max_new_tokens=20)
    assert [len(row["turns"]) for row in rows] == [2, 1]
    environment = AgentEnvironment(["true"], tasks=str(tasks))
    for row in rows:
        item = replace(_item(row), truth=json.dumps({"answer": "long", "check": "contains"}))
        assert outcome_of(environment, item, messages_of(row), Ending.from_row(row)).success


def test_requests_at_one_time_are_drawn_by_what_they_ask(play: Play, program):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as threads:
    list(threads.map(lambda number: ask([user(f"Ask {number % 4}.")], max_tokens=4), range(7)))
ask([user("Last.")], max_tokens=4)
"""
    assert play(program(code)) == play(program(code))


def test_a_program_judges_what_is_left_behind(play: Play, program, tasks: Path, tmp_path: Path):
    check = tmp_path / "check.py"
    check.write_text("import json; print(json.dumps({'value': 0.5, 'reason': open('made').read()}))")
    [row] = play(program('ask([user("Hi.")], max_tokens=1); open("made", "w").write("half")'), check=[sys.executable, str(check)])
    assert json.loads(row["verdict"])["check"] == {"value": 0.5, "success": False, "reason": "half"}
    environment = AgentEnvironment(["true"], tasks=str(tasks), check=["true"])
    outcome = outcome_of(environment, _item(row), messages_of(row), Ending.from_row(row))
    assert (outcome.value, outcome.success, outcome.reason) == (0.5, False, "half")


@pytest.mark.parametrize(
    ("said", "value"), [({"success": False}, 0.0), ({"success": True}, 1.0), ({"value": 50}, 0.0), ({"value": -1}, 0.0)]
)
def test_a_check_that_ends_well_need_not_say_success(play: Play, program, tmp_path: Path, said, value):
    """What its last line says counts, also without a value, and where that is none from 0 to 1."""
    check = tmp_path / "check.py"
    check.write_text(f"print({json.dumps(json.dumps(said))})")
    [row] = play(program('ask([user("Hi.")], max_tokens=1)'), check=[sys.executable, str(check)])
    verdict = json.loads(row["verdict"])["check"]
    assert (verdict["value"], verdict["success"], "50" in verdict["reason"]) == (value, value == 1, said == {"value": 50})


@pytest.mark.parametrize(
    ("line", "value"),
    [('{"value": 0.5, "reason": "\\ud83d"}', 0.5), ("[" * 5000, 1.0), ('{"value": NaN}', 0.0), ('{"value": ' + "[" * 5000, 1.0)],
)
def test_no_last_line_of_a_check_ends_a_night(play: Play, program, tmp_path: Path, line: str, value: float):
    check = tmp_path / "check.py"
    check.write_text(f"print({line!r})")
    [row] = play(program('ask([user("Hi.")], max_tokens=1)'), check=[sys.executable, str(check)])
    assert json.loads(row["verdict"])["check"]["value"] == value


def test_start_up_files_of_a_program_do_not_judge_it(play: Play, program, tmp_path: Path):
    """A file that Python runs at its start, left in the program's home, would end the check with code 0."""
    check, python = tmp_path / "check.py", getattr(sys, "_base_executable", sys.executable)
    check.write_text("raise SystemExit(3)")
    code = f"""
import subprocess
ask([user("Hi.")], max_tokens=1)
place = subprocess.run([{python!r}, "-c", "import site; print(site.getusersitepackages())"], capture_output=True, text=True)
os.makedirs(place.stdout.strip())
open(place.stdout.strip() + "/first.pth", "w").write("import os; os._exit(0)\\n")
sys.exit(subprocess.run([{python!r}, "-c", "raise SystemExit(4)"]).returncode)
"""
    [row] = play(program(code), check=[python, str(check)])
    verdict = json.loads(row["verdict"])
    assert (verdict["exit"], verdict["check"]["success"]) == (0, False)  # what it left runs, but not where it is judged


def test_a_check_that_does_not_fit_beside_it_is_no_success(play: Play, program, tmp_path: Path):
    check = tmp_path / "check.py"
    check.write_text("")
    [row] = play(program('ask([user("Hi.")], max_tokens=1); os.mkdir("check.py")'), check=[sys.executable, str(check)])
    said = json.loads(row["verdict"])["check"]
    assert (said["value"], said["success"], "does not fit" in said["reason"]) == (0.0, False, True)


def test_what_a_task_says_names_no_file_and_no_secret(play: Play, program, tasks: Path, tmp_path: Path):
    secret, seen = tmp_path / "secret", tmp_path / "seen"
    secret.write_text("")
    said = [str(secret), "Write {key}, {url}, {model} and {prompt}."]
    tasks.write_text("".join(f"{json.dumps({'prompt': text, 'answer': 'a'})}\n" for text in said))
    told = 'json.dumps([sys.argv[1], os.environ["SAID"], sys.argv[2]]) + "\\n"'
    code = f'import json; open({str(seen)!r}, "a").write({told}); ask([user("Hi.")], max_tokens=1)'
    play([*program(code), "{prompt}", '{"a": "{model}"}'], items=2, share=0.001, variables={"SAID": "{prompt}"})
    assert sorted(map(json.loads, seen.read_text().splitlines())) == sorted([text, text, '{"a": "policy"}'] for text in said)


@pytest.mark.slow
def test_responses_and_messages_are_answered_and_recorded(play: Play, program):
    code = """
import anthropic, openai
with openai.OpenAI() as client:
    with client.responses.stream(model="any", input="Hi.", max_output_tokens=16) as stream:
        stream.until_done()
    assert client.models.retrieve(client.models.list().data[0].id).id == client.models.list().data[0].id
with anthropic.Anthropic() as client:
    with client.messages.stream(model="any", max_tokens=3, messages=[user("Hello.")]) as stream:
        stream.until_done()
"""
    rows = play(program(code))
    assert sorted(row["messages"][0]["content"] for row in rows) == ["Hello.", "Hi."]
    assert all(sampled(row) for row in rows)


def test_wrong_options_are_errors_before_anything_runs(tasks: Path):
    namesake = tasks.parent / "other" / tasks.name
    namesake.parent.mkdir()
    namesake.touch()
    for options, told in (
        ({"command": "python loop.py"}, "no list"),
        ({"command": []}, "no list"),
        ({"command": ["true"], "limits": {"second": 1}}, "no limit"),
        ({"command": ["true"], "limits": ["seconds"]}, "no limit"),
        ({"command": ["true"], "limits": {"seconds": "10"}}, "no number above 0"),
        ({"command": ["true"], "limits": {"processes": 0}}, "no whole number above 0"),
        ({"command": ["true"], "tokens": 0}, "no whole number above 0"),
        ({"command": ["true"], "variables": {"A": 1}}, "no text"),
        ({"command": ["true"], "variables": {"1A": "x"}}, "no variable"),
        ({"command": ["true"], "variables": ["A"]}, "no mapping"),
        ({"command": ["~nobody-here/agent"]}, "the home of nobody"),
        ({"command": ["true"], "sandbox_options": ["/opt"]}, "no mapping"),
        ({"command": ["true"], "sandbox_options": {"path": ["/opt"]}}, "does not take these options"),
        ({"command": ["cat", str(tasks), str(namesake)]}, "2 of its files are called tasks.jsonl"),
    ):
        with pytest.raises(ConfigError, match=told):
            AgentEnvironment(tasks=str(tasks), **options)  # type: ignore[arg-type]


def test_a_program_that_cannot_run_in_its_sandbox_is_refused(tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python3").write_text("")
    (tmp_path / "agent").write_text(f"#!{tmp_path}/env/bin/python3 -I\nprint()\n")
    for command, told in ((["./agent.py"], "no file ./agent.py"), (["./agent"], "not have what runs ./agent")):
        for options in ({"command": command}, {"command": ["true"], "check": command}):
            with pytest.raises(ConfigError, match=told) as refused:
                AgentEnvironment(tasks=str(tasks), **options)  # type: ignore[arg-type]
            assert refused.value.where == f"environment.options.{[*options][-1]}"
    with pytest.raises(ConfigError, match="not have what runs") as refused:
        AgentEnvironment([f"{tmp_path}/env/bin/python3", "-V"], tasks=str(tasks))
    assert refused.value.fix == f"set environment.options.sandbox_options.paths: [{tmp_path}/env]"
    AgentEnvironment(["./agent"], tasks=str(tasks), sandbox_options={"paths": [f"{tmp_path}/env"]})
    AgentEnvironment(["./agent"], tasks=str(tasks), sandbox="unsafe_local")


def test_a_program_and_its_check_may_be_files_by_relative_paths(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text("#!/usr/bin/python3\n" + ASK_INSIDE + "open('made', 'w').write('half')\n")
    (tmp_path / "check.sh").write_text('#!/bin/sh\n[ "$(cat made)" = half ]\n')
    [row] = play(["./loop.py"], check=["./check.sh"], sandbox="bubblewrap", limits={"seconds": 300})
    assert row["error"] is None
    assert json.loads(row["verdict"])["check"]["success"]


@pytest.mark.slow
def test_sixty_four_programs_play_at_once(play: Play, loop: list[str]):
    rows = play(loop, items=8, group=8, limits={"seconds": 900})
    assert [row["ended"] in ("length", "done") for row in rows] == [True] * 64


@pytest.mark.slow
def test_a_sandbox_without_a_network_has_a_way_to_the_endpoint(play: Play, tmp_path: Path):
    script = tmp_path / "inside.py"
    script.write_text(ASK_INSIDE)
    [row] = play(["/usr/bin/python3", str(script)], sandbox="bubblewrap", limits={"seconds": 300})
    assert (row["error"], json.loads(row["verdict"])["exit"], len(row["turns"])) == (None, 0, 1)


@pytest.mark.slow
def test_a_program_may_leave_many_connections_open(play: Play, tmp_path: Path):
    """More than a sandbox has processes and threads: its limit is 64."""
    script = tmp_path / "inside.py"
    script.write_text(
        "import http.client, json, os\n"
        "where = os.environ['OPENAI_BASE_URL'].split('/')[2]\n"
        "head = {'authorization': 'Bearer ' + os.environ['OPENAI_API_KEY'], 'content-type': 'application/json'}\n"
        "left = [http.client.HTTPConnection(where, timeout=60) for _ in range(40)]\n"
        "for number, connection in enumerate(left):\n"
        "    body = {'model': 'm', 'max_tokens': 1, 'messages': [{'role': 'user', 'content': str(number)}]}\n"
        "    connection.request('POST', '/v1/chat/completions', json.dumps(body), head)\n"
        "    connection.getresponse().read()\n"
    )
    rows = play(["/usr/bin/python3", str(script)], sandbox="bubblewrap", limits={"seconds": 300}, max_turns=40)
    assert {json.loads(row["verdict"])["turns"] for row in rows} == {40}
