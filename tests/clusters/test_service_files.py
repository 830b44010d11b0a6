"""The files to begin with: manifests by Kubernetes' and Ray's schemas, alerts by the figures that a gateway shows."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

import soulsgraph_clusters
from soulsgraph.cli.commands import named
from soulsgraph_clusters.fleet.gateway import metrics
from soulsgraph_clusters.fleet.gateway.status import FleetStatus

FOLDER = Path(soulsgraph_clusters.__file__).parent
KUBERNETES = FOLDER / "services" / "kubernetes"
GRAFANA = FOLDER / "grafana"


def documents():
    for file in sorted(KUBERNETES.glob("*.yaml")):
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def templates():
    """Yield the pods of all manifests."""
    for one in documents():
        if one["kind"] == "RayCluster":
            yield one["spec"]["headGroupSpec"]["template"]
            yield from (group["template"] for group in one["spec"]["workerGroupSpecs"])
        elif one["kind"] == "RayJob":
            yield one["spec"]["submitterPodTemplate"]


def test_pods_fit_kubernetes_schema():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for number, template in enumerate(templates()):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, **template}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    for one in documents():
        if one["kind"] == "PersistentVolumeClaim":
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


def test_the_file_for_ray_up_fits_rays_schema():
    config = yaml.safe_load((FOLDER / "services" / "ray" / "cluster.yaml").read_text(encoding="utf-8"))
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema.read_text()))
    validate_config(prepare_config(config))


def test_commands_of_the_files_are_ours():
    entrypoints = [one["spec"]["entrypoint"] for one in documents() if one["kind"] == "RayJob"]
    assert entrypoints
    assert all(named(words.split()[1:]) for words in entrypoints)


def test_alerts_and_the_dashboard_ask_for_figures_that_a_gateway_shows():
    status = FleetStatus("camera", "a1", 0.0, 1, 0)
    shown = {family.name for family in metrics.FleetCollector(lambda: status).collect()}
    asked = re.findall(r"soulsgraph_fleet_[a-z0-9_]+", "".join(file.read_text("utf-8") for file in GRAFANA.iterdir()))
    assert len({*asked}) > 10
    assert {name.removesuffix("_total").removesuffix("_info") for name in asked} <= shown
