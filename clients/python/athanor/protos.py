"""The messages and services of `proto/`, one namespace for each of its files.

    from athanor.protos import graph_pb2, model_pb2
    from athanor.protos import open_inference_grpc_pb2 as oip

    model_pb2.UploadHeader(name="m")                     # a message
    model_pb2.Model.State.Name(3)                        # an enum of it
    Stub(channel, oip, "GRPCInferenceService")         # callables: .ServerLive, .ModelInfer, ...

The build writes their descriptors to `protos.binpb`, beside this file. They live in a pool of their
own: another package of this process may define messages of the same names in the default pool, as
any other client of the Open Inference Protocol does. Nothing here depends on which version of
protobuf read the `.proto` files.
"""

from __future__ import annotations

import copyreg
import importlib.resources
import types
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message


def _read_pool() -> descriptor_pool.DescriptorPool:
    file = importlib.resources.files("athanor").joinpath("protos.binpb")
    if not file.is_file():
        raise ImportError(f"there is no {file}: this is the source, of which pip builds the "
                          "package. Run `pip install ./clients/python`, and import athanor from "
                          "another folder than that of the source")
    data = file.read_bytes()
    pool = descriptor_pool.DescriptorPool()
    # Each file comes after the files it imports.
    for described in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(described.SerializeToString())
    return pool


_POOL = _read_pool()


def _message_class(descriptor: Descriptor, path: str) -> type[Message]:
    """Makes the class of a message and those inside it; pickle finds it as `path` of this
    module."""
    made = message_factory.GetMessageClass(descriptor)
    made.__module__, made.__qualname__ = __name__, path
    # protobuf's own function looks for nested messages in the default pool.
    copyreg.pickle(made, _reduced)
    for name, inner in descriptor.nested_types_by_name.items():
        setattr(made, name, _message_class(inner, f"{path}.{name}"))
    return made


def _reduced(message: Message) -> tuple[Callable[..., Message], tuple[type[Message], bytes]]:
    return _restored, (type(message), message.SerializeToString())


def _restored(kind: type[Message], data: bytes) -> Message:
    return kind.FromString(data)


def _namespace(file: str) -> types.SimpleNamespace:
    """Makes the namespace that a module generated from the file would be."""
    descriptor = _POOL.FindFileByName(f"proto/{file}.proto")
    found = types.SimpleNamespace(DESCRIPTOR=descriptor)
    name = f"{file.rpartition('/')[2]}_pb2"
    for key, message in descriptor.message_types_by_name.items():
        setattr(found, key, _message_class(message, f"{name}.{key}"))
    for key, enum in descriptor.enum_types_by_name.items():
        setattr(found, key, EnumTypeWrapper(enum))
        vars(found).update((value.name, value.number) for value in enum.values)
    return found


cache_pb2 = _namespace("athanor/v1/cache")
compile_pb2 = _namespace("athanor/v1/compile")
generate_pb2 = _namespace("athanor/v1/generate")
graph_pb2 = _namespace("athanor/v1/graph")
model_pb2 = _namespace("athanor/v1/model")
plan_pb2 = _namespace("athanor/v1/plan")
search_pb2 = _namespace("athanor/v1/search")
target_pb2 = _namespace("athanor/v1/target")
open_inference_grpc_pb2 = _namespace("inference/open_inference_grpc")


class Stub:
    """A service behind a channel, blocking or asyncio: one callable for each of its methods."""

    def __init__(self, channel: grpc.Channel | grpc.aio.Channel, file: types.SimpleNamespace,
                 service: str) -> None:
        for method in file.DESCRIPTOR.services_by_name[service].methods:
            setattr(self, method.name, _callable(channel, method))


def _callable(channel: grpc.Channel | grpc.aio.Channel,
              method: MethodDescriptor) -> Callable[..., Any]:
    sent = "stream" if method.client_streaming else "unary"
    received = "stream" if method.server_streaming else "unary"
    make = getattr(channel, f"{sent}_{received}")
    made: Callable[..., Any] = make(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString)
    return made
