"""What pages in the user's browser can do while `clawpipe up` runs, those of other sites and its own, in a real Chromium."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from clawpipe.core.services.pages import Pages, write_links
from clawpipe.core.services.stack import project_directory

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")]

# Everything that a page may try without being asked: requests whose answers it may not read, and those for which it has to ask.
ATTACK = """
async ([prefect, mlflow, mark]) => {
  const json = {'content-type': 'application/json'};
  const post = async (url, body, options) => {
    try { return await (await fetch(url, {method: 'POST', body: JSON.stringify(body), ...options})).json() } catch { return {} }
  };
  for (const options of [{headers: json}, {headers: json, credentials: 'include'}, {mode: 'no-cors'}]) {
    const flow = await post(`${prefect}/flows/`, {name: 'evil'}, options);
    const deployment = await post(`${prefect}/deployments/`, {
      name: 'evil', flow_id: flow.id, work_pool_name: 'clawpipe', job_variables: {command: `touch ${mark}`},
    }, options);
    await post(`${prefect}/deployments/${deployment.id}/create_flow_run`, {state: {type: 'SCHEDULED'}}, options);
    await post(`${mlflow}/ajax-api/2.0/mlflow/experiments/create`, {name: 'evil'}, options);
  }
  return await new Promise(resolve => {
    const socket = new WebSocket(`${prefect.replace('http', 'ws')}/events/out`);
    socket.onopen = () => resolve('open');
    socket.onerror = () => resolve('refused');
  });
}
"""


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def other_site() -> Iterator[int]:
    """Port of a web server whose pages are none of ours."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def outside() -> Iterator[tuple[int, list[str]]]:
    """Port of a proxy that leads nowhere, which a browser asks for all that is not on this machine; and what it was asked for."""
    asked: list[str] = []

    class Nowhere(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode()
            if line and "google" not in line:  # the browser itself asks its maker
                asked.append(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Nowhere) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1], asked
        server.shutdown()


def signed_in(browser: Browser, pages: str, secret: str) -> Page:
    """A page of Prefect's whose user has given the secret."""
    page = browser.new_page()
    page.goto(f"{pages}/deployments")
    page.locator("input[type=password]").fill(secret)
    page.keyboard.press("Enter")
    page.get_by_text("nightly", exact=True).first.wait_for()
    return page


@pytest.fixture
def links(up) -> Iterator[str]:
    """The page that `clawpipe open` opens; it holds the secret of services that other tests look into."""
    file = write_links(up.home, Pages(up.prefect.removesuffix("/api"), up.mlflow), None)
    yield file.as_uri()
    file.unlink()


def test_the_links_of_open_need_no_password(up, links: str):
    with chromium() as browser:
        for title, shown in {"All nights": "nights", "Runs (Prefect)": "Flow Runs", "Models (MLflow)": "Experiments"}.items():
            page = browser.new_page()
            page.goto(links)
            page.get_by_text(title).click()
            page.get_by_text(shown).first.wait_for()
            assert up.secret.partition(":")[2] not in page.url


def everything(up) -> dict[str, list[str]]:
    """Names of what the servers hold that a page might want to make."""
    made = {kind: up.ask(f"{up.prefect}/{kind}/filter", "POST", json={}) for kind in ("flows", "deployments", "flow_runs")}
    found = up.ask(f"{up.mlflow}/api/2.0/mlflow/experiments/search?max_results=100")["experiments"]
    scheduled = {run["id"] for run in made["flow_runs"] if run["auto_scheduled"]}
    made["flow_runs"] = [run for run in made["flow_runs"] if run["id"] not in scheduled]
    return {kind: sorted(one["name"] for one in ones) for kind, ones in {**made, "experiments": found}.items()}


def test_a_foreign_page_can_do_nothing_on_the_servers(up, other_site: int, tmp_path, subtests):
    before = everything(up)
    assert before["deployments"] == ["ingest", "nightly", "on-demand"]
    port = up.prefect.rpartition(":")[2].removesuffix("/api")
    with chromium("--host-resolver-rules=MAP *.test 127.0.0.1") as browser:
        for site in (f"http://evil.test:{other_site}", f"http://127.0.0.1:{other_site}", f"http://localhost:{other_site}"):
            with subtests.test(site=site):
                page = browser.new_page()
                page.goto(site)
                assert page.evaluate(ATTACK, [up.prefect, up.mlflow, str(tmp_path / "mark")]) == "refused"
                assert everything(up) == before
        with subtests.test("a name that was made to resolve to this machine"):
            for rebound in (f"http://evil.test:{port}/api/health", f"http://evil.test:{up.mlflow.rpartition(':')[2]}/"):
                response = browser.new_page().goto(rebound)
                assert response is not None
                assert response.status == 403
        for pages in (f"http://127.0.0.1:{port}/v2", f"http://localhost:{port}/v2", f"http://localhost:{port}"):
            with subtests.test(pages=pages):  # the newer ones of Prefect, under both names of this machine, and the older ones
                signed_in(browser, pages, up.secret)
        with subtests.test("MLflow's page"):
            user, _, password = up.secret.partition(":")
            page = browser.new_context(http_credentials={"username": user, "password": password}).new_page()
            page.goto(up.mlflow)
            page.get_by_text("Experiments").first.wait_for()
    assert not (tmp_path / "mark").exists()


def a_night(up, quick_python: list[str]) -> tuple[str, str]:
    """Run a small one. Its name, and the last line that it said."""
    settings = ["rounds=1", "train.optimizer_steps=1", "environment.heldout_items=10"]
    command = [*quick_python, "-m", "clawpipe.cli.main", "run", "-c", str(project_directory() / "configs" / "tiny.yaml")]
    words, env = (word for one in settings for word in ("-o", one)), os.environ | {"CLAWPIPE_HOME": str(up.home.root)}
    done = subprocess.run([*command, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(up.home.runs.iterdir()).name, done.stdout.splitlines()[-1].strip()


@pytest.mark.long
def test_lineage_links_lead_to_the_graph_and_pages_load_nothing(
    up, outside: tuple[int, list[str]], quick_python: list[str], subtests
):
    night, address = a_night(up, quick_python)
    artifact = up.ask(f"{up.prefect}/artifacts/filter", "POST", json={})[0]
    port, asked = outside
    host = up.prefect.removesuffix("/api")
    made = {node["name"] for node in json.loads((up.home.runs / night / "lineage.json").read_bytes())["nodes"]}
    with chromium(f"--proxy-server=127.0.0.1:{port}") as browser:
        for pages in (host, f"{host}/v2"):
            with subtests.test(pages=pages):
                page, errors = signed_in(browser, pages, up.secret), []
                page.on("pageerror", lambda error, errors=errors: errors.append(error.message))
                page.goto(f"{pages}/runs/flow-run/{artifact['flow_run_id']}")
                page.locator("canvas").first.wait_for()  # the graph of the run
                for leading in (f"artifacts/artifact/{artifact['id']}", f"artifacts/key/{artifact['key']}", "artifacts"):
                    page.goto(f"{pages}/{leading}")
                    link = page.get_by_role("link", name="its graph as a picture", exact=True)
                    link.wait_for()
                    assert page.url.startswith(pages)
                    assert host + str(link.get_attribute("href")) == address
                page.goto(address)
                drawn = page.locator("svg[id^=mermaid]")
                drawn.wait_for()
                assert [name for name in made if name not in str(drawn.text_content())] == []
                page.goto(f"{pages}/blocks/catalog")  # full of pictures from other sites
                page.get_by_text("Local File System").first.wait_for()
                assert errors == []
    assert asked == []
    with subtests.test("runs are named after the night, and after round and step"):
        runs = [up.ask(f"{up.prefect}/{kind}/filter", "POST", json={}) for kind in ("flow_runs", "task_runs")]
        flows, tasks = ({run["name"] for run in found} for found in runs)
        assert night in flows
        assert {"make_items", "round-1/generate_rollouts/16", "round-1/train", "evaluate/candidate", "gate"} <= tasks
