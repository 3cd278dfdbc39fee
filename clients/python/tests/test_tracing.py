"""The current span of OpenTelemetry goes along with calls."""

from __future__ import annotations

import subprocess
import sys

from athanor import calls
from athanor.tracing import current_metadata
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState


class Sent:
    """A channel that keeps the metadata of what is sent over it."""

    def __init__(self) -> None:
        self.metadata: tuple[tuple[str, str], ...] = ()

    def unary_unary(self, *args: object, **kwargs: object) -> object:
        def call(request: object, timeout: float | None, metadata: tuple) -> None:
            self.metadata = metadata
        return call

    unary_stream = stream_unary = stream_stream = unary_unary


def test_without_a_span_there_is_nothing_to_say() -> None:
    assert current_metadata() == ()


def test_the_span_of_a_tracer_is_named() -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("outer") as span:
        sent = dict(current_metadata())
    spans = span.get_span_context()
    assert sent == {"traceparent": f"00-{spans.trace_id:032x}-{spans.span_id:016x}-"
                                   f"{spans.trace_flags:02x}"}
    assert current_metadata() == ()


def test_flags_state_and_baggage_go_along() -> None:
    parent = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(0),
                         trace_state=TraceState([("vendor", "x")]))
    token = context.attach(baggage.set_baggage("user", "7", trace.set_span_in_context(
        NonRecordingSpan(parent))))
    try:
        assert dict(current_metadata()) == {
            "traceparent": f"00-{1:032x}-{2:016x}-00", "tracestate": "vendor=x",
            "baggage": "user=7"}
    finally:
        context.detach(token)


def test_it_is_in_each_calls_metadata() -> None:
    channel = Sent()
    stubs = calls.Stubs(channel, (("authorization", "Bearer t"),))
    stubs.send(calls.ready())
    assert channel.metadata == (("authorization", "Bearer t"),)
    with TracerProvider().get_tracer("test").start_as_current_span("outer"):
        stubs.send(calls.ready())
    assert [name for name, _ in channel.metadata] == ["authorization", "traceparent"]


def test_opentelemetry_is_not_imported_for_it() -> None:
    code = ("import sys; from athanor.tracing import current_metadata; "
            "assert current_metadata() == (); "
            "assert not any(name.startswith('opentelemetry') for name in sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)
