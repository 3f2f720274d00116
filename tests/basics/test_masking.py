"""Errors do not echo passwords, tokens and keys."""

from __future__ import annotations

import copy
import os
import re
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawpipe.cli.main import run
from clawpipe.core.basics.masking import MASK, without_secrets
from clawpipe.core.config import load_config
from clawpipe.core.services.prefect_server import Api
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.core.store.storages import storage_at
from clawpipe.core.system.ports import free_port
from clawpipe.errors import ClawpipeError, ConfigError

TINY = project_directory() / "configs" / "tiny.yaml"
NAMES = [
    "api_key",
    "apikey",
    "key",
    "token",
    "access_token",
    "secret",
    "client_secret",
    "password",
    "PASSWD",
    "aws.secret_access_key",
]

schemes = st.sampled_from(["http", "https", "s3", "postgresql+psycopg2", "git+ssh"])
users = st.text(string.ascii_letters + string.digits + "._-%+", max_size=20)
visible = st.characters(exclude_categories=["C", "Z"])
passwords = st.text(visible, min_size=1, max_size=40).filter(lambda text: not re.match(r"\d+[/?#]", text))
words = st.text(string.ascii_letters + string.digits + "%_.~+-", min_size=1, max_size=40)


@given(schemes, users, passwords)
@example("http", "", "p@ss")
@example("https", "u", "p/w'x\"?#")
@example("http", "token-without-a-password", "")
def test_users_and_passwords_of_urls_are_masked(scheme: str, user: str, password: str):
    url = f"{scheme}://{user}:{password}@host:80/path" if password else f"{scheme}://{user}@host:80/path"
    error = ClawpipeError(f"cannot open {url} today", f"-o engine.url={url}", f"not {url!r}")
    assert error.what == f"cannot open {scheme}://{MASK}@host:80/path today"
    assert error.where == f"-o engine.url={scheme}://{MASK}@host:80/path"
    assert f"://{MASK}@host:80/path" in error.fix
    assert repr(password or user) not in str(error)


@given(st.sampled_from(NAMES), words)
def test_values_whose_names_say_secret_are_masked(name: str, value: str):
    for text in (f"https://host/file?a=1&{name}={value}&b=2", f"https://host/?{name}={value}", f"-o my.{name}={value} is wrong"):
        assert without_secrets(text) == text.replace(f"{name}={value}", f"{name}={MASK}")
    assert without_secrets(f"{{a: 1, {name}: {value}}}") == f"{{a: 1, {name}: {MASK}}}"
    assert without_secrets(f"{{'{name}': '{value} x, y'}}") == f"{{'{name}': {MASK}}}"


@given(st.text(visible | st.sampled_from(" \n:/@?=&{},'\""), max_size=80))
def test_masking_twice_is_masking_once(text: str):
    once = ClawpipeError(text)
    assert without_secrets(once.what) == once.what
    assert copy.copy(once).what == once.what  # as pickling does, by its arguments


@pytest.mark.parametrize(
    "text",
    [
        "models:/clawpipe-agent@champion: no such version, try clawpipe-agent@3",
        "http://127.0.0.1:4200/api does not answer; see http://host/models/x@rev",
        "train.pack_tokens=8192 is too much; write max_tokens: 4096",
        "engine.api_key: no such setting; did you mean engine.name?",
        "unknown key: colour, token: expected a text",
        "file:///mnt/share/store: not there",
        "a@b.c wrote to d@e.f",
        'export CLAWPIPE_API_KEY="$(clawpipe keys make ana)"',
        "export CLAWPIPE_API_KEY=$(clawpipe keys make ana)",
    ],
)
def test_other_texts_stay(text: str):
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "override",
    [
        "rollouts.engine.url=http://u:hunter2@host",
        "rollouts.engine.url=u:hunter2@host",
        "rollouts.engine.url=http://u:hunter2\u2100@host",  # the URL parser's message holds it
        "rollouts.engine.url=ftp://host/?token=hunter2",
        "rollouts.engine.api_key=hunter2 and a half",
        'rollouts.engine={name: openai, api_key: "hunter2, or less"}',
        "rollouts.engine.api_key='hunter2",
        "notify={webhooks: [{url: 'https://u:hunter2@host'}]}",
    ],
)
def test_a_refused_setting_is_not_echoed(override: str, tmp_path: Path):
    with pytest.raises(ConfigError) as refused:
        load_config(TINY, [override])
    assert "hunter2" not in str(refused.value)
    assert "rollouts.engine" in str(refused.value) or "notify" in str(refused.value)
    (tmp_path / "night.yaml").write_text("rollouts:\n  password: 'hunter2\n")
    with pytest.raises(ConfigError, match="line 2") as unread:
        load_config(tmp_path / "night.yaml")
    assert "hunter2" not in str(unread.value)


@pytest.mark.parametrize(
    "url", ["s3://u:hunter2@bucket/x", "u:hunter2@bucket", "s3://u:hunter2\u2100@bucket/x", "no://u:hunter2@b/x"]
)
def test_a_refused_storage_is_not_echoed(url: str):
    with pytest.raises(ConfigError, match="CLAWPIPE_STORE") as refused:
        storage_at(url, "CLAWPIPE_STORE", "the shared store")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("CLAWPIPE_STORE", "s3://u:hunter2@bucket/x", ["datasets", "list"]),
        ("MLFLOW_TRACKING_URI", "http://u:hunter2@127.0.0.1:PORT", ["trace", "clawpipe-tiny@1"]),
        ("PREFECT_API_URL", "http://u:hunter2@127.0.0.1:PORT/api", ["run", "--config", str(TINY)]),
    ],
)
def test_addresses_in_the_environment_are_not_echoed(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    words: list[str],
):
    monkeypatch.setenv(variable, value.replace("PORT", str(free_port())))
    before = dict(os.environ)
    with pytest.raises(SystemExit) as ended:
        run(words)
    os.environ.clear()
    os.environ.update(before)
    said = capfd.readouterr()
    assert ended.value.code in (2, 75)
    assert "clawpipe: " in said.err
    assert "hunter2" not in said.err + said.out


def test_the_state_and_the_log_of_a_deployed_night_do_not_echo(prefect_api: Api):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.states import State

    from flows.bootstrap import drain
    from flows.nightly import nightly

    ended: State = nightly(str(TINY), ["rollouts.engine.url=http://u:hunter2@host"], return_state=True)
    drain()
    with get_client(sync_client=True) as client:
        run_id = ended.state_details.flow_run_id
        assert run_id is not None
        message = client.read_flow_run(run_id).state
        logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id])))
    assert message is not None
    assert f"http://{MASK}@host" in str(message.message)
    assert logs
    assert "hunter2" not in " ".join([str(message.message), *(line.message for line in logs)])
