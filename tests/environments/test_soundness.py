"""`env init` writes an environment that passes `env check`, which finds each way to break the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import app
from clawpipe.errors import ConfigError
from clawpipe.play.environments.scaffold import write_environment
from clawpipe.play.environments.soundness import check_environment

# Each is a subclass of the environment that `env init` writes, and the fault that is to be found in it.
FAULTS = {
    "items are equal for equal arguments": """
    def items(self, split, count, seed):
        Broken.calls = getattr(Broken, "calls", 0) + 1
        return super().items(split, count, seed + Broken.calls)
""",
    "a larger count adds to the items": """
    def items(self, split, count, seed): return super().items(split, count, seed + count)
""",
    "no identity is on both sides": """
    def items(self, split, count, seed):
        return [replace(item, identity=str(item.ordinal)) for item in super().items(split, count, seed)]
""",
    "each item has an id of its own": """
    def items(self, split, count, seed): return [replace(item, item_id="one") for item in super().items(split, count, seed)]
""",
    "episodes end and are verified without an error": """
    class Episode(Episode):
        def result(self, call): return json.loads(call.arguments)["text"]
""",
    "rewards are from 0 to 1": """
    def verify(self, item, messages, verdict): return replace(super().verify(item, messages, verdict), value=1.5)
""",
    "who says nothing does not succeed": """
    def verify(self, item, messages, verdict): return replace(super().verify(item, messages, verdict), success=True)
""",
    "demonstrations succeed": """
    def verify(self, item, messages, verdict): return replace(super().verify(item, messages, verdict), success=False)
""",
    "equal episodes give equal outcomes": """
    class Episode(Episode):
        def finish(self, reason): return Verdict({"written": super().finish(reason).evidence["written"], "at": time.time_ns()})
""",
    "close ends what an episode has started": """
    class Episode(Episode):
        def finish(self, reason):
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
            return super().finish(reason)
""",
    "calls keep their deadline": """
    class Episode(Episode):
        def finish(self, reason): time.sleep(1000)
""",
}
ALSO = {
    "items are equal for equal arguments": {"a larger count adds to the items"},
    "equal episodes give equal outcomes": {"episodes end and are verified without an error"},
    "calls keep their deadline": {"episodes end and are verified without an error"},
}
IMPURE = """
    def verify(self, item, messages, verdict):
        self.calls = getattr(self, "calls", 0) + 1
        return replace(super().verify(item, messages, verdict), value=self.calls % 2)
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "my_task.py"
    assert write_environment(file) == f"{file}:MyTask"
    return file


def broken(written: Path, body: str) -> str:
    start = "    def start(self, item, seed): return getattr(type(self), 'Episode', Episode)(json.loads(item.truth))\n"
    extra = "\nimport subprocess\nimport time\nfrom dataclasses import replace\n"
    written.write_text(f"{written.read_text()}{extra}\n\nclass Broken(MyTask):\n{start}{body}")
    return f"{written}:Broken"


def faults(name: str, seconds: float = 30.0) -> set[str]:
    return {one.check for one in check_environment(name, {}, 2, seconds).findings if one.status == "fault"}


def test_a_written_environment_passes(written):
    done = check_environment(f"{written}:MyTask", {"copies": 3}, 2, 30.0)
    assert {one.status for one in done.findings} == {"ok", "note"}
    assert [one.check for one in done.findings if one.status == "note"] == ["the truth is not in the prompt"]
    assert (done.sound, done.episodes, done.per_second > 0) == (True, 12, True)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_alone(written, fault):
    found = faults(broken(written, FAULTS[fault]), 1.0 if "deadline" in fault else 30.0)
    assert fault in found
    assert found <= {fault} | ALSO.get(fault, set()) | {"demonstrations succeed"}


def test_a_verify_that_counts_its_calls_is_impure(written):
    done = check_environment(broken(written, IMPURE), {}, 2, 30.0)
    [fault] = [one for one in done.findings if one.status == "fault"]
    assert "verify said two things of one record" in fault.what


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ValueError('no hint')", "hindsight: ValueError: no hint (my_task.py, line "),
        ("return Hindsight('Write it.')", "hindsight: TypeError: the hints of a Hindsight are a tuple of texts, not 'Write it.'"),
        ("return 'Write it.'", "hindsight: TypeError: hindsight returns a Hindsight or None, not 'Write it.'"),
    ],
)
def test_a_hindsight_that_fails_is_a_fault(written, body, why):
    name = broken(written, f"    def hindsight(self, item, messages): {body}\n")
    [fault] = [one for one in check_environment(name, {}, 1, 30.0).findings if one.status == "fault"]
    assert fault.what.startswith(f"2 of 6; a policy that shows the demonstration: {why}")


def test_an_environment_without_items_is_told(written):
    name = broken(written, "    def items(self, split, count, seed): return []\n")
    assert faults(name) == {"it makes items"}


def test_the_commands_write_and_check(tmp_path):
    run, file = CliRunner(), tmp_path / "new" / "two_words.py"
    assert json.loads(run.invoke(app, ["env", "init", str(file), "--json"]).output)["reference"] == f"{file}:TwoWords"
    assert isinstance(run.invoke(app, ["env", "init", str(file)]).exception, ConfigError)
    for name in ("two words.py", "words.txt"):
        with pytest.raises(ConfigError):
            write_environment(tmp_path / name)
    checked = run.invoke(app, ["env", "check", f"{file}:TwoWords", "--items", "1"])
    assert checked.exit_code == 0
    assert "ok     equal episodes give equal outcomes" in checked.output
    told = run.invoke(app, ["env", "check", broken_loud(file), "--items", "1", "--json"])
    assert (told.exit_code, json.loads(told.stdout)["sound"]) == (65, False)


def test_the_commands_take_a_nights_environment(tmp_path, monkeypatch):
    run, file = CliRunner(), write_environment(tmp_path / "two_words.py").partition(":")[0]
    monkeypatch.chdir(tmp_path)
    night = tmp_path / "night.yaml"
    night.write_text(f"environment: {{name: '{file}:TwoWords', options: {{copies: 3}}}}\n")
    checked = run.invoke(app, ["env", "check", "-c", "night.yaml", "--items", "1", "--json"])
    assert json.loads(checked.stdout)["environment"] == f"{file}:TwoWords"
    wrong = run.invoke(app, ["env", "test", "-c", "night.yaml", "--option", "no=1", "-m", "random"]).exception
    assert isinstance(wrong, ConfigError), "the command's option is added to the night's"
    assert isinstance(run.invoke(app, ["env", "check"]).exception, ConfigError)
    night.write_text(f"environments: [letters, {{name: '{file}:TwoWords', label: words}}]\n")
    assert json.loads(run.invoke(app, ["env", "check", "words", "-c", "night.yaml", "--items", "1", "--json"]).stdout)["sound"]
    for words in ([], ["shop"]):
        told = run.invoke(app, ["env", "check", *words, "-c", "night.yaml"]).exception
        assert isinstance(told, ConfigError)
        assert told.fix == "name one: letters or words"


def broken_loud(file: Path) -> str:
    body = "    def verify(self, item, messages, verdict): return replace(super().verify(item, messages, verdict), value=9.0)\n"
    file.write_text(f"{file.read_text()}\nfrom dataclasses import replace\n\n\nclass Broken(TwoWords):\n{body}")
    return f"{file}:Broken"
