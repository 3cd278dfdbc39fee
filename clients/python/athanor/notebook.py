"""Tables for notebooks: what `_repr_html_` of models, graphs and values returns."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

# Rows that a table shows; the others are counted.
MOST_ROWS = 50
_CAPTION = "text-align:left;font-weight:bold;white-space:nowrap"  # colours are the notebook's


def table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Returns a table of texts, each of them escaped, under a title."""
    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(f'<{tag} style="text-align:left">{html.escape(str(cell))}</{tag}>'
                       for cell in row)

    listed = list(rows)
    lines = [f"<tr>{cells(row, 'td')}</tr>" for row in listed[:MOST_ROWS]]
    if len(listed) > MOST_ROWS:
        lines.append(f"<tr><td>and {len(listed) - MOST_ROWS} more</td></tr>")
    head = f"<thead><tr>{cells(header, 'th')}</tr></thead>" if header else ""
    return (f'<table><caption style="{_CAPTION}">{html.escape(title)}</caption>{head}'
            f"<tbody>{''.join(lines)}</tbody></table>")


def bytes_text(count: int) -> str:
    """Formats a number of bytes: ``1.5 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
