"""Every part runs to its end without a GPU: those that ask on a driver that stands in for a device,
those that run our own kernels on the emulator. Devices and kernels that are wrong in one way are
told from right ones. What it measures is about no GPU."""

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
EMULATOR = pathlib.Path("tests/emulator").resolve()
SUITES = ["kernels", "conformance", "zoo"]
# In the order in which they stand there.
ASKING = [part for part in dict.fromkeys(row["question"].split(".")[0]
                                         for row in json.loads(EXPECT.read_text()))
          if part not in SUITES]


def nvrtc() -> pathlib.Path:
    """Returns the folder of NVRTC in the Python environment of deploy/setup."""
    root = EXPECT.resolve().parents[2]
    found = sorted(root.glob(".venv/lib/python3*/site-packages/nvidia/cu13/lib"))
    if not found:
        raise AssertionError("no NVRTC in .venv: run deploy/setup")
    return found[0]


class RunTest(unittest.TestCase):

    def run_parts(self, *parts: str, defect: str = "", seconds: int = 200,
                  **environment: str) -> tuple[subprocess.CompletedProcess[str], list[dict]]:
        """Runs parts, all by default; returns the process and its rows."""
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "result.jsonl"
            done = subprocess.run(
                [PROGRAM, *parts, "--output", output, "--nvrtc", nvrtc(),
                 "--seconds", str(seconds)],
                capture_output=True, text=True, check=False,
                env=os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent),
                                  "ATHANOR_STAND_IN": defect,
                                  "ATHANOR_CUBLASLT": str(EMULATOR)} | environment)
            return done, [json.loads(line) for line in output.read_text().splitlines()]

    def answers(self, *parts: str, defect: str = "", **environment: str) -> dict[str, dict]:
        done, rows = self.run_parts(*parts, defect=defect, **environment)
        self.assertEqual([row for row in rows if "failed" in row], [], done)
        self.assertEqual(done.returncode, 0, done)
        return {row["question"]: row for row in rows if "question" in row}

    def test_every_question_is_answered(self):
        found = self.answers(*ASKING)
        asked = [row["question"] for row in json.loads(EXPECT.read_text())
                 if row["question"].split(".")[0] in ASKING]
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
                     "filter.later", "library.wrong", "library.unknown"):
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

    def test_a_wrong_library_is_told(self):
        row = self.answers("library", ATHANOR_EMULATOR_CUBLASLT_BIAS="2")["library.wrong"]
        self.assertFalse(row["held"], row)
        self.assertTrue(all("bias" in case for case in row["details"]["cases"]), row)
        self.assertEqual(len(row["details"]["cases"]), 6 * 4, "each type, each proposal")

    def test_a_machine_without_the_library_says_so(self):
        done, rows = self.run_parts("library", ATHANOR_CUBLASLT="/no/such/folder")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("this machine has no cuBLASLt", done.stdout)

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


    def test_a_part_ends_in_order_before_its_time_is_over(self):
        # A hang of a second takes longer than half of this.
        done, rows = self.run_parts("respawn", seconds=2)
        self.assertEqual(done.returncode, 1, done)
        ends = [row["end"] for row in rows if row.get("fact") == "process"]
        self.assertEqual(ends, ["exit 1"], rows)
        failed = [row["why"] for row in rows if "failed" in row]
        self.assertEqual(failed, ["DEADLINE_EXCEEDED: its time is over"])
        # What was cut short is no answer.
        self.assertTrue(all(row["held"] for row in rows
                            if row.get("question", "").startswith("respawn.after")), rows)


class SuitesTest(unittest.TestCase):
    """Runs our own kernels on the emulator."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        # Copies: what spoils kernels lies beside the compiler.
        for library in ("libcuda.so.1", "libnvrtc.so.13"):
            shutil.copy(EMULATOR / library, self.place)

    def run_suites(self, *arguments: str, seconds: int = 1200) -> dict[str, dict]:
        """Runs parts; returns the rows of questions by name, and those of wrong tests."""
        output = self.place / "result.jsonl"
        output.unlink(missing_ok=True)
        self.done = subprocess.run(
            [PROGRAM, *arguments, "--output", output, "--nvrtc", self.place,
             "--seconds", str(seconds)],
            capture_output=True, text=True, check=False, cwd=self.place,
            env=os.environ | {"LD_LIBRARY_PATH": str(self.place), "TMPDIR": str(self.place)})
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        self.failed = [row for row in rows if "failed" in row]
        # Nothing is left behind.
        self.assertEqual(list(self.place.glob("athanor-gpu.*")), [])
        return ({row["question"]: row for row in rows if "question" in row} |
                {row["test"]: row for row in rows if row.get("fact") == "wrong"})

    def test_kernels_and_models_are_right(self):
        found = self.run_suites("kernels", "zoo")
        self.assertEqual(self.failed, [], self.done)
        self.assertEqual(self.done.returncode, 0, self.done)
        for part, right in (("kernels", 15), ("zoo", 3)):
            self.assertEqual(found[f"{part}.wrong"]["value"], 0, found)
            self.assertEqual(found[f"{part}.unreached"]["value"], 0, found)
            details = found[f"{part}.wrong"]["details"]
            self.assertEqual(details["right"], right)
            self.assertGreater(details["kernels"], right)
            self.assertEqual(details["spilling_kernels"], 0)

    def test_conformance_runs_what_is_asked(self):
        found = self.run_suites("conformance", "--tests", "PlainTest.*")
        self.assertEqual(self.failed, [], self.done)
        self.assertEqual(found["conformance.wrong"]["value"], 0, found)
        self.assertEqual(found["conformance.wrong"]["details"]["right"], 4, found)
        self.run_suites("conformance", "--tests", "nonsense")
        self.assertEqual(self.done.returncode, 1, self.done)
        self.assertIn("no test matches --tests nonsense", self.failed[0]["why"])

    def test_what_time_does_not_reach_is_named(self):
        found = self.run_suites("conformance", seconds=3)
        self.assertEqual(self.failed, [], self.done)
        unreached = found["conformance.unreached"]
        self.assertFalse(unreached["held"])
        self.assertGreater(unreached["value"], 90)
        self.assertEqual(len(unreached["details"]["tests"]), unreached["value"])
        self.assertIn("GenomesOnGpuTest.AreRight, share 15", unreached["details"]["tests"])
        details = found["conformance.wrong"]["details"]
        self.assertEqual(details["wrong"], [])
        # "Sizes/ConvTest" and "ConvTest" are one suite.
        self.assertEqual({suite.split("/")[-1] for suite in details["suites"]},
                         {"CompositesTest", "ConcatTest", "ConvTest", "EpilogueTest",
                          "GenomesOnGpuTest", "KernelMemory", "KernelOps", "LoopsTest",
                          "PlainTest", "PlanTest", "RandomMapsTest", "RewrittenTest",
                          "SortTest", "StatesTest", "WindowTest"})
        counts = [suite.split(" of ") for suite in details["suites"].values()]
        self.assertEqual(sum(int(right) for right, _ in counts), details["right"])
        self.assertEqual(sum(int(of) for _, of in counts),
                         details["right"] + unreached["value"])

    def test_a_wrong_kernel_is_named(self):
        (self.place / "spoil.h").write_text(
            "FN f32 spoilt(f32 x) { return exp_f32(x) * 1.001f; }\n#define exp_f32 spoilt\n")
        found = self.run_suites("kernels", "--tests", "*LoopsRunOverEveryElement")
        self.assertEqual(found["kernels.wrong"]["value"], 1, found)
        wrong = found["Golden/PrintedKernels.EqualTheReference/LoopsRunOverEveryElement"]
        self.assertIn("1 of 5 elements differs; first [4]: got 1.28", wrong["why"])
        self.assertFalse(found["kernels.wrong"]["held"])
        self.assertIn("mend", found["kernels.wrong"]["decision"])

    def test_a_kernel_that_faults_costs_its_own_test(self):
        (self.place / "spoil.h").write_text(
            "FN f32 spoilt(f32) { return *athanor::emulator::Element<f32>((void*)8, false); }\n"
            "#define exp_f32 spoilt\n")
        found = self.run_suites("kernels")
        details = found["kernels.wrong"]["details"]
        self.assertGreater(len(details["wrong"]), 1)
        self.assertGreater(details["right"], 5)
        self.assertEqual(details["right"] + len(details["wrong"]), 15)
        wrong = found["Golden/PrintedKernels.EqualTheReference/LoopsRunOverEveryElement"]
        self.assertRegex(wrong["why"], "relu_0: .*ILLEGAL_ADDRESS")

    def test_without_a_compiler_a_suite_says_so(self):
        (self.place / "libnvrtc.so.13").unlink()
        (self.place / "kernels").mkdir()  # the machine code of parts that ask
        program = self.place / "athanor-gpu"
        shutil.copy(PROGRAM, program)
        done = subprocess.run([program, "kernels", "--nvrtc", self.place], capture_output=True,
                              text=True, check=False, cwd=self.place,
                              env=os.environ | {"LD_LIBRARY_PATH": str(self.place)})
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("kernels: FAILED_PRECONDITION: this machine has no CUDA compiler",
                      done.stdout)


if __name__ == "__main__":
    unittest.main()
