"""Names the current span of OpenTelemetry to the server, where a program has one."""

from __future__ import annotations

import sys


def current_metadata() -> tuple[tuple[str, str], ...]:
    """Returns the metadata that makes the server's spans parts of the current one.

    Returns
    -------
    tuple of (str, str)
        ``traceparent`` and what else the program's propagators say; empty if it has not imported
        OpenTelemetry, or has no span now. OpenTelemetry is never imported for this.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return ()
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return tuple((name.lower(), value) for name, value in headers.items())
