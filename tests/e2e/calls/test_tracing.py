"""Spans of requests and of compile jobs, as a collector gets them, and the ids of requests."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import pathlib
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import athanor
import grpc
import http_pages
import numpy as np
import openai
import pytest
import tiny_decoder
from athanor.protos import Stub, generate_pb2, model_pb2
from athanor.protos import open_inference_grpc_pb2 as oip
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import TracerProvider
from server_process import CLI, ROOT, Server, built

Span = trace_pb2.Span
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT}-00"
INFER = "inference.GRPCInferenceService/ModelInfer"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans at a port of its own; may hang, refuse, go and come back."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._spans: list[Span] = []
        self.resources: list[dict[str, object]] = []
        self.calls = 0
        self.refuses: grpc.StatusCode | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.port = 0
        self._server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        assert self.port, "the port is taken"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def Export(self, request, context):  # noqa: N802
        with self._told:
            self.calls += 1
            self._told.notify_all()
        self.may_answer.wait()
        if self.refuses is not None:
            context.abort(self.refuses, "no more")
        with self._told:
            for resource in request.resource_spans:
                self.resources.append(values_of(resource.resource))
                for scope in resource.scope_spans:
                    assert scope.scope.name == "athanord"
                    self._spans.extend(scope.spans)
            self._told.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def await_calls(self, calls: int) -> None:
        with self._told:
            assert self._told.wait_for(lambda: self.calls >= calls, timeout=60)

    def spans(self) -> list[Span]:
        with self._told:
            return list(self._spans)

    def find(self, wanted: Callable[[Span], bool], count: int = 1) -> list[Span]:
        """Returns the spans that are wanted, once there are so many."""
        def found() -> list[Span]:
            return [span for span in self._spans if wanted(span)]

        with self._told:
            assert self._told.wait_for(lambda: len(found()) >= count, timeout=60), (
                count, [span.name for span in self._spans])
            return found()

    def request(self, id_: str) -> tuple[Span, list[Span]]:
        """Returns the span of a request by its id, and those below it."""
        own = self.find(lambda span: values_of(span).get("athanor.request_id") == id_)
        assert len(own) == 1
        return own[0], [span for span in self.spans()
                        if span.trace_id == own[0].trace_id and span is not own[0]]


def values_of(span: Span | resource_pb2.Resource) -> dict[str, object]:
    """Returns the attributes, each of which is there once."""
    values: dict[str, object] = {}
    for attribute in span.attributes:
        assert attribute.key not in values, attribute.key
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        values[attribute.key] = ([one.string_value for one in value.values]
                                 if kind == "array_value" else value)
    return values


def nests(parent: Span, *children: Span) -> None:
    """Checks that the children lie in the parent, one behind the other."""
    at = parent.start_time_unix_nano
    for child in children:
        assert child.parent_span_id == parent.span_id and child.trace_id == parent.trace_id
        assert at <= child.start_time_unix_nano <= child.end_time_unix_nano, child.name
        at = child.end_time_unix_nano
    assert at <= parent.end_time_unix_nano


def graph(square: bool = False) -> athanor.Graph:
    g = athanor.Graph("double", dims={"b": (1, 16)})
    x = g.input("x", ("b", 4), "f32")
    g.output("y", x * x if square else x + x)
    return g


def infer_request(model: str = "double", rows: int = 1) -> object:
    request = oip.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[rows, 4])
    request.raw_input_contents.append(np.ones((rows, 4), np.float32).tobytes())
    return request


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """The collector of the shared server."""
    made = Collector()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def traced(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that records all requests, with the models "double" and "tiny"."""
    folder = tmp_path_factory.mktemp("tracing")
    checkpoint = folder / "tiny"
    checkpoint.mkdir()
    tiny_decoder.write(checkpoint)
    server = Server(folder / "state", f"--otlp_endpoint=http://127.0.0.1:{collector.port}",
                    "--http_listen=127.0.0.1:0", "--openai_listen=127.0.0.1:0",
                    "--batch_delay=100ms", "--inline_us=0", "--log_level=debug").start()
    with server.client() as client:
        client.upload(graph(), name="double", batch_dim="b").wait("baseline", timeout=120)
        client.upload(checkpoint, name="tiny", budget="0").wait("baseline", timeout=120)
    yield server
    assert server.stop() == 0, server.log.read_text()


@contextlib.contextmanager
def inference(server: Server) -> Iterator[Stub]:
    with grpc.insecure_channel(server.address) as channel:
        yield Stub(channel, oip, "GRPCInferenceService")


def get(url: str, body: object = None, **headers: str) -> tuple[int, dict[str, str]]:
    """Returns an answer's status and its headers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**headers, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def log_lines(server: Server, text: str) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if text in line]


def test_messages_are_the_public_ones(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "otlp.binpb"
    sources = sorted(str(path.relative_to(ROOT))
                     for path in (ROOT / "proto/opentelemetry").glob("*.proto"))
    assert protoc.main(["protoc", f"-I{ROOT}", f"--descriptor_set_out={file}", *sources]) == 0
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes()).file
    by_name = {one.name: one for one in files}

    def add(name: str) -> None:
        if name in by_name:
            one = by_name.pop(name)
            for needed in one.dependency:
                add(needed)
            pool.AddSerializedFile(one.SerializeToString())

    for one in files:
        add(one.name)
    public = [module.DESCRIPTOR for module in (common_pb2, resource_pb2, trace_pb2,
                                               trace_service_pb2)]
    theirs = {name: message for module in public
              for name, message in messages_of(module.message_types_by_name)}
    services = {service.full_name: service for module in public
                for service in module.services_by_name.values()}
    compared = 0
    for source in sources:
        ours = pool.FindFileByName(source)
        for name, message in messages_of(ours.message_types_by_name):
            for field in message.fields:
                assert shape_of(field) == shape_of(theirs[name].fields_by_name[field.name]), name
                compared += 1
            for kind in message.enum_types:
                for value in kind.values:
                    other = theirs[name].enum_types_by_name[kind.name].values_by_name[value.name]
                    assert other.number == value.number
        for service in ours.services_by_name.values():
            for method in service.methods:
                other = services[service.full_name].methods_by_name[method.name]
                assert (other.input_type.full_name, other.output_type.full_name) == (
                    method.input_type.full_name, method.output_type.full_name)
                compared += 1
    assert compared > 30


def messages_of(found: dict[str, Descriptor]) -> Iterator[tuple[str, Descriptor]]:
    for message in found.values():
        yield message.full_name, message
        yield from messages_of(message.nested_types_by_name)


def shape_of(field: FieldDescriptor) -> tuple:
    kind = field.message_type or field.enum_type
    return (field.number, field.type, field.label if hasattr(field, "label") else None,
            kind and kind.full_name, field.containing_oneof and field.containing_oneof.name)


def test_a_call_and_its_parts(traced: Server, collector: Collector) -> None:
    with inference(traced) as stub:
        _, call = stub.ModelInfer.with_call(
            infer_request(), metadata=(("traceparent", SAMPLED), ("tracestate", "a=1, b=2"),
                                       ("x-request-id", "parts-1")))
    assert dict(call.trailing_metadata())["x-request-id"] == "parts-1"
    own, below = collector.request("parts-1")
    assert own.name == INFER and own.kind == Span.SPAN_KIND_SERVER
    assert own.trace_id.hex() == TRACE and own.parent_span_id.hex() == PARENT
    assert own.trace_state == "a=1,b=2"
    assert own.status.code == trace_pb2.Status.STATUS_CODE_UNSET
    values = values_of(own)
    assert values["rpc.system.name"] == "grpc" and values["rpc.method"] == INFER
    assert values["rpc.response.status_code"] == "OK"
    assert values["client.address"] == "127.0.0.1"
    assert values["athanor.model.name"] == "double" and values["athanor.model.version"] == "1"
    parts = {span.name: span for span in below}
    # Others of this trace are below other requests.
    mine = [parts[name] for name in ("queue", "batch wait", "run")
            if name in parts and parts[name].parent_span_id == own.span_id]
    assert [span.name for span in mine][::len(mine) - 1] == ["queue", "run"]
    nests(own, *mine)
    run = values_of(mine[-1])
    assert run["athanor.plan.id"] and run["athanor.plan.bucket"] and run["athanor.plan.kind"]
    assert run["athanor.batch.rows"] == 1
    resource = collector.resources[0]
    assert resource["service.name"] == "athanord" and resource["service.version"]
    assert resource["process.pid"] == traced.pid


def test_the_parents_flag_decides(traced: Server, collector: Collector) -> None:
    with inference(traced) as stub:
        for id_, parent in (("flag-0", NOT_SAMPLED), ("flag-bad", SAMPLED[:-1] + "G"),
                            ("flag-1", SAMPLED)):
            stub.ServerReady(oip.ServerReadyRequest(),
                             metadata=(("traceparent", parent), ("x-request-id", id_)))
    collector.request("flag-1")
    malformed, _ = collector.request("flag-bad")  # begins a trace of its own
    assert malformed.trace_id.hex() != TRACE and malformed.parent_span_id == b""
    assert not [span for span in collector.spans()
                if values_of(span).get("athanor.request_id") == "flag-0"]


def test_requests_that_share_a_call_name_each_other(traced: Server, collector: Collector) -> None:
    def infer(i: int) -> None:
        with inference(traced) as stub:
            start.wait()
            stub.ModelInfer(infer_request(), metadata=(("x-request-id", f"shared-{i}"),))

    for _ in range(20):  # they may come too far apart
        start = threading.Barrier(3)
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            list(threads.map(infer, range(3)))
        own = {span.span_id: span for span in collector.find(
            lambda span: values_of(span).get("athanor.request_id", "").startswith("shared-"),
            3)}
        runs = collector.find(
            lambda span, own=own: span.name == "run" and span.parent_span_id in own, 3)
        together = [run for run in runs if values_of(run)["athanor.batch.rows"] == 3]
        if len(together) >= 3:
            break
    assert len(together) >= 3
    for run in together:
        linked = {link.span_id for link in run.links}
        assert len(linked) == 2 and run.parent_span_id not in linked and linked <= own.keys()


def test_refusals_and_ids(traced: Server, collector: Collector) -> None:
    with inference(traced) as stub:
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(infer_request("none"), metadata=(("traceparent", SAMPLED),
                                                             ("x-request-id", "refused-1")))
        for unfit in ("", " ", "x" * 129, "a b"):
            _, call = stub.ServerLive.with_call(oip.ServerLiveRequest(),
                                                metadata=(("x-request-id", unfit),))
            assert dict(call.trailing_metadata())["x-request-id"].startswith("r-")
    assert dict(refused.value.trailing_metadata())["x-request-id"] == "refused-1"
    own, below = collector.request("refused-1")
    assert values_of(own)["rpc.response.status_code"] == "NOT_FOUND"
    assert own.status.code == trace_pb2.Status.STATUS_CODE_UNSET  # the caller's fault
    assert not [span for span in below if span.parent_span_id == own.span_id]
    (line,) = log_lines(traced, "request=refused-1 ")[:1]
    assert f"trace={TRACE}" in line
    with traced.client() as client, pytest.raises(athanor.NotFound) as error:
        client.model("none").info()
    assert log_lines(traced, f"request={error.value.request_id} ")
    told = subprocess.run([built(CLI), "--address", traced.address, "rollback", "none"],
                          capture_output=True, text=True, check=False, timeout=60).stderr
    id_ = told.rpartition("(request ")[2].rstrip(")\n")
    assert log_lines(traced, f"request={id_} "), told


def test_a_failed_health_check_carries_its_id(traced: Server) -> None:
    with grpc.insecure_channel(traced.address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as failed:
            check(b"\n\x04none", metadata=(("x-request-id", "health-1"),))
    assert dict(failed.value.trailing_metadata())["x-request-id"] == "health-1"


def test_audited_calls_have_the_same_id_everywhere(traced: Server, collector: Collector) -> None:
    with traced.client() as client:
        client.upload(graph(), name="audited").wait("baseline", timeout=120)
    with grpc.insecure_channel(traced.address) as channel:
        _, call = Stub(channel, model_pb2, "ModelService").DeleteModel.with_call(
            model_pb2.DeleteModelRequest(name="audited"))
    id_ = dict(call.trailing_metadata())["x-request-id"]
    own, _ = collector.request(id_)
    (line,) = log_lines(traced, f"request={id_} ")
    assert "msg=\"audit\"" in line and f"trace={own.trace_id.hex()}" in line


def test_http(traced: Server, collector: Collector) -> None:
    url = f"http://{traced.http_address}"
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    status, headers = get(f"{url}/v2/models/double/infer?secret=s3cret", body,
                          traceparent=SAMPLED, tracestate="a=1", **{"X-Request-Id": "http-1"})
    assert status == 200 and headers["x-request-id"] == "http-1"
    own, below = collector.request("http-1")
    assert own.name.startswith("POST /v2/models/") and own.kind == Span.SPAN_KIND_SERVER
    assert own.trace_id.hex() == TRACE and own.parent_span_id.hex() == PARENT
    values = values_of(own)
    assert values["http.request.method"] == "POST"
    assert values["http.response.status_code"] == 200
    assert values["url.path"] == "/v2/models/double/infer"
    assert own.name == f"POST {values['http.route']}"
    assert values["athanor.model.name"] == "double"
    nests(own, *[span for span in below if span.parent_span_id == own.span_id])
    assert {"queue", "run"} <= {span.name for span in below
                                if span.parent_span_id == own.span_id}
    assert b"s3cret" not in own.SerializeToString()
    status, headers = get(f"{url}/nowhere")
    assert status == 404
    nowhere = headers["x-request-id"]
    status, headers = get(f"{url}/metrics", traceparent=NOT_SAMPLED)
    assert status == 200
    status, headers = get(f"{url}/metrics")
    own, _ = collector.request(headers["x-request-id"])
    assert own.name == "GET /metrics"
    assert nowhere not in ids_of(collector)  # it was not admitted to any route
    assert log_lines(traced, f"request={nowhere} ")


def ids_of(collector: Collector) -> list[str]:
    """Returns the ids of the requests whose spans have come."""
    return [values_of(span).get("athanor.request_id", "") for span in collector.spans()]


def generated(spans: list[Span], parent: Span) -> list[Span]:
    """Returns the spans of sequences below a request, checked."""
    sequences = [span for span in spans if span.parent_span_id == parent.span_id]
    for sequence in sequences:
        parts = [span for span in spans if span.parent_span_id == sequence.span_id]
        assert [span.name for span in parts] == ["queue", "prefill", "decode"]
        nests(sequence, *parts)
        nests(parent, sequence)
        (first,) = sequence.events
        assert first.name == "first token"
        assert first.time_unix_nano == parts[1].end_time_unix_nano
    return sequences


def test_tokens(traced: Server, collector: Collector) -> None:
    request = generate_pb2.GenerateRequest(model="tiny", text="abc", max_tokens=5, ignore_eos=True)
    with grpc.insecure_channel(traced.address) as channel:
        call = Stub(channel, generate_pb2, "GenerateService").Generate(
            request, metadata=(("x-request-id", "tokens-1"),))
        usage = list(call)[-1].usage
        assert dict(call.trailing_metadata())["x-request-id"] == "tokens-1"
    own, below = collector.request("tokens-1")
    assert own.name == "athanor.v1.GenerateService/Generate"
    (sequence,) = generated(below, own)
    assert sequence.name == "text_completion tiny"
    values = values_of(sequence)
    assert values["gen_ai.operation.name"] == "text_completion"
    assert values["gen_ai.request.model"] == "tiny"
    assert values["gen_ai.usage.input_tokens"] == usage.prompt_tokens == 4
    assert values["gen_ai.usage.output_tokens"] == usage.generated_tokens == 5
    assert values["gen_ai.response.finish_reasons"] == ["length"]
    assert values["athanor.plan.id"] == usage.plan_id


def test_openai(traced: Server, collector: Collector) -> None:
    with openai.OpenAI(base_url=f"http://{traced.openai_address}/v1", api_key="none",
                       max_retries=0, timeout=60) as client:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "abc"}], max_tokens=4, n=2,
            extra_headers={"X-Request-Id": "chat-1", "traceparent": SAMPLED})
        with client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "abc"}], max_tokens=4,
                stream=True, extra_headers={"X-Request-Id": "chat-2"}) as stream:
            list(stream)
    own, below = collector.request("chat-1")
    assert own.name == "POST /v1/chat/completions" and own.trace_id.hex() == TRACE
    sequences = generated(below, own)
    assert [span.name for span in sequences] == ["chat tiny"] * 2
    assert values_of(own)["athanor.model.name"] == "tiny"
    own, below = collector.request("chat-2")
    assert len(generated(below, own)) == 1


def test_jobs(traced: Server, collector: Collector) -> None:
    with traced.client() as client:
        model = client.upload(graph(square=True), name="job").wait("optimised", timeout=120)
        client.delete(model.name)
    (own,) = collector.find(lambda span: span.name == "compile job")
    assert own.kind == Span.SPAN_KIND_INTERNAL and own.parent_span_id == b""
    values = values_of(own)
    assert values["athanor.model.name"] == "job" and values["athanor.job.id"].startswith("job-")
    assert values["athanor.job.stop_reason"] == "stop_baseline_only"
    assert values["athanor.kernels.total"] >= 1
    phases = [span for span in collector.spans() if span.parent_span_id == own.span_id]
    assert phases[0].name == "queued" and {"lowering", "preparing"} <= {
        phase.name for phase in phases}
    nests(own, *phases)


def test_the_sdk_names_its_span(traced: Server, collector: Collector) -> None:
    tracer = TracerProvider().get_tracer("test")
    with traced.client() as client, tracer.start_as_current_span("outer") as outer:
        client.model("double").infer(np.ones((1, 4), np.float32))
    context = outer.get_span_context()
    (own,) = [span for span in collector.find(
        lambda span: span.trace_id == context.trace_id.to_bytes(16, "big") and span.name == INFER)]
    assert own.parent_span_id == context.span_id.to_bytes(8, "big")


def test_names_of_identities_and_no_secrets(collector: Collector, tmp_path: pathlib.Path) -> None:
    token = "tracing-token-1"
    file = tmp_path / "auth.conf"
    file.write_text(f"[team]\ntoken = sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"
                    "roles = infer, upload, monitor\nmodels = *\n")
    server = Server(tmp_path / "state", f"--otlp_endpoint=http://127.0.0.1:{collector.port}",
                    f"--auth={file}", "--http_listen=127.0.0.1:0").start()
    try:
        with athanor.Client(server.address, token=token) as client:
            client.upload(graph(), name="double").wait("baseline", timeout=120)
            client.model("double").infer(np.ones((1, 4), np.float32))
        with grpc.insecure_channel(server.address) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(
                iter(()), metadata=(("traceparent", SAMPLED), ("x-request-id", "stranger-1"),
                                    ("authorization", "Bearer wrong-token")))
            assert call.code() == grpc.StatusCode.UNAUTHENTICATED
        status, headers = get(f"http://{server.http_address}/metrics", traceparent=SAMPLED,
                              Authorization="Bearer wrong-token", **{"X-Request-Id": "stranger-2"})
        assert status == 401 and headers["x-request-id"] == "stranger-2"
        get(f"http://{server.http_address}/metrics", Authorization=f"Bearer {token}",
            **{"X-Request-Id": "who-1"})
    finally:
        assert server.stop() == 0, server.log.read_text()
    own, _ = collector.request("who-1")
    assert values_of(own)["enduser.id"] == "team"
    collector.find(lambda span: span.name == INFER and values_of(span).get("enduser.id") == "team")
    assert not [span for span in collector.spans() if token.encode() in span.SerializeToString()]
    # The server has ended, so all spans have come.
    assert not {"stranger-1", "stranger-2"} & set(ids_of(collector))
    assert log_lines(server, "request=stranger-1 ") and log_lines(server, "request=stranger-2 ")


def ask(server: Server, times: int = 1) -> None:
    with inference(server) as stub:
        for _ in range(times):
            assert stub.ServerReady(oip.ServerReadyRequest(), timeout=30).ready


def awaits(server: Server, name: str, least: float) -> None:
    """Returns once a metric has come that far."""
    end = time.monotonic() + 60
    while (value := http_pages.metric(server, name)) < least:
        assert time.monotonic() < end, (name, value)
        time.sleep(0.05)


def traced_by(collector: Collector, state: pathlib.Path, *flags: str) -> Server:
    return Server(state, f"--otlp_endpoint=http://127.0.0.1:{collector.port}",
                  "--http_listen=127.0.0.1:0", *flags).start()


def test_a_collector_that_comes_back_gets_what_it_missed(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    server = traced_by(collector, tmp_path / "state")
    try:
        ask(server)
        collector.find(lambda span: span.name.endswith("/ServerReady"))
        collector.stop()
        ask(server, 3)
        while not log_lines(server, "the collector of spans does not take them"):
            time.sleep(0.05)
        collector.start()
        collector.find(lambda span: span.name.endswith("/ServerReady"), 4)
        awaits(server, "athanor_trace_spans_sent_total", 4)
        assert http_pages.metric(server, "athanor_trace_spans_dropped_total") == 0
        assert log_lines(server, "the collector of spans takes them again")
    finally:
        assert server.stop() == 0, server.log.read_text()
        collector.stop()


def test_a_collector_that_hangs_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    collector.may_answer.clear()
    server = traced_by(collector, tmp_path / "state")
    try:
        ask(server, 20)
        collector.await_calls(1)
        ask(server, 20)
        assert server.stop(timeout=30) == 0, server.log.read_text()
    finally:
        server.kill()
        collector.may_answer.set()
        collector.stop()


def test_what_is_refused_is_counted(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    collector.refuses = grpc.StatusCode.INVALID_ARGUMENT
    server = traced_by(collector, tmp_path / "state")
    try:
        ask(server, 2)
        awaits(server, "athanor_trace_spans_dropped_total", 2)
        text = http_pages.get(server, "/metrics")
        assert 'athanor_trace_spans_dropped_total{reason="refused"}' in text
    finally:
        assert server.stop() == 0, server.log.read_text()
        collector.stop()


def test_without_a_collector_there_at_all(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    collector.stop()  # its port is free
    server = traced_by(collector, tmp_path / "state")
    ask(server, 20)
    assert server.stop() == 0, server.log.read_text()


def test_the_end_sends_what_is_left(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    server = traced_by(collector, tmp_path / "state")
    ask(server, 5)
    assert server.stop() == 0, server.log.read_text()
    assert len([span for span in collector.spans() if span.name.endswith("/ServerReady")]) == 5
    collector.stop()


def test_a_ratio_of_none_leaves_those_who_ask(tmp_path: pathlib.Path) -> None:
    collector = Collector()
    server = traced_by(collector, tmp_path / "state", "--trace_ratio=0")
    ask(server, 20)
    with inference(server) as stub:
        stub.ServerReady(oip.ServerReadyRequest(), metadata=(("traceparent", SAMPLED),))
    assert server.stop() == 0, server.log.read_text()
    assert [span.parent_span_id.hex() for span in collector.spans()] == [PARENT]
    collector.stop()


@pytest.mark.parametrize(("flag", "why"), [
    ("--otlp_endpoint=localhost:4317", "it begins with neither http:// nor https://"),
    ("--otlp_endpoint=http://localhost:4318/v1/traces", "it has a path"),
    ("--trace_ratio=2", "outside"),
])
def test_wrong_flags_are_refused(tmp_path: pathlib.Path, flag: str, why: str) -> None:
    result = subprocess.run([built(Server.binary), f"--state_dir={tmp_path}/state", flag],
                            capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode != 0 and why in result.stderr
