"""Dtypes bit for bit, odd sizes, outputs of every kind, many calls, threads, asyncio, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

import athanor
import ml_dtypes
import numpy as np
import pytest
from conftest import Server
from numbers_ import FLOATS, INTEGERS, array_type, floats, integers

TRAVELLING = ("bool", *INTEGERS, *FLOATS)


def every_bit_pattern(dtype: str) -> np.ndarray:
    """Returns all values of 8 and 16 bits, and of wider dtypes those that conversions would
    spoil."""
    kind = array_type(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if kind.itemsize <= 2:
        return np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}").view(kind)
    if dtype in INTEGERS:
        return np.concatenate([integers(dtype), np.array([2**31 - 1], kind)])
    odd = [1.0000000000000002, 5e-324, 1e-45, 2.0**40 + 1]
    return np.concatenate([floats(dtype), np.array(odd).astype(kind)])


@pytest.mark.parametrize("dtype", TRAVELLING)
def test_identity_is_bit_for_bit(run: Callable, dtype: str) -> None:
    x = every_bit_pattern(dtype)
    g = athanor.Graph("identity", dims={"n": (0, 1 << 17)})
    value = g.input("x", "n", dtype)
    g.output("same", value)
    g.output("moved", value[::-1])
    result = run(g, {"x": x})
    assert result["same"].dtype == x.dtype
    assert result["same"].tobytes() == x.tobytes()
    assert result["moved"].tobytes() == x[::-1].tobytes()


def test_i64_beyond_f64_stays_exact(run: Callable) -> None:
    g = athanor.Graph("i64", dims={"n": (1, 8)})
    x = g.input("x", "n", "i64")
    g.output("sum", x + 1)
    g.output("total", x.sum())
    value = np.array([2**40, 2**53 + 1, -(2**62) - 1])
    result = run(g, {"x": value})
    np.testing.assert_array_equal(result["sum"], value + 1)
    assert result["total"] == value.sum()


def test_parameters_and_constants_keep_their_bits(run: Callable) -> None:
    g = athanor.Graph("weights")
    arrays = {d: every_bit_pattern(d)[:4096] for d in TRAVELLING}
    for d, array in arrays.items():
        g.output(f"p_{d}", g.parameter(f"p_{d}", array))
        g.output(f"c_{d}", g.constant(array))
    result = run(g, {})
    for d, array in arrays.items():
        assert result[f"p_{d}"].tobytes() == array.tobytes(), d
        assert result[f"c_{d}"].tobytes() == array.tobytes(), d


def test_storage_dtypes_cast_to_computing_ones(run: Callable) -> None:
    g = athanor.Graph("f8")
    kinds = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
             "f8e8m0": ml_dtypes.float8_e8m0fnu}
    arrays = {name: np.arange(256, dtype=np.uint8).view(kind) for name, kind in kinds.items()}
    for name, array in arrays.items():
        g.output(name, g.parameter(name, array).cast("f32"))
    result = run(g, {})
    for name, array in arrays.items():
        np.testing.assert_array_equal(result[name], array.astype(np.float32), err_msg=name)


def test_outputs_that_are_inputs_constants_and_each_other(run: Callable) -> None:
    g = athanor.Graph("outputs", dims={"n": (1, 8)})
    x = g.input("x", "n", "f32")
    y = x + 1
    c = g.constant(np.arange(3, dtype=np.float32))
    for i, value in enumerate([x, y, c, y, x, x * 2, c]):
        g.output(f"o{6 - i}", value)
    result = run(g, {"x": np.ones(4, np.float32)})
    assert list(result) == [f"o{6 - i}" for i in range(7)]
    for name, want in {"o6": 1, "o5": 2, "o3": 2, "o2": 1, "o1": 2}.items():
        np.testing.assert_array_equal(result[name], np.full(4, want, np.float32))
    for name in ("o4", "o0"):
        np.testing.assert_array_equal(result[name], np.arange(3))


def test_chosen_outputs(client: athanor.Client) -> None:
    g = athanor.Graph("chosen", dims={"n": (1, 8)})
    x = g.input("x", "n", "f32")
    g.output("a", x * 3 + 1)
    g.output("b", x * 3 - 1)
    model = client.upload(g, name="chosen")
    x0 = np.ones(2, np.float32)
    assert set(model.infer({"x": x0}, outputs=["b"])) == {"b"}
    with pytest.raises(athanor.InvalidArgument, match='"c"'):
        model.infer({"x": x0}, outputs=["c"])
    client.delete("chosen")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 16, 17, 31, 64, 127, 1009])
def test_odd_sizes(client: athanor.Client, n: int, request: pytest.FixtureRequest) -> None:
    model = sized_model(client, request)
    check_sized(model, n)


def sized_model(client: athanor.Client, request: pytest.FixtureRequest) -> athanor.Model:
    """Uploads one model for all sizes: element-wise ops, reductions, a product, softmax."""
    name = "sized"
    try:
        return client.model(name)
    except athanor.NotFound:
        g = athanor.Graph(name, dims={"n": (0, 1024)})
        x = g.input("x", ("n", 5), "f32")
        w = g.parameter("w", WEIGHT)
        g.output("product", x @ w)
        g.output("gram", x.T @ x)
        g.output("softmax", athanor.softmax(x, 0))
        g.output("max", x.max(0))
        g.output("chain", athanor.relu(x * 2 - 1) + x.sum(1, keepdims=True))
        return client.upload(g, name=name)


WEIGHT = np.random.default_rng(11).standard_normal((5, 33)).astype(np.float32)


def check_sized(model: athanor.Model, n: int) -> None:
    """Checks all outputs of `sized_model` at one size."""
    x = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
    got = model.infer({"x": x}, timeout=120)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got["product"], wide @ WEIGHT, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["gram"], wide.T @ wide, rtol=1e-4, atol=1e-4)
    assert got["softmax"].shape == (n, 5)
    if n:
        e = np.exp(wide - wide.max(0))
        np.testing.assert_allclose(got["softmax"], e / e.sum(0), rtol=1e-4, atol=1e-7)
    want = x.max(0) if n else np.full(5, -np.inf, np.float32)
    np.testing.assert_array_equal(got["max"], want)
    chain = np.maximum(wide * 2 - 1, 0) + wide.sum(1, keepdims=True)
    np.testing.assert_allclose(got["chain"], chain, rtol=1e-4, atol=1e-5)


def test_sizes_up_and_down_and_again(client: athanor.Client,
                                     request: pytest.FixtureRequest) -> None:
    model = sized_model(client, request)
    for n in (3, 1000, 1, 0, 64, 1024, 5, 1000, 3, 3):
        check_sized(model, n)


def test_threads(client: athanor.Client, request: pytest.FixtureRequest) -> None:
    """Eight threads on one client, different sizes at once."""
    model = sized_model(client, request)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).integers(0, 300, 25):
                check_sized(model, int(n))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_compound_sizes(run: Callable) -> None:
    """Shapes that are expressions over dims."""
    g = athanor.Graph("compound")
    b = g.dim("b", 1, 64)
    x, y = g.input("x", (b, 2), "f32"), g.input("y", (2 * b + 1,), "f32")
    g.output("joined", athanor.concat([x.flatten(), y], 0))
    g.output("shifted", y[1:] * x.flatten())
    x0, y0 = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(7, dtype=np.float32)
    result = run(g, {"x": x0, "y": y0})
    np.testing.assert_array_equal(result["joined"], np.concatenate([x0.ravel(), y0]))
    np.testing.assert_array_equal(result["shifted"], y0[1:] * x0.ravel())


def test_outputs_are_the_callers_to_write(run: Callable) -> None:
    g = athanor.Graph("own", dims={"n": (0, 8)})
    for d in ("f16", "bf16", "f32"):
        g.output(d, g.input(d, "n", d))
    result = run(g, {d: np.ones(3, array_type(d)) for d in ("f16", "bf16", "f32")})
    for d, array in result.items():
        array += array_type(d).type(1)
        assert (array.astype(np.float32) == 2).all(), d


def test_strided_and_dlpack_inputs(run: Callable) -> None:
    class OnlyDlpack:
        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def __dlpack__(self, **options: object) -> object:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> object:
            return self._array.__dlpack_device__()

    g = athanor.Graph("inputs", dims={"n": (1, 8)})
    g.output("y", g.input("a", ("n", 2), "f32") + g.input("b", ("n", 2), "f32"))
    base = np.arange(12, dtype=np.float32).reshape(2, 6)
    strided = base.T[::3]
    result = run(g, {"a": strided, "b": OnlyDlpack(np.ones((2, 2), np.float32))})
    np.testing.assert_array_equal(result["y"], strided + 1)
    np.testing.assert_array_equal(np.from_dlpack(result["y"]), strided + 1)


def test_reply_says_how_it_was_served(client: athanor.Client,
                                      request: pytest.FixtureRequest) -> None:
    model = sized_model(client, request)
    reply = model.infer({"x": np.ones((2, 5), np.float32)})
    assert reply.plan_id == model.plan_id and reply.plan_id.startswith("p-")
    assert reply.exec_us >= 0 and reply.queue_us >= 0


class TestErrors:
    """Refused with what would be right; nothing is converted silently."""

    @pytest.fixture
    def model(self, client: athanor.Client, request: pytest.FixtureRequest) -> athanor.Model:
        return sized_model(client, request)

    @pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
    def test_dtype(self, model: athanor.Model, dtype: str) -> None:
        with pytest.raises(athanor.InvalidArgument) as error:
            model.infer({"x": np.ones((2, 5), dtype)})
        for part in ("'x'", dtype, "f32", ".astype(np.float32)"):
            assert part in str(error.value)

    def test_lists_have_no_dtype(self, model: athanor.Model) -> None:
        with pytest.raises(athanor.InvalidArgument, match="np.asarray"):
            model.infer({"x": [[1.0] * 5]})

    def test_names(self, model: athanor.Model) -> None:
        x = np.ones((2, 5), np.float32)
        with pytest.raises(athanor.InvalidArgument, match="no input 'z'.*x: f32"):
            model.infer({"x": x, "z": x})
        with pytest.raises(athanor.InvalidArgument, match="'x'.*missing"):
            model.infer({})

    @pytest.mark.parametrize("shape", [(2, 4), (5,), (1, 2, 5), (1025, 5)])
    def test_shapes(self, model: athanor.Model, shape: tuple) -> None:
        with pytest.raises(athanor.InvalidArgument, match='"x"|dim'):
            model.infer({"x": np.ones(shape, np.float32)})

    def test_unknown_model(self, client: athanor.Client) -> None:
        with pytest.raises(athanor.NotFound, match="nothing-here"):
            client.model("nothing-here")
        with pytest.raises(athanor.NotFound, match="nothing-here"):
            client.delete("nothing-here")

    def test_unknown_version(self, client: athanor.Client, model: athanor.Model) -> None:
        with pytest.raises(athanor.NotFound, match="99"):
            client.model("sized", "99")

    def test_index_out_of_range(self, run: Callable) -> None:
        g = athanor.Graph("gather", dims={"n": (1, 8)})
        table = g.parameter("table", np.arange(10, dtype=np.float32).reshape(5, 2))
        g.output("y", athanor.embedding(table, g.input("ids", "n", "i64")))
        with pytest.raises(athanor.Error) as error:
            run(g, {"ids": np.array([1, 5])})
        assert error.value.code in ("INVALID_ARGUMENT", "OUT_OF_RANGE")
        assert "5" in str(error.value)

    def test_unknown_formats_are_refused_by_name(self, client: athanor.Client) -> None:
        with pytest.raises(athanor.InvalidArgument, match='"pickle"; there are: "athanor", "onnx"'):
            client.upload(b"bytes", name="pickle", format="pickle")
        assert not client.models("pickle")

    def test_unreachable(self) -> None:
        with athanor.Client("127.0.0.1:1") as nobody, pytest.raises(athanor.Unavailable):
            nobody.ready(timeout=10)

    def test_server_refuses_a_wrong_graph_by_node(self, client: athanor.Client) -> None:
        g = athanor.Graph("wrong")
        g.output("y", athanor.relu(g.input("x", 3, "f32")).named("clamp"))
        message = g.proto()
        next(n for n in message.nodes if n.name == "clamp").op = "Rellu"
        with pytest.raises(athanor.Unimplemented, match='"clamp".*Relu'):
            client.upload(message.SerializeToString(), name="wrong", format="athanor")
        assert not client.models("wrong")


class TestAsync:
    """The asyncio client has the same calls."""

    @pytest.mark.asyncio
    async def test_life_of_a_model(self, server: Server) -> None:
        import asyncio

        g = athanor.Graph("life", dims={"n": (1, 8)})
        g.output("y", g.input("x", "n", "f32") * g.parameter("w", np.full(1, 3, np.float32)))
        async with athanor.AsyncClient(server.address) as client:
            assert await client.ready()
            model = await client.upload(g, name="async")
            phases = [job.phase async for job in model.watch()]
            assert phases[-1] == "DONE"
            await model.wait("baseline", timeout=60)
            await model.wait("optimised", timeout=60)
            sizes = range(1, 9)
            replies = await asyncio.gather(
                *(model.infer({"x": np.ones(n, np.float32)}) for n in sizes))
            for n, reply in zip(sizes, replies, strict=True):
                np.testing.assert_array_equal(reply["y"], np.full(n, 3, np.float32))
            with pytest.raises(athanor.InvalidArgument, match="float64"):
                await model.infer({"x": np.ones(1)})
            assert (await model.info()).state == "READY"
            assert [info.name for info in await client.models("async")] == ["async"]
            assert any(job.model == "async" for job in await client.jobs())
            assert await model.delete() == [model.version]
            with pytest.raises(athanor.NotFound):
                await client.model("async")
