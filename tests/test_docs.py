"""What README and docs tell people to type, and where they point, must exist."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from clawpipe.cli.main import app

PAGES = [*sorted(Path().glob("*.md")), *sorted(Path("docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
COMMANDS = sorted({line.strip() for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()})


def of(program):
    return [command for command in COMMANDS if command.startswith(f"{program} ")]


@pytest.mark.parametrize("command", of("clawpipe"))
def test_clawpipe_takes_the_command(command):
    """Parsed by the real command line, up to but not into the command's function."""
    group = typer.main.get_command(app)
    name, *arguments = command.split('"')[0].split()[1:]
    command_ = group.commands[name]
    command_.make_context(name, arguments + ([command.split('"')[1]] if '"' in command else []))


@pytest.mark.parametrize("command", of("make"))
def test_make_has_the_target(command):
    assert re.search(rf"^{command.split()[1]}:", Path("Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", of("prefect deployment run"))
def test_the_deployment_is_the_one_in_prefect_yaml(command):
    names = {deployment["name"] for deployment in yaml.safe_load(Path("prefect.yaml").read_text())["deployments"]}
    flow, _, name = command.split()[3].partition("/")
    assert name in names
    assert flow == {"nightly": "nightly-retrain"}.get(name, name)


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(of("prefect")) - set(of("prefect deployment run"))))
def test_prefect_has_the_command_and_its_options(command):
    words = command.split()[1:]
    path = [word for word in words if word.isalpha()][: 2 if "worker" in words else 1]
    told = subprocess.run([sys.executable, "-m", "prefect", *path, "--help"], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert all(word in told.stdout for word in words if word.startswith("--"))


def test_the_unit_and_the_compose_file_start_what_there_is(tmp_path):
    operations = Path("docs/operations.md").read_text()
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read_string(re.search(r"```ini\n(.*?)```", operations, re.DOTALL)[1])
    assert unit["Service"]["ExecStart"].endswith("/.venv/bin/clawpipe up")
    compose = yaml.safe_load(re.search(r"```yaml\n(services:.*?)```", operations, re.DOTALL)[1])
    [service] = compose["services"].values()
    make, target, environment = service["command"].split()
    assert make == "make"
    assert re.search(rf"^{target}:", Path("Makefile").read_text(), re.MULTILINE)
    name, _, place = environment.partition("=")  # of the container's own: the clone's points to a Python that it does not have
    assert re.search(rf"^{name} :=", Path("Makefile").read_text(), re.MULTILINE)
    assert place.startswith("/home/")
    assert {volume.partition(":")[0] for volume in service["volumes"]} == {".", *compose["volumes"]}


def test_every_command_is_one_of_a_kind_that_is_checked():
    known = {*of("clawpipe"), *of("make"), *of("prefect")}
    assert {command for command in COMMANDS if not command.startswith("export ")} == known


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_configs_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target
    for config in re.findall(r"configs/[\w/-]+\.yaml", text):
        assert Path(config).exists(), config


def test_the_environment_in_the_docs_works(tmp_path):
    source = re.search(r"```python\n(# my_env\.py.*?)```", Path("docs/environments.md").read_text(), re.DOTALL)[1]
    (tmp_path / "my_env.py").write_text(source)
    from clawpipe.environments.discovery import load_environment
    from clawpipe.messages import Message

    environment = load_environment(f"{tmp_path / 'my_env.py'}:Echo", {})
    item = environment.items("train", 2, 0)[1]
    assert environment.verify(item, [*item.messages, Message("assistant", item.messages[0].content)]).success
    assert not environment.verify(item, [*item.messages, Message("assistant", "other")]).success
    assert environment.verify(item, [*item.messages, *environment.hindsight(item, []).demonstration]).success
