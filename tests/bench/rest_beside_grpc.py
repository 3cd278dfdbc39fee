"""Measures a call over REST, and one whose input lies in shared memory, beside the same over gRPC.

    .venv/bin/python tests/bench/rest_beside_grpc.py [--rounds 8] [--calls 400] [--case small]

One server, one call out at a time, the sides in turn call by call, tensors as bytes. Messages are
made beforehand, so that a client only sends and receives: gRPC's by its C++ core, REST's by
`http.client`. A call through shared memory is one over gRPC whose client first copies its input
there. Prints a line of JSON for each case: times in microseconds, the overhead (a call's time
beyond that of the model's run, as its answer tells it), and the ratios of each round.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing.shared_memory
import os
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


def grpc_side(channel: grpc.Channel, request: oip.ModelInferRequest,
              before: Callable[[], None] | None = None) -> Side:
    """Calls over gRPC; `before` is part of each call."""
    send = channel.unary_unary(METHOD)
    data = request.SerializeToString()

    def call() -> object:
        if before is not None:
            before()
        return send(data)

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
def shared_side(channel: grpc.Channel, connection: http.client.HTTPConnection,
                x: np.ndarray) -> Iterator[Side]:
    """Calls over gRPC whose input is copied into a registered region of shared memory."""
    def ask(what: str, body: Row) -> None:
        connection.request("POST", f"/v2/systemsharedmemory/region/bench/{what}", json.dumps(body))
        response = connection.getresponse()
        said = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"no shared memory: {response.status} {said}")

    region = multiprocessing.shared_memory.SharedMemory(create=True, size=x.nbytes)
    try:
        ask("register", {"key": "/" + region.name, "offset": 0, "byte_size": x.nbytes})
        data = x.tobytes()
        request = oip.ModelInferRequest(model_name=MODEL)
        given = request.inputs.add(name="x", datatype="FP32", shape=x.shape)
        given.parameters["shared_memory_region"].string_param = "bench"
        given.parameters["shared_memory_byte_size"].int64_param = x.nbytes

        def copy() -> None:
            region.buf[:x.nbytes] = data

        yield grpc_side(channel, request, copy)
        ask("unregister", {})
    finally:
        region.close()
        region.unlink()


def turns(sides: dict[str, Side], calls: int) -> dict[str, dict[str, float]]:
    """Medians of as many calls of each side: its time, and its overhead."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    over: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(calls):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
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
        sides = {"grpc": grpc_side(channel, grpc_request(x)), "rest": rest_side(connection, x)}
        if case != "small":
            sides["shared"] = stack.enter_context(shared_side(channel, connection, x))
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
        row["shared_overhead_over_grpc"] = spread(
            [of["shared"]["overhead_us"] / of["grpc"]["overhead_us"] for of in measured])
    return row


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calls", type=int, default=400, help="of each side in a round")
    parser.add_argument("flags", nargs="*", help="of the server, after --")
    args = parser.parse_args()
    http_address = free_address()
    with server(f"--http_listen={http_address}", "--shared_memory=/psm_*", *args.flags) as served:
        for case in args.case or CASES:
            print(json.dumps(measure(case, served, http_address, args.rounds, args.calls)
                             | {"flags": args.flags}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
