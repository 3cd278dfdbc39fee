"""Writes testdata/: small models as the SDK builds them, for tests that have no Python.

    python tests/models/make_testdata.py

One text message (athanor.v1.Graph) of each in composites, one in primitives. They hold no weights:
each parameter's content hash is that of its name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable

import athanor
import dlrm
import encoder
import mlp
from google.protobuf import text_format

SMALL = encoder.Config(layers=2, width=48, heads=4, hidden=96, vocabulary=101, positions=64)
BAGS = dataclasses.replace(dlrm.MINI, bags=(1, 3, 2))
MODELS: dict[str, Callable[[bool], athanor.Graph]] = {
    "encoder": lambda composite: encoder.encoder_graph(composite, SMALL),
    "digits": lambda composite: mlp.mlp_graph(composite, mlp.DIGITS),
    "dlrm": lambda composite: dlrm.dlrm_graph(composite, BAGS),
}
FORMS = {"composites": True, "primitives": False}
FOLDER = pathlib.Path(__file__).parent / "testdata"


def graph_text(graph: athanor.Graph) -> str:
    """The graph as text: one line for each dim, node and output."""
    message = graph.proto()
    for node in message.nodes:
        if node.content_hash:
            node.content_hash = hashlib.sha256(node.name.encode()).digest()
    lines = [f'name: "{message.name}"']
    for field in ("dims", "nodes", "outputs"):
        for entry in getattr(message, field):
            text = text_format.MessageToString(entry, as_one_line=True)
            lines.append(f"{field} {{ {text} }}")
    return "\n".join(lines) + "\n"


def files() -> dict[str, athanor.Graph]:
    """The graph of each file."""
    return {f"{name}_{form}.txtpb": build(composite)
            for name, build in MODELS.items() for form, composite in FORMS.items()}


if __name__ == "__main__":
    for file, graph in files().items():
        (FOLDER / file).write_text(graph_text(graph))
