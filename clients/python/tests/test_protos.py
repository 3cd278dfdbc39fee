"""Messages made from descriptors: as generated classes are, in a pool of their own."""

from __future__ import annotations

import copy
import os
import pathlib
import pickle
import subprocess
import sys
import typing

import athanor
import numpy as np
import pytest
from athanor import calls, jobs, protos, wire
from google.protobuf import descriptor_pool
from google.protobuf.message import Message

FILES = {name: value for name, value in vars(protos).items() if name.endswith("_pb2")
         and name != "descriptor_pb2"}


def classes(holder: object, seen: set[type]) -> set[type]:
    """Returns all message classes of a namespace, including nested ones."""
    for value in list(vars(holder).values()):
        if isinstance(value, type) and issubclass(value, Message) and value not in seen:
            seen.add(value)
            classes(value, seen)
    return seen


@pytest.mark.parametrize("file", FILES)
def test_every_message_pickles(file: str) -> None:
    found = classes(FILES[file], set())
    assert found
    for kind in found:
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert pickle.loads(pickle.dumps(kind())) == kind() == copy.deepcopy(kind())


def test_messages_inside_others() -> None:
    buckets = protos.model_pb2.DimBuckets(dim="b")
    buckets.ranges.append(protos.model_pb2.DimBuckets.Range(min=1, max=2))
    assert type(buckets.ranges[0]) is protos.model_pb2.DimBuckets.Range
    restored = pickle.loads(pickle.dumps(buckets.ranges[0]))
    assert (type(restored), restored.max) == (protos.model_pb2.DimBuckets.Range, 2)
    assert protos.model_pb2.Model.State.Name(protos.model_pb2.Model.READY) == "READY"
    assert protos.search_pb2.SearchMode.Name(protos.search_pb2.SEARCH_EXHAUST) == "SEARCH_EXHAUST"
    model = protos.model_pb2.Model()
    model.created.FromSeconds(1_800_000_000)
    assert wire.model_info(model).created.year == 2027


def test_a_graph_with_its_weights_pickles() -> None:
    graph = athanor.Graph("g")
    x = graph.input("x", (3,), "f32")
    graph.output("y", x * graph.parameter("w", np.ones(3, np.float32)) + 1.5)
    assert pickle.loads(pickle.dumps(graph)).proto() == graph.proto()


def test_annotations_resolve() -> None:
    assert typing.get_type_hints(jobs.start_compile)["return"] is (
        protos.compile_pb2.StartCompileRequest)
    assert typing.get_type_hints(calls.cache_export)["return"] is (
        calls.Call[protos.cache_pb2.CacheBundleChunk])


def test_the_default_pool_has_none_of_them() -> None:
    for file in FILES.values():
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindFileByName(file.DESCRIPTOR.name)


OTHERS = """
from google.protobuf import descriptor_pb2, descriptor_pool
other = descriptor_pb2.FileDescriptorProto(name="other.proto", package="inference")
other.message_type.add(name="ServerLiveRequest").field.add(
    name="mine", number=1, type=9, label=1)
descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
"""
OURS = """
import athanor
from athanor.protos import open_inference_grpc_pb2 as oip
assert oip.ModelInferRequest(model_name="m").SerializeToString() == b"\\x0a\\x01m"
assert not oip.ServerLiveRequest.DESCRIPTOR.fields
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("program", [OTHERS + OURS, OURS + OTHERS], ids=["after", "before"])
def test_messages_of_other_packages_with_our_names(program: str, implementation: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, cwd="/",
                   env={"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation})


def test_the_source_alone_says_how_to_install() -> None:
    """The build adds the descriptors, so the source folder cannot be imported from."""
    source = pathlib.Path(__file__).resolve().parents[1]
    assert not (source / "athanor/protos.binpb").exists()
    done = subprocess.run([sys.executable, "-c", "import athanor"], cwd=source, check=False,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 1 and "ImportError: there is no" in done.stderr
    assert "pip install ./clients/python" in done.stderr
