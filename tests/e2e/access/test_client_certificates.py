"""Client certificates as identities (``--tls_client_ca``): SDK, command line, bench, HTTP; those
that are unknown, out of date, of another authority, or revoked while connections are open."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from server_process import CLI, ROOT, Server, built

TOKEN = "admin-token-1"
BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
EDGE = "[edge]\nroles = infer, upload\nmodels = edge/*\ncertificate = dns:edge.test\n"
OPS = ("[ops]\nroles = admin\n"
       f"token = sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key (PEM)."""

    cert: pathlib.Path
    key: pathlib.Path

    @property
    def options(self) -> dict[str, bytes]:
        """As the SDK takes them."""
        return {"client_certificate": self.cert.read_bytes(), "client_key": self.key.read_bytes()}


class Authority:
    """Signs certificates with openssl."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.pair = Pair(folder / "ca.pem", folder / "ca.key")
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                      "-nodes", "-subj", "/CN=test authority", "-days", "2",
                      "-keyout", self.pair.key, "-out", self.pair.cert)

    @staticmethod
    def _openssl(*words: str | pathlib.Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def sign(self, name: str, alternative: str, days: int = 1) -> Pair:
        """Returns a new pair; with negative `days` one that has expired."""
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                      "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.pair.cert, "-CAkey",
                      self.pair.key, "-CAcreateserial", "-days", str(days), "-extfile", extensions,
                      "-out", pair.cert)
        return pair


@dataclasses.dataclass(frozen=True)
class Setting:
    """A server that knows "edge" by its certificate, and an administrator by its token."""

    server: Server
    auth: pathlib.Path
    clients: Authority
    root: pathlib.Path
    edge: Pair

    def client(self, pair: Pair | None = None, token: str | None = None) -> athanor.Client:
        """Connects."""
        return athanor.Client(self.server.address, root_certificates=self.root.read_bytes(),
                              token=token, **(pair.options if pair else {}))

    def status(self, path: str, pair: Pair | None = None) -> int:
        """Returns the HTTP status of a page."""
        context = ssl.create_default_context(cafile=str(self.root))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        try:
            with urllib.request.urlopen(f"https://{self.server.http_address}{path}",
                                        context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def run(self, *words: str | pathlib.Path,
            tool: pathlib.Path = CLI) -> subprocess.CompletedProcess[str]:
        """Runs a tool against the server."""
        environment = {key: value for key, value in os.environ.items() if key != "ATHANOR_TOKEN"}
        return subprocess.run([built(tool), *words, "--address", self.server.address, "--tls_ca",
                               self.root], capture_output=True, text=True, env=environment)

    def write(self, identities: str) -> None:
        """Replaces the file of identities, and waits until it is read."""
        before = self.server.log.read_text().count("identities read")
        new = self.auth.with_suffix(".new")
        new.write_text(OPS + identities)
        os.replace(new, self.auth)
        end = time.monotonic() + 30
        while self.server.log.read_text().count("identities read") == before:
            assert time.monotonic() < end, self.server.log.read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """The model "edge/double" is there."""
    folder = tmp_path_factory.mktemp("certificates")
    own, clients = Authority(folder / "own"), Authority(folder / "clients")
    pair = own.sign("server", "IP:127.0.0.1,DNS:localhost")
    auth = folder / "auth.conf"
    auth.write_text(OPS + EDGE)
    server = Server(folder / "state", f"--auth={auth}", f"--tls_cert={pair.cert}",
                    f"--tls_key={pair.key}", f"--tls_client_ca={clients.pair.cert}",
                    "--http_listen=127.0.0.1:0").start()
    setting = Setting(server, auth, clients, own.pair.cert, clients.sign("edge", "DNS:edge.test"))
    graph = athanor.Graph("double")
    x = graph.input("x", (4,), "f32")
    graph.output("y", x + x)
    with setting.client(setting.edge) as client:
        client.upload(graph, name="edge/double").wait("baseline", timeout=120)
    yield setting
    assert server.stop() == 0, server.log.read_text()
    assert TOKEN not in server.log.read_text()


def test_the_sdk_is_known_by_its_certificate(setting: Setting) -> None:
    with setting.client(setting.edge) as edge:
        y = edge.model("edge/double").infer({"x": np.ones(4, np.float32)})["y"]
        assert y.tolist() == [2, 2, 2, 2]
        with pytest.raises(athanor.PermissionDenied, match="edge may not use model"):
            edge.model("other/double")
        with pytest.raises(athanor.PermissionDenied, match="needs one of"):
            edge.cache_stat()
    with setting.client() as nobody:
        with pytest.raises(athanor.Unauthenticated, match="or show a client certificate"):
            nobody.model("edge/double")


def test_a_token_comes_first(setting: Setting) -> None:
    with setting.client(setting.edge, token=TOKEN) as both:
        both.cache_stat()  # the administrator's
    with setting.client(setting.edge, token="wrong-token-1") as wrong:
        with pytest.raises(athanor.Unauthenticated, match="none of this server's"):
            wrong.model("edge/double")


def test_other_certificates_are_refused(setting: Setting, tmp_path: pathlib.Path) -> None:
    unknown = setting.clients.sign("unknown", "DNS:unknown.test")
    with setting.client(unknown) as client:
        with pytest.raises(athanor.Unauthenticated, match="dns:unknown.test"):
            client.model("edge/double")
    expired = setting.clients.sign("expired", "DNS:edge.test", days=-1)
    strange = Authority(tmp_path / "strange").sign("strange", "DNS:edge.test")
    for pair in (expired, strange):
        with setting.client(pair) as client, pytest.raises(athanor.Unavailable):
            client.model("edge/double")
        with pytest.raises(OSError):  # the connection ends
            setting.status("/v2/models/edge/double", pair)


def test_http_knows_certificates(setting: Setting) -> None:
    assert setting.status("/v2/models/edge/double", setting.edge) == 200
    assert setting.status("/v2/models/edge/double") == 401
    assert setting.status("/v2/models/other", setting.edge) == 403
    assert setting.status("/status.json", setting.edge) == 403
    assert setting.status("/v2/health/live") == 200


def test_the_tools_take_certificates(setting: Setting, tmp_path: pathlib.Path) -> None:
    pair = ("--tls_cert", setting.edge.cert, "--tls_key", setting.edge.key)
    shown = setting.run("models", "--json", *pair)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout.splitlines()[0])["name"] == "edge/double"
    bench = setting.run("run", "--model=edge/double", "--shape=x=4", "--duration=1s", *pair,
                        tool=BENCH)
    assert bench.returncode == 0, bench.stderr
    nobody = setting.run("models")
    assert nobody.returncode == 1
    assert "--tls_cert" in nobody.stderr
    unmatched = setting.run("models", "--tls_cert", setting.edge.cert, "--tls_key",
                            setting.clients.pair.key)
    assert unmatched.returncode == 2
    assert "is not the key of the certificate" in unmatched.stderr
    alone = setting.run("models", "--tls_cert", setting.edge.cert)
    assert alone.returncode == 2
    assert "--tls_cert and --tls_key are given together" in alone.stderr
    expired = setting.clients.sign("late", "DNS:edge.test", days=-1)
    late = setting.run("models", "--tls_cert", expired.cert, "--tls_key", expired.key)
    assert late.returncode == 2
    assert "has expired" in late.stderr
    strange = Authority(tmp_path / "strange").sign("strange", "DNS:edge.test")
    refused = setting.run("models", "--tls_cert", strange.cert, "--tls_key", strange.key)
    assert refused.returncode == 3
    assert "--tls_cert" in refused.stderr


def test_a_row_that_goes_revokes_open_connections(setting: Setting) -> None:
    with setting.client(setting.edge) as edge:
        model = edge.model("edge/double")
        setting.write("")
        with pytest.raises(athanor.Unauthenticated, match="none of this server's identities"):
            model.infer({"x": np.ones(4, np.float32)})
        assert setting.status("/v2/models/edge/double", setting.edge) == 401
        setting.write(EDGE)
        model.infer({"x": np.ones(4, np.float32)})


@pytest.mark.parametrize("flags, message", [
    (("--tls_client_ca=ca.pem",), "--tls_client_ca needs --tls_cert"),
    ((), "give --tls_client_ca"),
])
def test_a_server_that_does_not_ask_does_not_start(tmp_path: pathlib.Path, flags: tuple[str, ...],
                                                   message: str) -> None:
    file = tmp_path / "auth.conf"
    file.write_text(EDGE)
    ended = subprocess.run(
        [built(Server.binary), "--listen=127.0.0.1:0", f"--state_dir={tmp_path / 'state'}",
         *(flags or (f"--auth={file}",))], capture_output=True, text=True)
    assert ended.returncode == 2
    assert message in ended.stderr
