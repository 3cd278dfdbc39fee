"""Arguments that a message cannot hold are refused by name, before protobuf sees them."""

from __future__ import annotations

from collections.abc import Callable

import athanor
import numpy as np
import pytest
from athanor import calls, jobs, uploads, wire
from athanor.given import Given

ONNX = uploads.Source("onnx", b"m", {})
HF = uploads.Source("hf", b"", {})


def upload(source: uploads.Source, **given: object) -> object:
    """Returns the header of an upload; `buckets` is one of its own settings."""
    buckets = given.pop("buckets", None)
    return next(uploads.requests(source, "m", uploads.Division(), buckets, None,
                                 given=Given(**given))).header


def infer(**options: object) -> calls.Call:
    given = {"outputs": None, "wait": None, "taps": None, "priority": None, **options}
    return calls.infer("m", "", [], {}, **given)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: infer(outputs=["y", 3]), "outputs[1]=3: it must be the name of an output"),
    (lambda: infer(outputs="y"), "outputs='y': it must be a sequence of names, as in ['y']"),
    (lambda: infer(outputs=5), "outputs=5: it must be a sequence of names"),
    (lambda: infer(taps=5), "taps=5: it must be a sequence of names"),
    (lambda: infer(priority=1 << 63), "priority=9223372036854775808: it must be an int in"),
    (lambda: calls.get_egraph("m", "", "0"), "region='0': it must be an int"),
    (lambda: calls.get_egraph("m", "", 1 << 31), "region=2147483648: it must be an int in"),
    (lambda: calls.cache_collect_garbage("1 GiB", False, False, False), "limit_bytes='1 GiB'"),
    (lambda: upload(HF, ignore_keys=["a", 3]), "ignore_keys[1]=3: it must be the name of a key"),
    (lambda: upload(ONNX, random_seed=-1), "random_seed=-1: it must be an int in [0, "),
    (lambda: upload(ONNX, buckets=5), "buckets=5: it must be pairs"),
    (lambda: upload(ONNX, buckets={"b": [("1", 8)]}), "it must be pairs (first, last) of sizes"),
    (lambda: upload(ONNX, buckets={"b": [(1, 8, 9)]}), "it must be pairs (first, last) of sizes"),
    (lambda: upload(ONNX, buckets={"b": [(1, 1.5)]}), "it must be pairs (first, last) of sizes"),
])
def test_what_a_message_cannot_hold_is_refused_by_name(call: Callable, words: str) -> None:
    with pytest.raises(athanor.InvalidArgument) as error:
        call()
    assert words in str(error.value)


def test_integers_of_numpy_are_integers() -> None:
    eight = np.int64(8)
    header = upload(ONNX, dims={"b": (np.int32(1), eight), "s": eight}, random_seed=np.uint64(7),
                    buckets={"b": [(np.int64(1), eight)]})
    assert (header.dims[0].min, header.dims[0].max, header.dims[1].equals) == (1, 8, "8")
    assert (header.buckets[0].ranges[0].max, header.random_seed) == (8, 7)
    assert infer(priority=np.int64(1)).request.parameters["priority"].int64_param == 1
    assert jobs.start_compile("m", "", None, None, None, False, np.int64(5), None).search_seed == 5
    with pytest.raises(athanor.InvalidArgument, match="seed=True"):
        jobs.start_compile("m", "", None, None, None, False, True, None)


def test_an_integer_is_not_a_name() -> None:
    with pytest.raises(athanor.InvalidArgument, match=r"wait=1: it must be a str"):
        wire.infer_request("m", "", [], {}, None, {"wait": 1})
