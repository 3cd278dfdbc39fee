"""The alert rules in deploy/prometheus: each expression reads metrics that there are, as what they
are, and promtool, which deploy/test fetches, takes them."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from test_dashboards import wrong

FOLDER = ROOT / "deploy/prometheus"
RULE = re.compile(r"- alert: (?P<name>\w+)\n +expr: \|\n +(?P<expr>.*)\n(?: +for: \w+\n)?"
                  r" +labels:\n +severity: (?P<severity>\w+)\n +annotations:\n"
                  r" +summary: '(?P<summary>.*)'\n +description: >-\n"
                  r"(?P<description>(?: {12}.*\n?)+)")


def rules(text: str) -> list[dict[str, str]]:
    found = [rule.groupdict() for rule in RULE.finditer(text)]
    assert len(found) == text.count("- alert:"), "a rule of another form"
    return found


RULES = rules((FOLDER / "alerts.yml").read_text())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_rule_reads_metrics_that_there_are(rule: dict[str, str]) -> None:
    assert not wrong(rule["expr"]), wrong(rule["expr"])
    assert rule["severity"] in ("page", "ticket")
    kept = re.findall(r"by \(([\w, ]+)\)", rule["expr"])
    for label in re.findall(r"\$labels\.(\w+)", rule["summary"]):
        assert not kept or any(label in labels for labels in kept), f"{label} is summed away"
    assert rule["description"].strip().endswith(".")


def test_names_are_used_once() -> None:
    names = [rule["name"] for rule in RULES]
    assert len(set(names)) == len(names) >= 10


def test_descriptions_name_files_that_exist() -> None:
    named = {path for rule in RULES for path in re.findall(r"\b[\w/]+\.md\b", rule["description"])}
    assert named and all((ROOT / path).exists() for path in named), named


def test_wrong_rules_are_noticed() -> None:
    assert wrong("sum by (le, code) (rate(athanor_exec_seconds_bucket[1m])) > 1")
    assert wrong("rate(process_open_fds[1m]) > 0")
    with pytest.raises(AssertionError, match="another form"):
        rules("- alert: X\n  expr: up\n")


def promtool(*arguments: str, folder: pathlib.Path = FOLDER) -> subprocess.CompletedProcess:
    tool = shutil.which("promtool") or pathlib.Path(sys.executable).with_name("promtool")
    return subprocess.run([tool, *arguments], cwd=folder, capture_output=True, text=True,
                          check=False)


@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"),
                                       ("check", "config", "prometheus.yml"),
                                       ("test", "rules", "alerts_test.yml")], ids=" ".join)
def test_promtool_takes_them(arguments: tuple[str, ...]) -> None:
    result = promtool(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_notices_a_rule_that_no_longer_fires(tmp_path: pathlib.Path) -> None:
    for path in FOLDER.glob("*.yml"):
        text = path.read_text().replace("athanor_device_lost == 1", "athanor_device_lost == 2")
        (tmp_path / path.name).write_text(text)
    assert promtool("test", "rules", "alerts_test.yml", folder=tmp_path).returncode != 0
