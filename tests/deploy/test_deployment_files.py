"""The files of `deploy/` as their own tools read them: compose, a linter, Dagster, Kubernetes' schemas."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_k8s.job import UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
from dagster_k8s.launcher import K8sRunLauncher

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
KUBERNETES = "1.33"
SECRETS = {"POSTGRES_PASSWORD": "one", "S3_ACCESS_KEY": "two", "S3_SECRET_KEY": "three"}
IMAGE = re.compile(r"^[a-z0-9./-]+:[A-Za-z0-9._-]+@sha256:[0-9a-f]{64}$")

NO_CLUSTER = """\
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: none, context: {cluster: none, user: nobody}}]
current-context: none
"""


def tool(name: str) -> str:
    """A program that a package has brought into this environment."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found, f"{name} is not installed"
    return found


def compose(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    command = [tool("docker-compose"), "-f", str(DEPLOY / "docker-compose.yml"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """What compose makes of the file."""
    done = compose("config", "--format", "json", **SECRETS)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


PROGRAMS = ("code", "daemon", "webserver", "worker")
STORES = ("objects", "postgres", "redis")


def test_compose_starts_every_part_and_waits_until_it_is_well(services: dict[str, Any]) -> None:
    assert sorted(services) == sorted((*PROGRAMS, *STORES, "tables"))
    for name in STORES:
        assert services[name]["healthcheck"]["test"], name
        assert IMAGE.match(services[name]["image"]), services[name]["image"]
        assert [volume["type"] for volume in services[name]["volumes"]] == ["volume"]
    for name in PROGRAMS:
        waited = {other: how["condition"] for other, how in services[name]["depends_on"].items()}
        assert waited["tables"] == "service_completed_successfully", name
        assert services[name]["cap_drop"] == ["ALL"]
    assert services["worker"]["healthcheck"]["test"]
    assert services["webserver"]["depends_on"]["code"]["condition"] == "service_healthy"


def test_compose_gives_every_program_the_variables_that_the_profile_reads(services: dict[str, Any]) -> None:
    read = {
        value
        for file in ("dagster.yaml", "workspace.yaml")
        for value in re.findall(r"env: (\w+)", (DEPLOY / file).read_text())
    }
    assert {"FINEVOLVE_DATABASE", "FINEVOLVE_BROKER", "FINEVOLVE_WORKERS", "FINEVOLVE_CODE_HOST"} <= read
    for name in PROGRAMS:
        assert read <= set(services[name]["environment"]), name


def test_the_number_of_workers_is_the_number_of_runs_at_once() -> None:
    done = compose("config", "--format", "json", FINEVOLVE_WORKERS="7", **SECRETS)
    services = json.loads(done.stdout)["services"]
    assert services["worker"]["deploy"]["replicas"] == 7
    assert services["daemon"]["environment"]["FINEVOLVE_WORKERS"] == "7"


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_compose_refuses_to_start_without_a_secret(secret: str) -> None:
    done = compose("config", **{name: value for name, value in SECRETS.items() if name != secret})
    assert done.returncode != 0
    assert secret in done.stderr


def test_the_example_of_variables_names_all_that_compose_asks_for_and_no_secret() -> None:
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", (DEPLOY / "docker-compose.yml").read_text()))
    lines = [line for line in (DEPLOY / ".env.example").read_text().splitlines() if line and not line.startswith("#")]
    given = dict(line.split("=", 1) for line in lines)
    assert set(given) == asked
    assert {name for name, value in given.items() if not value} == set(SECRETS)


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run(
        [tool("hadolint"), "--format", "json", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == []
    assert done.returncode == 0


def test_the_image_is_pinned_runs_as_nobody_and_says_how_it_is() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    bases = [line.split("=", 1)[1] for line in lines if line.startswith("ARG PYTHON=")]
    assert len(bases) == 1
    assert IMAGE.match(bases[0])
    last_stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    users = [line.split()[1] for line in last_stage if line.startswith("USER ")]
    assert users == ["10001:10001"]
    assert any(line.startswith("HEALTHCHECK ") for line in last_stage)


def test_what_the_dockerfile_copies_is_there_and_is_not_ignored() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    copies = re.findall(r"^COPY (?!--from)(?:--chown=\S+ )?(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    names = {name for line in copies for name in line.split()}
    assert {"pyproject.toml", "constraints.txt", "finevolve_pipeline", "deploy/dagster.yaml"} <= names
    for name in names:
        assert (REPOSITORY / name).exists(), name
        assert f"!{name}" in ignored, name


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The instance settings as Dagster reads them from a home of the server profile."""
    variables = {
        "FINEVOLVE_DATABASE": "postgresql+psycopg2://finevolve@127.0.0.1:1/finevolve",
        "FINEVOLVE_BROKER": "redis://127.0.0.1:1/0",
        "FINEVOLVE_WORKERS": "7",
        "FINEVOLVE_RUNS_PER_PROVIDER": "3",
        "FINEVOLVE_CODE_HOST": "elsewhere",
        "FINEVOLVE_CODE_PORT": "4001",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FINEVOLVE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEPLOY / "dagster.yaml", tmp_path)
    found, _ = dagster_instance_config(str(tmp_path))
    return dict(found)


def test_dagster_takes_the_instance_settings(profile: dict[str, Any], tmp_path: Path) -> None:
    reference = dg._core.instance.ref.InstanceRef.from_dir(str(tmp_path))
    launcher, queue = reference.run_launcher, reference.run_coordinator
    assert launcher is not None
    assert queue is not None
    assert type(launcher).__name__ == "WatchedCeleryRunLauncher"
    assert launcher.celery.conf.broker_url == "redis://127.0.0.1:1/0"
    assert launcher.celery.conf.worker_disable_prefetch
    assert not launcher.celery.conf.task_acks_late
    config = queue.get_run_queue_config()
    assert config.max_concurrent_runs == 7
    assert {"key": "finevolve.provider/deepseek", "limit": 3} in config.tag_concurrency_limits
    assert profile["run_retries"]["max_retries"] == 3


def test_dagster_takes_the_workspace(profile: dict[str, Any]) -> None:
    (origin,) = WorkspaceFileTarget([str(DEPLOY / "workspace.yaml")]).create_origins()
    assert (origin.host, origin.port, origin.location_name) == ("elsewhere", 4001, "finevolve")


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """Values for the chart."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text())
    return found


def test_the_charts_image_is_one_and_the_database_is_asked_by_its_driver(values: dict[str, Any]) -> None:
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert values["dagsterWebserver"]["image"] == values["dagsterDaemon"]["image"] == deployment["image"]
    assert values["postgresql"]["postgresqlScheme"] == "postgresql+psycopg2"
    queue = values["dagsterDaemon"]["runCoordinator"]["config"]["customRunCoordinator"]
    here = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["run_coordinator"]
    assert (queue["module"], queue["class"]) == (here["module"], here["class"])
    assert set(queue["config"]) == set(here["config"])


def test_the_job_of_a_run_is_what_kubernetes_accepts(values: dict[str, Any], tmp_path: Path) -> None:
    """The values go through `dagster-k8s`, as in the daemon, to the job that it would create."""
    given = values["runLauncher"]["config"]["k8sRunLauncher"]
    image = values["dagsterWebserver"]["image"]
    access = tmp_path / "access"
    access.write_text(NO_CLUSTER)
    launcher = K8sRunLauncher(
        service_account_name="dagster",
        instance_config_map="dagster-instance",
        postgres_password_secret=values["global"]["postgresqlSecretName"],
        dagster_home="/opt/dagster/dagster_home",
        job_image=f"{image['repository']}:{image['tag']}",
        image_pull_policy=given["imagePullPolicy"],
        load_incluster_config=False,
        kubeconfig_file=str(access),
        env_config_maps=[one["name"] for one in given["envConfigMaps"]],
        env_secrets=[one["name"] for one in given["envSecrets"]],
        env_vars=given["envVars"],
        volumes=given["volumes"],
        volume_mounts=given["volumeMounts"],
        resources=given["resources"],
        security_context=given["securityContext"],
        run_k8s_config={
            re.sub("([A-Z])", lambda letter: "_" + letter.group(1).lower(), name): value
            for name, value in given["runK8sConfig"].items()
        },
    )
    run = dg.DagsterRun(job_name="replay", run_id="0" * 36)
    context = launcher.get_container_context_for_run(run)
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config(None, launcher),
        args=["dagster", "api", "execute_run"],
        job_name="dagster-run",
        user_defined_k8s_config=UserDefinedDagsterK8sConfig.from_dict(context.run_k8s_config.to_dict()),
    ).to_dict()
    manifest = json.loads(json.dumps(_camel(job)))
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert {"secretRef": {"name": "finevolve-environment"}} in container["envFrom"]
    assert any(mount["mountPath"] == "/etc/finevolve" for mount in container["volumeMounts"])


@pytest.mark.parametrize("part", ["dagsterWebserver", "dagsterDaemon", "dagster-user-deployments"])
def test_pods_of_the_chart_are_what_kubernetes_accepts(values: dict[str, Any], part: str) -> None:
    """What the values say of a pod, in a pod of the shape that the chart gives it."""
    given = values[part] if part in ("dagsterWebserver", "dagsterDaemon") else values[part]["deployments"][0]
    image = given["image"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one"},
        "spec": {
            "securityContext": given["podSecurityContext"],
            "volumes": given["volumes"],
            "containers": [
                {
                    "name": "one",
                    "image": f"{image['repository']}:{image['tag']}",
                    "imagePullPolicy": image["pullPolicy"],
                    "securityContext": given["securityContext"],
                    "volumeMounts": given["volumeMounts"],
                    "resources": given["resources"],
                    "envFrom": [
                        *({"configMapRef": one} for one in given["envConfigMaps"]),
                        *({"secretRef": one} for one in given["envSecrets"]),
                    ],
                }
            ],
        },
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def _camel(value: Any) -> Any:
    """A manifest as the client sends it: names in camel case, no nulls."""
    if isinstance(value, dict):
        return {
            re.sub("_([a-z])", lambda letter: letter.group(1).upper(), name): _camel(one)
            for name, one in value.items()
            if one is not None
        }
    if isinstance(value, list):
        return [_camel(one) for one in value]
    return value


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "0: no whole number from 1"),
        (["--machines", "-1"], "-1: no whole number from 1"),
        (["--port", "99999"], "99999: no whole number from 1 to 65535"),
    ],
)
def test_a_cluster_that_could_not_work_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    tried = _cluster(tmp_path / "home", *arguments)
    assert tried.returncode == 2
    assert said in tried.stderr


def test_a_port_in_use_and_a_home_that_is_a_file_are_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        tried = _cluster(tmp_path / "home", "--port", port)
    assert (tried.returncode, tried.stderr.count("\n")) == (1, 1)
    assert f"port {port}: Address already in use" in tried.stderr
    (tmp_path / "file").touch()
    tried = _cluster(tmp_path / "file")
    assert (tried.returncode, tried.stderr.count("\n")) == (1, 1)
    assert str(tmp_path / "file") in tried.stderr


def _cluster(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEPLOY / "cluster.py"), *arguments]
    environment = {**os.environ, "FINEVOLVE_HOME": str(home), "PYTHONPATH": str(DEPLOY.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
