"""Measures a server's memory, and the waits of other clients, during attacks over the network.

    .venv/bin/python tests/bench/attacks.py [--seconds 5]

One server under --memory_limit=512MiB with a small model that athanor-bench calls: first alone,
then beside each attack: compressed messages of 2 MB that inflate to 2 GiB, over several
connections; uploads that send a byte every two seconds, as many as there are places; silent
connections, as many as there are places. Prints a JSON line each: most resident bytes of the
server, times of the calls, and seconds until a new client was served (an upload, a connection).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import grpc  # noqa: E402
import mlp  # noqa: E402
import numpy as np  # noqa: E402
from athanor.protos import model_pb2  # noqa: E402
from serving import Served, server  # noqa: E402

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
MODEL = mlp.Config(name="small", widths=(64, 64, 64))
LIMIT = 512 << 20
UPLOADS, CONNECTIONS, BOMBERS = 16, 4096, 4
OWN = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each channel
PATHS = ("/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ServerLive",
         "/athanor.v1.ModelService/UploadModel", "/grpc.health.v1.Health/Check")

Row = dict[str, object]


def bomb() -> bytes:
    """A gzip stream of 2 GiB of zeros; about 2 MB."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    first = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    each = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    return first + each * 2047


class Http2:
    """A minimal HTTP/2 client that can send gRPC messages compressed beforehand."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._end = socket.create_connection((host, int(port)), timeout=60)
        self._end.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(4, 0, 0, b""))
        self._window = 65535  # the connection's, and each stream's at first
        self._first_window = 65535
        self._stream = -1
        self._stream_window = 0
        self._ended = False

    def close(self) -> None:
        """Closes the connection."""
        self._end.close()

    def send(self, path: str, compressed: bytes) -> None:
        """Sends one message to `path`; returns when the call has ended."""
        self._stream += 2
        self._stream_window, self._ended = self._first_window, False
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a",
                  "te": "trailers", "content-type": "application/grpc", "grpc-encoding": "gzip"}
        block = b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode()
                         for k, v in fields.items())
        self._end.sendall(self._frame(1, 4, self._stream, block))
        data = b"\1" + struct.pack(">I", len(compressed)) + compressed
        while data and not self._ended:
            room = min(16384, self._window, self._stream_window, len(data))
            if room <= 0:
                self._read()
                continue
            last = 1 if room == len(data) else 0
            self._end.sendall(self._frame(0, last, self._stream, data[:room]))
            self._window -= room
            self._stream_window -= room
            data = data[room:]
        while not self._ended:
            self._read()

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
            ">I", stream) + payload

    def _take(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self._end.recv(size - len(got))
            if not more:
                raise ConnectionError("closed")
            got += more
        return got

    def _read(self) -> None:
        head = self._take(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big")
        payload = self._take(size)
        if kind == 4 and not flags & 1:  # SETTINGS
            for at in range(0, size, 6):
                name, value = struct.unpack(">HI", payload[at:at + 6])
                if name == 4:
                    self._stream_window += value - self._first_window
                    self._first_window = value
            self._end.sendall(self._frame(4, 1, 0, b""))
        elif kind == 6 and not flags & 1:  # PING
            self._end.sendall(self._frame(6, 1, 0, payload))
        elif kind == 7:  # GOAWAY
            raise ConnectionError("sent away")
        elif kind == 8:  # WINDOW_UPDATE
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self._window += more
            elif stream == self._stream:
                self._stream_window += more
        elif stream == self._stream and (kind == 3 or (kind in (0, 1) and flags & 1)):
            self._ended = True


@contextlib.contextmanager
def running(work: Callable[[threading.Event], None], threads: int) -> Iterator[None]:
    """`work` on so many threads, until its event is set."""
    stop = threading.Event()
    workers = [threading.Thread(target=work, args=(stop,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def bombs(address: str, sent: list[int]) -> Callable[[threading.Event], None]:
    """Sends one after the other."""
    message = bomb()

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), contextlib.closing(Http2(address)) as connection:
                while not stop.is_set():
                    connection.send(PATHS[len(sent) % len(PATHS)], message)
                    sent.append(1)

    return work


def slow_uploads(address: str) -> Callable[[threading.Event], None]:
    """An upload that sends a byte every two seconds; the next when it was ended."""

    def work(stop: threading.Event) -> None:
        def requests() -> Iterator[model_pb2.UploadModelRequest]:
            header = model_pb2.UploadHeader(name="slow", format="onnx")
            header.files.add(bytes=1 << 20)
            yield model_pb2.UploadModelRequest(header=header)
            for offset in range(1 << 20):
                if stop.wait(2):
                    return
                yield model_pb2.UploadModelRequest(
                    file=model_pb2.FileChunk(offset=offset, data=b"x"))

        while not stop.is_set():
            with grpc.insecure_channel(address, options=OWN) as channel:
                upload = channel.stream_unary(
                    "/athanor.v1.ModelService/UploadModel",
                    request_serializer=model_pb2.UploadModelRequest.SerializeToString,
                    response_deserializer=model_pb2.UploadModelResponse.FromString)
                with contextlib.suppress(grpc.RpcError):
                    upload(requests())
            stop.wait(0.2)

    return work


@contextlib.contextmanager
def silent_connections(address: str) -> Iterator[None]:
    """Opens as many connections as the server takes, and as many more, which it closes."""
    host, port = address.rsplit(":", 1)
    ends = []
    for _ in range(CONNECTIONS):
        with contextlib.suppress(OSError):
            ends.append(socket.create_connection((host, int(port)), timeout=5))
    try:
        yield
    finally:
        for end in ends:
            end.close()


def seconds_until(done: Callable[[], object], limit: float = 150) -> float | None:
    """Until `done` raises nothing; None: not within `limit`."""
    begin = time.monotonic()
    while time.monotonic() < begin + limit:
        with contextlib.suppress(athanor.Error):
            done()
            return round(time.monotonic() - begin, 2)
        time.sleep(0.1)
    return None


def calls(served: Served, seconds: float) -> Row:
    """Times of a client that calls the model, one call at a time."""
    done = subprocess.run(
        [str(BENCH), "run", f"--address={served.address}", f"--model={MODEL.name}",
         f"--shape={MODEL.input}=1x{MODEL.widths[0]}", "--concurrency=1",
         f"--duration={seconds}s", "--warmup=50", "--out=-"],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr[-300:]}
    run = json.loads(done.stdout)
    return {key: run.get(key) for key in ("p50_e2el_ms", "p99_e2el_ms", "completed", "errors")}


def memory(pid: int, name: str) -> int:
    """Resident bytes of the process: now (VmRSS) or at most (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {pid} has no {name}")


def serve_new_client(served: Served) -> None:
    """Makes one call over a connection of its own."""
    with athanor.Client(served.address) as client:
        client.model(MODEL.name).infer({MODEL.input: np.zeros((1, MODEL.widths[0]), np.float32)})


def upload_new_model(served: Served) -> None:
    """A model of a client that sends as fast as it can."""
    with athanor.Client(served.address) as client:
        client.upload(mlp.mlp_graph(config=MODEL), name="fair")


def rows(seconds: float) -> Iterator[Row]:
    """A row for no attack, and for each."""
    with server(f"--memory_limit={LIMIT}") as served:
        with athanor.Client(served.address) as client:
            client.upload(mlp.mlp_graph(config=MODEL), name=MODEL.name).wait()

        def row(name: str, served_after: Callable[[], object] | None = None) -> Row:
            Path(f"/proc/{served.pid}/clear_refs").write_text("5", encoding="utf-8")
            after = None if served_after is None else seconds_until(served_after)
            return {"bench": "attacks", "attack": name, "new_client_s": after,
                    "calls": calls(served, seconds), "peak": memory(served.pid, "VmHWM"),
                    "resident": memory(served.pid, "VmRSS"), "limit": LIMIT,
                    "load": os.getloadavg()[0]}

        yield row("none", lambda: serve_new_client(served))
        sent: list[int] = []
        with running(bombs(served.address, sent), BOMBERS):
            found = row("compressed", lambda: serve_new_client(served))
        yield found | {"bombs": len(sent)}
        yield row("none")
        with running(slow_uploads(served.address), UPLOADS):
            time.sleep(2)
            yield row("uploads", lambda: upload_new_model(served))
        with silent_connections(served.address):
            yield row("connections", lambda: serve_new_client(served))
        yield row("none")


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5, help="of calls, for each row")
    args = parser.parse_args()
    for row in rows(args.seconds):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
