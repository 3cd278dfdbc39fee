"""The committed table of ONNX's schemas is what its generator prints."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "frontend" / "onnx" / "schema"


def test_schema_types_are_the_packages() -> None:
    """Else: run schema_types.py again, and look at what has changed for each op."""
    spec = importlib.util.spec_from_file_location("schema_types", FOLDER / "schema_types.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    assert module.generate() == (FOLDER / "schema_types.inc").read_text()
