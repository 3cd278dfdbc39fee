"""Adding an op touches few files: young ops are named in those that CONTRIBUTING.md lists, and the
rest of the tree reads traits of the op table."""

import pathlib
import tempfile
import unittest

from tests.layering import layering, op_files

_NAME = "compiler/ir/graph/op.h"

# A name, a row with all that analyses ask, a decomposition; then whoever offers it to users.
COMPOSITES = {
    "Rotary": [
        _NAME,
        "compiler/ir/ops/transformers.cc",
        "compiler/rules/decompose/decompose_transformers.cc",
        "compiler/frontend/onnx/ops/networks/attention.cc",
        "compiler/frontend/checkpoint/decoder/decoder.cc",
        "clients/python/athanor/networks.py",
    ],
    "Dequantize": [
        _NAME,
        "compiler/ir/ops/transformers.cc",
        "compiler/rules/decompose/decompose_transformers.cc",
    ],
    "Cumulate": [
        _NAME,
        "compiler/ir/ops/order.cc",
        "compiler/rules/decompose/decompose_order.cc",
        "compiler/frontend/onnx/ops/math/handlers_sort.cc",
        "clients/python/athanor/reductions.py",
    ],
}
# A name, a row, what each dialect makes of it (but for functions of libm); then whoever offers or
# uses it.
PRIMITIVES = {
    "Expm1": [
        _NAME,
        "compiler/ir/ops/functions.cc",
        "compiler/frontend/onnx/ops/math/handlers_elementwise.cc",
        "compiler/frontend/onnx/ops/networks/handlers_recurrent_steps.cc",
        "clients/python/athanor/elementwise.py",
    ],
    "MulReduce": [
        _NAME,
        "compiler/ir/ops/reductions.cc",
        "compiler/codegen/lower/point.cc",
        "compiler/rules/decompose/decompose_order.cc",
        "compiler/rules/families/algebra_reduce.cc",
        "compiler/frontend/onnx/ops/math/handlers_reduce.cc",
        "clients/python/athanor/reductions.py",
    ],
}
MOST_OF_A_COMPOSITE = 6
MOST_OF_A_PRIMITIVE = 8
# Files outside the op table, rules and importers that name any op.
MOST_THAT_NAME_ONE = 33
# Files that may switch over ops: those that print code in a dialect, and the proofs that only some
# ops allow.
SWITCHES = {
    "compiler/codegen/lower/contract.cc",
    "compiler/codegen/cpu/arithmetic.cc",
    "compiler/codegen/gpu/arithmetic.cc",
    "compiler/codegen/print/spelling.cc",  # what both dialects spell alike
    "compiler/rules/terms/facts.cc",
}


class OpFilesTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.texts = op_files.sources(layering.repository_root())

    def test_adding_a_composite_touches_these_files(self):
        for op, expected in COMPOSITES.items():
            found = op_files.naming(op, self.texts)
            wrong = op_files.differences(op, found, expected, MOST_OF_A_COMPOSITE)
            self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_adding_a_primitive_touches_these_files(self):
        for op, expected in PRIMITIVES.items():
            found = op_files.naming(op, self.texts)
            wrong = op_files.differences(op, found, expected, MOST_OF_A_PRIMITIVE)
            self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_few_files_name_an_op(self):
        found = op_files.naming_any(self.texts)
        self.assertGreater(len(found), 5)
        self.assertLessEqual(len(found), MOST_THAT_NAME_ONE, "\n" + "\n".join(found))

    def test_analyses_switch_over_no_ops(self):
        self.assertEqual(set(op_files.switching(self.texts)), SWITCHES)

    def test_planted_files_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {
                _NAME: "X(Rotary)",
                "compiler/ir/ops/transformers.cc": "  ATHANOR_ROW(\n      Rotary, kComposite",
                "compiler/ir/ops/op_table_test.cc": "Op::kRotary",
                "compiler/search/cost.cc": "switch (op) { case Op::kRotary: return 3; }",
                "compiler/search/other.cc": "Op::kRotaryHalf",
                "clients/python/athanor/layers.py": 'add("Rotary", [x])',
            }.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            texts = op_files.sources(root)
            found = op_files.naming("Rotary", texts)
            self.assertEqual(sorted(found), [
                "clients/python/athanor/layers.py", _NAME,
                "compiler/ir/ops/transformers.cc", "compiler/search/cost.cc"])
            self.assertEqual(op_files.switching(texts), ["compiler/search/cost.cc"])
            self.assertEqual(op_files.naming_any(texts),
                             ["compiler/search/cost.cc", "compiler/search/other.cc"])
            wrong = op_files.differences(
                "Rotary", found,
                [_NAME, "compiler/ir/ops/transformers.cc", "clients/python/athanor/layers.py",
                 "compiler/rules/decompose/gone.cc"], 3)
            self.assertEqual(len(wrong), 3, wrong)
            self.assertIn("compiler/search/cost.cc names Rotary", wrong[0])
            self.assertIn("gone.cc names Rotary no more", wrong[1])
            self.assertIn("named in 4 files, 3 are the most", wrong[2])


if __name__ == "__main__":
    unittest.main()
