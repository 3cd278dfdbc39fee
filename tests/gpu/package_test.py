"""What travels to a machine with a GPU runs there, and says where there is none."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path("tests/gpu/athanor-gpu").resolve()
# C's own; everything else has to be inside.
LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 36)  # Debian 12's


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program in an empty folder, with nothing of this environment but the path."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False,
                              cwd=folder, env={"PATH": os.environ["PATH"], **environment})


class PackageTest(unittest.TestCase):

    def test_it_is_small(self):
        self.assertLess(PROGRAM.stat().st_size, 40 << 20)

    def test_it_needs_no_library_but_cs(self):
        text = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True,
                              check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(needed, LIBRARIES)
        self.assertNotRegex(text, r"\((RPATH|RUNPATH)\)")

    def test_it_needs_no_newer_libc(self):
        text = subprocess.run(["readelf", "-V", PROGRAM], capture_output=True, text=True,
                              check=True).stdout
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d[\d.]*)", text)}
        self.assertGreater(len(versions), 1)
        self.assertLessEqual(max(versions), NEWEST_GLIBC)

    def test_it_is_stripped(self):
        text = subprocess.run(["readelf", "-S", PROGRAM], capture_output=True, text=True,
                              check=True).stdout
        self.assertIn(".dynsym", text)
        self.assertNotIn(".symtab", text)
        self.assertNotIn(".debug_info", text)

    def test_without_a_gpu_it_says_so(self):
        # An empty folder first: this machine may have a driver.
        with tempfile.TemporaryDirectory() as empty:
            done = run("graph", ATHANOR_NVRTC=empty)
        self.assertEqual(done.stdout, "")
        sentence = {2: "no GPU to ask: (this machine has no CUDA driver|cu[A-Z])",
                    4: "there is a GPU, but neither a compiler nor kernels for it: this machine "
                       r"has no CUDA compiler \(NVRTC\)"}
        self.assertIn(done.returncode, sentence, done)
        self.assertRegex(done.stderr, rf"^athanor-gpu: {sentence[done.returncode]}.*\n$")

    def test_help_names_every_part(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        expect = json.loads(pathlib.Path("tests/gpu/expect.json").read_text())
        for part in {row["question"].split(".")[0] for row in expect}:
            self.assertRegex(done.stdout, rf"(?m)^  {part} +\w")

    def test_wrong_arguments_are_named(self):
        for arguments, word in [(["nonsense"], "nonsense"), (["--seconds"], "--seconds"),
                                (["--wrong", "1"], "--wrong"), (["--child", "x"], "x")]:
            done = run(*arguments)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
