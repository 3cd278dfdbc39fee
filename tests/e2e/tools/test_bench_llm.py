"""athanor-bench llm against a real server, on a tiny decoder: what it counts and writes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import athanor
import pytest
import tiny_decoder
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
    done = bench("llm", f"--address={address}", "--model=tiny-bench", "--out=-", *arguments,
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
    text = bench("llm", f"--address={address}", f"--address={address}", "--model=tiny-bench",
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
        done = bench("llm", f"--address={address}", "--model=tiny-bench", *arguments, status=status)
        assert words in done.stderr
    done = bench("llm", f"--address={address}", "--model=none", status=1)
    assert "none" in done.stderr


def test_prompts_that_begin_alike_are_found(address: str, client: athanor.Client) -> None:
    """Each has 40 tokens that all share and 8 of its own: of the 40, whole blocks are found."""
    block = client.model("tiny-bench").engine().block_tokens
    run = llm(address, "--num_prompts=5", "--shared_prefix=40", "--input_tokens=8",
              "--output_tokens=2")
    assert run["total_input_tokens"] == 5 * 48
    assert run["total_cached_tokens"] == 5 * (40 // block * block)
    fresh = llm(address, "--num_prompts=5", "--input_tokens=48", "--output_tokens=2", "--seed=1")
    assert fresh["total_cached_tokens"] == 0


def test_conversations_go_on(address: str, client: athanor.Client) -> None:
    run = llm(address, "--num_prompts=4", "--turns=3", "--think=1ms", "--input_tokens=16",
              "--output_tokens=16", "--warmup=0", "--seed=2", "--detailed")
    assert run["detailed"]["input_lens"] == [16, 48, 80, 16]
    # All that was said but for each answer's last token, in whole blocks.
    block = client.model("tiny-bench").engine().block_tokens
    assert run["total_cached_tokens"] >= (31 // block + 63 // block) * block


def test_a_trace_is_sent_as_it_says(address: str, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(
        json.dumps({"timestamp": at, "input_length": tokens, "output_length": 4,
                    "hash_ids": [0]}) + "\n" for at, tokens in ((0, 100), (50, 60), (90, 200))))
    run = llm(address, f"--trace={trace}", "--warmup=0", "--seed=3", "--detailed")
    assert run["detailed"]["input_lens"] == [100, 60, 200]
    assert run["detailed"]["start_times"] == pytest.approx([0, 0.05, 0.09])
    assert run["arrival"] == "trace" and run["completed"] == 3


def test_a_knee_is_a_curve_of_rates(address: str) -> None:
    text = bench("llm", f"--address={address}", "--model=tiny-bench", "--knee", "--rate=20",
                 "--arrival=fixed", "--slo=ttft:0.00001", "--duration=50ms", "--input_tokens=2",
                 "--output_tokens=2", status=3).stdout
    assert "no knee" in text and "rate/s" in text
    assert text.count("rate 20:") == 1 and "rate 0.01953:" in text


@pytest.mark.parametrize("own_server", [("--openai_listen=127.0.0.1:0",)], indirect=True)
def test_both_protocols_are_measured(own_server: Server, tmp_path: pathlib.Path) -> None:
    folder, out = tmp_path / "decoder", tmp_path / "both.json"
    folder.mkdir()
    tiny_decoder.write(folder, 256)
    with own_server.client() as client:
        client.upload(folder, name="tiny", budget="0").wait("baseline", timeout=120)
    bench("llm", f"--address={own_server.address}", f"--address={own_server.openai_address}",
          "--backend=grpc", "--backend=openai", "--model=tiny", "--duration=1s", "--slice=250ms",
          "--input_tokens=20", "--output_tokens=6", f"--out={out}")
    runs = json.loads(out.read_text())["runs"]
    assert [run["backend"] for run in runs] == ["athanor-grpc", "openai"]
    for run in runs:
        assert run["failed"] == 0 and run["completed"] > 0, run["errors"]
        assert run["total_output_tokens"] == 6 * run["completed"]
        assert run["total_input_tokens"] == 20 * run["completed"]
