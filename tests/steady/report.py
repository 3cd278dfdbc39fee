"""A run of scenarios as text and as one HTML file: each figure beside its reach."""

from __future__ import annotations

import datetime
import html
import os
import platform
import subprocess

from harness import ROOT, Figure
from scenarios import Outcome

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: auto; padding: 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; }
td.value { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.missed { color: #c22; font-weight: 600; }
.good { color: #282; }
pre { overflow-x: auto; background: #8882; padding: .6rem; }
"""


def value_text(figure: Figure) -> str:
    value = figure.value
    text = f"{value:,.4g}" if isinstance(value, float) else str(value)
    return f"{text} {figure.unit}".strip()


def lines(outcome: Outcome) -> list[str]:
    """The outcome for a terminal."""
    verdict = "good" if outcome.good else "MISSED"
    out = [f"{verdict:>7}  {outcome.scenario.name} ({outcome.seconds:.1f} s)"]
    for figure in outcome.run.figures:
        reach = f"   (reach {figure.reach})" if figure.reach else ""
        mark = "  <-- missed" if not figure.met else ""
        out.append(f"           {figure.name}: {value_text(figure)}{reach}{mark}")
    return out + ["           " + line for line in outcome.error.splitlines()]


def conditions(seed: int, share: float) -> dict[str, str]:
    """Describes the machine and settings of the figures."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    return {"Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "Commit": commit or "unknown", "Seed": str(seed),
            "Share of the long form": f"{share:g}",
            "Machine": f"{model}, {os.cpu_count()} cores", "System": platform.platform(),
            "Load when it ended": "{:.2f} {:.2f} {:.2f}".format(*os.getloadavg())}


def page(outcomes: list[Outcome], about: dict[str, str]) -> str:
    """Returns one self-contained HTML file."""
    missed = [outcome.scenario.name for outcome in outcomes if not outcome.good]
    head = (f'<p class="missed">Missed: {", ".join(missed)}</p>' if missed else
            '<p class="good">All reaches were met.</p>')
    rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>"
                   for k, v in about.items())
    return ("<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/>"
            f"<title>Steadiness</title><style>{STYLE}</style></head><body>"
            f"<h1>Steadiness</h1>{head}<table>{rows}</table>"
            + "".join(map(_section, outcomes)) + "</body></html>\n")


def _section(outcome: Outcome) -> str:
    kind = "good" if outcome.good else "missed"
    rows = "".join(
        f'<tr><td>{html.escape(figure.name)}</td><td class="value">'
        f"{html.escape(value_text(figure))}</td><td>{html.escape(figure.reach)}</td>"
        f'<td class="{"good" if figure.met else "missed"}">{_verdict(figure)}</td></tr>'
        for figure in outcome.run.figures)
    error = f"<pre>{html.escape(outcome.error)}</pre>" if outcome.error else ""
    return (f'<h2 class="{kind}">{html.escape(outcome.scenario.name)}</h2>'
            f"<p>{html.escape(outcome.scenario.reach)}. {outcome.seconds:.0f} s.</p>"
            f"<table><tr><th>Figure</th><th>Seen</th><th>Reach</th><th></th></tr>{rows}</table>"
            f"{error}")


def _verdict(figure: Figure) -> str:
    if not figure.judged:
        return ""
    return "met" if figure.met else "missed"
