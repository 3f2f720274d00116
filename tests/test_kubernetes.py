"""The manifests for Kubernetes fit its published schemas and each other. No cluster is asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from clawpipe.cli.main import app
from clawpipe.core.config import load_config
from clawpipe.core.config.load import read_yaml
from clawpipe.core.services.web import SameOrigin
from flows import apps

BASE = Path(__file__).parents[1] / "integrations" / "kubernetes"
VERSIONS = ("1.31", "1.37")
OTHERS = {"kustomization.yaml", "night.yaml", "deployments.yaml"}  # no manifests of a cluster's
SECRETS = {
    "clawpipe": {"PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD", "CLAWPIPE_API_KEY"},
    "postgres": {"POSTGRES_PASSWORD"},
}

Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    files = sorted(path for path in BASE.glob("*.yaml") if path.name not in OTHERS)
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]


def kustomization() -> Manifest:
    return yaml.safe_load((BASE / "kustomization.yaml").read_text())


def night_job() -> Manifest:
    """A night's job, as Prefect's worker makes it: each placeholder is replaced by the variable's default.

    Prefect's worker refuses a template without two fields of the job in its pod as well, where Kubernetes drops them.
    """
    template = json.loads((BASE / "night-job.json").read_text())
    defaults = {name: one.get("default") for name, one in template["variables"]["properties"].items()}
    given = {"name": "night", "labels": {"a": "b"}, "annotations": {}, "command": ["prefect", "flow-run", "execute"]}
    job = filled(template["job_configuration"]["job_manifest"], defaults | given | {"env": [{"name": "A", "value": "b"}]})
    assert [job["spec"]["template"]["spec"].pop(name) for name in ("parallelism", "completions")] == [1, 1]
    return job


def filled(value: Any, values: Manifest) -> Any:
    if isinstance(value, dict):
        return {name: filled(inner, values) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, values) for inner in value]
    if isinstance(value, str) and (whole := re.fullmatch(r"\{\{ (\w+) \}\}", value)):
        return values[whole[1]]
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: str(values[found[1]]), value) if isinstance(value, str) else value


def pods() -> dict[str, Manifest]:
    found = {one["metadata"]["name"]: one["spec"]["template"] for one in manifests() if "template" in one.get("spec", {})}
    return found | {"night": night_job()["spec"]["template"]}


def containers() -> Iterator[tuple[str, Manifest]]:
    for name, pod in pods().items():
        yield from ((name, container) for container in pod["spec"]["containers"])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_fits_the_published_schema(version):
    for manifest in (*manifests(), night_job()):
        kubernetes_validate.validate(manifest, version, strict=True)
    wrong = night_job()
    wrong["spec"]["template"]["spec"]["completions"] = 1  # a field of the job, not of its pod
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_the_kustomization_names_every_file():
    listed = kustomization()
    generated = {name for one in listed["configMapGenerator"] for name in one.get("files", ())}
    there = {path.name for path in BASE.iterdir()} - {"kustomization.yaml", "Dockerfile", "README.md"}
    assert {*listed["resources"], *generated} == there


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kustomize is part of kubectl")
def test_kustomize_builds_what_fits_the_schema():
    built = subprocess.run(["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(built))
    for manifest in found:
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)
        assert manifest["kind"] == "Namespace" or manifest["metadata"]["namespace"] == "clawpipe"
    default = json.loads((BASE / "night-job.json").read_text())["variables"]["properties"]["image"]["default"]
    assert images_in(found) == {default, "postgres:17"}
    policies = [one["spec"]["ingress"] for one in found if one["kind"] == "NetworkPolicy"]
    assert len(policies) == 2


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kustomize is part of kubectl")
def test_the_overlay_of_the_page_sets_what_it_names(tmp_path: Path):
    """Its image had the name that the base had replaced already: every pod kept the example's."""
    page = (BASE.parents[1] / "docs" / "outgrow.md").read_text()
    [overlay] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "../clawpipe/integrations" in block]
    (tmp_path / "clawpipe").symlink_to(BASE.parents[1])
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "kustomization.yaml").write_text(overlay)
    (tmp_path / "overlay" / "night.yaml").write_text("night: mine\n")
    built = subprocess.run(["kubectl", "kustomize", str(tmp_path / "overlay")], capture_output=True, text=True, check=True).stdout
    assert images_in(list(yaml.safe_load_all(built))) == {"my-registry/clawpipe:1", "postgres:17"}
    assert all(
        line in built for line in ("CLAWPIPE_SHARED: s3://my-bucket/agents/home", "SERVED: my-agent@champion", "night: mine")
    )


def images_in(found: list[Manifest]) -> set[str]:
    pods = [spec for one in found if (spec := one.get("spec", {}).get("template"))]
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def test_what_a_pod_asks_for_is_there():
    listed, everything = kustomization(), manifests()
    maps = {one["name"] for one in listed["configMapGenerator"]}
    claims = {one["metadata"]["name"] for one in everything if one["kind"] == "PersistentVolumeClaim"}
    for name, container in containers():
        for source in container.get("envFrom", ()):
            assert source.get("configMapRef", {"name": "clawpipe"})["name"] in maps, name
            assert source.get("secretRef", {"name": "clawpipe"})["name"] in SECRETS, name
        for variable in container.get("env", ()):
            if asked := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert asked["key"] in SECRETS[asked["name"]], name
    for name, pod in pods().items():
        volumes = {one["name"]: one for one in pod["spec"].get("volumes", ())}
        mounted = {one["name"] for container in pod["spec"]["containers"] for one in container.get("volumeMounts", ())}
        assert mounted - {"data"} == set(volumes), name  # data: the stateful set's own claim
        assert {one["configMap"]["name"] for one in volumes.values() if "configMap" in one} <= maps, name
        assert {one["persistentVolumeClaim"]["claimName"] for one in volumes.values() if "persistentVolumeClaim" in one} <= claims
    for service in (one for one in everything if one["kind"] == "Service"):
        [container, *_] = pods()[service["spec"]["selector"]["app"]]["spec"]["containers"]
        ports = {one["containerPort"] for one in container["ports"]}
        assert {one["port"] for one in service["spec"]["ports"]} <= ports


def test_the_network_lets_the_pods_of_clawpipe_in():
    """Prefect's worker writes labels of its own below app.kubernetes.io onto a night's pod."""
    alone = next(one for one in manifests() if one["metadata"]["name"] == "clawpipe-alone")
    [asked] = [one["podSelector"]["matchLabels"] for one in alone["spec"]["ingress"][0]["from"]]
    [given] = [one["pairs"] for one in kustomization()["labels"] if one["includeTemplates"]]
    assert asked.items() <= given.items()
    assert asked.items() <= night_job()["spec"]["template"]["metadata"]["labels"].items()
    assert not any(name.startswith("app.kubernetes.io/") for name in asked)


def test_no_pod_holds_more_than_it_needs():
    held = {name: pod["spec"].get("automountServiceAccountToken", True) for name, pod in pods().items()}
    assert [name for name, token in held.items() if token] == ["worker"]  # which makes jobs
    passwords = {name for name, container in containers() if "POSTGRES_PASSWORD" in str(container)}
    assert passwords == {"postgres", "prefect", "mlflow"}
    own = {name for name, pod in pods().items() if not pod["spec"]["securityContext"].get("runAsNonRoot")}
    assert own == {"postgres"}  # its image steps down by itself


@pytest.mark.parametrize("pod", ["serve", "deploy"])
def test_commands_are_ones_that_clawpipe_has(pod):
    found = typer.main.get_command(app)
    text = [" ".join([*container["command"], *container.get("args", ())]) for name, container in containers() if name == pod]
    typed = [line for one in text for line in re.findall(r"clawpipe (?=serve|ingest|prefect init)(.*)", one)]
    commands = [re.split(r"; | \|\| ", line)[0].split() for line in typed]
    assert len(commands) == len(text)
    for words in commands:
        command = found
        while words and hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)


def test_the_scheduled_night_is_one_that_can_be_deployed():
    settings = load_config(BASE / "night.yaml")
    assert (settings.night, settings.trajectories) == ("{date}", ("new",))
    own, shipped = read_yaml(BASE / "deployments.yaml"), read_yaml(BASE.parents[1] / "prefect.yaml")
    [night] = own["deployments"]
    assert own["prefect-version"] == shipped["prefect-version"]
    assert night["entrypoint"] == shipped["deployments"][0]["entrypoint"]
    variables = json.loads((BASE / "night-job.json").read_text())["variables"]["properties"]
    assert set(night["work_pool"]["job_variables"]) <= set(variables)


def test_probes_and_pods_reach_the_servers_by_names_they_take(monkeypatch):
    [settings] = [one["literals"] for one in kustomization()["configMapGenerator"] if one["name"] == "clawpipe"]
    variables = dict(line.split("=", 1) for line in settings)
    monkeypatch.setenv(apps.SERVER_NAMES, variables[apps.SERVER_NAMES])
    client = TestClient(SameOrigin(PlainTextResponse("in"), apps._hosts()))
    for name in ("prefect", "mlflow"):
        [container, *_] = pods()[name]["spec"]["containers"]
        [header] = container["readinessProbe"]["httpGet"]["httpHeaders"]
        port = container["ports"][0]["containerPort"]
        hosts = [header["value"], f"{name}:{port}"]
        assert [client.get("/", headers={"host": host}).status_code for host in hosts] == [200, 200]
        assert f"//{name}:{port}" in " ".join(variables.values())
    assert client.get("/", headers={"host": "evil.test"}).status_code == 403
