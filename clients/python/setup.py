"""Generates the message classes from the repository's proto/ while building.

They land in the package `athanor._proto` of the build, never in the source tree.
"""

from __future__ import annotations

import pathlib
import re

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = [
    "proto/athanor/v1/cache.proto",
    "proto/athanor/v1/compile.proto",
    "proto/athanor/v1/graph.proto",
    "proto/athanor/v1/model.proto",
    "proto/athanor/v1/plan.proto",
    "proto/athanor/v1/search.proto",
    "proto/athanor/v1/target.proto",
    "proto/inference/open_inference_grpc.proto",
]


class BuildWithProtos(build_py):
    """Copies the package, then adds the generated modules to the copy."""

    def run(self) -> None:
        super().run()
        generate(pathlib.Path(self.build_lib, "athanor", "_proto"))


def generate(target: pathlib.Path) -> None:
    """Writes the modules of all PROTOS below `target`, importable as athanor._proto."""
    import grpc_tools
    from grpc_tools import protoc

    missing = [name for name in PROTOS if not (ROOT / name).is_file()]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not below {ROOT}; build it in the repository")
    target.mkdir(parents=True, exist_ok=True)
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT}", f"-I{well_known}", f"--python_out={target}",
                 f"--grpc_python_out={target}", *PROTOS]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed (above)")
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()
    # protoc's modules import each other by path from the root, where `proto` is somebody else's.
    for path in target.rglob("*.py"):
        text = path.read_text()
        path.write_text(re.sub(r"^from proto\.", "from athanor._proto.proto.", text, flags=re.M))


setup(cmdclass={"build_py": BuildWithProtos})
