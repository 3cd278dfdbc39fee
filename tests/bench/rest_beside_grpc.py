"""Measures a call over REST, and one whose input lies in shared memory, beside the same over gRPC.

    .venv/bin/python tests/bench/rest_beside_grpc.py [--rounds 8] [--calls 400] [--case small]
        [--perf_analyzer PROGRAM]

One server, one call out at a time, each side once in a turn, in random order, tensors as bytes.
Messages are made beforehand, so that a client only sends and receives: gRPC's by its C++ core,
REST's by `http.client`. A call through shared memory is one over gRPC whose input lies there. It is
measured twice: with the input in place, beside gRPC's message that is made; and from an array,
which the client copies there, or makes a message of. Prints a line of JSON for each case: times in
microseconds, the overhead (a call's time beyond that of the model's run, as its answer tells it),
and the ratios of each round. With Triton's load generator, another line has what it measures of the
case "in" over gRPC with and without shared memory: its C++ client waits less beside the call.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing.shared_memory
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import athanor  # noqa: E402
from athanor.protos import open_inference_grpc_pb2 as oip  # noqa: E402
from callers import Row, spread  # noqa: E402
from serving import Served, free_address, server  # noqa: E402

MODEL = "bench"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
WARM_UP = 200
NUMBERS = 150_528  # of f32 in a picture of 3 x 224 x 224: 588 KiB


class Answer(NamedTuple):
    """An answer: the values of its output, and how long the model ran."""

    values: np.ndarray
    microseconds: int


class Side(NamedTuple):
    """A way to call: what is timed, and what reads the answer that it returned."""

    call: Callable[[], object]
    read: Callable[[object], Answer]


def doubled(numbers: int) -> athanor.Graph:
    """y = x + x, of as many numbers."""
    graph = athanor.Graph(MODEL)
    x = graph.input("x", (numbers,), "f32")
    graph.output("y", x + x)
    return graph


def summed(numbers: int) -> athanor.Graph:
    """Sixteen sums of a row each."""
    graph = athanor.Graph(MODEL)
    x = graph.input("x", (16, numbers // 16), "f32")
    graph.output("y", x.sum(1))
    return graph


# Graph, numbers of its input.
CASES = {"small": (doubled, 16), "in": (summed, NUMBERS), "in_and_out": (doubled, NUMBERS)}


def grpc_request(x: np.ndarray) -> oip.ModelInferRequest:
    """The request with `x` as bytes in the message."""
    request = oip.ModelInferRequest(model_name=MODEL, raw_input_contents=[x.tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=x.shape)
    return request


def grpc_side(channel: grpc.Channel, message: Callable[[], bytes]) -> Side:
    """Calls over gRPC; making the message is part of each call."""
    send = channel.unary_unary(METHOD)

    def call() -> object:
        return send(message())

    def read(answer: object) -> Answer:
        reply = oip.ModelInferResponse.FromString(answer)
        return Answer(np.frombuffer(reply.raw_output_contents[0], np.float32),
                      reply.parameters["exec_us"].int64_param)
    return Side(call, read)


def rest_side(connection: http.client.HTTPConnection, x: np.ndarray) -> Side:
    """Calls over REST, on one connection."""
    head = json.dumps({
        "inputs": [{"name": "x", "shape": x.shape, "datatype": "FP32",
                    "parameters": {"binary_data_size": x.nbytes}}],
        "parameters": {"binary_data_output": True}}).encode()
    body = head + x.tobytes()
    headers = {"Inference-Header-Content-Length": str(len(head))}

    def call() -> object:
        connection.request("POST", f"/v2/models/{MODEL}/infer", body, headers)
        response = connection.getresponse()
        return response, response.read()

    def read(answer: object) -> Answer:
        response, data = answer
        if response.status != 200:
            raise RuntimeError(data.decode())
        length = int(response.headers["Inference-Header-Content-Length"])
        reply = json.loads(data[:length])
        return Answer(np.frombuffer(data[length:], np.float32), reply["parameters"]["exec_us"])
    return Side(call, read)


@contextlib.contextmanager
def shared_sides(channel: grpc.Channel, connection: http.client.HTTPConnection,
                 x: np.ndarray) -> Iterator[dict[str, Side]]:
    """Calls over gRPC whose input lies in a registered region of shared memory: in place, and
    copied there from an array."""
    def ask(what: str, body: Row) -> None:
        connection.request("POST", f"/v2/systemsharedmemory/region/bench/{what}", json.dumps(body))
        response = connection.getresponse()
        said = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"no shared memory: {response.status} {said}")

    region = multiprocessing.shared_memory.SharedMemory(create=True, size=x.nbytes)
    try:
        ask("register", {"key": "/" + region.name, "offset": 0, "byte_size": x.nbytes})
        request = oip.ModelInferRequest(model_name=MODEL)
        given = request.inputs.add(name="x", datatype="FP32", shape=x.shape)
        given.parameters["shared_memory_region"].string_param = "bench"
        given.parameters["shared_memory_byte_size"].int64_param = x.nbytes
        message = request.SerializeToString()

        def copied() -> bytes:
            np.ndarray(x.shape, x.dtype, region.buf)[:] = x
            return message

        copied()
        yield {"shared": grpc_side(channel, lambda: message),
               "shared_from_array": grpc_side(channel, copied)}
        ask("unregister", {})
    finally:
        region.close()
        region.unlink()


def turns(sides: dict[str, Side], calls: int) -> dict[str, dict[str, float]]:
    """Medians of as many calls of each side: its time, and its overhead."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    over: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    order = np.random.default_rng(calls)
    for _ in range(calls):
        for name in order.permutation(names):
            side = sides[name]
            start = time.perf_counter_ns()
            answer = side.call()
            spent = (time.perf_counter_ns() - start) / 1000
            times[name].append(spent)
            over[name].append(spent - side.read(answer).microseconds)
    return {name: {"p50_us": float(np.median(times[name])),
                   "overhead_us": float(np.median(over[name]))} for name in sides}


def measure(case: str, served: Served, http_address: str, rounds: int, calls: int) -> Row:
    """The row of a case."""
    graph_of, numbers = CASES[case]
    shape = (16, numbers // 16) if graph_of is summed else (numbers,)
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    expected = x.sum(1) if graph_of is summed else x + x  # exact: small integers
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(athanor.Client(served.address))
        model = client.upload(graph_of(numbers), name=MODEL, budget="0")
        model.wait("baseline")
        stack.callback(model.delete)
        channel = stack.enter_context(grpc.insecure_channel(served.address))
        host, _, port = http_address.rpartition(":")
        connection = stack.enter_context(
            contextlib.closing(http.client.HTTPConnection(host, int(port))))
        message = grpc_request(x).SerializeToString()
        sides = {"grpc": grpc_side(channel, lambda: message), "rest": rest_side(connection, x)}
        if case != "small":
            sides["grpc_from_array"] = grpc_side(
                channel, lambda: grpc_request(x).SerializeToString())
            sides |= stack.enter_context(shared_sides(channel, connection, x))
        for name, side in sides.items():
            np.testing.assert_array_equal(side.read(side.call()).values.reshape(expected.shape),
                                          expected, err_msg=name)
        turns(sides, WARM_UP)
        measured = [turns(sides, calls) for _ in range(rounds)]
    row: Row = {"bench": "rest_beside_grpc", "case": case, "bytes_in": x.nbytes,
                "bytes_out": expected.nbytes, "rounds": rounds, "calls": calls,
                "load": os.getloadavg()[0]}
    for name in sides:
        row[name] = {key: float(np.median([of[name][key] for of in measured]))
                     for key in ("p50_us", "overhead_us")}
    row["rest_over_grpc"] = spread([of["rest"]["p50_us"] / of["grpc"]["p50_us"]
                                    for of in measured])
    if "shared" in sides:
        for way in ("", "_from_array"):
            row[f"shared{way}_overhead_over_grpc"] = spread(
                [of[f"shared{way}"]["overhead_us"] / of[f"grpc{way}"]["overhead_us"]
                 for of in measured])
    return row


def analyze(program: str, address: str, rounds: int) -> Row:
    """The row of Triton's load generator: inputs made once, one call out at a time; its overhead is
    the median call's time beyond the mean run's. Outputs of 64 bytes lie in shared memory, too."""
    sides = {"grpc": [], "shared": ["--shared-memory=system", "--output-shared-memory-size=1024"]}
    measured: list[dict[str, tuple[int, int]]] = []
    with athanor.Client(address) as client, contextlib.ExitStack() as stack:
        model = client.upload(summed(NUMBERS), name=MODEL, budget="0")
        stack.callback(model.delete)
        model.wait("baseline")
        for turn in range(rounds):
            told = {}
            for name in sorted(sides, reverse=turn % 2 == 1):
                done = subprocess.run(
                    [program, "-i", "grpc", "-u", address, "-m", MODEL, "--percentile=50",
                     "--measurement-interval=1500", "--stability-percentage=999", *sides[name]],
                    capture_output=True, text=True, check=False)
                said = done.stdout
                if done.returncode != 0:
                    raise RuntimeError(said + done.stderr)
                p50 = int(re.search(r"p50 latency: (\d+) usec", said)[1])
                told[name] = p50, p50 - int(re.search(r"compute infer (\d+) usec", said)[1])
            measured.append(told)
    row: Row = {"bench": "rest_beside_grpc", "case": "perf_analyzer", "bytes_in": 4 * NUMBERS,
                "rounds": rounds, "load": os.getloadavg()[0]}
    for name in sides:
        p50, over = np.median([told[name] for told in measured], axis=0)
        row[name] = {"p50_us": float(p50), "overhead_us": float(over)}
    row["shared_overhead_over_grpc"] = spread(
        [told["shared"][1] / told["grpc"][1] for told in measured])
    return row


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=400, help="of each side in a round")
    parser.add_argument("--perf_analyzer", metavar="PROGRAM", help="Triton's load generator")
    parser.add_argument("flags", nargs="*", help="of the server, after --")
    args = parser.parse_args()
    http_address = free_address()
    with server(f"--http_listen={http_address}", "--shared_memory=*", *args.flags) as served:
        for case in args.case or CASES:
            print(json.dumps(measure(case, served, http_address, args.rounds, args.calls)
                             | {"flags": args.flags}), flush=True)
        if args.perf_analyzer:
            print(json.dumps(analyze(args.perf_analyzer, served.address, args.rounds)
                             | {"flags": args.flags}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
