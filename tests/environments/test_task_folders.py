"""Task folders in Harbor's form: which can be played, why the others cannot, and what their tests say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.demonstration import play_out, play_solution, solution_of
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.terminal import folder_tasks
from clawpipe.play.environments.terminal.dockerfile import NotPlainError, read_dockerfile
from clawpipe.play.environments.terminal.environment import TerminalEnvironment
from clawpipe.play.environments.terminal.task_folders import read_task_folders
from tests.sandbox.test_providers import SETTINGS

PLAIN = {
    "task.toml": 'schema_version = "1.1"\n[metadata]\ncategory = "files"\n[verifier]\ntimeout_sec = 30.0\n',
    "instruction.md": "Write the sum of /app/data/numbers.txt into /app/sum.txt.\n",
    "environment/Dockerfile": "# a comment\nFROM debian:12-slim\nWORKDIR /app\nENV WORD=seven\nCOPY data/ \\\n  data/\n",
    "environment/data/numbers.txt": "3\n4\n",
    "tests/test.sh": '#!/bin/bash\n[ "$(cat sum.txt)" = 7 ] && [ "$WORD" = seven ]\necho $((1 - $?)) > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "#!/bin/bash\necho $(($(head -n 1 data/numbers.txt) + $(tail -n 1 data/numbers.txt))) > sum.txt\n",
}
needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap: apt-get install bubblewrap")


def make(root: Path, name: str = "add", **changes: str | None) -> Path:
    """Write a task folder; a change is a file's new text, by its name with __ for / and _ for ., None: the file is left out."""
    changed = {key.replace("__", "/").replace("_", "."): value for key, value in changes.items()}
    for file, text in (PLAIN | changed).items():
        if text is not None:
            (path := root / name / file).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root


def terminal(root: Path, **options: object):
    return load_environment("terminal", {"folder": str(root), "share": 0.01, "step_rewards": False, **options})


def play(environment, *commands: str):
    item = environment.items("train", 1, 0)[0]
    says = [Message("assistant", "", (ToolCall("c", "bash", json.dumps({"command": one})),)) for one in commands]
    messages, ending = play_out(environment, item, lambda number: says[number] if number < len(says) else None, 8)
    return messages, ending, outcome_of(environment, item, messages, ending)


@needs_bubblewrap
def test_tests_may_print_more_than_a_command(tmp_path):
    script = "yes | head -c 3000000\necho the end\necho 1 > /logs/verifier/reward.txt\n"
    _, ending, outcome = play(terminal(make(tmp_path, tests__test_sh=script)))
    assert (outcome.success, ending.verdict.evidence["ended"]) == (True, None)
    assert ending.verdict.evidence["output"].endswith("y\nthe end\n")


@needs_bubblewrap
def test_a_plain_task_is_solved_by_its_solution(tmp_path):
    environment = terminal(make(tmp_path))
    [item] = environment.items("train", 1, 0)
    assert (item.identity, item.slice, item.messages[0].content) == ("add", "files", PLAIN["instruction.md"].strip())
    messages, ending = play_solution(environment, item, solution_of(environment, item))
    outcome = outcome_of(environment, item, messages, ending)
    assert (outcome.value, outcome.success, outcome.reason) == (1.0, True, "what its tests say")


@needs_bubblewrap
@pytest.mark.parametrize(
    "commands",
    [
        (),
        ("mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; chmod 000 /logs/verifier",),
        ("echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod 555 /tests/test.sh",),
        ("mkdir -p /tests/test.sh/a; chmod 000 /tests/test.sh",),
        ("ln -s /app/fake /logs/verifier; mkdir fake; echo 1 > fake/reward.txt",),
        ("echo 'exit 0' > .bashrc; echo 'echo 1 > /logs/verifier/reward.txt' > $HOME/.bash_profile",),
    ],
)
def test_who_does_not_do_a_task_gets_nothing(tmp_path, commands):
    *_, outcome = play(terminal(make(tmp_path)), *commands)
    assert (outcome.value, outcome.reason) == (0.0, "what its tests say")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("script", "value", "reason"),
    [
        ("echo 0.25 > /logs/verifier/reward.txt", 0.25, "what its tests say"),
        ('echo \'{"a": 1, "b": 0.5}\' > /logs/verifier/reward.json', 0.75, "what its tests say"),
        ('echo \'{"reward": 0.5, "b": 0}\' > /logs/verifier/reward.json', 0.5, "what its tests say"),
        ("echo 7 > /logs/verifier/reward.txt", 1.0, "what its tests say"),
        (
            'echo \'{"tests": 10, "passed": 3}\' > /logs/verifier/reward.json',
            0.0,
            "its tests wrote passed 3, which is no reward from 0 to 1",
        ),
        ("printf '[%.0s' $(seq 3000) > /logs/verifier/reward.json", 0.0, "its tests wrote no reward (exit code 0)"),
        ("echo nan > /logs/verifier/reward.txt", 0.0, "its tests wrote no reward (exit code 0)"),
        ("exit 3", 0.0, "its tests wrote no reward (exit code 3)"),
        ("sleep 60", 0.0, "its tests wrote no reward (timeout)"),
    ],
)
def test_tests_say_what_an_episode_is_worth(tmp_path, script: str, value: float, reason: str):
    toml = PLAIN["task.toml"].replace("30.0", "1.5")
    *_, outcome = play(terminal(make(tmp_path, tests__test_sh=script, task_toml=toml)))
    assert (outcome.value, outcome.reason) == (value, reason)


@needs_bubblewrap
def test_a_task_has_the_variables_and_memory_of_its_toml(tmp_path):
    toml = PLAIN["task.toml"] + '[environment]\nmemory = "1.5G"\nstorage = "64MB"\nenv = { WORD = "eight", MORE = "yes" }\n'
    script = '[ "$MORE$WORD" = yeseight ]; echo $((1 - $?)) > /logs/verifier/reward.txt'
    environment = terminal(make(tmp_path, task_toml=toml, tests__test_sh=script))
    messages, _, outcome = play(environment, "echo $WORD; df -m --output=size . | tail -n 1")
    assert messages[-1].content.split()[:2] == ["eight", "64"]
    assert outcome.success
    assert read_task_folders(tmp_path)[0][0].memory_mb == 1536


def test_marks_of_bytes_and_empty_folders_are_read(tmp_path):
    root = make(tmp_path, instruction_md="\ufeffDo it.", task_toml=f"\ufeff{PLAIN['task.toml']}")
    (root / "add" / "environment" / "data" / "empty" / "inner").mkdir(parents=True)
    [[task], _] = read_task_folders(root)
    assert task.instruction == "Do it."
    assert task.plain
    assert "/app/data/empty/inner" in task.plain.folders


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"environment__.dockerignore": "*.txt"}, "its .dockerignore says what is not copied: name"),
        ({"task_toml": "[environment]\ngpus = 1\n"}, "it needs a GPU"),
        ({"task_toml": '[environment]\nenv = { KEY = "${KEY}" }\n'}, "it wants ${KEY} of this machine"),
        ({"tests__test_sh": "#!/bin/sh\r\ntrue\r\n"}, "its tests/test.sh has Windows' ends of lines"),
        ({"task_toml": None}, "it has no task.toml"),
        ({"instruction_md": None}, "it has no instruction.md"),
        ({"instruction_md": " \n"}, "its instruction.md is empty"),
        ({"environment__Dockerfile": None}, "it has no environment/Dockerfile"),
        ({"tests__test_sh": None}, "it has neither tests/test.sh nor tests/test_*.py"),
        ({"task_toml": "version ="}, "its task.toml is no TOML"),
        ({"task_toml": "[verifier]\ntimeout_sec = 'long'\n"}, "its task.toml: verifier.timeout_sec"),
        ({"task_toml": "[[steps]]\nname = 'one'\n"}, "it has several steps"),
        ({"task_toml": "[environment]\nos = 'windows'\n"}, "it needs windows"),
        ({"task_toml": "[verifier.env]\nKEY = '${API_KEY}'\n"}, "its tests want ${API_KEY}"),
        ({"tests__test_sh": "set -e\napt-get install -y curl\n"}, "its tests run apt-get"),
        ({"tests__test_sh": "uvx -p 3.13 pytest /tests\n"}, "its tests run uvx"),
        ({"environment__docker-compose_yaml": "services: {}\n"}, "it needs several containers"),
        ({"environment__Dockerfile": "FROM debian\nRUN apt-get install -y gcc\n"}, "its Dockerfile runs 'apt-get install -y gcc'"),
        ({"environment__Dockerfile": "FROM debian\nCOPY a /usr/bin/a\n", "environment__a": "x"}, "its Dockerfile writes into /usr"),
        ({"task_toml": "[environment]\ndocker_image = 'clawpipe-test-nothing:1'\n"}, "no such image|no program 'podman'"),
    ],
)
def test_a_task_that_cannot_be_played_is_set_aside(tmp_path, changes, why: str):
    make(tmp_path, "good")
    make(tmp_path, "other", **changes)
    (tmp_path / ".git").mkdir()
    environment = terminal(tmp_path)
    assert sum(environment.distinct_items(split) for split in ("train", "heldout")) == 1
    [told] = environment.warnings()
    assert told.startswith("the task other is set aside: ")
    assert any(one in told for one in why.split("|"))
    assert "\n" not in told


def test_a_folder_without_a_task_that_can_be_played_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="no such folder of tasks"):
        terminal(tmp_path / "nowhere")
    with pytest.raises(DataError, match="it holds no folder"):
        terminal(tmp_path)
    with pytest.raises(DataError, match=r"add: it has no task.toml"):
        terminal(make(tmp_path, task_toml=None))


@needs_bubblewrap
def test_what_leaves_the_tests_no_room_earns_nothing(tmp_path, monkeypatch):
    """As too many files do: they end a command that takes long enough for the sandbox to look."""
    real = folder_tasks._unpack  # pyright: ignore[reportPrivateUsage]

    def full(sandbox: Any, folder: str, archive: bytes) -> None:
        if b"tests/test.sh" in archive:
            raise DataError("its files cannot be put into the sandbox: files", folder)
        real(sandbox, folder, archive)

    monkeypatch.setattr(folder_tasks, "_unpack", full)
    _, ending, outcome = play(terminal(make(tmp_path)))
    assert (ending.error, outcome.value) == ("", 0.0)
    assert "cannot be put into the sandbox: files" in outcome.reason


@pytest.mark.parametrize(("left", "code"), [("", 1), ("pytest.py", 1), ("sum.txt", 0)])
def test_no_module_of_the_policy_stands_for_pytest(tmp_path, left: str, code: int):
    folder, tests = tmp_path / "app", tmp_path / "tests"
    for place in (folder, tests):
        place.mkdir()
    (tests / "test_sum.py").write_text("import os, helper\ndef test_sum(): assert os.path.exists('sum.txt')\n")
    (folder / "helper.py").touch()  # what the tests are to look at may be imported
    (folder / (left or "other")).write_text("import os; os._exit(0)")
    script = folder_tasks._PYTEST.replace("/tests", str(tests))  # pyright: ignore[reportPrivateUsage]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["/bin/sh", "-c", script, "tests", str(folder)], env={"PATH": path}, capture_output=True)
    assert done.returncode == code, done.stdout + done.stderr


def test_a_link_out_of_a_task_folder_is_refused(tmp_path):
    make(tmp_path / "tasks")
    (tmp_path / "secret").write_text("key")
    os.symlink(tmp_path / "secret", tmp_path / "tasks/add/environment/data/link")
    assert read_task_folders(make(tmp_path / "tasks", "good"))[1] == {"add": "its environment/data/link leads out of it"}


def test_odd_names_and_links_cost_their_own_task_alone(tmp_path):
    for name in ("add", "loop", "bytes", os.fsdecode(b"lat\xe9")):
        make(tmp_path, name, instruction_md=f"Do {len(name)}.")
    os.symlink("round", tmp_path / "loop/environment/round")
    (tmp_path / "bytes/environment" / os.fsdecode(b"\xe9.txt")).write_text("x")
    (tmp_path / "add/solution/solve.sh").write_bytes(b"echo 7 > sum.txt # \xe9")
    assert TerminalEnvironment.inputs_digest({"folder": str(tmp_path)})
    [task], aside = read_task_folders(tmp_path)
    assert (task.name, task.solution) == ("add", None)
    assert aside == {
        "bytes": r"its \xe9.txt has a name that is no text in UTF-8",
        r"lat\xe9": r"its lat\xe9 has a name that is no text in UTF-8",
        "loop": "its environment/round leads out of it",
    }


def test_a_file_that_cannot_be_read_costs_its_task_alone(tmp_path, monkeypatch):
    make(tmp_path, "good")
    make(tmp_path, "other", instruction_md="Do it.")
    real = Path.read_bytes

    def closed(path: Path) -> bytes:
        if path == tmp_path / "other/tests/test.sh":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", closed)
    tasks, aside = read_task_folders(tmp_path)
    assert ([task.name for task in tasks], "Permission denied" in aside["other"]) == (["good"], True)


def test_a_task_that_has_changed_is_not_played(tmp_path):
    item = terminal(make(tmp_path)).items("train", 1, 0)[0]
    (tmp_path / "add/tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    with pytest.raises(ConfigError, match="has changed since"):
        terminal(tmp_path).start(item)


def test_a_copy_of_a_task_is_set_aside(tmp_path):
    """Its toml and its solution may differ: what is asked, what there is and what is tested decide."""
    make(tmp_path, "add")
    make(tmp_path, "copy", solution__solve_sh="echo 7 > sum.txt\n")
    make(tmp_path, "other", instruction_md="Add 3 and 5, and write the sum into sum.txt.")
    environment = terminal(tmp_path)
    assert environment.distinct_items("train") + environment.distinct_items("heldout") == 2
    assert environment.warnings() == ["the task copy is set aside: it asks the same as add"]


def test_the_sides_of_the_split_share_no_task(tmp_path):
    for number in range(12):
        make(tmp_path, f"task-{number}", instruction_md=f"Write the sum of /app/data/numbers.txt and {number} into /app/sum.txt.")
    environment = terminal(tmp_path, share=0.5)
    sides = {split: environment.distinct_items(split) for split in ("train", "heldout")}
    names = {item.identity for split, count in sides.items() for item in environment.items(split, count, 1)}
    assert len(names) == sum(sides.values()) == 12
    with pytest.raises(DataError, match="items wanted"):
        environment.items("train", 13, 0)


@pytest.mark.parametrize(
    ("lines", "files", "folder"),
    [
        ("COPY a.txt .", {"/app/a.txt": "a.txt"}, "/app"),
        ("COPY a.txt /data/b.txt", {"/data/b.txt": "a.txt"}, "/app"),
        ("WORKDIR /srv\nCOPY --chown=1:1 a.txt b/", {"/srv/b/a.txt": "a.txt"}, "/srv"),
        ("WORKDIR /srv\nWORKDIR x\nADD a.txt ./", {"/srv/x/a.txt": "a.txt"}, "/srv/x"),
        ('COPY ["a.txt", "in/c.txt", "/d/"]', {"/d/a.txt": "a.txt", "/d/c.txt": "in/c.txt"}, "/app"),
        ("COPY in /e", {"/e/c.txt": "in/c.txt"}, "/app"),
        ("COPY *.txt /f/", {"/f/a.txt": "a.txt"}, "/app"),
        ("RUN mkdir -p /g /h\nCMD sleep 1", {}, "/app"),
    ],
)
def test_a_plain_dockerfile_is_read(tmp_path, lines: str, files: dict, folder: str):
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "in/c.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "Dockerfile").write_text(f"FROM --platform=linux/amd64 docker.io/library/python:3.12\n{lines}\n")
    made = read_dockerfile(tmp_path / "Dockerfile")
    assert {path: str(file.relative_to(tmp_path)) for path, file in made.files.items()} == files
    assert made.folder == folder


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no FROM"),
        ("FROM nvidia/cuda:12", "builds on nvidia/cuda:12"),
        ("FROM debian\nFROM debian", "a second FROM"),
        ("FROM debian\nCOPY --from=build /a /b", "copies"),
        ("FROM debian\nADD https://a.b/c /c", "copies"),
        ("FROM debian\nCOPY no.txt /a", "not in environment/"),
        ("FROM debian\nCOPY ../secret /a", "not in environment/"),
        ("FROM debian\nCOPY a /x/../../etc/a", "names the place"),
        ("FROM debian\nWORKDIR $HOME", "names the place"),
        ("FROM debian\nENV A=$B", "has a variable"),
        ("FROM debian\nRUN <<EOF\nrm -rf /\nEOF", "runs"),
        ("FROM debian\nVOLUME /data", "has VOLUME"),
        ("FROM debian\nCOPY 'a b", "cannot be read"),
    ],
)
def test_a_dockerfile_that_does_more_is_refused(tmp_path, text: str, why: str):
    (tmp_path / "context").mkdir()
    (tmp_path / "secret").write_text("key")
    (tmp_path / "context/a").write_text("a")
    (tmp_path / "context/Dockerfile").write_text(text)
    with pytest.raises(NotPlainError, match=why):
        read_dockerfile(tmp_path / "context/Dockerfile")


# A stand-in: it knows an image, which does not start; of others it says what podman does.
PODMAN = """#!/bin/sh
case "$1 $2 $3" in
"image inspect mine") echo '[{"Id": "sha256:0123", "Config": {"WorkingDir": "/app", "Env": []}}]';;
"image inspect down") echo 'Cannot connect to the daemon.' >&2; exit 1;;
"image inspect "*) echo "Error: no such image" >&2; exit 125;;
"run "*) echo 'Error: exec: "/bin/sh": no such file' >&2; exit 127;;
esac
"""


@needs_bubblewrap
def test_an_image_that_does_not_start_is_the_fault_of_its_task(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/podman").write_text(PODMAN)
    (tmp_path / "bin/podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    root = make(tmp_path / "tasks")
    for name in ("mine", "down", "gone"):
        make(root, name, instruction_md=f"Use {name}.", task_toml=f"[environment]\ndocker_image = '{name}'\n")
    environment = terminal(root)
    errors = {item.identity: play_out(environment, item, lambda _: None, 1)[1].error for item in environment.items("train", 2, 0)}
    assert errors["add"] == ""
    assert 'does not start: Error: exec: "/bin/sh": no such file' in errors["mine"]
    told = sorted(environment.warnings())
    assert ["podman does not answer: Cannot connect" in told[0], "no such image on this machine" in told[1]] == [True, True]


LIMITS = ("--ulimit=nproc=32:32", "--ulimit=nofile=1024:1024")  # which a machine may not raise


@pytest.fixture
def image(tmp_path, monkeypatch) -> Iterator[str]:
    """An image of busybox alone, with the task's files in the folder in which it starts."""
    name = "clawpipe-test-task"
    (tmp_path / "containers.conf").write_text(SETTINGS + (f'runtime = "{runc}"\n' if (runc := shutil.which("runc")) else ""))
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    if not (shutil.which("podman") and (busybox := shutil.which("busybox"))):
        pytest.skip("no podman and busybox on this machine: apt-get install podman runc busybox-static")
    root = tmp_path / "root"
    for folder in ("bin", "usr", "srv/data"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "usr/bin").symlink_to("../bin")
    (root / "srv/data/numbers.txt").write_text("3\n4\n")
    subprocess.run(["tar", "-C", root, "-cf", tmp_path / "image.tar", "."], check=True)
    told = ["--change", "WORKDIR=/srv", "--change", "ENV=WORD=seven"]
    subprocess.run(["podman", "import", *told, tmp_path / "image.tar", name], capture_output=True, check=True)
    if subprocess.run(["podman", "run", "--rm", "--network=none", *LIMITS, name, "true"], capture_output=True).returncode:
        pytest.skip("podman starts no container on this machine")
    yield name
    subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=True)


@pytest.mark.slow
def test_a_task_with_an_image_is_done_in_a_container(tmp_path, image):
    toml = f"{PLAIN['task.toml']}[environment]\ndocker_image = '{image}'\n"
    script = PLAIN["tests/test.sh"].replace("#!/bin/bash", "#!/bin/sh")
    changes = {"environment__Dockerfile": "FROM scratch\nRUN build\n", "tests__test_sh": script, "task_toml": toml}
    environment = terminal(make(tmp_path / "tasks", **changes))
    [item] = environment.items("train", 1, 0)
    messages, ending = play_solution(environment, item, solution_of(environment, item))
    assert outcome_of(environment, item, messages, ending).success, messages
    *_, outcome = play(environment, "echo 8 > sum.txt; echo 5 >> data/numbers.txt")
    assert (outcome.value, outcome.reason) == (0.0, "what its tests say")
