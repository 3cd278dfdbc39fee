"""Tests each RPC of `calls` against services implemented from the protos."""

from __future__ import annotations

import athanor
import grpc
import numpy as np
import pytest
from athanor import calls, uploads, wire
from athanor.core import content_hash, possession_proof
from athanor.protos import cache_pb2, compile_pb2, generate_pb2, model_pb2, plan_pb2
from athanor.protos import open_inference_grpc_pb2 as oip

SERVICES = {
    "cache": cache_pb2.DESCRIPTOR.services_by_name["CacheService"],
    "models": model_pb2.DESCRIPTOR.services_by_name["ModelService"],
    "compile": compile_pb2.DESCRIPTOR.services_by_name["CompileService"],
    "generate": generate_pb2.DESCRIPTOR.services_by_name["GenerateService"],
    "inference": oip.DESCRIPTOR.services_by_name["GRPCInferenceService"],
}
SOURCE = uploads.Source("athanor", b"g", {b"k": b"data"})
X = wire.Tensor("x", "f32", ("2",))
CALLS = [
    calls.ready(),
    calls.missing_tensors(SOURCE),
    calls.upload(SOURCE, "m", uploads.Division([b"k"]), {"b": [(1, 8)]}, "5s", True, ["layout"],
                 True, "b"),
    calls.get_model("m", "2"),
    calls.list_models("m"),
    calls.list_devices(),
    calls.delete_model("m", "2"),
    calls.rollback("m", "2"),
    calls.pin_plan("m", "2", "p-1"),
    calls.get_egraph("m", "2", 3),
    calls.start_compile("m", "2", {"b": [(1, 8)]}, "5s", ["layout"], True, 7, "keep"),
    calls.list_jobs("m", True),
    calls.get_job("j"),
    calls.cancel_job("j"),
    calls.watch_job("j"),
    calls.cache_stat(),
    calls.cache_explain("m", "2", {"b": (1, 8)}),
    calls.cache_verify(True),
    calls.cache_collect_garbage(1 << 20, True, True, True),
    calls.cache_export("m", "2", True),
    calls.cache_import([cache_pb2.CacheBundleChunk()]),
    calls.infer("m", "2", [X], {"x": np.ones(2, np.float32)}, ["y"], "none", ["h"], 1),
    calls.generate("m", "2", "Once", True, {"seed": 7}),
    calls.tokenize("m", "2", "Once", True, True),
    calls.detokenize("m", "2", [1], True),
    calls.render_chat("m", "2", "Hi", {"x": 1}, True),
    calls.get_engine("m", "2"),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.method)
def test_request_is_the_rpcs_and_its_reply_is_read(call: calls.Call) -> None:
    service, method = call.method.split(".")
    rpc = SERVICES[service].methods_by_name[method]
    for request in call.request if rpc.client_streaming else [call.request]:
        assert request.DESCRIPTOR is rpc.input_type
    assert call.read(rpc.output_type._concrete_class()) is not None
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stubs = calls.Stubs(channel)
        assert callable(getattr(getattr(stubs, service), method))


def test_every_argument_reaches_the_request() -> None:
    by_method = {call.method: call.request for call in CALLS}
    assert by_method["models.PinPlan"] == model_pb2.PinPlanRequest(name="m", version="2",
                                                                   plan_id="p-1")
    assert by_method["models.GetEGraph"] == model_pb2.GetEGraphRequest(name="m", version="2",
                                                                       region=3)
    assert by_method["models.GetModel"] == model_pb2.GetModelRequest(name="m", version="2")
    assert by_method["models.Rollback"] == model_pb2.RollbackRequest(name="m", version="2")
    assert by_method["models.DeleteModel"] == model_pb2.DeleteModelRequest(name="m", version="2")
    assert by_method["compile.ListCompileJobs"] == compile_pb2.ListCompileJobsRequest(
        model="m", only_unfinished=True)
    assert by_method["cache.Explain"] == cache_pb2.ExplainCacheRequest(
        model="m", version="2", bucket=[plan_pb2.DimRange(name="b", min=1, max=8)])
    assert by_method["cache.Verify"].quarantine
    assert by_method["cache.CollectGarbage"] == cache_pb2.CollectGarbageRequest(
        limit_bytes=1 << 20, failures=True, quarantine=True, dry_run=True)
    assert by_method["cache.Export"] == cache_pb2.ExportCacheRequest(model="m", version="2",
                                                                     binaries=True)
    assert by_method["generate.Tokenize"] == generate_pb2.TokenizeRequest(
        model="m", version="2", text="Once", add_begin=True, add_special=True)
    assert by_method["generate.GetEngine"] == generate_pb2.GetEngineRequest(model="m", version="2")
    infer = by_method["inference.ModelInfer"].parameters
    assert (infer["wait"].string_param, infer["taps"].string_param) == ("none", "h")
    assert infer["priority"].int64_param == 1


@pytest.mark.parametrize(("wrong", "text"), [
    ({"budget": 30}, "budget=30: it must be a str"),
    ({"disable_rules": "layout"}, "it must be a sequence"),
    ({"batch_dim": ["b"]}, "must be the name of a dim"),
    ({"device": 0}, "device=0: it must be the name of a device"),
])
def test_an_upload_that_cannot_be_said_is_refused_before_it_is_sent(wrong: dict, text: str) -> None:
    options = {"buckets": None, "budget": None, "deterministic": False, "disable_rules": None,
               "approximate": False, "batch_dim": None, **wrong}
    with pytest.raises(athanor.InvalidArgument, match=text):
        calls.upload(SOURCE, "m", uploads.Division(), **options)


class Server:
    """Answers the calls of `calls.send_model`; `held` are tensors by hash."""

    def __init__(self, held: dict[bytes, bytes], nonce: bytes = b"n" * 32) -> None:
        self.held = held
        self.nonce = nonce
        self.errors: list[athanor.Error] = []  # errors of the next uploads
        self.sent: list[uploads.Division] = []

    def answer(self, call: calls.Call) -> object:
        """Runs the call and returns its result or its error."""
        if isinstance(call, uploads.Division):
            self.sent.append(call)
            if self.errors:
                raise self.errors.pop(0)
            return "stored"
        asked = call.request
        if not self.nonce:  # as one that wants no proofs
            return [key for key in asked.hashes if key not in self.held], b""
        right = uploads.tensor_proofs(uploads.Source("athanor", b"", self.held), self.nonce)
        proved = {proof.hash for proof in asked.proofs if right.get(proof.hash) == proof.proof}
        return ([key for key in asked.hashes if asked.nonce != self.nonce or key not in proved],
                b"" if asked.nonce else self.nonce)

    def run(self, source: uploads.Source) -> object:
        """Makes the calls as the clients do."""
        flow = calls.send_model(source, lambda division: division)
        try:
            call = next(flow)
            while True:
                try:
                    result = self.answer(call)
                except athanor.Error as error:
                    call = flow.throw(error)
                else:
                    call = flow.send(result)
        except StopIteration as end:
            return end.value


A, B = content_hash(b"a"), content_hash(b"b")
BOTH = uploads.Source("athanor", b"g", {A: b"a", B: b"b"})


def test_what_is_held_is_proved_and_not_sent() -> None:
    server = Server({A: b"a"})
    assert server.run(BOTH) == "stored"
    (division,) = server.sent
    assert (division.sent, division.nonce) == ([B], server.nonce)
    assert division.proofs == {A: possession_proof(server.nonce, A, b"a")}


def test_what_the_server_has_forgotten_is_sent() -> None:
    server = Server({A: b"a"})
    server.errors = [athanor.FailedPrecondition("gone")]
    assert server.run(BOTH) == "stored"
    assert [division.sent for division in server.sent] == [[B], [A, B]]
    assert not server.sent[1].proofs and not server.sent[1].nonce


def test_other_errors_are_the_callers() -> None:
    for held, error in (({A: b"a"}, athanor.InvalidArgument("wrong")),
                        ({}, athanor.FailedPrecondition("read-only"))):
        server = Server(held)
        server.errors = [error]
        with pytest.raises(type(error), match=str(error)):
            server.run(BOTH)
        assert len(server.sent) == 1
    server = Server({A: b"a"})
    server.errors = [athanor.FailedPrecondition("read-only")] * 2
    with pytest.raises(athanor.FailedPrecondition):
        server.run(BOTH)


def test_a_server_that_wants_no_proofs() -> None:
    server = Server({A: b"a"}, nonce=b"")
    assert server.run(BOTH) == "stored"
    assert server.sent == [uploads.Division([B])]


def test_a_model_without_tensors_asks_for_nothing() -> None:
    server = Server({})
    assert server.run(uploads.Source("onnx", b"m", {})) == "stored"
    assert server.sent == [uploads.Division()]


def test_proofs_are_those_of_every_client() -> None:
    # deploy/bazel/libs/possession_test.cc has the same.
    proof = possession_proof(b"\1" * 32, content_hash(b"bytes"), b"bytes")
    assert proof.hex() == "f5890cf61e1971ac5050634c160ae859bca4f720e492ced2a303076757026278"
