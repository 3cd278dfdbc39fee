"""The container image and the manifests of Kubernetes: they fit each other and the server."""

from __future__ import annotations

import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import athanor
import kubernetes_validate
import numpy as np
import onnx
import onnx_models
import pytest
import yaml
from conftest import ATHANORD, CLI, ROOT, built
from server_process import Server

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
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_kubernetes_takes_the_pod_that_kserve_makes() -> None:
    (document,) = documents("serving-runtime.yaml")
    pod = {field: document["spec"][field] for field in ("containers", "volumes")}
    kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "digits"},
                                  "spec": pod}, KUBERNETES, strict=True)


def test_kubernetes_notices_a_wrong_field() -> None:
    wrong = named("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


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
        assert container()[probe]["httpGet"]["port"] in ports
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


def identities(folder: pathlib.Path, may: str) -> tuple[pathlib.Path, str]:
    """Writes an auth.conf with one identity, and returns it and the identity's token."""
    token, line = subprocess.run([built(ATHANORD), "--make_token"], check=True, text=True,
                                 capture_output=True).stdout.splitlines()
    path = folder / "auth.conf"
    path.write_text(f"[caller]\n{may}\n{line}\n")
    return path, token


@pytest.fixture
def certificate(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate of localhost and its key."""
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", cert,
                    "-keyout", key], check=True, capture_output=True)
    return cert, key


def test_the_settings_serve_whom_the_secret_names(
        tmp_path: pathlib.Path, certificate: tuple[pathlib.Path, pathlib.Path]) -> None:
    """A server with the ConfigMap's settings: probes need no token, calls do."""
    cert, key = certificate
    auth, token = identities(tmp_path, "roles = admin")
    config = named("ConfigMap")["data"]["athanord.conf"]
    here = {r"0\.0\.0\.0:\d+": "127.0.0.1:0", r"/run/\S+/tls\.crt": cert,
            r"/run/\S+/tls\.key": key, r"/run/\S+/auth\.conf": auth, "6GiB": "1GiB"}
    for pattern, value in here.items():
        config, count = re.subn(pattern, str(value), config)
        assert count, pattern
    # The tests' server writes its log as text, which they read the ports from.
    config = config.replace("log_format = json\n", "")
    path = tmp_path / "athanord.conf"
    path.write_text(config)
    server = Server(tmp_path / "state", f"--config={path}", "--http_listen=127.0.0.1:0").start()
    try:
        probe = container()["readinessProbe"]["httpGet"]
        # As the kubelet does: it does not check the certificate.
        answer = urllib.request.urlopen(
            f"{probe['scheme'].lower()}://{server.http_address}{probe['path']}", timeout=30,
            context=ssl._create_unverified_context())
        assert answer.status == 200
        port = server.address.rpartition(":")[2]
        roots = cert.read_bytes()
        with (athanor.Client(f"localhost:{port}", root_certificates=roots) as stranger,
              pytest.raises(athanor.Unauthenticated)):
            stranger.models()
        with athanor.Client(f"localhost:{port}", root_certificates=roots, token=token) as caller:
            assert caller.models() == []
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.fixture
def runtime(tmp_path: pathlib.Path) -> Iterator[tuple[subprocess.Popen, dict, dict]]:
    """The ServingRuntime's container with a model, as KServe starts it."""
    (document,) = documents("serving-runtime.yaml")
    (spec,) = document["spec"]["containers"]
    models = tmp_path / "models"
    models.mkdir()
    onnx.save(onnx_models.model([onnx.helper.make_node("Relu", ["x"], ["y"])],
                                [onnx_models.value("x", [2, 3])],
                                [onnx_models.value("y", [2, 3])]), models / "model.onnx")
    auth, token = identities(tmp_path, "roles = infer, upload\nmodels = *")
    address = f"unix:{tmp_path}/socket"
    here = {"/usr/bin/athanord": built(ATHANORD), "/run/secrets/athanor/auth.conf": auth,
            "0.0.0.0:50051": address, "0.0.0.0:8080": "127.0.0.1:0", "/mnt/models": models,
            "=/tmp/athanor": f"={tmp_path / 'state'}", "{{.Name}}": "digits"}
    text = json.dumps(spec)
    for name, value in here.items():
        assert name in text, name
        text = text.replace(name, str(value))
    spec = json.loads(text)
    environment = {**os.environ, "PATH": f"{built(CLI).parent}:{os.environ['PATH']}",
                   "ATHANOR_ADDRESS": address, "ATHANOR_TOKEN": token}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*spec["command"], *spec["args"], "--search_budget=0"],
                                   env=environment, stdout=log, stderr=log)
    yield process, spec, environment
    process.kill()
    process.wait()


def test_kserves_pod_is_ready_when_its_model_is(
        runtime: tuple[subprocess.Popen, dict, dict]) -> None:
    process, spec, environment = runtime
    probe = spec["readinessProbe"]["exec"]["command"]
    while subprocess.run(probe, env=environment, check=False, capture_output=True).returncode:
        assert process.poll() is None, "the container ended"
        time.sleep(0.05)
    x = np.array([[-1, 0, 1], [2, -2, 3]], np.float32)
    with athanor.Client(environment["ATHANOR_ADDRESS"],
                        token=environment["ATHANOR_TOKEN"]) as client:
        np.testing.assert_array_equal(client.model("digits").infer(x)["y"], np.maximum(x, 0))
    process.terminate()
    assert process.wait(60) == 0
