"""The encoder of tests/models in this process against ONNX Runtime: same weights, same threads,
interleaved, parity checked first.

    .venv/bin/python tests/bench/encoder_bench.py [--batch 1] [--length 128] [--profile]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import encoder  # noqa: E402
import onnxruntime  # noqa: E402
from inprocess import InProcess  # noqa: E402


def parameters_by_name(graph) -> tuple[bytes, dict[str, np.ndarray], list[str], list[str]]:
    """The graph's message, its weights by name, the names of inputs and of outputs."""
    message, tensors = graph.proto(), graph.tensors
    weights = {n.name: np.frombuffer(tensors[n.content_hash], np.uint8)
               for n in message.nodes if n.op == "Parameter"}
    inputs = [n.name for n in message.nodes if n.op == "Input"]
    return message.SerializeToString(), weights, inputs, [o.name for o in message.outputs]


def load(threads: int) -> tuple[InProcess, list[str], list[str]]:
    """The encoder in composites, in this process."""
    message, weights, inputs, outputs = parameters_by_name(encoder.encoder_graph(composite=True))
    return InProcess(message, weights, inputs, outputs, threads), inputs, outputs


def session(threads: int) -> onnxruntime.InferenceSession:
    """ONNX Runtime at its best settings for the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its threads spin while it runs, as by default, but not on after it: the other side's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "encoder.onnx")
        encoder.encoder_onnx(path)
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main() -> int:
    """Prints one row as text or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours, inputs, outputs = load(args.threads)
    ort = session(args.threads)
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 30_522, (args.batch, args.length))
    feed = {ort.get_inputs()[0].name: ids}
    want = ort.run(None, feed)[0]
    result = {outputs[0]: np.empty(want.shape, np.float32)}
    bound = ({inputs[0]: ids}, {"b": args.batch, "s": args.length}, result)
    call = ours.bind(*bound)
    call()
    error = float(np.abs(result[outputs[0]] - want).max())
    if not error <= 1e-4:
        print(f"outputs differ by {error}", file=sys.stderr)
        return 1
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(args.rounds):
        for side, run in (("ours", call), ("theirs", lambda: ort.run(None, feed))):
            start = time.perf_counter()
            for _ in range(4):
                run()
            times[side].append((time.perf_counter() - start) / 4)
    ratios = sorted(a / b for a, b in zip(times["ours"], times["theirs"], strict=True))
    row = {
        "bench": "encoder_inprocess", "batch": args.batch, "length": args.length,
        "threads": args.threads, "ours_ms": 1e3 * float(np.median(times["ours"])),
        "onnxruntime_ms": 1e3 * float(np.median(times["theirs"])),
        "ratio": ratios[len(ratios) // 2], "ratio_p10": ratios[len(ratios) // 10],
        "ratio_p90": ratios[len(ratios) * 9 // 10], "largest_difference": error,
        "onnxruntime": onnxruntime.__version__,
    }
    if args.json:
        print(json.dumps(row))
    else:
        print(f"encoder b{args.batch} s{args.length}, threads {args.threads}: "
              f"ours {row['ours_ms']:.2f} ms, ONNX Runtime {row['onnxruntime_ms']:.2f} ms, ratio "
              f"{row['ratio']:.3f} [{row['ratio_p10']:.3f}, {row['ratio_p90']:.3f}], largest "
              f"difference {error:.1e}")
    if args.profile:
        profiles = [ours.profile(*bound) for _ in range(20)]
        total = 0.0
        for i, (label, _) in enumerate(profiles[0]):
            ns = float(np.median([p[i][1] for p in profiles]))
            total += ns
            print(f"{ns / 1e3:9.1f} us  {label}")
        print(f"{total / 1e3:9.1f} us  sum")
    ours.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
