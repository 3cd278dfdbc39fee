"""athanor_proto_library: C++ (and gRPC) code from .proto files with Debian's protoc."""

load(":cc.bzl", "cc_library")

def _srcs_of(label):
    """The filegroup of .proto files that goes with an athanor_proto_library."""
    if ":" in label:
        return label + "_srcs"
    return label + ":" + label.split("/")[-1] + "_srcs"

def athanor_proto_library(name, srcs, deps = [], grpc = True, visibility = None):
    """Generates and compiles the C++ of `srcs`, all in the calling package.

    Headers are included by their path from the repository root, for example
    `#include "proto/athanor/v1/graph.pb.h"`; imports inside the .proto files are
    written the same way.

    With `grpc`, the messages alone are `<name>_messages`: for the layers that may not include gRPC,
    and for what imports these files.

    Args:
      name: the cc_library.
      srcs: .proto files of this package.
      deps: other athanor_proto_library targets whose files these import, those of messages.
      grpc: also generate `*.grpc.pb.{h,cc}` for each file.
      visibility: of the cc_library and of the `<name>_srcs` filegroup.
    """
    messages = name + "_messages" if grpc else name
    for library in [name, messages] if grpc else [name]:
        native.filegroup(
            name = library + "_srcs",
            srcs = srcs + [_srcs_of(dep) for dep in deps],
            visibility = ["//visibility:public"],
        )
    stems = [src[:-len(".proto")] for src in srcs]
    suffixes = [".pb"] + ([".grpc.pb"] if grpc else [])
    cmd = "protoc -I. --cpp_out=$(GENDIR)"
    if grpc:
        cmd += " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR)"
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [_srcs_of(dep) for dep in deps],
        outs = [
            stem + suffix + end
            for stem in stems
            for suffix in suffixes
            for end in [".h", ".cc"]
        ],
        cmd = cmd + " " + " ".join(["$(location %s)" % src for src in srcs]),
        message = "Generating C++ from",
    )
    cc_library(
        name = messages,
        srcs = [stem + ".pb.cc" for stem in stems],
        hdrs = [stem + ".pb.h" for stem in stems],
        copts = ["-w"],
        visibility = visibility,
        deps = deps + ["//deploy/bazel/libs:protobuf"],
    )
    if grpc:
        cc_library(
            name = name,
            srcs = [stem + ".grpc.pb.cc" for stem in stems],
            hdrs = [stem + ".grpc.pb.h" for stem in stems],
            precompiled = "rpc",
            copts = ["-w"],
            visibility = visibility,
            deps = [":" + messages, "//deploy/bazel/libs:grpcpp"],
        )
