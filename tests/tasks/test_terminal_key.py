"""A step that plays task folders in a shell has them in its key."""

from __future__ import annotations

from pathlib import Path

from clawpipe.core.config.night import EnvironmentSpec
from clawpipe.core.store.refs import DatasetRef
from tasks.data import score


def test_a_key_holds_the_files_and_names_of_task_folders(tmp_path: Path):
    task = tmp_path / "tasks" / "one"
    for name, text in {
        "task.toml": "",
        "instruction.md": "Go.",
        "environment/Dockerfile": "FROM debian",
        "tests/test.sh": "exit",
    }.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    keys = [_key(tmp_path / "tasks"), _key(tmp_path / "tasks")]
    (task / "tests" / "test.sh").write_text("exit 1")
    keys.append(_key(tmp_path / "tasks"))
    task.rename(task.with_name("two"))
    keys.append(_key(tmp_path / "tasks"))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def _key(folder: Path) -> str | None:
    rows = DatasetRef(name="rows", digest="d", rows=1)
    spec = EnvironmentSpec(name="terminal", options={"folder": str(folder)})
    return score.call(items=rows, trajectories=rows, environment=spec).key
