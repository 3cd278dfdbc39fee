"""Reads what a running server says of itself over HTTP."""

from __future__ import annotations

import json
import urllib.request

from server_process import Server


def get(server: Server, path: str) -> str:
    """The body of a page of the HTTP side."""
    with urllib.request.urlopen(f"http://{server.http_address}{path}", timeout=30) as answer:
        return answer.read().decode()


def status_of(server: Server) -> dict:
    """The status as JSON."""
    return json.loads(get(server, "/status.json"))


def metric(server: Server, name: str) -> float:
    """The sum over a metric's label sets."""
    values = [float(line.rsplit(" ", 1)[1]) for line in get(server, "/metrics").splitlines()
              if line.split("{")[0].split(" ")[0] == name]
    assert values, f"there is no metric {name}"
    return sum(values)
