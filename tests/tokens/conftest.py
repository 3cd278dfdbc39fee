"""Lets the tests of this folder import what lies beside them."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
