"""driver.h declares what a toolkit's cuda.h declares; the compiler compares."""

import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = "runtime/cuda"


def toolkit_include(root: pathlib.Path) -> pathlib.Path:
    """Returns the folder of cuda.h in the Python environment of deploy/setup."""
    found = sorted(root.glob(".venv/lib/python3*/site-packages/nvidia/cu13/include/cuda.h"))
    if not found:
        raise AssertionError("no cuda.h in .venv: run deploy/setup (nvidia-cuda-runtime)")
    return found[0].parent


class DeclarationsTest(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(f"{HERE}/driver.h").resolve().parents[2]
        self.header = (self.root / HERE / "driver.h").read_text()

    def compile(self, functions: str, header: str) -> str:
        """Returns what the compiler says of declarations.cc beside `header`; empty: nothing."""
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / HERE).mkdir(parents=True)
            (place / HERE / "driver.h").write_text(header)
            (place / "functions.inc").write_text(functions)
            run = subprocess.run(
                ["clang-19", "-std=c++20", "-fsyntax-only", "-I", folder,
                 "-isystem", toolkit_include(self.root),
                 self.root / HERE / "testdata/declarations.cc"],
                capture_output=True, text=True, check=False)
            return run.stderr[:4000] if run.returncode else ""

    def functions(self) -> str:
        # A macro of cuda.h turns a plain name into its newest version, whose arguments may differ.
        rows = re.findall(r'X\((\w+), "(\w+)",', self.header)
        self.assertGreater(len(rows), 40)
        return "".join(f"#undef {symbol}\nSAME_FUNCTION({member}, {symbol})\n"
                       for member, symbol in rows)

    def test_every_declaration_is_the_toolkits(self):
        self.assertEqual(self.compile(self.functions(), self.header), "")

    def test_a_wrong_declaration_is_noticed(self):
        for ours, wrong, reason in [
            ("(CudaPointer pointer, size_t bytes))", "(CudaPointer pointer, int bytes))",
             "MemUnmap"),
            ("(CudaEvent event))", "(CudaEvent event, int flags))", "EventDestroy"),
            ("kCudaNotReady = 600", "kCudaNotReady = 601", "kCudaNotReady"),
            ("unsigned shared_bytes = 0;", "size_t shared_bytes = 0;", "CudaKernelNode"),
        ]:
            with self.subTest(wrong=wrong):
                self.assertIn(ours, self.header)
                self.assertIn(reason, self.compile(self.functions(),
                                                   self.header.replace(ours, wrong)))


if __name__ == "__main__":
    unittest.main()
