"""The dashboards in deploy/grafana: each metric is one of docs/reference/metrics.md, and is used as
what it is."""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import re

import pytest
from conftest import ROOT

DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
REFERENCE = ROOT / "docs/reference/metrics.md"
# Endings of the names by which a histogram is read.
PARTS = ("_bucket", "_sum", "_count")
OF_VERSION = {"model", "version"}
# Prometheus adds these to every series that it reads.
SCRAPED = {"instance", "job"}


@functools.cache
def metrics() -> dict[str, tuple[str, frozenset[str]]]:
    """Each metric's kind and labels."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for section in re.split(r"^## ", REFERENCE.read_text(), flags=re.MULTILINE):
        common = OF_VERSION if section.startswith("Of a model version") else set()
        rows = re.findall(r"^- `((?:athanor|process)_\w+)` \((counter|gauge|histogram)(.*?)\):",
                          section, re.MULTILINE | re.DOTALL)
        for name, kind, about in rows:
            labels = re.search(r"labels? (.*)$", about, re.DOTALL)
            own = set(re.findall(r"`(\w+)`", labels[1])) if labels else set()
            found[name] = (kind, frozenset(common | own))
    assert len(found) > 40, f"{REFERENCE}: its form has changed"
    return found


def base(name: str) -> str:
    """The metric that a series is of."""
    for part in PARTS:
        stem = name.removesuffix(part)
        if stem != name and metrics().get(stem, ("",))[0] == "histogram":
            return stem
    return name


def panels(path: pathlib.Path) -> list[dict]:
    return json.loads(path.read_text())["panels"]


def expressions(path: pathlib.Path) -> list[str]:
    board = json.loads(path.read_text())
    queries = [variable["definition"] for variable in board["templating"]["list"]
               if variable["type"] == "query"]
    return queries + [target["expr"] for panel in board["panels"]
                      for target in panel.get("targets", ())]


def wrong(expression: str) -> str:
    """What is wrong with the metrics of an expression; empty: nothing."""
    for found in re.finditer(r"\b(?:athanor|process)_\w+", expression):
        name, metric = found[0], base(found[0])
        if metric not in metrics():
            return f"{name} is not in {REFERENCE.name}"
        kind, labels = metrics()[metric]
        if kind == "histogram" and name == metric:
            return f"{name} is a histogram: read {', '.join(PARTS)}"
        called = expression[:found.start()]
        if not called.startswith("label_values("):
            grows = bool(re.search(r"\b(rate|increase)\($", called))
            if grows != (kind != "gauge"):
                return f"{name} is a {kind}: {'no' if grows else 'only a'} rate is of use"
        selector = re.match(r"\{(.*?)\}", expression[found.end():])
        used = re.findall(r"(\w+)=~?\"", selector[1]) if selector else []
        by = re.search(r"by \(([\w, ]+)\) \((rate|increase)?\(?$", called)
        used += re.findall(r"\w+", by[1]) if by else []
        known = labels | SCRAPED | ({"le"} if kind == "histogram" else set())
        if unknown := set(used) - known:
            return f"{name} has no label {sorted(unknown)}"
    return ""


def test_there_are_dashboards() -> None:
    assert {path.stem for path in DASHBOARDS} >= {"tensors", "tokens"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_metrics_are_those_of_the_reference(path: pathlib.Path) -> None:
    shown = expressions(path)
    assert shown and all(re.search("athanor_|process_", expression) for expression in shown)
    for expression in shown:
        assert not wrong(expression), f"{expression}: {wrong(expression)}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_a_place_and_a_name_of_their_own(path: pathlib.Path) -> None:
    ids = [panel["id"] for panel in panels(path)]
    assert len(set(ids)) == len(ids)
    for panel in panels(path):
        place = panel["gridPos"]
        assert panel["title"] and place["x"] + place["w"] <= 24, panel["title"]
        assert panel["type"] == "row" or (panel["description"] and panel["targets"]), panel["title"]
    for one, other in itertools.combinations(panels(path), 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or
                 a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
        assert apart, f"{one['title']} and {other['title']} overlap"


@pytest.mark.parametrize("expression", [
    "rate(athanor_no_such_total[1m])",
    "athanor_generation_tokens_total",
    "rate(athanor_num_requests_running[1m])",
    "rate(athanor_exec_seconds[1m])",
    'rate(athanor_exec_seconds_sum{code="OK"}[1m])',
    "sum by (kind) (athanor_calls)",
    "sum by (le) (rate(athanor_generation_tokens_total[1m]))",
])
def test_wrong_ones_are_noticed(expression: str) -> None:
    assert wrong(expression)
