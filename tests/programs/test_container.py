"""Programs in containers, which have no network, reach the endpoint. The image is made on the spot: a shell and Debian's Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.errors import ConfigError
from tests.programs.conftest import Play
from tests.sandbox.test_providers import SETTINGS

pytestmark = pytest.mark.long
NAME, PYTHON = "clawpipe-test-program", Path("/usr/bin/python3.11")
ASK = """
import json, os, sys, urllib.request
body = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": os.environ["CLAWPIPE_TASK"]}]}
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
ask = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), head)
json.load(urllib.request.urlopen(ask, timeout=300))
sys.exit(sys.stdin.read() != os.environ["CLAWPIPE_TASK"])
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The names of two images: one with a Python, one with a shell alone."""
    folder, busybox = tmp_path_factory.mktemp("images"), shutil.which("busybox")
    if not (shutil.which("podman") and busybox and PYTHON.exists()):
        pytest.skip("no podman, busybox or Debian's Python on this machine: apt-get install podman runc busybox-static")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "containers.conf").write_text(SETTINGS + (f'runtime = "{runc}"\n' if (runc := shutil.which("runc")) else ""))
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        names = (f"{NAME}:python", f"{NAME}:bare")
        for name in names:
            _make(folder / name.partition(":")[2], Path(busybox), name)
        limits = ["--ulimit=nproc=32:32", "--ulimit=nofile=1024:1024"]
        tried = subprocess.run(
            ["podman", "run", "--rm", "--network=none", *limits, names[1], "true"], capture_output=True, text=True
        )
        if tried.returncode:
            pytest.skip(f"podman starts no container on this machine: {tried.stderr.strip()}")
        yield names
        subprocess.run(["podman", "rmi", "--force", *names], capture_output=True, check=True)


def _make(root: Path, busybox: Path, name: str) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "usr").mkdir()
    (root / "usr/bin").symlink_to("../bin")
    shutil.copy(busybox, root / "bin/busybox")
    for applet in ("sh", "cat", "chmod", "dirname", "env", "kill", "mkdir", "sleep", "test", "true"):
        (root / "bin" / applet).symlink_to("busybox")
    if name.endswith("python"):
        _add_python(root)
    subprocess.run(["tar", "-C", root, "-cf", f"{root}.tar", "."], check=True)
    subprocess.run(["podman", "import", f"{root}.tar", name], capture_output=True, check=True)


def _add_python(root: Path) -> None:
    shutil.copy(PYTHON, root / "bin/python3")
    skipped = shutil.ignore_patterns("test", "dist-packages", "__pycache__", "idlelib", "lib2to3", "pydoc_data", "config-*")
    shutil.copytree(PYTHON.parents[1] / "lib" / PYTHON.name, root / "usr/lib" / PYTHON.name, symlinks=False, ignore=skipped)
    told = subprocess.run(["ldd", PYTHON], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(0x", told):
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])


def test_a_program_in_a_container_reaches_the_endpoint(play: Play, images, tmp_path: Path):
    """The task's text has two lines, which the file of variables cannot hold."""
    (tmp_path / "ask.py").write_text(ASK)
    (tmp_path / "two.jsonl").write_text(
        "".join(
            json.dumps({"prompt": f"Say a word.\nThen {number} more.", "answer": "a", "check": "contains"}) + "\n"
            for number in range(12)
        )
    )
    limits = {"seconds": 300, "memory_bytes": 512 << 20}
    options = {
        "sandbox": "container",
        "sandbox_options": {"image": images[0]},
        "limits": limits,
        "tasks": str(tmp_path / "two.jsonl"),
    }
    rows = play(["python3", str(tmp_path / "ask.py")], items=2, group=2, **options)
    assert [(row["error"], len(row["turns"] or ())) for row in rows] == [(None, 1)] * 4
    assert [json.loads(row["verdict"])["exit"] for row in rows] == [0] * 4


def test_an_image_without_a_python_is_refused_in_one_line(play: Play, images):
    with pytest.raises(ConfigError, match="it has no python3") as refused:
        play(["true"], sandbox="container", sandbox_options={"image": images[1]})
    assert images[1] in refused.value.where
