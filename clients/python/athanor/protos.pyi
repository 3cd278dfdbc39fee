from typing import Any

import grpc

from athanor import messages as cache_pb2
from athanor import messages as compile_pb2
from athanor import messages as generate_pb2
from athanor import messages as graph_pb2
from athanor import messages as model_pb2
from athanor import messages as open_inference_grpc_pb2
from athanor import messages as plan_pb2
from athanor import messages as search_pb2
from athanor import messages as target_pb2

__all__ = [
    "Stub", "cache_pb2", "compile_pb2", "generate_pb2", "graph_pb2", "model_pb2",
    "open_inference_grpc_pb2", "plan_pb2", "search_pb2", "target_pb2",
]

class Stub:
    def __init__(self, channel: grpc.Channel | grpc.aio.Channel, file: Any,
                 service: str) -> None: ...
    def __getattr__(self, method: str) -> Any: ...
