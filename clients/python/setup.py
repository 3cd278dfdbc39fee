"""Writes the descriptors of the repository's proto/ into the package while building.

They land in the build as `athanor/protos.binpb`, never in the source tree. A serialised
FileDescriptorSet can be read by every version of protobuf, whichever one the protoc that wrote it
belongs to; generated code can be imported by its own and the next major version alone.
"""

from __future__ import annotations

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = [
    "proto/athanor/v1/cache.proto",
    "proto/athanor/v1/compile.proto",
    "proto/athanor/v1/generate.proto",
    "proto/athanor/v1/graph.proto",
    "proto/athanor/v1/model.proto",
    "proto/athanor/v1/plan.proto",
    "proto/athanor/v1/search.proto",
    "proto/athanor/v1/target.proto",
    "proto/inference/open_inference_grpc.proto",
]


class BuildWithProtos(build_py):
    """Copies the package, then adds the descriptors to the copy."""

    def run(self) -> None:
        super().run()
        write_descriptors(pathlib.Path(self.build_lib, "athanor", "protos.binpb"))


def write_descriptors(target: pathlib.Path) -> None:
    """Writes the descriptors of all PROTOS, and of the files that they import."""
    import grpc_tools
    from grpc_tools import protoc

    missing = [name for name in PROTOS if not (ROOT / name).is_file()]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not below {ROOT}; build it in the repository")
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT}", f"-I{well_known}", "--include_imports",
                 f"--descriptor_set_out={target}", *PROTOS]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed (above)")


setup(cmdclass={"build_py": BuildWithProtos})
