"""Compares the streams of a language model with llama.cpp's server, on equal weights.

    .venv/bin/python tests/bench/peer_tokens.py --llama_server PATH [--only streams] [--model GGUF]

streams: tokens a second of `--streams` callers in a closed loop, in slices A B B A, and the times
that make them.
goodput: the highest rate of Poisson arrivals at which 99 % of the calls have their first token
within a second and 50 ms a token behind it, of one server after the other, `--rounds` times.
Both speak OpenAI's protocol to one client, and load the same file; of the package's file, which is
Q4_1, llama.cpp multiplies rounded activations, so `--f32` writes its weights as f32 first. Prints a
JSON line each. docs/bench.md says how to build llama-server.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import athanor
import numpy as np
from callers import BENCH, MODEL, Row, smollm2
from serving import free_address, server

SLO = "ttft:1000,tpot:50"
SHARE = 0.99  # of the calls, which athanor-bench asks for by itself
TIMES = ("p50_ttft_ms", "p99_ttft_ms", "p50_tpot_ms", "p99_itl_ms", "output_throughput")


def write_f32(source: Path, target: Path) -> None:
    """Writes a GGUF file whose tensors are those of `source` as f32."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = 0 if key == "general.file_type" else field.contents()
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], inner)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, numbers.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@contextmanager
def llama_server(
    binary: Path, model: Path, streams: int, context: int, threads: int
) -> Iterator[str]:
    """llama.cpp's server with room for `streams` sequences of `context` positions."""
    address = free_address()
    host, port = address.split(":")
    process = subprocess.Popen(
        [
            str(binary),
            "--model",
            str(model),
            "--host",
            host,
            "--port",
            port,
            "--threads",
            str(threads),
            "--parallel",
            str(streams),
            "--ctx-size",
            str(streams * context),
            "--alias",
            MODEL,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{address}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{binary} does not answer") from None
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def athanor_server(model: Path, *flags: str) -> Iterator[str]:
    """Our server's OpenAI side, with the model's baseline."""
    openai = free_address()
    with (
        server(f"--openai_listen={openai}", *flags) as served,
        athanor.Client(served.address) as client,
    ):
        client.upload(model, name=MODEL, budget="0").wait("baseline", timeout=600)
        yield openai


def bench(*how: str) -> dict:
    """The figures of a run of athanor-bench.

    Raises
    ------
    RuntimeError
        It printed none.
    """
    done = subprocess.run(
        [str(BENCH), "llm", "--timeout=10m", "--out=-", *how],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise RuntimeError(f"athanor-bench: {done.stderr[-800:]}")
    return json.loads(done.stdout)


def lengths(args: argparse.Namespace) -> list[str]:
    """The flags of prompts and outputs."""
    return [f"--input_tokens={args.input_tokens}", f"--output_tokens={args.output_tokens}"]


def streams(args: argparse.Namespace, ours: str, theirs: str) -> Row:
    """The row of a closed loop: ours, theirs, and theirs over ours."""
    found = bench(
        f"--address={ours}",
        f"--address={theirs}",
        "--backend=openai",
        f"--model={MODEL}",
        *lengths(args),
        f"--concurrency={args.streams}",
        f"--duration={args.seconds}s",
        "--slice=10s",
    )
    row: Row = {"what": "streams", "streams": args.streams}
    for name, run in zip(("athanor", "llama_server"), found["runs"], strict=True):
        row[name] = {key: run[key] for key in ("completed", "failed", *TIMES)}
    row["llama_server_over_athanor"] = {
        key: found["comparison"]["ratios"].get(key) for key in TIMES
    }
    return row


def knee(address: str, seed: int, args: argparse.Namespace) -> Row:
    """The highest rate that meets SLO, and what each rate gave."""
    found = bench(
        f"--address={address}",
        "--backend=openai",
        f"--model={MODEL}",
        *lengths(args),
        "--knee",
        f"--slo={SLO}",
        f"--duration={args.seconds}s",
        f"--seed={seed}",
    )
    curve = [
        {
            "rate": run["phases"][0]["rate"],
            "share": run["slo_share"],
            "goodput": run["request_goodput"],
            "p99_ttft_ms": run["p99_ttft_ms"],
            "p99_tpot_ms": run["p99_tpot_ms"],
        }
        for run in found["runs"]
    ]
    met = [point["rate"] for point in curve if (point["share"] or 0) >= SHARE]
    return {"knee": max(met, default=0.0), "curve": curve}


def goodput(args: argparse.Namespace, ours: str, theirs: str) -> Row:
    """The row of the two knees, turn by turn."""
    row: Row = {
        "what": "goodput",
        "slo": SLO,
        "slo_share": SHARE,
        "athanor": [],
        "llama_server": [],
    }
    for turn in range(args.rounds):
        sides = [("athanor", ours), ("llama_server", theirs)]
        for name, address in sides if turn % 2 == 0 else sides[::-1]:
            row[name].append(knee(address, turn, args))
    row["athanor_over_llama_server"] = [
        a["knee"] / b["knee"] if b["knee"] else None
        for a, b in zip(row["athanor"], row["llama_server"], strict=True)
    ]
    return row


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama_server", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="a GGUF file; default: SmolLM2-135M")
    parser.add_argument("--f32", action="store_true", help="give both the weights as f32")
    parser.add_argument("--only", choices=("streams", "goodput"))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--input_tokens", default="128")
    parser.add_argument("--output_tokens", default="64")
    parser.add_argument("--context", type=int, default=2048, help="positions of a sequence")
    parser.add_argument("--seconds", type=float, default=120, help="of a comparison, or of a rate")
    parser.add_argument("--rounds", type=int, default=1, help="of searches for the knee")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        model = args.model or smollm2()
        if args.f32:
            write_f32(model, Path(folder) / "f32.gguf")
            model = Path(folder) / "f32.gguf"
        about: Row = {
            "bench": "peer_tokens",
            "model": model.name,
            "threads": args.threads,
            "input_tokens": args.input_tokens,
            "output_tokens": args.output_tokens,
        }
        with (
            athanor_server(model, f"--threads={args.threads}") as ours,
            llama_server(
                args.llama_server, model, args.streams, args.context, args.threads
            ) as theirs,
        ):
            if args.only != "goodput":
                print(json.dumps(about | streams(args, ours, theirs)), flush=True)
            if args.only != "streams":
                print(json.dumps(about | goodput(args, ours, theirs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
