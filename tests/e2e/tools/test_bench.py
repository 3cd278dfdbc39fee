"""athanor-bench against real servers: what it counts, writes and refuses. No figure is judged."""

from __future__ import annotations

import json
import pathlib
import sqlite3
import subprocess
import threading
import time
import urllib.request
from html.parser import HTMLParser
from xml.etree import ElementTree

import athanor
import numpy as np
import pytest
from conftest import ROOT, Server, built

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"


def upload(client: athanor.Client) -> None:
    """A model with a dim, a float input and indices of ten rows."""
    g = athanor.Graph("load", dims={"b": (1, 16)})
    x = g.input("x", ("b", 4), "f32")
    table = g.parameter("table", np.arange(40, dtype=np.float32).reshape(10, 4))
    g.output("y", x + athanor.gather(table, g.input("ids", "b", "i64")))
    client.upload(g, name="load").wait("baseline")


@pytest.fixture(scope="module")
def address(server: Server, client: athanor.Client) -> str:
    upload(client)
    return server.address


INPUTS = ("--shape=x=bx4", "--shape=ids=b", "--dims=b=1..16", "--input=ids=0..9")


def bench(*arguments: object, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([built(BENCH), *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    return done


def run(address: str, *arguments: object, status: int = 0) -> dict:
    done = bench("run", f"--address={address}", "--model=load", "--warmup=5", "--out=-", *INPUTS,
                 *arguments, status=status)
    return json.loads(done.stdout)


def test_closed_loop(address: str) -> None:
    summary = run(address, "--duration=1s", "--concurrency=3", "--connections=2")
    assert summary["failed"] == 0 and summary["completed"] > 3
    assert summary["max_concurrent_requests"] == 3
    assert summary["request_rate"] is None and summary["arrival"] == "closed"
    # The server's own times are part of the whole.
    assert 0 < summary["mean_exec_ms"] < summary["mean_e2el_ms"]
    assert summary["mean_queue_ms"] is not None and summary["mean_batch_ms"] is None
    assert summary["plans"][0]["plan_id"].startswith("p-")
    assert summary["plans"][0]["calls"] == summary["completed"]
    for key in ("p99_e2el_ms", "request_throughput", "mean_exec_ms"):
        low, high = summary["ci95"][key]
        assert low <= summary[key] <= high
        assert summary["formula"][key]


def test_open_loop_counts_every_call_due(address: str) -> None:
    summary = run(address, "--rate=100", "--arrival=fixed", "--duration=1s", "--slo=e2el:60000",
                  "--detailed")
    assert summary["num_prompts"] == 100
    assert summary["completed"] + summary["not_sent"] == 100
    starts = summary["detailed"]["start_times"]
    np.testing.assert_allclose(np.diff(starts), 0.01, rtol=1e-6)
    # numpy's percentiles of every call are the summary's.
    latencies = np.array(summary["detailed"]["latencies"]) * 1e3
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9)):
        np.testing.assert_allclose(summary[f"{name}_e2el_ms"], np.percentile(latencies, share),
                                   rtol=1e-9)
    np.testing.assert_allclose(summary["std_e2el_ms"], latencies.std(ddof=1), rtol=1e-9)
    assert summary["slo_share"] == summary["completed"] / 100


def test_phases(address: str) -> None:
    summary = run(address, "--phase=500ms:rate=40", "--phase=500ms:rate=40..120",
                  "--arrival=gamma", "--burstiness=0.5")
    assert [phase["rate_end"] for phase in summary["phases"]] == [40, 120]
    due = sum(phase[key] for phase in summary["phases"]
              for key in ("completed", "failed", "not_sent"))
    assert due == summary["num_prompts"]


def test_a_missed_service_level_is_an_exit_status(address: str) -> None:
    summary = run(address, "--duration=300ms", "--slo=e2el:0.000001", status=3)
    assert summary["slo_share"] == 0 and summary["request_goodput"] == 0


class Page(HTMLParser):
    """The SVG elements of a page, and what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.svgs = 0
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.svgs += tag == "svg"
        if tag in ("script", "link", "img", "iframe"):
            self.loaded.append(tag)
        self.loaded += [value for key, value in attrs if key in ("src", "href")]


def check_page(path: pathlib.Path) -> None:
    text = path.read_text()
    page = Page()
    page.feed(text)
    page.close()
    assert page.svgs == 4 and not page.loaded
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))  # every tag closes


def test_two_servers_take_turns(address: str, own_server: Server, tmp_path: pathlib.Path) -> None:
    with own_server.client() as client:
        upload(client)
    out, page, db = tmp_path / "ab.json", tmp_path / "ab.html", tmp_path / "runs.db"
    text = bench("run", f"--address={address}", f"--address={own_server.address}", "--model=load",
                 "--warmup=5", *INPUTS, "--duration=2s", "--slice=200ms", "--label=twice",
                 "--metadata=commit=abc", f"--out={out}", f"--html={page}", f"--db={db}",
                 "--save_calls").stdout
    assert "second over first" in text
    assert f"kept as {db}:1 and {db}:2" in text
    both = json.loads(out.read_text())
    ratio = both["comparison"]["ratios"]["p50_e2el_ms"]
    assert ratio["pairs"] == 10
    assert ratio["q1"] <= ratio["value"] <= ratio["q3"]
    assert ratio["ci95"][0] <= ratio["value"] <= ratio["ci95"][1]
    check_page(page)
    with sqlite3.connect(db) as rows:
        assert rows.execute("SELECT label, model, commit_id FROM runs ORDER BY id").fetchall() == [
            ("twice first", "load", "abc"), ("twice second", "load", "abc")]
        calls = dict(rows.execute("SELECT run, count(*) FROM calls GROUP BY run"))
    assert list(calls.values()) == [each["completed"] + each["failed"] for each in both["runs"]]
    # The same from what was kept.
    text = bench("report", db, f"--html={tmp_path / 'report.html'}").stdout
    assert "run 2 over run 1, in turns" in text
    check_page(tmp_path / "report.html")
    text = bench("compare", f"{db}:1", f"{db}:2", f"--html={page}").stdout
    assert "different times" in text and "p99_e2el_ms" in text
    check_page(page)


def answered(server: Server) -> float:
    """Calls, since it started."""
    with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines
               if line.startswith("athanor_requests_total{"))


def test_a_server_that_is_killed_ends_the_calls(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path / "state", "--http_listen=127.0.0.1:0").start()

    def kill() -> None:
        while answered(server) < 50:
            time.sleep(0.02)
        server.kill()

    try:
        with server.client() as client:
            upload(client)
        killer = threading.Thread(target=kill)
        killer.start()
        summary = run(server.address, "--rate=50", "--duration=8s")
        killer.join()
        assert summary["completed"] > 0
        assert {error["code"] for error in summary["errors"]} == {"UNAVAILABLE"}
        done = bench("run", f"--address={server.address}", "--model=load", "--timeout=2s", *INPUTS,
                     status=1)
        assert server.address in done.stderr
    finally:
        server.kill()


def test_a_sweep_as_lines_at_the_address_of_the_environment(
        address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHANOR_ADDRESS", address)
    done = bench("run", "--model=load", "--input=ids=0..9", "--duration=300ms", "--warmup=1",
                 "--concurrency=1,2", "--json")
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["max_concurrent_requests"] for line in lines] == [1, 2]
    for key in ("request_throughput", "median_e2el_ms", "p99_e2el_ms"):
        assert [point[key] for point in last["sweep"]] == [line[key] for line in lines]
    # What the model leaves open is 1, and said.
    assert 'input "x" is FP32[-1, 4]: sizes that are not fixed are 1' in done.stderr
    text = bench("run", "--model=load", "--input=ids=0..9", "--duration=300ms", "--warmup=1",
                 "--concurrency=1,2", "--shape=x=1x4", "--shape=ids=1")
    assert "o p50, x p99" in text.stdout and "not fixed" not in text.stderr
    assert all(line["completed"] > 0 and line["failed"] == 0 for line in lines)
    assert lines[0]["options"]["server"] == address
    assert bench("version").stdout.startswith("athanor-bench ")
    assert bench("help", "run").stdout == bench("run", "--help").stdout


def test_refusals_name_what_is_wrong(address: str, tmp_path: pathlib.Path) -> None:
    start = ("run", f"--address={address}", "--duration=1s")
    model = (*start, "--model=load")
    for words, arguments, status in (
            ("--rate", (*model, *INPUTS, "--rate=0"), 2),
            ("--duration", (*model, *INPUTS, "--duration=5"), 2),
            ("--concurrency", (*model, *INPUTS, "--concurrency=0"), 2),
            ('input "ids"', model, 2),
            ("no option --durtion; did you mean --duration?", (*model, "--durtion=1s"), 2),
            ("--json and --out", (*model, *INPUTS, "--json", "--out=-"), 2),
            ("ids=0..9", (*model, "--shape=x=2x4", "--shape=ids=2"), 2),
            ("no such input", (*model, *INPUTS, "--shape=z=1"), 2),
            ("none", (*start, "--model=none", *INPUTS), 1),
            # A wrong index: the server's own words.
            ("ids", (*model, *INPUTS[:3], "--input=ids=10..12"), 1),
            ("/no/such", ("report", "/no/such.json"), 2),
            ("FILE", ("compare", "one.json"), 2),
            ("--dims q=1..4", (*model, *INPUTS, "--dims=q=1..4"), 2),
            ("--db /no/such/folder", (*model, *INPUTS, "--db=/no/such/folder/x.db"), 2),
            ("--out /no/such/folder", (*model, *INPUTS, "--out=/no/such/folder/x.json"), 2),
            ("--save_calls", (*model, *INPUTS, "--save_calls"), 2)):
        done = bench(*arguments, status=status)
        assert words in done.stderr, (arguments, done.stderr)
    other = tmp_path / "other.json"
    other.write_text("[1, 2]")
    assert "neither" in bench("report", other, status=2).stderr
