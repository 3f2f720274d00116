"""What README and docs tell people to type, and where they point, must exist."""

import configparser
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from clawpipe.cli.main import app
from clawpipe.core.config import NightConfig
from clawpipe.core.config.load import settings_of
from clawpipe.model.policy.base import _WHEELS

PAGES = [*sorted(Path().glob("*.md")), *sorted(Path("docs").rglob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
GENERATED = ("settings", "commands", "contracts", "disbelieved")  # made when the site is built
REFERENCE = {Path(f"docs/reference/{name}.md") for name in GENERATED}
INSTALL = "pip install --constraint constraints.txt"
SETUP = {"python3.11 -m venv .venv", ". .venv/bin/activate", f"{INSTALL} .", f'{INSTALL} ".[postgres]"', "pip install openai"}
COMMANDS = sorted({line.strip() for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()})

DRAW = "import sys; from pathlib import Path; sys.path.insert(0, 'docs'); import figures; figures.draw(Path(sys.argv[1]))"


def of(program):
    return [command for command in COMMANDS if command.startswith(f"{program} ")]


@pytest.mark.parametrize("command", of("clawpipe"))
def test_clawpipe_takes_the_command(command, capsys):
    """Parsed by the real command line, up to but not into the command's function, in today's spelling."""
    found = typer.main.get_command(app)
    words = command.split('"')[0].split()[1:] + ([command.split('"')[1]] if '"' in command else [])
    while words and hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    found.make_context(found.name, words)
    assert capsys.readouterr().err == ""


def test_no_page_gives_words_to_the_model_over_bytes():
    """A reader's first environment ended with code 65: configs/tiny.yaml samples two tokens of a random model."""
    assert [command for command in COMMANDS if "tiny.yaml" in command and "environment.name=" in command] == []


@pytest.mark.parametrize("command", of("python"))
def test_python_runs_a_script_that_a_page_shows(command):
    assert f"# {command.split()[1]}: " in TEXT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as a site; a link that leads nowhere, or a page in no menu, is an error."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_the_reference_has_every_setting_command_and_contract(site):
    shown = {name: (site / "reference" / name / "index.html").read_text() for name in ("settings", "commands", "contracts")}
    for setting in settings_of(NightConfig):
        block, _, name = setting.rpartition(".")
        assert f"<code>{block}</code>" in shown["settings"] or not block, setting
        assert f"<td><code>{name}</code></td>" in shown["settings"], setting
    for name, command in typer.main.get_command(app).commands.items():
        for words in [f"{name} {below}" for below in getattr(command, "commands", {})] or [name]:
            assert f'<h2 id="{words.replace(" ", "-")}">' in shown["commands"], words
    assert all(f">{name.name} " in shown["contracts"] for name in Path("data_contracts").iterdir() if (name / "released").exists())


def test_pages_of_the_site_load_nothing_from_elsewhere(site):
    """But Mermaid, which the theme's script asks for where a page has a diagram."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?(https?://[^\" >]+)", page.read_text())
        assert not [url for url in loaded if "rel=canonical" not in url], page


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
    assert unit["Service"]["ExecStart"].endswith("/.venv/bin/clawpipe up --config %h/night.yaml")
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
    known = {*of("clawpipe"), *of("make"), *of("prefect"), *of("python"), *SETUP}
    known |= {f"pip install --no-deps {wheel}" for wheel, _ in _WHEELS.values()}
    assert {command for command in COMMANDS if not command.startswith("export ")} == known


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_configs_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        found = page.parent / target
        assert found.exists() or (found in REFERENCE and page == Path("docs/index.md")), target  # a clone's reader has no such page
    for config in re.findall(r"configs/[\w/-]+\.yaml", text):
        assert Path(config).exists(), config


def test_the_environment_in_the_docs_works(tmp_path):
    source = re.search(r"```python\n(# my_env\.py.*?)```", Path("docs/environments.md").read_text(), re.DOTALL)[1]
    (tmp_path / "my_env.py").write_text(source)
    from clawpipe.core.conversation.messages import Message
    from clawpipe.play.environments.discovery import load_environment

    environment = load_environment(f"{tmp_path / 'my_env.py'}:Echo", {})
    item = environment.items("train", 2, 0)[1]
    assert environment.verify(item, [*item.messages, Message("assistant", item.messages[0].content)]).success
    assert not environment.verify(item, [*item.messages, Message("assistant", "other")]).success
    assert environment.verify(item, [*item.messages, *environment.hindsight(item, []).demonstration]).success


def test_the_sums_in_the_docs_take_their_options(tmp_path):
    source = re.search(r"```python\n(# my_sums\.py.*?)```", Path("docs/environments.md").read_text(), re.DOTALL)[1]
    (tmp_path / "my_sums.py").write_text(source)
    from clawpipe.errors import ConfigError
    from clawpipe.play.environments.discovery import load_environment

    made = load_environment(f"{tmp_path / 'my_sums.py'}:Sums", {"largest": 1})
    assert made.config.largest == 1
    assert made.question(random.Random(0)).text == "What is 1 + 1?"
    with pytest.raises(ConfigError, match="locked"):
        load_environment(f"{tmp_path / 'my_sums.py'}:Sums", {"seconds": 1.0})


def test_the_shell_in_the_docs_scores_what_was_done_not_said(tmp_path):
    source = re.search(r"```python\n(# my_shell\.py.*?)```", Path("docs/environments.md").read_text(), re.DOTALL)[1]
    (tmp_path / "my_shell.py").write_text(source)
    from clawpipe.core.conversation.messages import Message, ToolCall
    from clawpipe.play.environments.discovery import load_environment
    from tests.rollouts.scripted import chat

    environment = load_environment(f"{tmp_path / 'my_shell.py'}:Shell", {})

    def values(command):
        calls = (ToolCall("c", "sh", json.dumps({"command": command})), ToolCall("d", "sh", "{", malformed=True))
        acts = Message("assistant", "", calls)
        return [one.value for one in chat(environment, lambda said: "Done." if said[-1].role == "tool" else acts)[0]]

    assert values("echo train0x0 > out.txt") == [1.0]
    assert values("echo train0x0; echo passed") == [0.0]


def test_files_that_the_page_about_the_layout_names_exist():
    files = [path.as_posix() for top in ("clawpipe", "data_contracts", "flows", "tests") for path in Path(top).rglob("*.*")]
    named = re.findall(r"`([\w/]+\.(?:py|sql|yaml))`", Path("docs/architecture.md").read_text())
    yours = {"privacy.yaml"}  # a home's own
    assert [name for name in named if name not in yours and not any(f"/{file}".endswith(f"/{name}") for file in files)] == []


@pytest.mark.slow
def test_figures_are_what_their_script_draws(tmp_path):
    """From today's loss and what the gate's benchmark recorded; to a tenth of a point, whatever the CPU."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", DRAW, str(tmp_path)], check=True, timeout=120)
    number = re.compile(r"-?\d+\.\d+")
    for drawn in tmp_path.iterdir():
        now, committed = drawn.read_text(), (Path("docs/images") / drawn.name).read_text()
        assert number.sub("", now) == number.sub("", committed), drawn.name
        assert [float(one) for one in number.findall(now)] == pytest.approx(
            [float(one) for one in number.findall(committed)], abs=0.1
        )
