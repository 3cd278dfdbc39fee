"""Clients that vanish, stall or never read: others are served, and what the lost ones held goes."""

from __future__ import annotations

import socket
import threading

import athanor
import mlp
import numpy as np
from harness import Run, check, eventually, nothing_held, numbered, open_files, resident, upload
from proxy import Proxy
from server_process import Server

KEEPALIVE = "2s"
LARGE = mlp.Config(name="large", widths=(64, 256, 2048), batch=64)  # 512 KiB a reply
WEIGHTS = 300_000  # bytes that an upload takes at least


def _cut_upload(run: Run, server: Server, number: int) -> None:
    """An upload whose connection is reset after some bytes of it."""
    graph = athanor.Graph("cut", dims={"n": (1, 8)})
    w = graph.parameter("w", np.full(WEIGHTS // 4, number, np.float32))
    graph.output("y", graph.input("x", "n", "f32") * w[:1])
    with Proxy(server.address) as proxy, athanor.Client(proxy.address) as client:
        proxy.cut_after = run.random.randrange(1000, WEIGHTS)
        try:
            client.upload(graph, name="cut", timeout=60)
        except athanor.Error:
            return
    raise AssertionError("an upload over a connection that was cut says it is stored")


def _half_open(server: Server) -> socket.socket:
    """A connection that says as much as an HTTP/2 client says first, and then nothing."""
    host, port = server.address.rsplit(":", 1)
    end = socket.create_connection((host, int(port)))
    end.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
    return end


def _deaf(proxy: Proxy) -> threading.Thread:
    """Asks for replies that nobody reads: the network holds once the first has come."""
    def ask() -> None:
        x = np.ones((64, 64), np.float32)
        with athanor.Client(proxy.address) as client:
            model = client.model("large")
            model.infer({"x": x}, timeout=60)
            calls = [threading.Thread(target=_ignore, args=(model, x)) for _ in range(16)]
            for call in calls:
                call.start()
            proxy.hold()
            for call in calls:
                call.join()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def _ignore(model: athanor.Model, x: np.ndarray) -> None:
    try:
        model.infer({"x": x}, timeout=1)
    except athanor.Error:
        pass


def scenario(run: Run) -> None:
    server = run.server("state", f"--keepalive={KEEPALIVE}", "--upload_idle=2s").start()
    cuts, silent, deaf = run.count(20, 2000), run.count(20, 500), run.count(2, 20)
    config = numbered(1)
    with server.client() as client:
        check(upload(client, config), config)
        client.upload(mlp.mlp_graph(config=LARGE), name="large").wait(timeout=120)
        files, begin = open_files(server.pid), resident(server.pid)
        for number in range(cuts):
            _cut_upload(run, server, number)
        check(client.model(config.name), config)
        held = [_half_open(server) for _ in range(silent)]
        eventually(lambda: open_files(server.pid) >= files + silent, "they are connected")
        check(client.model(config.name), config)
        for _ in range(deaf):
            with Proxy(server.address) as proxy:
                asking = _deaf(proxy)
                check(client.model(config.name), config)
                asking.join()
                check(client.model(config.name), config)
        # They were never closed from their side.
        eventually(lambda: open_files(server.pid) <= files + 2, "lost connections are closed")
        eventually(lambda: nothing_held(server), "what lost clients held is given back")
        assert sorted(info.name for info in client.models()) == ["large", config.name]
        for end in held:
            end.close()
    assert not list((server.state / "tmp").iterdir())
    run.figure("uploads reset in the middle", cuts)
    run.figure("half-open connections", silent)
    run.figure("clients that read nothing", deaf)
    run.figure("resident before and after",
               f"{begin / 2**20:.1f}, {resident(server.pid) / 2**20:.1f}", "MiB")
    assert server.stop() == 0
