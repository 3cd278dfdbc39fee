"""A server on a GPU that is emulated (tests/emulator): what works on the CPU works there."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

import athanor
import encoder
import grpc
import mlp
import numpy as np
import onnx
import onnx_models
import pytest
from conftest import ATHANORD, CLI, ROOT, Server, built
from http_pages import metric, status_of
from onnx import helper
from test_batching import at_once, ids_of, lookup_graph

EMULATOR = ROOT / "bazel-bin/tests/emulator"
CONFIG = mlp.Config(widths=(24, 40, 16), batch=16)


class GpuServer(Server):
    """A server on the emulated GPU; `nvrtc` is its compiler's folder."""

    def __init__(self, state: pathlib.Path, *flags: str, nvrtc: pathlib.Path = EMULATOR,
                 device: str = "cuda:0", **environment: str) -> None:
        built(EMULATOR / "libcuda.so.1")
        built(EMULATOR / "libnvrtc.so.13")
        super().__init__(state, f"--device={device}", f"--nvrtc={nvrtc}", *flags,
                         environment={"LD_LIBRARY_PATH": str(EMULATOR), **environment})


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Client]:
    """A client of a server on the emulated GPU."""
    running = GpuServer(tmp_path_factory.mktemp("gpu") / "state").start()
    with running.client() as client:
        yield client
    assert running.stop() == 0, running.log.read_text()


def check(model: athanor.Model, config: mlp.Config = CONFIG) -> str:
    """Answers against numpy at the ends and inside of the dim's range; the plan that gave them."""
    for batch in (1, 3, config.batch):
        x = np.random.default_rng(batch).standard_normal((batch, config.widths[0]), np.float32)
        reply = model.infer({"x": x}, timeout=120)
        np.testing.assert_allclose(reply["y"], mlp.mlp_numpy(x, config), rtol=1e-4, atol=1e-4)
    return reply.plan_id


def health(server: GpuServer, service: str) -> str:
    """Asks grpc.health.v1 about a model, or about the server."""
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        request = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
        return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}[call(request, timeout=60)]


def test_answers_are_right(gpu: athanor.Client) -> None:
    model = gpu.upload(mlp.mlp_graph(config=CONFIG), name="mlp").wait(timeout=120)
    check(model)


def test_the_device_is_shown(tmp_path: pathlib.Path) -> None:
    built(EMULATOR / "libnvidia-ml.so.1")
    server = GpuServer(tmp_path / "state", "--http_listen=127.0.0.1:0").start()
    try:
        with server.client() as client:
            (device,) = client.devices()
            assert (device.name, device.chip, device.lost) == ("cuda:0", "emulator", "")
            assert (device.compute_capability, device.driver) == ("8.0", "13.0")
            assert (device.core_mhz, device.memory_mhz) == (900, 1000)
            assert device.memory_bytes == 4 << 30
            assert device.kernels_compiled == 0
            before = device.memory_used
            check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
            (device,) = client.devices()
            assert before < device.memory_used < device.memory_limit < device.memory_bytes
            # The host has its side of a call's block, pinned, and counts that as its own.
            assert status_of(server)["memory"]["kinds"]["arenas"] > 0
            assert device.compiler.startswith("nvrtc ")
            assert device.kernels_compiled > 0
            assert metric(server, "athanor_device_memory_bytes") == device.memory_used
            assert metric(server, "athanor_device_memory_limit_bytes") == device.memory_limit
            assert metric(server, "athanor_device_clock_hertz") == 1.9e9  # core and memory
            assert metric(server, "athanor_device_lost") == 0
            assert metric(server, "athanor_kernels_compiled_total") == device.kernels_compiled
            text = subprocess.run([built(CLI), "--address", server.address, "status"],
                                  capture_output=True, text=True, timeout=60, check=True).stdout
            assert "device cuda:0: emulator, compute capability 8.0, driver of CUDA 13.0" in text
            assert "900 MHz, memory 1000 MHz" in text
        assert server.stop() == 0
    finally:
        server.kill()


def explained(server: GpuServer, model: str = "m") -> dict:
    """Asks `athanor explain` about a model's plan."""
    done = subprocess.run([built(CLI), "--address", server.address, "--json", "explain", model],
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)["details"]


def test_explain_is_by_the_device(tmp_path: pathlib.Path) -> None:
    server = GpuServer(tmp_path / "state").start()
    try:
        with server.client() as client:
            client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120)
        details = explained(server)
        assert details["device"] == "cuda:0"
        # 256 bits at both edges of 1 GHz; 64 lanes of 4 multiprocessors.
        assert details["limits"]["read_bytes_per_second"] == 64e9
        assert details["limits"]["f32_flops_per_second"] == 2 * 64 * 4 * 1e9
        (cost,) = details["costs"]
        for step in cost["steps"]:
            assert step["bytes"] > 0 and step["flops"] > 0
            assert step["roofline_seconds"] == pytest.approx(
                max(step["bytes"] / 128e9, step["flops"] / 512e9))  # its bytes fit into the L2
        for kernel in details["kernels"]:
            assert kernel["resources"] == {"registers": 32, "shared_bytes": 0, "stack_bytes": 0,
                                           "spill_store_bytes": 0, "spill_load_bytes": 0,
                                           "barriers": 0}
        text = subprocess.run([built(CLI), "--address", server.address, "explain", "m"],
                              capture_output=True, text=True, timeout=60, check=True).stdout
        assert "Device cuda:0: 64.0 GB/s of memory, 128 GB/s of its cache, 512 Gflop/s" in text
        assert re.search(r"registers +shared +stack +spilled +loaded +kernel\n +32 ", text)
        assert server.stop() == 0
    finally:
        server.kill()


def test_attention_and_norms(gpu: athanor.Client) -> None:
    config = encoder.Config(layers=1, width=16, heads=2, hidden=32, vocabulary=50, positions=8,
                            batch=2)
    model = gpu.upload(encoder.encoder_graph(config=config), name="encoder").wait(timeout=240)
    for batch, length in ((1, 1), (2, 7), (2, 8)):
        ids = np.random.default_rng(length).integers(0, 50, (batch, length))
        reply = model.infer({"ids": ids}, timeout=120)
        (got,) = reply.values()
        np.testing.assert_allclose(got, encoder.encoder_numpy(ids, config), rtol=1e-3, atol=1e-4)


def test_an_index_out_of_range_is_told(gpu: athanor.Client) -> None:
    g = athanor.Graph("pick", dims={"n": (1, 40)})
    table = g.parameter("table", np.arange(30, dtype=np.float32).reshape(10, 3))
    # Computed, so that only the kernel can tell.
    g.output("rows", athanor.gather(table, g.input("below", ("n",), "i64") + 1))
    model = gpu.upload(g, name="pick").wait(timeout=120)
    ids = np.arange(40) % 10
    np.testing.assert_array_equal(model.infer({"below": ids - 1})["rows"],
                                  np.arange(30, dtype=np.float32).reshape(10, 3)[ids])
    ids[7], ids[31] = 10, -11
    with pytest.raises(athanor.InvalidArgument, match="10"):
        model.infer({"below": ids - 1})
    assert model.infer({"below": ids[:7] - 1})["rows"].shape == (7, 3)


def test_taps(gpu: athanor.Client) -> None:
    g = athanor.Graph("tapped", dims={"n": (0, 9)})
    x = g.input("x", ("n", 4), "f32")
    g.output("y", (x * x).named("square") + 1.0)
    model = gpu.upload(g, name="tapped").wait(timeout=120)
    for rows in (0, 1, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        reply = model.infer({"x": x}, taps=["square"], timeout=120)
        np.testing.assert_allclose(reply["square"], x * x, rtol=1e-6)
        np.testing.assert_allclose(reply["y"], x * x + 1, rtol=1e-6)


def test_eight_clients(gpu: athanor.Client) -> None:
    model = gpu.upload(mlp.mlp_graph(config=CONFIG), name="many").wait(timeout=120)
    failed = []

    def ask(number: int) -> None:
        random = np.random.default_rng(number)
        try:
            for _ in range(20):
                x = random.standard_normal((int(random.integers(1, 17)), 24), np.float32)
                np.testing.assert_allclose(model.infer({"x": x}, timeout=120)["y"],
                                           mlp.mlp_numpy(x, CONFIG), rtol=1e-4, atol=1e-4)
        except Exception as error:  # noqa: BLE001 what a thread raises, this test raises
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def test_calls_are_shared(tmp_path: pathlib.Path) -> None:
    """Eight threads whose calls the batcher joins; one with a wrong id is split out."""
    server = GpuServer(tmp_path / "state", "--batch_delay=60s").start()
    try:
        with server.client() as client:
            joined = client.upload(lookup_graph(), name="lookup", batch_dim="b").wait(timeout=120)
            alone = client.upload(lookup_graph(), name="alone").wait(timeout=120)
            assert joined.info().batching.on
            for wrong in (None, 5):
                inputs = [ids_of(i, rows=2) for i in range(8)]
                if wrong is not None:
                    inputs[wrong]["ids"][1, 2] = 1000
                answers = at_once(8, lambda i, given=inputs: joined.infer(given[i], timeout=120))
                for i, answer in enumerate(answers):
                    if i == wrong:
                        assert isinstance(answer, athanor.InvalidArgument) and "1003" in str(answer)
                        continue
                    np.testing.assert_array_equal(answer["y"], alone.infer(inputs[i])["y"])
                    assert wrong is not None or answer.batch_rows == 16
        assert server.stop() == 0
    finally:
        server.kill()


def test_calls_of_all_sizes_are_shared(tmp_path: pathlib.Path) -> None:
    server = GpuServer(tmp_path / "state", "--batch_delay=2ms").start()
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="m",
                                  batch_dim="b").wait(timeout=120)
            assert model.info().batching.on

            def ask(number: int) -> int:
                random = np.random.default_rng(number)
                shared = 0
                for _ in range(10):
                    x = random.standard_normal((int(random.integers(1, 6)), 24), np.float32)
                    reply = model.infer({"x": x}, timeout=120)
                    np.testing.assert_allclose(reply["y"], mlp.mlp_numpy(x, CONFIG), rtol=1e-4,
                                               atol=1e-4)
                    shared += reply.batch_rows > len(x)
                return shared

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                assert sum(threads.map(ask, range(8))) > 0, "no call was shared"
        assert server.stop() == 0
    finally:
        server.kill()


def scan_model() -> onnx.ModelProto:
    """s' = s / 2 + x, over the steps of xs; y stacks tanh(s')."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "half"], ["m"]), helper.make_node("Add", ["m", "x"], ["t"]),
         helper.make_node("Tanh", ["t"], ["o"])], "body",
        [onnx_models.value("s", ["batch", 3]), onnx_models.value("x", ["batch", 3])],
        [onnx_models.value("t", ["batch", 3]), onnx_models.value("o", ["batch", 3])])
    node = helper.make_node("Scan", ["s0", "xs"], ["last", "y"], num_scan_inputs=1, body=body)
    return onnx_models.model(
        [node],
        [onnx_models.value("s0", ["batch", 3]), onnx_models.value("xs", ["steps", "batch", 3])],
        [onnx_models.value("last", ["batch", 3]), onnx_models.value("y", ["steps", "batch", 3])],
        {"half": np.float32(0.5)})


def test_a_scan_of_any_length(gpu: athanor.Client, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "scan.onnx"
    onnx.save(scan_model(), path)
    model = gpu.upload(path, "scan", dims={"steps": (0, 64), "batch": (1, 4)}).wait(timeout=120)
    for steps in (0, 1, 2, 7, 64):
        random = np.random.default_rng(steps)
        batch = 1 + steps % 4
        state = random.standard_normal((batch, 3), np.float32)
        xs = random.standard_normal((steps, batch, 3), np.float32)
        reply = model.infer({"s0": state, "xs": xs}, timeout=120)
        states = []
        for x in xs:
            state = state / 2 + x
            states.append(np.tanh(state))
        np.testing.assert_allclose(reply["last"], state, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reply["y"], np.reshape(states, (steps, batch, 3)), rtol=1e-5,
                                   atol=1e-6)


def test_a_search_ends_and_answers_stay_right(tmp_path: pathlib.Path) -> None:
    server = GpuServer(tmp_path / "state", "--search_budget=exhaust:6s").start()
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="m")
            check(model)
            model.wait("optimised", timeout=180)
            check(model)
            search = client.jobs("m")[0].search
            assert search.candidates > 0
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.parametrize("compiler", ["there", "gone"])
def test_a_restart_compiles_nothing(tmp_path: pathlib.Path, compiler: str) -> None:
    nvrtc = tmp_path / "nvrtc"
    nvrtc.mkdir()
    shutil.copy(EMULATOR / "libnvrtc.so.13", nvrtc)
    server = GpuServer(tmp_path / "state", "--http_listen=127.0.0.1:0", nvrtc=nvrtc).start()
    try:
        with server.client() as client:
            before = check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
            while client.cache_stat().writes_waiting > 0:
                pass
        server.kill()
        if compiler == "gone":
            shutil.rmtree(nvrtc)
        server.start()
        with server.client() as client:
            assert check(client.model("m")) == before
            assert metric(server, "athanor_kernels_compiled_total") == 0
            # What the compiler's log had is kept with the kernels.
            for kernel in explained(server)["kernels"]:
                assert kernel["resources"]["registers"] == 32
            if compiler == "gone":
                other = mlp.Config(widths=(8, 8, 8), batch=4)
                with pytest.raises(athanor.FailedPrecondition, match="NVRTC"):
                    client.upload(mlp.mlp_graph(config=other), name="new").wait(timeout=120)
                assert check(client.model("m")) == before
        assert server.stop() == 0
    finally:
        server.kill()


def test_the_cpus_plans_are_not_a_gpus(tmp_path: pathlib.Path) -> None:
    state = tmp_path / "state"
    cpu = Server(state).start()
    try:
        with cpu.client() as client:
            on_cpu = check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
        assert cpu.stop() == 0
        gpu = GpuServer(state).start()
        with gpu.client() as client:
            assert check(client.model("m").wait(timeout=120)) != on_cpu
        assert gpu.stop() == 0
    finally:
        cpu.kill()


def test_two_devices_in_one_server(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken"
    state = tmp_path / "state"
    server = GpuServer(state, "--http_listen=127.0.0.1:0", device="cuda:0,cpu",
                       ATHANOR_EMULATOR_BREAKS=str(broken)).start()
    graph = mlp.mlp_graph(config=CONFIG)
    path = tmp_path / "m.athanor"
    graph.save(path)
    try:
        with server.client() as client:
            assert [device.name for device in client.devices()] == ["cuda:0", "cpu"]
            first = check(client.upload(graph, name="any").wait(timeout=120))
            gpu = check(client.upload(graph, name="gpu", device="cuda:0").wait(timeout=120))
            # Two versions of one model, on two devices.
            client.upload(graph, name="both", device="cuda:0").wait(timeout=120)
            subprocess.run([built(CLI), "--address", server.address, "upload", path, "--name",
                            "both", "--device", "cpu"], timeout=120, check=True)
            cpu = check(client.model("both").wait(timeout=120))
            assert check(client.model("both", "1")) == gpu == first != cpu
            assert client.model("any").info().device == "cuda:0"
            assert client.model("both", "1").info().device == "cuda:0"
            assert client.model("both", "2").info().device == "cpu"
            compilers = [device.compiler.split()[0] for device in client.devices()]
            assert compilers == ["nvrtc", "clang"]
            # The second and third time the cache had them.
            assert [device.kernels_compiled for device in client.devices()] == [4, 4]
            with pytest.raises(athanor.InvalidArgument,
                               match='has no "cuda:1"; it has cuda:0, cpu'):
                client.upload(graph, name="none", device="cuda:1")
            assert explained(server, "both/1")["device"] == "cuda:0"
            assert explained(server, "both/2")["device"] == "cpu"
            while client.cache_stat().writes_waiting > 0:
                pass
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            assert check(client.model("both", "1")) == check(client.model("gpu")) == gpu
            assert check(client.model("both", "2")) == cpu
            assert metric(server, "athanor_kernels_compiled_total") == 0
            broken.touch()
            x = np.zeros((1, 24), np.float32)
            with pytest.raises(athanor.Unavailable, match="cuda:0 is lost"):
                client.model("gpu").infer({"x": x}, timeout=120)
            assert check(client.model("both")) == cpu
            assert health(server, "gpu") == "NOT_SERVING"
            assert health(server, "both") == health(server, "") == "SERVING"
            assert client.ready()
        assert server.stop() == 0
        broken.unlink()
        without = GpuServer(state, device="cpu").start()
        with without.client() as client:
            assert check(client.model("any").wait(timeout=120)) == cpu
            assert check(client.model("both")) == cpu
            with pytest.raises(athanor.FailedPrecondition,
                               match='no device "cuda:0"; it has cpu'):
                client.model("gpu").infer({"x": x}, timeout=120)
        assert without.stop() == 0
    finally:
        server.kill()


def test_a_search_for_each_device(tmp_path: pathlib.Path) -> None:
    """Searches of two devices take turns on one worker."""
    server = GpuServer(tmp_path / "state", "--search_budget=5s", "--compile_workers=1",
                       device="cpu,cuda:0").start()
    try:
        with server.client() as client:
            models = [client.upload(mlp.mlp_graph(config=CONFIG), name=device.replace(":", ""),
                                    device=device) for device in ("cpu", "cuda:0")]
            for model in models:
                model.wait("optimised", timeout=240)
                check(model)
                (job,) = client.jobs(model.info().name)
                assert job.search.candidates > 0, job
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_gpu_that_breaks_is_told(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "broken"
    server = GpuServer(tmp_path / "state", "--http_listen=127.0.0.1:0",
                       ATHANOR_EMULATOR_BREAKS=str(broken)).start()
    try:
        with server.client() as client:
            before = check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
            while client.cache_stat().writes_waiting > 0:
                pass
            assert health(server, "") == health(server, "m") == "SERVING"
            broken.touch()
            x = np.zeros((1, 24), np.float32)
            told = "cuda:0 is lost until this process restarts: .*ECC"
            for _ in range(3):
                with pytest.raises(athanor.Unavailable, match=told):
                    client.model("m").infer({"x": x}, timeout=120)
            broken.unlink()
            # A context that is lost stays so.
            with pytest.raises(athanor.Unavailable, match=told):
                client.model("m").infer({"x": x}, timeout=120)
            assert client.model("m").info().state == "READY"
            assert re.search(told, client.devices()[0].lost)
            assert not client.ready()
            assert metric(server, "athanor_device_lost") == 1
            assert server.log.read_text().count("device lost") == 1
            assert health(server, "") == health(server, "m") == "NOT_SERVING"
            other = mlp.Config(widths=(8, 8, 8), batch=4)
            with pytest.raises(athanor.Error, match=told):
                client.upload(mlp.mlp_graph(config=other), name="new").wait(timeout=120)
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            assert check(client.model("m")) == before
            assert metric(server, "athanor_kernels_compiled_total") == 0
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_gpu_that_breaks_while_nothing_runs(tmp_path: pathlib.Path) -> None:
    """Whoever looks at the status notices, and watchers of its health are told."""
    broken = tmp_path / "broken"
    server = GpuServer(tmp_path / "state", "--http_listen=127.0.0.1:0",
                       ATHANOR_EMULATOR_BREAKS=str(broken)).start()
    try:
        with server.client() as client:
            check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
            broken.touch()
            assert health(server, "m") == "SERVING"
            assert metric(server, "athanor_device_lost") == 1
            assert health(server, "m") == health(server, "") == "NOT_SERVING"
            assert "ECC" in client.devices()[0].lost
        assert server.stop() == 0
        assert server.log.read_text().count("device lost") == 1
    finally:
        server.kill()


def test_a_gpu_that_breaks_in_mid_call(tmp_path: pathlib.Path) -> None:
    """Whoever is answered is answered right; everybody else hears why not."""
    broken = tmp_path / "broken"
    server = GpuServer(tmp_path / "state", ATHANOR_EMULATOR_BREAKS=str(broken)).start()
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120)
            under_way = threading.Barrier(9)

            def ask(number: int) -> str:
                x = np.random.default_rng(number).standard_normal((4, 24), np.float32)
                for call in range(10_000):
                    if call == 3:
                        under_way.wait()
                    try:
                        reply = model.infer({"x": x}, timeout=120)
                    except athanor.Unavailable as error:
                        return str(error)
                    np.testing.assert_allclose(reply["y"], mlp.mlp_numpy(x, CONFIG), rtol=1e-4,
                                               atol=1e-4)
                return "the GPU did not break"

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                errors = [threads.submit(ask, number) for number in range(8)]
                under_way.wait()
                broken.touch()
                for error in errors:
                    assert "cuda:0 is lost until this process restarts" in error.result()
            assert health(server, "m") == "NOT_SERVING"
        assert server.stop() == 0
        assert server.log.read_text().count("device lost") == 1
    finally:
        server.kill()


def test_two_servers_share_a_gpu_and_a_cache(tmp_path: pathlib.Path) -> None:
    servers = [GpuServer(tmp_path / name, f"--cache={tmp_path}/cache.db",
                         "--http_listen=127.0.0.1:0").start() for name in ("one", "two")]
    try:
        plans = []
        for server in servers:
            with server.client() as client:
                plans.append(check(client.upload(mlp.mlp_graph(config=CONFIG),
                                                 name="m").wait(timeout=120)))
                while client.cache_stat().writes_waiting > 0:
                    pass
        assert plans[0] == plans[1]
        assert metric(servers[0], "athanor_kernels_compiled_total") > 0
        assert metric(servers[1], "athanor_kernels_compiled_total") == 0
        for server in servers:
            assert server.stop() == 0
    finally:
        for server in servers:
            server.kill()


def test_inputs_at_any_address(gpu: athanor.Client) -> None:
    """An input behind one of odd length lies where no f32 may lie in the GPU's memory."""
    g = athanor.Graph("odd", dims={"n": (0, 9)})
    odd, even = g.input("odd", ("n",), "i8"), g.input("even", ("n", 3), "f32")
    g.output("y", even * odd.cast("f32").unsqueeze(1))
    model = gpu.upload(g, name="odd").wait(timeout=120)
    for n in (0, 1, 2, 3, 7, 9):
        random = np.random.default_rng(n)
        few = random.integers(-9, 9, n).astype(np.int8)
        many = random.standard_normal((n, 3), np.float32)
        reply = model.infer({"odd": few, "even": many}, timeout=120)
        np.testing.assert_array_equal(reply["y"], many * few[:, None])


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that a tuner of another user reads; pytest's are their owner's."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_hostile_candidates_cost_no_request(tmp_path: pathlib.Path,
                                            open_folder: pathlib.Path) -> None:
    """Each kernel that the search compiles faults; the baseline was compiled before."""
    shutil.copy(EMULATOR / "libnvrtc.so.13", open_folder)
    server = GpuServer(tmp_path / "state", nvrtc=open_folder).start()
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120)
            baseline = check(model)
            compiled = client.devices()[0].kernels_compiled
            # Addresses that nobody has, and behind an argument.
            (open_folder / "spoil.h").write_text(
                "template <int T = 1, typename A> FN i64 spoilt(const A& a) {\n"
                "  if (sizeof(A) % 64 < 32) return load<i64>(a.b0, i64{1} << 40);\n"
                "  return *athanor::emulator::Element<i64>((void*)8, false);\n"
                "}\n"
                "#define first spoilt\n")
            # Kernels that the baseline has were compiled before, and are right.
            assert 0 < compiled < 10
            job = client.compile("m", budget=f"{100 + compiled}c")
            answered = 0
            while not client.job(job.id).finished:
                assert check(model) == baseline
                answered += 1
            search = client.job(job.id).search
            assert answered > 0
            assert search.candidates == 100 + compiled
            assert search.candidates_failed >= 100
            assert search.plans_taken == 0
            assert check(model) == baseline
        assert server.stop() == 0
    finally:
        server.kill()


def device_workers(server: int) -> tuple[set[int], set[int]]:
    """Returns the keepers of device workers of a server, and the processes that have the GPU."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"--worker" in words and b"--parent=%d" % server in words:
            parents[int(folder.name)] = parent
    keepers = {pid for pid, parent in parents.items() if parent not in parents}
    return keepers, set(parents) - keepers


def test_device_workers_that_are_killed(tmp_path: pathlib.Path) -> None:
    """A search goes on though somebody kills what it measures with; a server's end leaves none."""
    server = GpuServer(tmp_path / "state").start()
    pid = server.pid
    try:
        with server.client() as client:
            model = client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120)
            check(model)
            job = client.compile("m", budget="8s")
            killed = collections.Counter()
            rounds = 0
            while not client.job(job.id).finished:
                check(model)
                keepers, workers = device_workers(pid)
                rounds += 1
                # Processes that have the GPU, and once who keeps them: that ends the tuner, too.
                for victim in keepers if rounds == 3 else workers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                    killed["keeper" if victim in keepers else "worker"] += 1
                time.sleep(0.5)
            assert killed["keeper"] > 0 and killed["worker"] > 0, killed
            search = client.job(job.id).search
            assert search.candidates > search.candidates_failed, client.job(job.id)
            check(model)
            server.kill()
            deadline = time.monotonic() + 10
            while any(device_workers(pid)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert device_workers(pid) == (set(), set())
    finally:
        server.kill()


def refusal(*flags: str, **environment: str) -> str:
    """What a server says that does not start."""
    state = environment.pop("state")
    done = subprocess.run([built(ATHANORD), "--listen=127.0.0.1:0", f"--state_dir={state}", *flags],
                          env={"HOME": state, **environment}, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode != 0
    return done.stderr


def test_devices_that_are_not_there(tmp_path: pathlib.Path) -> None:
    state = str(tmp_path)
    emulated = {"LD_LIBRARY_PATH": str(EMULATOR), "state": state}
    assert "no CUDA driver" in refusal("--device=cuda:0", state=state)
    assert "cuda:9: there is no such GPU; the driver shows 1" in refusal("--device=cuda:9",
                                                                         **emulated)
    old = refusal("--device=cuda:0", ATHANOR_EMULATOR_ARCH="sm_75", **emulated)
    assert "sm_75; kernels need sm_80" in old


@pytest.mark.parametrize(("environment", "device", "reason"), [
    ({}, "cuda:0", ""),
    ({"ATHANOR_EMULATOR_ARCH": "sm_75"}, "cpu", "cuda:0: emulator is sm_75; kernels need sm_80"),
    ({"ATHANOR_EMULATOR_BYTES": str(48 << 20)}, "cpu", "bytes are free, fewer than"),
    ({"LD_LIBRARY_PATH": ""}, "cpu", "this machine has no CUDA driver"),
    ({"nvrtc": pathlib.Path("nothing")}, "cpu", "nothing/libnvrtc.so.13: cannot open"),
])
def test_auto_takes_a_gpu_that_is_usable(tmp_path: pathlib.Path,
                                         environment: dict[str, str | pathlib.Path],
                                         device: str, reason: str) -> None:
    server = GpuServer(tmp_path / "state", device="auto", **environment).start()
    try:
        with server.client() as client:
            check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
        assert server.stop() == 0
    finally:
        server.kill()
    (chosen,) = [line for line in server.log.read_text().splitlines() if "device chosen" in line]
    assert re.search(rf'device="?{device}"? ', chosen), chosen
    assert reason in chosen


def test_memory_that_no_gpu_has(tmp_path: pathlib.Path) -> None:
    server = GpuServer(tmp_path / "state", ATHANOR_EMULATOR_BYTES=str(48 << 20)).start()
    try:
        with server.client() as client:
            large = mlp.Config(widths=(2048, 4096, 2048), batch=4)
            with pytest.raises(athanor.Error, match="cuda:0"):
                client.upload(mlp.mlp_graph(config=large), name="large").wait(timeout=240)
            check(client.upload(mlp.mlp_graph(config=CONFIG), name="m").wait(timeout=120))
        assert server.stop() == 0
    finally:
        server.kill()
