# What type checkers know of the messages, which are made while the package is imported: that they
# exist. There is no module of this name; protos.pyi has each namespace of protos.py from here.
from typing import Any

def __getattr__(name: str) -> Any: ...
