"""Every part runs to its end on a driver that stands in for a device, and devices that are wrong in
one way are told from right ones. What it measures is about no GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path("tests/gpu/athanor-gpu").resolve()
DRIVER = pathlib.Path("tests/gpu/libcuda.so.1").resolve()
EXPECT = pathlib.Path("tests/gpu/expect.json")


def nvrtc() -> pathlib.Path:
    """Returns the folder of NVRTC in the Python environment of deploy/setup."""
    root = EXPECT.resolve().parents[2]
    found = sorted(root.glob(".venv/lib/python3*/site-packages/nvidia/cu13/lib"))
    if not found:
        raise AssertionError("no NVRTC in .venv: run deploy/setup")
    return found[0]


class RunTest(unittest.TestCase):

    def run_parts(self, *parts: str, defect: str = "", seconds: int = 200,
                  ) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
        """Runs parts, all by default; returns the process and its rows."""
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "result.jsonl"
            done = subprocess.run(
                [PROGRAM, *parts, "--output", output, "--nvrtc", nvrtc(),
                 "--seconds", str(seconds)],
                capture_output=True, text=True, check=False,
                env=os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent),
                                  "ATHANOR_STAND_IN": defect})
            return done, [json.loads(line) for line in output.read_text().splitlines()]

    def answers(self, *parts: str, defect: str = "") -> dict[str, dict]:
        done, rows = self.run_parts(*parts, defect=defect)
        self.assertEqual([row for row in rows if "failed" in row], [], done)
        self.assertEqual(done.returncode, 0, done)
        return {row["question"]: row for row in rows if "question" in row}

    def test_every_question_is_answered(self):
        found = self.answers()
        asked = [row["question"] for row in json.loads(EXPECT.read_text())]
        self.assertEqual(sorted(found), sorted(asked))
        for name, row in found.items():
            self.assertIsInstance(row["value"], int | float, name)
            self.assertTrue(row["decision"], name)
        # Answers that do not depend on how fast a device is.
        for part in ("fragments", "rounding", "tensor-map"):
            for name in asked:
                if name.startswith(part + "."):
                    self.assertTrue(found[name]["held"], found[name])
        for name in ("graph.order", "commit.nonzero_share", "events.noise", "respawn.after_fault",
                     "respawn.after_hang", "sticky.neighbour", "sticky.fault_share",
                     "sticky.trap_share", "sticky.fault_reset", "sticky.trap_reset",
                     "filter.later"):
            self.assertTrue(found[name]["held"], found[name])
        # This driver needs no device file, so it starts under the filter.
        self.assertFalse(found["filter.first"]["held"])

    def test_a_wrong_device_is_told(self):
        for defect, question in [("fragments", "fragments.f16"), ("fragments", "fragments.i8"),
                                 ("rounding", "rounding.bf16_c"),
                                 ("rounding", "rounding.f16_step"),
                                 ("order", "graph.order"),
                                 ("descriptor", "tensor-map.replaced"),
                                 ("descriptor", "tensor-map.replaced_node"),
                                 ("dirty", "commit.nonzero_share")]:
            with self.subTest(defect=defect, question=question):
                row = self.answers(question.split(".")[0], defect=defect)[question]
                self.assertFalse(row["held"], row)
                self.assertNotEqual(row["decision"], "")

    def test_machine_code_stands_in_for_the_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            program = place / "athanor-gpu"
            shutil.copy(PROGRAM, program)
            environment = os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent),
                                        "ATHANOR_NVRTC": str(place / "none")}

            def run(*arguments: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run([program, *arguments], capture_output=True, text=True,
                                      check=False, cwd=place, env=environment)

            done = run("fragments")
            self.assertEqual(done.returncode, 4, done)
            self.assertIn("there is a GPU, but neither", done.stderr)
            self.assertIn("no CUDA compiler (NVRTC)", done.stderr)
            done = run("--compile", str(place / "kernels"), "--nvrtc", str(nvrtc()))
            self.assertEqual(done.returncode, 0, done)
            done = run("fragments", "filter", "tensor-map")
            self.assertEqual(done.returncode, 0, done)
            done = run("environment")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("environment.compile_ms: this machine has no CUDA compiler", done.stdout)
            for code in (place / "kernels").glob("*.sm_90a.cubin"):
                code.unlink()
            done = run("fragments")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn("fragments.cu.sm_90a.cubin", done.stdout)

    def test_machine_code_stands_in_for_a_compiler_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            program = place / "athanor-gpu"
            shutil.copy(PROGRAM, program)
            # Its builtins lie beside NVRTC; alone it opens, and fails at the first compilation.
            (place / "alone").mkdir()
            shutil.copy(nvrtc() / "libnvrtc.so.13", place / "alone")
            environment = os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent),
                                        "ATHANOR_NVRTC": str(place / "alone")}
            subprocess.run([program, "--compile", place / "kernels", "--nvrtc", nvrtc()],
                           check=True, cwd=place, env=environment)
            done = subprocess.run([program, "fragments"], capture_output=True, text=True,
                                  check=False, cwd=place, env=environment)
            self.assertEqual(done.returncode, 0, done)
            rows = [json.loads(line) for line in (place / "result.jsonl").read_text().splitlines()]
            facts = [row for row in rows
                     if row.get("fact") == "machine code instead of the compiler"]
            self.assertEqual(len(facts), 1, rows)
            self.assertIn("NVRTC", facts[0]["why"])

    def test_the_table_comes_last(self):
        done, rows = self.run_parts("events", "environment")
        self.assertEqual(done.returncode, 0, done)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^environment\.driver +13000 +as predicted  at least 13000")
        self.assertRegex(lines[-1], r"^\d+ as predicted, \d+ not, 0 without an answer$")
        self.assertEqual(len(lines), 1 + sum("question" in row for row in rows))

    def test_a_part_without_time_is_named(self):
        done, rows = self.run_parts("environment", "respawn", seconds=1)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("respawn: not run: --seconds are over", done.stdout)
        self.assertIn("without an answer", done.stdout)


if __name__ == "__main__":
    unittest.main()
