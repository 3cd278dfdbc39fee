"""Calls one server with both the SDK and tritonclient, in one process.

    python beside_tritonclient.py 127.0.0.1:50051 sdk     # imported first: sdk or tritonclient
"""

from __future__ import annotations

import importlib
import json
import sys

FIRST = {"sdk": ("athanor", "tritonclient.grpc"), "tritonclient": ("tritonclient.grpc", "athanor")}


def main(address: str, first: str) -> None:
    """Prints the versions at work; AssertionError: an answer is wrong."""
    for module in FIRST[first]:
        importlib.import_module(module)
    import athanor
    import google.protobuf
    import numpy as np
    import tritonclient.grpc as triton
    from google.protobuf.internal import api_implementation

    graph = athanor.Graph("beside", dims={"b": (1, 64)})
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph.output("y", graph.input("x", ("b", 4), "f32") @ graph.parameter("w", weight))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with athanor.Client(address) as client:
        model = client.upload(graph, name="beside", budget="0")
        np.testing.assert_array_equal(model.infer({"x": x}, timeout=120)["y"], x @ weight)
        assert model.info().created.year > 2000
        other = triton.InferenceServerClient(address)
        assert other.is_server_live() and other.is_model_ready("beside")
        given = triton.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x)
        reply = other.infer("beside", [given])
        np.testing.assert_array_equal(reply.as_numpy("y"), x @ weight)
        assert type(reply.get_response()).__name__ == "ModelInferResponse"
        other.close()
        model.delete()
    print(json.dumps({"protobuf": google.protobuf.__version__,
                      "implementation": api_implementation.Type()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
