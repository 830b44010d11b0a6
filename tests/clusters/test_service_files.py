"""The files to begin with: manifests by Kubernetes' and Ray's schemas, alerts by the figures that a gateway shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

import soulsgraph_clusters
from soulsgraph.cli.front import COMMANDS
from soulsgraph_clusters.fleet.gateway import metrics

FOLDER = Path(soulsgraph_clusters.__file__).parent
KUBERNETES = FOLDER / "services" / "kubernetes"
ALERTS = FOLDER / "grafana" / "soulsgraph-fleet-alerts.yaml"
#: The fields of KubeRay's own types that the manifests use (ray-operator/apis/ray/v1), required ones first.
TYPES = {
    "RayCluster": ("headGroupSpec", "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "workerGroupSpecs"),
    "headGroupSpec": ("rayStartParams", "template"),
    "workerGroupSpecs": ("groupName", "rayStartParams", "template", "replicas", "minReplicas", "maxReplicas"),
    "RayJob": ("entrypoint", "clusterSelector", "submissionMode", "backoffLimit", "submitterPodTemplate"),
}


def documents() -> Iterator[dict[str, Any]]:
    for file in sorted(KUBERNETES.glob("*.yaml")):
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def templates() -> Iterator[dict[str, Any]]:
    """Yield the pods of all manifests."""
    for one in documents():
        if one["kind"] == "RayCluster":
            yield one["spec"]["headGroupSpec"]["template"]
            yield from (group["template"] for group in one["spec"]["workerGroupSpecs"])
        elif one["kind"] == "RayJob":
            yield one["spec"]["submitterPodTemplate"]


def test_manifests_use_the_fields_of_kuberays_types_alone() -> None:
    kinds = {one["kind"]: one for one in documents()}
    assert set(kinds) == {"RayCluster", "RayJob", "PersistentVolumeClaim"}
    cluster, job = kinds["RayCluster"]["spec"], kinds["RayJob"]["spec"]
    assert set(cluster) <= set(TYPES["RayCluster"])
    assert set(job) <= set(TYPES["RayJob"])
    groups = [("headGroupSpec", cluster["headGroupSpec"])]
    groups += [("workerGroupSpecs", group) for group in cluster["workerGroupSpecs"]]
    for name, group in groups:
        assert set(group) <= set(TYPES[name])
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "KubeRay takes texts alone"
    assert job["clusterSelector"] == {"ray.io/cluster": kinds["RayCluster"]["metadata"]["name"]}
    assert cluster["rayVersion"] == ray.__version__
    assert cluster["workerGroupSpecs"][0]["minReplicas"] >= 1, "without any worker nobody would offer a game PC"


def test_pods_mount_what_they_name_and_get_the_token_from_a_secret() -> None:
    claims = {one["metadata"]["name"] for one in documents() if one["kind"] == "PersistentVolumeClaim"}
    for template in templates():
        volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
        assert {volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values()} <= claims
        for container in template["spec"]["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} == set(volumes)
            environment = {variable["name"]: variable for variable in container["env"]}
            assert environment["RAY_AUTH_MODE"]["value"] == "token"
            assert "secretKeyRef" in environment["RAY_AUTH_TOKEN"]["valueFrom"]
            assert container["image"] == "IMAGE"


def test_pods_fit_kubernetes_schema() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for number, template in enumerate(templates()):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, **template}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    for one in documents():
        if one["kind"] == "PersistentVolumeClaim":
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_the_file_for_ray_up_fits_rays_schema() -> None:
    config = yaml.safe_load((FOLDER / "services" / "ray" / "cluster.yaml").read_text(encoding="utf-8"))
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema.read_text()))
    validate_config(prepare_config(config))


def test_commands_of_the_files_are_ours() -> None:
    entrypoints = [one["spec"]["entrypoint"] for one in documents() if one["kind"] == "RayJob"]
    assert entrypoints
    assert all(re.match(r"soulsgraph (\S+)", words)[1] in COMMANDS for words in entrypoints)  # type: ignore[index]


def exported() -> set[str]:
    """Return the names of the figures that a gateway shows, as its module declares them."""
    source = Path(metrics.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'\(\s*"([a-z0-9_]+)",\s*"', source)) | set(re.findall(r'\{_PREFIX\}_([a-z0-9_]+)"', source))
    return {f"soulsgraph_fleet_{name}" for name in names}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_alerts_ask_for_figures_that_a_gateway_shows_and_name_a_remedy() -> None:
    known = exported()
    for rule in rules():
        asked = set(re.findall(r"soulsgraph_fleet_[a-z0-9_]+", rule["expr"]))
        assert asked
        assert {name.removesuffix("_total") for name in asked} <= known, rule["alert"]
        assert rule["annotations"]["remedy"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_alert_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Soulsgraph\w+)`", page, re.M) == [rule["alert"] for rule in rules()]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed here (Debian: prometheus)")
def test_prometheus_reads_the_alerts() -> None:
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, timeout=120)
