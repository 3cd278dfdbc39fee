"""The container image and the manifests of Kubernetes: they fit each other and the server."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ATHANORD, ROOT, built

sys.path.insert(0, str(ROOT))
from deploy.package import deb  # noqa: E402

FOLDER = ROOT / "deploy/kubernetes"
CONTAINERFILE = (ROOT / "deploy/image/Containerfile").read_text()
KUBERNETES = "1.30"
# Fields of ServingRuntime and InferenceService, from the SDK of KServe 0.21 (kserve.models).
RUNTIME = {"affinity", "annotations", "builtInAdapter", "containers", "disabled",
           "grpcDataEndpoint", "grpcEndpoint", "hostIPC", "httpDataEndpoint", "imagePullSecrets",
           "labels", "multiModel", "nodeSelector", "protocolVersions", "replicas",
           "resourceClaims", "schedulerName", "storageHelper", "supportedModelFormats",
           "tolerations", "volumes", "workerSpec"}
FORMAT = {"autoSelect", "name", "priority", "version"}
PROTOCOLS = {"v1", "v2", "grpc-v1", "grpc-v2"}


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def named(kind: str, name: str = "athanor") -> dict:
    (found,) = (d for d in documents("athanor.yaml")
                if d["kind"] == kind and d["metadata"]["name"] == name)
    return found


def container() -> dict:
    (only,) = named("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return only


def flags() -> set[str]:
    text = subprocess.run([built(ATHANORD), "--help"], check=True, capture_output=True,
                          text=True).stdout
    return set(re.findall(r"^ *--(\w+)", text, re.M))


@pytest.mark.parametrize("document", documents("athanor.yaml"), ids=lambda d: d["kind"])
def test_kubernetes_takes_them(document: dict) -> None:
    schemas = pytest.importorskip("kubernetes_validate", exc_type=ImportError)
    schemas.validate(document, KUBERNETES, strict=True)


def test_kubernetes_notices_a_wrong_field() -> None:
    schemas = pytest.importorskip("kubernetes_validate", exc_type=ImportError)
    wrong = named("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, KUBERNETES, strict=True)


def test_selectors_select_the_pods() -> None:
    spec = named("StatefulSet")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    for service in ("athanor", "athanor-replicas"):
        assert named("Service", service)["spec"]["selector"].items() <= labels.items()
    assert spec["serviceName"] == "athanor-replicas"
    assert named("Service", "athanor-replicas")["spec"]["clusterIP"] == "None"
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert named(kind)["spec"][field]["matchLabels"].items() <= labels.items()


def test_ports_are_those_that_the_server_listens_on() -> None:
    config = named("ConfigMap")["data"]["athanord.conf"]
    listens = dict(re.findall(r"^(listen|http_listen) = \S+:(\d+)$", config, re.M))
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"grpc": int(listens["listen"]), "http": int(listens["http_listen"])}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container()[probe]["grpc"]["port"] == ports["grpc"]
    for port in named("Service")["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    scraped = named("StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert int(scraped["prometheus.io/port"]) == ports["http"]
    reachable = {port["port"] for rule in named("NetworkPolicy")["spec"]["ingress"]
                 for port in rule["ports"]}
    assert reachable == set(ports.values())


def test_the_server_has_the_flags() -> None:
    config = named("ConfigMap")["data"]["athanord.conf"]
    used = set(re.findall(r"^(\w+) = ", config, re.M))
    used |= set(re.findall(r"--(\w+)=", " ".join(container()["args"])))
    used |= set(re.findall(r"--(\w+)=", CONTAINERFILE.partition("ENTRYPOINT")[2]))
    (runtime,) = documents("serving-runtime.yaml")[0]["spec"]["containers"]
    command = runtime["args"][0].split("athanord ")[1].split("&")[0]
    used |= set(re.findall(r"--(\w+)", command))
    assert len(used) >= 7 and not used - flags(), used - flags()


def test_a_pod_has_time_to_drain_and_room_for_compilers() -> None:
    pod = named("StatefulSet")["spec"]["template"]["spec"]
    config = dict(re.findall(r"^(\w+) = (\S+)$", named("ConfigMap")["data"]["athanord.conf"], re.M))
    drain = int(config["drain"].removesuffix("s"))
    pause = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > drain + pause
    most = int(container()["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert int(config["memory_limit"].removesuffix("GiB")) <= 0.8 * most


def test_a_pod_may_do_nothing_beside_its_work() -> None:
    pod = named("StatefulSet")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    (runtime,) = documents("serving-runtime.yaml")[0]["spec"]["containers"]
    for one in (container(), runtime):
        rights = one["securityContext"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["allowPrivilegeEscalation"] is False
    assert container()["securityContext"]["readOnlyRootFilesystem"]
    written = {mount["mountPath"] for mount in container()["volumeMounts"]
               if not mount.get("readOnly")}
    state = re.search(r"--state_dir=(\S+)", " ".join(container()["args"]))[1]
    assert written == {state, "/tmp"}


def test_the_runtime_has_fields_that_kserve_knows() -> None:
    (document,) = documents("serving-runtime.yaml")
    assert document["apiVersion"] == "serving.kserve.io/v1alpha1"
    spec = document["spec"]
    assert set(spec) <= RUNTIME
    assert all(set(one) <= FORMAT for one in spec["supportedModelFormats"])
    assert set(spec["protocolVersions"]) <= PROTOCOLS
    assert spec["containers"][0]["name"] == "kserve-container"
    script = spec["containers"][0]["args"][0]
    subprocess.run(["sh", "-n", "-c", script], check=True)
    (service,) = documents("inference-service.yaml")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == document["metadata"]["name"]
    assert model["protocolVersion"] in spec["protocolVersions"]
    assert model["modelFormat"]["name"] in {f["name"] for f in spec["supportedModelFormats"]}


def test_the_image_has_two_stages_and_its_own_user() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", CONTAINERFILE, re.M)
    assert stages == [("${DEBIAN}", "build"), ("${DEBIAN}", "")]
    second = CONTAINERFILE[CONTAINERFILE.rindex("\nFROM "):]
    assert "--from=build" in second and "apt/lists" in second
    assert re.search(r"^USER athanor$", second, re.M)
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", second.replace("\\\n", ""), re.M)[1])
    assert entry[0] == "/usr/bin/athanord"
    for path in re.findall(r"deploy/[\w./]+", CONTAINERFILE):
        assert (ROOT / path).exists(), path
    built_targets = set(re.findall(r"//[\w/]+:([\w-]+)", CONTAINERFILE))
    assert built_targets == {pathlib.PurePosixPath(program).name for program in deb.PROGRAMS}


def test_the_context_leaves_built_files_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", "bazel-*"} <= set(ignored)
