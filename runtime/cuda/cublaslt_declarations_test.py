"""cublaslt.h declares what a toolkit's cublasLt.h declares; the compiler compares.

The header is in a toolkit or in the package nvidia-cublas (CUDA 13) of the Python environment,
which nothing else needs. Where neither is, the comparison is skipped, and says so.
"""

import glob
import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = "runtime/cuda"

# Stand for headers of other packages, of which cublasLt.h needs only names.
OTHERS = {
    "crt/host_defines.h": """
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
#define __host__
#define __device__
#define __forceinline__ inline
#define CUDARTAPI
#define CUDART_CB
""",
    "cuda_fp16.h": "struct __half;",
    "cuda_bf16.h": "struct __nv_bfloat16;",
}


def include_folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of cublasLt.h and of what it includes; empty: there is none."""
    of_python = sorted(root.glob(".venv/lib/python3*/site-packages/nvidia/cu13/include"))
    toolkits = [pathlib.Path(p) for p in sorted(glob.glob("/usr/local/cuda*/include"))]
    folders = [f for f in of_python + toolkits if (f / "cublasLt.h").exists()]
    return folders[:1] + of_python if folders else []


class DeclarationsTest(unittest.TestCase):

    def setUp(self):
        self.root = pathlib.Path(f"{HERE}/cublaslt.h").resolve().parents[2]
        self.header = (self.root / HERE / "cublaslt.h").read_text()
        self.includes = include_folders(self.root)
        if not self.includes:
            self.skipTest("no cublasLt.h: neither a toolkit nor nvidia-cublas in .venv")

    def compile(self, header: str) -> str:
        """Returns what the compiler says of the declarations beside `header`; empty: nothing."""
        rows = re.findall(r'X\([^,]+, (\w+), "(\w+)",', self.header)
        self.assertGreater(len(rows), 14)
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / HERE).mkdir(parents=True)
            (place / HERE / "cublaslt.h").write_text(header)
            (place / HERE / "driver.h").write_text((self.root / HERE / "driver.h").read_text())
            (place / "crt").mkdir()
            for name, text in OTHERS.items():
                (place / name).write_text(text)
            (place / "functions.inc").write_text(
                "".join(f"SAME_FUNCTION({member}, {symbol})\n" for member, symbol in rows))
            run = subprocess.run(
                ["clang-19", "-std=c++20", "-fsyntax-only", "-I", folder,
                 *(f"-isystem{include}" for include in self.includes),
                 self.root / HERE / "testdata/cublaslt_declarations.cc"],
                capture_output=True, text=True, check=False)
            return run.stderr[:4000] if run.returncode else ""

    def test_every_declaration_is_the_toolkits(self):
        self.assertEqual(self.compile(self.header), "")

    def test_a_wrong_declaration_is_noticed(self):
        for ours, wrong, reason in [
            ("(CublasPreference preference))", "(CublasPreference preference, int flags))",
             "PreferenceDestroy"),
            ("uint64_t rows, uint64_t columns", "uint64_t rows, int columns", "LayoutCreate"),
            ("kCublasNotSupported = 15", "kCublasNotSupported = 16", "kCublasNotSupported"),
            ("float waves = 0;", "double waves = 0;", "CublasProposal"),
            ("uint64_t data[8]", "uint64_t data[9]", "CublasAlgorithm"),
        ]:
            with self.subTest(wrong=wrong):
                self.assertIn(ours, self.header)
                self.assertIn(reason, self.compile(self.header.replace(ours, wrong)))


if __name__ == "__main__":
    unittest.main()
