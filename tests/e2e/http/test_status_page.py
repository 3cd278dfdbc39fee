"""The HTTP side: metrics, the status as JSON, and the status page, with and without a browser."""

from __future__ import annotations

import hashlib
import html.parser
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import ROOT, Server
from http_pages import get, status_of

CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)
EVIL = "<script>document.title='owned'</script>\"><b>\\"
SAMPLE = re.compile(
    r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\})? '
    r"(?:\+Inf|-?\d+(?:\.\d+)?(?:e[+-]\d+)?)")


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an HTTP side, which holds a model with buckets and a name that is markup."""
    state = tmp_path_factory.mktemp("http") / "state"
    running = Server(state, "--http_listen=127.0.0.1:0").start()
    with running.client() as client:
        model = client.upload(mlp.mlp_graph(config=CONFIG), name=EVIL, batch_dim="b",
                              buckets={"b": [(1, 1), (2, CONFIG.batch)]})
        for _ in range(20):
            infer(model)
        assert list(model.watch(timeout=120))[-1].phase == "DONE"
    yield running
    running.kill()


def test_the_automatic_address_is_used_by_one_server(tmp_path: pathlib.Path) -> None:
    servers = [Server(tmp_path / name, "--http_listen=auto") for name in ("one", "two")]
    try:
        ports = [server.start().http_address for server in servers]
        # Another process may have the port already.
        assert ports in (["127.0.0.1:8080", "127.0.0.1:0"], ["127.0.0.1:0"] * 2)
        for server, port in zip(servers, ports, strict=True):
            without = 'msg="no status page"' in server.log.read_text()
            assert without == port.endswith(":0")
            with server.client() as client:
                assert not list(client.models())
        if ports[0] == "127.0.0.1:8080":
            assert status_of(servers[0])["server"]["state"] == "serving"
    finally:
        for server in servers:
            server.kill()


def infer(model: athanor.Model) -> None:
    """Makes one call and checks its answer."""
    x = np.ones((1, CONFIG.widths[0]), np.float32)
    np.testing.assert_allclose(model.infer({"x": x}, timeout=120)["y"], mlp.mlp_numpy(x, CONFIG),
                               rtol=1e-4, atol=1e-4)


def metric(text: str, name: str, **labels: str) -> float | None:
    """The value of one sample; None without it."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inner = ",".join(f'{key}="{value.translate(escapes)}"' for key, value in labels.items())
    begin = f"{name}{{{inner}}} " if inner else f"{name} "
    found = [line for line in text.splitlines() if line.startswith(begin)]
    assert len(found) <= 1, found
    return float(found[0][len(begin):]) if found else None


class Page(html.parser.HTMLParser):
    """Parses a page: its elements in order, and the texts of those with an id, class or path."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fields: dict[str, str] = {}  # by data-path or data-rate; a path's first
        self.classes: dict[str, list[str]] = {}
        self.ids: dict[str, str] = {}
        self.title = ""
        self.names: list[str] = []  # of models
        self._open: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link", "br", "img", "input"):
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        tag, attributes = self._open[-1]
        if tag == "title":
            self.title = data
        cells = [has.get("class") for each, has in self._open if each == "td"]
        if tag == "summary" and cells == ["name"]:
            self.names.append(data.strip())
        for key in ("data-path", "data-rate"):
            if key in attributes:
                self.fields.setdefault(attributes[key], data)
        if "id" in attributes:
            self.ids[attributes["id"]] = data
        if "class" in attributes:
            self.classes.setdefault(attributes["class"], []).append(data)


def check_page(page: Page, model_name: str) -> None:
    """It holds the numbers of one model that serves, and nothing that a name smuggled in."""
    assert page.title == "Athanor"
    assert page.names == [model_name]
    assert page.tags.count("script") == 1
    assert "b" not in page.tags
    assert page.fields["models.0.requests.ok"] == "20"
    assert page.fields["models.0.requests.failed"] == "0"
    assert re.fullmatch(r"[\d.]+ (µs|ms|s)", page.fields["models.0.latency.call.p50"])
    assert re.fullmatch(r"[\d.]+ (B|KiB|MiB)", page.fields["models.0.memory.all"])
    assert "serves" in page.classes["mark good"]


def test_the_page_is_whole_without_its_script(http_server: Server) -> None:
    page = Page(get(http_server, "/"))
    check_page(page, EVIL)
    status = status_of(http_server)
    for path in ("calls.most", "versions", "models.0.plan.kernels", "cache.kernels.misses"):
        value = status
        for key in path.split("."):
            value = value[int(key) if isinstance(value, list) else key]
        assert page.fields[path] == str(value), path


def test_the_page_lists_buckets_and_the_wait_for_a_batch(http_server: Server) -> None:
    model = status_of(http_server)["models"][0]
    page = Page(get(http_server, "/"))
    assert [bucket["ranges"] for bucket in model["buckets"]] == ["b=1..1", "b=2..16"]
    assert [bucket["state"] for bucket in model["buckets"]] == ["OWN_PLAN", "OWN_PLAN"]
    assert page.classes["plan"] == [bucket["plan"] for bucket in model["buckets"]]
    assert "models.0.latency.batch.p99" in page.fields


def test_idle_connections_keep_nobody_out(http_server: Server) -> None:
    host, port = http_server.http_address.rsplit(":", 1)
    idle = [socket.create_connection((host, int(port))) for _ in range(70)]
    try:
        for part in (b"G", b"GET /metrics HTTP/1.1\r\n"):
            for one in idle[-50:]:  # the oldest are closed
                one.sendall(part)
            assert metric(get(http_server, "/metrics"), "athanor_models", state="READY") == 1
    finally:
        for one in idle:
            one.close()


def chromium(server: Server, *flags: str, user: str = "") -> str:
    """Its output after the page has been looked at for three seconds of its own time."""
    browser = shutil.which("chromium-headless-shell")
    if browser is None:
        pytest.fail("chromium-headless-shell is not there; deploy/packages.txt has it")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [browser, *sandbox, "--disable-gpu", "--virtual-time-budget=3500", *flags,
         f"http://{user}{server.http_address}/"],
        capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_in_a_browser_keeps_its_numbers_moving(http_server: Server) -> None:
    page = Page(chromium(http_server, "--dump-dom"))
    check_page(page, EVIL)
    assert page.ids["live"] == "live"
    # Two answers of the server make a rate.
    assert re.fullmatch(r"\d+\.\d", page.fields["models.0.requests.all"])
    # The script makes heads of columns into buttons.
    assert "button" in page.tags


def test_the_browser_gives_the_token_to_the_page(tmp_path: pathlib.Path) -> None:
    digest = hashlib.sha256(b"watch-token").hexdigest()
    identities = tmp_path / "auth.conf"
    identities.write_text(f"[watch]\nroles = monitor\ntoken = sha256:{digest}\n")
    server = Server(tmp_path / "state", f"--auth={identities}", "--http_listen=127.0.0.1:0").start()
    try:
        page = Page(chromium(server, "--dump-dom", user="anybody:watch-token@"))
        # Its own requests had the token, too.
        assert page.ids["live"] == "live"
        assert "watch-token" not in server.log.read_text()
        assert "Athanor" not in Page(chromium(server, "--dump-dom")).title
    finally:
        server.kill()


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, as WCAG 2.1 defines it."""
    def luminance(color: str) -> float:
        parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_texts_can_be_read_in_light_and_dark() -> None:
    style = (ROOT / "server/http/pages/page.css").read_text()
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
              for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(themes) == 2
    for theme in themes:
        for ground in ("ground", "card"):
            for text in ("ink", "quiet", "good", "busy", "bad"):
                assert contrast(theme[text], theme[ground]) >= 4.5, (theme[text], ground)
            for line in ("bar", "high"):
                assert contrast(theme[line], theme[ground]) >= 3, (theme[line], ground)


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (320, 900)])
@pytest.mark.parametrize("scheme", [0, 1])  # dark, light
def test_the_page_can_be_drawn(http_server: Server, tmp_path: pathlib.Path, width: int,
                               height: int, scheme: int) -> None:
    image = tmp_path / "page.png"
    chromium(http_server, f"--blink-settings=preferredColorScheme={scheme}",
             f"--window-size={width},{height}", f"--screenshot={image}")
    data = image.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (width, height)
    # A blank page packs to a few hundred bytes.
    assert len(data) > 10_000


def test_other_paths_and_methods(http_server: Server) -> None:
    for method, path, code in (("GET", "/none", 404), ("POST", "/metrics", 405)):
        request = urllib.request.Request(f"http://{http_server.http_address}{path}",
                                         method=method)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=20)
        assert error.value.code == code


def test_metrics_come_and_go_with_a_model(http_server: Server) -> None:
    labels = {"model": 'a"b\\c', "version": "1"}
    with http_server.client() as client:
        model = client.upload(mlp.mlp_graph(config=CONFIG), name=labels["model"])
        for _ in range(3):
            infer(model)
        with pytest.raises(athanor.Error):
            model.infer({"x": np.ones((1, 1), np.float32)})
        text = get(http_server, "/metrics")
        for line in text.splitlines():
            said = re.match(r"# (HELP|TYPE) (athanor|process)_", line)
            assert said or SAMPLE.fullmatch(line), line
        assert metric(text, "athanor_requests_total", **labels, code="OK") == 3
        assert metric(text, "athanor_requests_total", **labels, code="INVALID_ARGUMENT") == 1
        assert metric(text, "athanor_exec_seconds_count", **labels) == 3
        assert metric(text, "athanor_request_seconds_count", **labels) == 4
        assert metric(text, "athanor_plan_swaps_total", **labels) == 1
        assert metric(text, "athanor_memory_bytes", kind="parameters") > 0
        client.delete(labels["model"])
    end = time.monotonic() + 60
    while metric(text, "athanor_plan_swaps_total", **labels) is not None:
        assert time.monotonic() < end, "its labels stay"
        text = get(http_server, "/metrics")
    assert 'a\\"b\\\\c' not in text


def test_a_search_can_be_followed(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path / "state", "--http_listen=127.0.0.1:0",
                    "--search_budget=exhaust:20s").start()
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="mlp")
            model.wait("baseline", timeout=120)
            seen = []
            while True:
                job = status_of(server)["models"][0]["job"]
                if job["search"] is not None:
                    seen.append(job["search"]["candidates"])
                if job["finished"]:
                    break
            assert seen == sorted(seen) and len(set(seen)) > 1
            search = status_of(server)["models"][0]["job"]["search"]
            assert 0 < search["share"] <= 1
            text = get(server, "/metrics")
            measured = client.cache_stat().candidates_measured  # plans, too
            assert metric(text, "athanor_search_candidates_total") == measured
            assert measured > 0
            assert metric(text, "athanor_search_share_ratio", model="mlp",
                          version="1") == search["share"]
    finally:
        server.kill()


def test_a_restarted_server_answers_from_its_cache(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path / "state", "--http_listen=127.0.0.1:0").start()
    try:
        with server.client() as client:
            infer(client.upload(mlp.mlp_graph(config=CONFIG), name="mlp"))
        first = get(server, "/metrics")
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            infer(client.model("mlp"))
        second = get(server, "/metrics")
    finally:
        server.kill()
    misses = {name: [float(line.split()[-1]) for line in text.splitlines()
                     if line.startswith("athanor_cache_misses_total{") and "kernels" in line]
              for name, text in (("first", first), ("second", second))}
    assert sum(misses["first"]) > 0
    assert sum(misses["second"]) == 0
    assert metric(second, "athanor_cache_hits_total", tier="kernels") > 0
