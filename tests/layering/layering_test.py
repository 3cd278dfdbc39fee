"""The tree keeps to the table of layers, its documents name files that exist, and the scanners
would notice if not."""

import pathlib
import tempfile
import unittest

from tests.layering import layering


class LayeringTest(unittest.TestCase):

    def setUp(self):
        self.table = layering.Table.load(pathlib.Path(layering.TABLE_PATH))

    def scan(self, files: dict[str, str]) -> list[str]:
        """Problems of a tree made of `files` (path: text)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found, count = layering.check_tree(self.table, root)
            self.assertEqual(count, len(files))
            return found

    def test_repository_keeps_to_the_table(self):
        root = layering.repository_root()
        self.assertTrue((root / "WORKSPACE").exists(), root)
        found, count = layering.check_tree(self.table, root)
        self.assertGreater(count, 20)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_table_has_no_cycle_and_no_unknown_layer(self):
        self.assertEqual(self.table.problems(), [])

    def test_cycles_and_unknown_layers_are_found(self):
        table = layering.Table({"a": ["b"], "b": ["a", "c"]}, [], {})
        self.assertEqual(
            table.problems(),
            ["b: no such layer as c", "cycle: a -> b -> a"])
        rooms = layering.Table({"a": [], "b": []}, [], {},
                               {"a/x": ["a/y"], "a/y": ["a/x", "a/z", "b/w"], "b/w": []})
        self.assertEqual(rooms.problems(), [
            "a/y: no such room as a/z",
            "a/y: b/w is a room of another layer",
            "cycle: a/x -> a/y -> a/x",
        ])

    def test_a_folder_without_a_room_is_found(self):
        found = self.scan({"server/attic/box.h": "#include <vector>\n",
                           "compiler/ir/graph.h": "#include <vector>\n"})
        self.assertEqual(len(found), 2, found)
        self.assertIn("server/attic/box.h: its folder has no row", found[1])

    def test_longest_name_decides(self):
        for path, layer in {
            "compiler/codegen/cpu/clang.cc": "compiler/codegen/cpu/clang*",
            "compiler/codegen/cpu/dialect.h": "compiler/codegen",
            "server/tuner/main.cc": "server/tuner",
            "server/rpc/infer.cc": "server",
            "compilers/x.h": None,
        }.items():
            self.assertEqual(self.table.layer_of(path), layer, path)

    def test_allowed_includes_pass(self):
        self.assertEqual(self.scan({
            "compiler/frontend/onnx.cc":
                '#include "compiler/ir/graph.h"\n'
                '#include "proto/athanor/v1/graph.pb.h"\n'
                '#include "absl/status/status.h"\n'
                '#include "deploy/bazel/libs/mutex.h"\n'
                "#include <vector>\n",
            "compiler/codegen/cpu/dialect_test.cc":
                '#include "compiler/codegen/cpu/clang.h"\n',
            "compiler/codegen/cpu/clang.cc":
                '#include "clang/Frontend/CompilerInstance.h"\n',
            "server/main.cc": "#include <grpcpp/grpcpp.h>\n",
            "tests/e2e/plan_test.cc":
                '#include "runtime/device/device.h"\n'
                '#include "compiler/pipeline/pipeline.h"\n',
            "server/tuner/lower.cc": '#include "compiler/pipeline/pipeline.h"\n',
            "server/jobs/compile_job.cc": '#include "server/base/log.h"\n',
            "server/base/log_test.cc": '#include "server/testing/testing.h"\n',
        }), [])

    def test_planted_bad_includes_are_caught(self):
        for path, text in {
            "compiler/ir/graph/graph.h": '#include "compiler/frontend/onnx.h"',
            "compiler/ir/graph/shape.cc": '#include "proto/athanor/v1/graph.pb.h"',
            "compiler/plan/arena.cc": '#include "runtime/device/device.h"',
            "compiler/egraph/graph/egraph.h": '  #  include "compiler/ir/op.h"',
            "compiler/codegen/kir/kir.cc": '#include "compiler/codegen/cpu/clang.h"',
            "runtime/executor/executor.cc": '#include "compiler/ir/dtype.h"',
            "runtime/executor/executor_test.cc": '#include "compiler/plan/plan.h"',
            "server/main.cc": '#include "compiler/codegen/cpu/clang.h"',
            "server/registry.h": '#include "server/tuner/worker.h"',
            "server/tuner_backend.cc": '#include "compiler/pipeline/pipeline.h"',
            "server/rpc/model_infer.cc": '#include "compiler/rules/decompose.h"',
            "server/rpc/infer.cc": '#include <clang/AST/AST.h>',
            "compiler/ir/graph/text.cc": "#include <grpcpp/grpcpp.h>",
            "runtime/cpu/device.cc": "#include <sqlite3.h>",
            "clients/cpp/client.h": '#include "server/flags.h"',
            "compiler/ir/graph/verify.cc": '#include "graph.h"',
            "compiler/ir/graph/hash.cc": '#include "../egraph/egraph.h"',
            "misc/util.h": "#include <vector>",
            "server/base/log.cc": '#include "server/jobs/compile_job.h"',
            "server/rpc/infer_call.cc": '#include "server/testing/testing.h"',
            "compiler/ir/value/tensor.h": '#include "compiler/ir/graph/graph.h"',
            "server/config.h": '#include "deploy/config.h"',
            "proto/athanor/v1/plan.proto": 'import "server/plan.proto";',
        }.items():
            with self.subTest(path=path):
                found = self.scan({path: "// first line\n" + text + "\n"})
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(path + ":"), found[0])
                if not path.startswith("misc"):
                    self.assertIn(":2: ", found[0])

    def documents(self, files: dict[str, str]) -> list[str]:
        """Problems of the documents of a tree made of `files` (path: text)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return layering.document_problems(root)[0]

    def test_documents_name_files_that_exist(self):
        found, count = layering.document_problems(layering.repository_root())
        self.assertGreater(count, 40)
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_references_that_lead_somewhere_pass(self):
        self.assertEqual(self.documents({
            "docs/a.md": "# Two words, `x`\n"
                         "[one](b/c.md#two-words-x) [here](#two-words-x) [there](b)\n"
                         "[far](https://example.org/none.md) `no/path/at/all` `x_test.cc`\n"
                         "```\n`gone.h`\n```\n",
            "docs/b/c.md": "## Two words, `x`\n`d/e.h`, `e.h`, `../src/d/*.h` and `a.md`\n",
            "src/d/e.h": "",
            "CHANGELOG.md": "`gone.h`\n",
        }), [])

    def test_planted_dead_references_are_caught(self):
        for text, reason in {
            "[one](gone.md)": "gone.md leads nowhere",
            "[one](../a.h)": "../a.h leads nowhere",
            "[one](#none)": "has no heading for #none",
            "`gone.h`": "no file gone.h",
            "`other/a.h`": "no file other/a.h",
            "`src/*.py`": "no file src/*.py",
        }.items():
            with self.subTest(text=text):
                found = self.documents({"docs/a.md": "# A\n" + text + "\n", "src/a.h": ""})
                self.assertEqual(len(found), 1, found)
                self.assertIn("docs/a.md:2: ", found[0])
                self.assertIn(reason, found[0])

    def test_pages_list_all_that_there_is(self):
        found = layering.missing_rows(layering.repository_root())
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_missing_rows_are_caught(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {**dict.fromkeys((page for page, _ in layering.LISTS), ""),
                               "docs/README.md": "[a](a.md)\n",
                               "docs/a.md": "", "docs/b.md": "", "tests/README.md": "`e2e/`\n",
                               "server/README.md": "`net/` `attic`\n",
                               "server/net/README.md": "", "server/attic/README.md": ""}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            self.assertEqual(layering.missing_rows(root), [
                "docs/README.md: no row for docs/b.md",
                "server/README.md: no row for server/attic/README.md",
            ])


if __name__ == "__main__":
    unittest.main()
