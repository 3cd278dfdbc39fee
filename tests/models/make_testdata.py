"""Writes testdata/: the small encoder as the SDK builds it, for tests that have no Python.

    python tests/models/make_testdata.py

One text message (athanor.v1.Graph) in composites, one in primitives. They hold no weights: each
parameter's content hash is that of its name.
"""

from __future__ import annotations

import hashlib
import pathlib

import encoder
from google.protobuf import text_format

SMALL = encoder.Config(layers=2, width=48, heads=4, hidden=96, vocabulary=101, positions=64)
FILES = {"encoder_composites.txtpb": True, "encoder_primitives.txtpb": False}
FOLDER = pathlib.Path(__file__).parent / "testdata"


def graph_text(composite: bool) -> str:
    """The graph as text: one line for each dim, node and output."""
    message = encoder.encoder_graph(composite, SMALL).proto()
    for node in message.nodes:
        if node.content_hash:
            node.content_hash = hashlib.sha256(node.name.encode()).digest()
    lines = [f'name: "{message.name}"']
    for field in ("dims", "nodes", "outputs"):
        for entry in getattr(message, field):
            text = text_format.MessageToString(entry, as_one_line=True)
            lines.append(f"{field} {{ {text} }}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for file, composite in FILES.items():
        (FOLDER / file).write_text(graph_text(composite))
