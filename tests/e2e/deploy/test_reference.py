"""The reference in docs/reference: what its generator writes now, and true of the binaries."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import ATHANORD, ROOT, built

sys.path.insert(0, str(ROOT / "docs"))
import make_reference  # noqa: E402

REFERENCE = ROOT / "docs/reference"
REFUSALS = (ROOT / "server/metrics/metric_table.cc").read_text()


@pytest.mark.parametrize("page", make_reference.PAGES)
def test_page_is_what_the_generator_writes(page: str) -> None:
    assert not make_reference.differing([page]), (
        f"docs/reference/{page}.md is not what the source says; run {make_reference.MAKE}")


def test_no_page_without_a_maker() -> None:
    """Checks that each page is generated, or says that it is not."""
    for path in REFERENCE.glob("*.md"):
        assert path.stem in make_reference.PAGES or "Written by hand" in path.read_text(), path


def test_flags_are_those_of_help() -> None:
    """The generator reads the source; the server prints what it was built of."""
    text = subprocess.run([built(ATHANORD), "--help"], check=True, capture_output=True, text=True,
                          timeout=60).stdout
    printed = re.findall(r"^  --(\w+) \(.*; default (.*)\)\n      (.*)$", text, re.M)
    page = " ".join((REFERENCE / "flags.md").read_text().split())
    rows = re.findall(r"- `--(\w+)` \((.*?)\): ", page)
    assert [name for name, _, _ in printed] == [name for name, _ in rows]
    for (name, default, about), (_, known) in zip(printed, rows, strict=True):
        assert f"): {make_reference.plain(about)}" in page, name
        shown = re.search(r"default `?([^;`]*)", known)
        assert count(shown[1] if shown else '""') == count(default), name


def count(text: str) -> str | int:
    """A size or a time as a number, whatever its unit; other text as it is."""
    found = re.fullmatch(r"([\d,]+)([A-Za-z]*)", text)
    units = {unit: factor for group in make_reference.UNITS.values() for unit, factor in group
             if group is not make_reference.UNITS["kDuration"]}
    if not found:
        return text
    # Microseconds, for times of both kinds.
    return int(found[1].replace(",", "")) * {"": 1, "h": 3_600_000_000, **units}[found[2]]


def test_errors_has_each_code_that_leaves_the_server() -> None:
    """public_status.cc maps some codes to others; each that is left has a section and a row."""
    source = (ROOT / "server/base/public_status.cc").read_text()
    mapped = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
              for name in re.findall(r"case absl::StatusCode::k(\w+):", source)}
    codes = set(make_reference.initialiser(REFUSALS, "kCodes")) - mapped - {"OK"}
    assert mapped and len(codes) > 5
    text = (REFERENCE / "errors.md").read_text()
    assert set(re.findall(r"^## `([A-Z_]+)`$", text, re.M)) == codes
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.M)) == codes


def test_errors_has_each_reason_of_a_refusal() -> None:
    text = (REFERENCE / "errors.md").read_text()
    assert re.findall(r"^\| `([a-z_]+)` \|", text, re.M) == make_reference.initialiser(
        REFUSALS, "kRefusals")


def test_errors_names_flags_that_there_are() -> None:
    source = (ROOT / "server/base/options.cc").read_text()
    flags = {row[0] for row in make_reference.initialiser(source, "kFlags")}
    named = set(re.findall(r"`--(\w+)", (REFERENCE / "errors.md").read_text()))
    assert named and named <= flags
