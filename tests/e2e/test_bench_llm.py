"""athanor-bench llm against a real server, on a tiny decoder: what it counts and writes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import athanor
import pytest
from conftest import ROOT, Server
from test_bench import bench

DATA = ROOT / "tests/tokens/testdata/llama"


@pytest.fixture(scope="module")
def address(server: Server, client: athanor.Client, tmp_path_factory: pytest.TempPathFactory
            ) -> Iterator[str]:
    """A server with the decoder, which has no tokenizer."""
    folder = tmp_path_factory.mktemp("tiny-bench")
    for path in DATA.iterdir():
        if path.name != "golden.json" and path.suffix != ".gguf":
            (folder / path.name).write_bytes(path.read_bytes())
    client.upload(folder, name="tiny-bench", budget="0").wait("baseline", timeout=120)
    yield server.address
    client.delete("tiny-bench")


def llm(address: str, *arguments: object, status: int = 0) -> dict:
    done = bench("llm", f"--server={address}", "--model=tiny-bench", "--out=-", *arguments,
                 status=status)
    return json.loads(done.stdout)


def test_every_token_is_counted(address: str) -> None:
    run = llm(address, "--num_prompts=8", "--concurrency=4", "--input_tokens=uniform:2:9",
              "--output_tokens=6", "--detailed", "--slo=ttft:60000,tpot:60000,e2el:60000")
    assert (run["completed"], run["failed"], run["slo_share"]) == (8, 0, 1)
    detailed = run["detailed"]
    assert detailed["output_lens"] == [6] * 8 and run["total_output_tokens"] == 48
    assert all(2 <= tokens <= 9 for tokens in detailed["input_lens"])
    assert run["total_input_tokens"] == sum(detailed["input_lens"])
    for call, (ttft, gaps) in enumerate(zip(detailed["ttfts"], detailed["itls"], strict=True)):
        assert ttft + sum(gaps) == pytest.approx(detailed["latencies"][call])
    assert run["mean_ttft_ms"] <= run["mean_e2el_ms"] and run["mean_queue_ms"] is not None
    assert run["plans"] and run["server"].startswith("athanor")
    assert run["options"]["family"] == "llama"


def test_a_sweep_of_two_servers(address: str, tmp_path: pathlib.Path) -> None:
    out, page = tmp_path / "sweep.json", tmp_path / "sweep.html"
    text = bench("llm", f"--server={address}", f"--server={address}", "--model=tiny-bench",
                 "--concurrency=1,2", "--duration=1s", "--slice=250ms", "--input_tokens=4",
                 "--output_tokens=4", f"--out={out}", f"--html={page}").stdout
    assert "the sweep, in ms:" in text
    both = json.loads(out.read_text())
    assert [run["max_concurrency"] for run in both["runs"]] == [1, 1, 2, 2]
    assert all(run["failed"] == 0 for run in both["runs"])
    assert all(each["ratios"]["output_throughput"]["pairs"] == 4 for each in both["comparisons"])
    assert "Output tokens over callers" in page.read_text()


def test_what_the_model_cannot_take_is_refused(address: str) -> None:
    for words, arguments, status in (
            ("tokens together", ("--input_tokens=100000",), 2),
            ("--chat", ("--chat",), 2),
            ("--backend", ("--backend=http",), 2)):
        done = bench("llm", f"--server={address}", "--model=tiny-bench", *arguments, status=status)
        assert words in done.stderr
    done = bench("llm", f"--server={address}", "--model=none", status=1)
    assert "none" in done.stderr
