"""Tests what deploy/test counts as passed and as failed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from deploy import suites

GOOD = '<testsuites><testsuite><testcase name="a"/><testcase name="b"/></testsuite></testsuites>'
MIXED = """<testsuites><testsuite>
<testcase classname="T" name="good"/>
<testcase classname="T" name="bad"><failure/></testcase>
<testcase classname="T" name="broken"><error/></testcase>
<testcase classname="T" name="left_out"><skipped/></testcase>
<testcase classname="T" name="DISABLED_x" status="notrun"/>
</testsuite></testsuites>"""
EMPTY = "<testsuites/>"


class SuitesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def target(self, status: str, xml: str | None) -> suites.Result:
        path = self.write("test.xml", xml) if xml is not None else None
        return suites.read_target("//x:t", status, path)

    def test_cases_are_counted_one_by_one(self):
        result = suites.read_junit(self.write("m.xml", MIXED), "//x:t")
        self.assertEqual(result.passed, 1)
        self.assertEqual(result.failures, ["//x:t T bad", "//x:t T broken"])
        self.assertEqual(result.skipped, ["//x:t T left_out", "//x:t T DISABLED_x"])

    def test_target_without_a_case_fails(self):
        self.assertEqual(self.target("PASSED", EMPTY).failures, ["//x:t: ran no test"])
        self.assertEqual(self.target("PASSED", None).failures, ["//x:t: ran no test"])

    def test_target_that_died_fails_whatever_its_file_says(self):
        for xml in (GOOD, EMPTY, None):
            self.assertEqual(self.target("TIMEOUT", xml).failures, ["//x:t: timeout"])

    def test_target_that_passes_at_the_second_try_is_named(self):
        result = self.target("FLAKY", GOOD)
        self.assertEqual((result.passed, result.failures, result.flaky), (2, [], ["//x:t"]))

    def test_cases_that_pass_at_the_second_try_are_named(self):
        first = suites.Result(passed=7, failures=["a", "b"])
        both = suites.second_try(first, suites.Result(passed=1, failures=["b"]))
        self.assertEqual((both.passed, both.failures, both.flaky), (8, ["b"], ["a"]))
        for other in (suites.Result(), suites.Result(passed=9), suites.Result(failures=["died"]),
                      suites.Result(passed=1, failures=["died"])):
            self.assertEqual(suites.second_try(first, other), first)

    def test_pytest_repeats_only_what_failed(self):
        self.bazel("")
        # b and c fail out of a, b and c; b passes when only the last failed run again.
        pytest = self.write("pytest", f"""#!{sys.executable}
import sys
again = "--last-failed" in sys.argv
cases = {{"b": False, "c": True}} if again else {{"a": False, "b": True, "c": True}}
xml, = (arg.partition("=")[2] for arg in sys.argv if arg.startswith("--junitxml"))
with open(xml, "w") as out:
    rows = (f'<testcase name="{{case}}">{{"<failure/>" * bad}}</testcase>'
            for case, bad in cases.items())
    out.write(f"<testsuites>{{''.join(rows)}}</testsuites>")
sys.exit(1)
""")
        pytest.chmod(0o755)
        with unittest.mock.patch.object(sys, "executable", str(pytest)):
            result = suites.run_pytest(".")
        self.assertEqual(result.passed, 2)
        self.assertEqual(result.failures, ["pytest c"])
        self.assertEqual(result.flaky, ["pytest b"])

    def test_a_packaged_program_that_does_not_build_fails(self):
        self.bazel('sys.exit("--config=package" in args)')
        self.assertEqual(suites.run_pytest(".").failures,
                         ["--config=package //server:athanor-tuner: did not build"])

    def test_unreadable_file_fails(self):
        self.assertEqual(len(self.target("PASSED", "<cut").failures), 1)

    def test_events_of_a_run_are_summed(self):
        def result(label, name, text):
            uri = self.write(name, text).as_uri()
            return {"id": {"testResult": {"label": label, "run": 1, "shard": 1}},
                    "testResult": {"testActionOutput": [{"name": "test.xml", "uri": uri}]}}

        def summary(label, status):
            return {"id": {"testSummary": {"label": label}},
                    "testSummary": {"overallStatus": status, "totalRunDurationMillis": "1500"}}

        def completed(label, **fields):
            return {"id": {"targetCompleted": {"label": label}}, "completed": fields}

        events = [
            completed("//a:a_test", success=True),
            completed("//b:b_test"),
            completed("//c:c"),
            result("//a:a_test", "a 1.xml", GOOD),
            summary("//a:a_test", "PASSED"),
            result("//d:d_test", "d.xml", MIXED),
            summary("//d:d_test", "FAILED"),
            summary("//b:b_test", "NO_STATUS"),
        ]
        path = self.write("e.json", "\n".join(json.dumps(event) for event in events))
        total = suites.read_events(path)
        self.assertEqual(total.passed, 3)
        self.assertEqual(total.failures, [
            "//b:b_test: did not build", "//c:c: did not build",
            "//d:d_test T bad", "//d:d_test T broken"])
        self.assertEqual(total.slowest[0][0], 1.5)

    def test_suite_without_a_test_fails(self):
        suites.SUITES["empty"] = lambda _: suites.Result()
        self.addCleanup(suites.SUITES.pop, "empty")
        self.assertEqual(suites.run_suite("empty", None).failures,
                         ["empty: the suite ran no test"])

    def test_targets_that_changed_come_first_and_the_order_is_another_each_day(self):
        targets = {f"//a:{i}_test" for i in range(50)}
        affected = {"//a:7_test", "//a:11_test", "//gone:x_test"}
        days = [suites.in_turn(targets, affected, {}, day) for day in ("2026-01-01", "2026-01-02")]
        for order in days:
            self.assertEqual(set(order), targets)
            self.assertEqual(set(order[:2]), {"//a:7_test", "//a:11_test"})
        self.assertNotEqual(*days)

    def test_targets_beside_what_changed_most_come_first(self):
        targets = {f"//{folder}:{i}_test" for folder in "abcd" for i in range(3)}
        order = suites.in_turn(targets, targets - {"//d:0_test"},
                               {"b/x.cc": 3, "b/BUILD": 2, "c/x.h": 4, "a/room/x.cc": 90,
                                "d/x.cc": 70, "README.md": 9}, "2026-01-01")
        self.assertEqual([target[2] for target in order], list("ddbbbcccaaad"))

    def test_changed_lines_are_those_of_the_last_hours(self):
        def git(*args, when=""):
            date = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when} if when else {}
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *args],
                           cwd=self.folder, check=True, capture_output=True,
                           env={**os.environ, **date})

        with unittest.mock.patch.object(suites, "ROOT", self.folder):
            git("init", "-q")
            self.assertEqual(suites.changed_lines(), {})
            for hour, files in enumerate([{"old": "1\n"}, {"a": "1\n2\n", "gone": "1\n"},
                                          {"a": "1\n3\n", "b.bin": "\0"}]):
                for name, text in files.items():
                    self.write(name, text)
                git("add", "-A")
                git("commit", "-qm", "x", when=f"2026-01-01T{hour * 10:02}:00:00Z")
            (self.folder / "gone").unlink()
            self.assertEqual(suites.changed_lines(), {"a": 4, "b.bin": 0})

    def test_sanitizers_share_the_time_that_is_left(self):
        self.assertIsNone(suites.share(None, 2))
        (self.folder / "now").touch()
        self.clock("now")  # 100
        self.assertEqual([suites.share(160.0, waiting) for waiting in (0, 1, 2)],
                         [160.0, 160.0, 130.0])
        self.assertEqual(suites.share(90.0, 2), 100.0)

    def bazel(self, script: str) -> None:
        """Puts a program of that name first on the path; it may use `folder` and `args`."""
        bazel = self.write("bazel", f"""#!{sys.executable}
import json, pathlib, sys
folder, args = pathlib.Path({str(self.folder)!r}), sys.argv[1:]
if args[0] == "query":
    if "rdeps" not in args[-1]:
        print("\\n".join(f"//a:{{i}}_test" for i in range(30)))
    sys.exit()
{script}
""")
        bazel.chmod(0o755)
        path = f"{self.folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        patched = unittest.mock.patch.dict(os.environ, {"PATH": path})
        patched.start()
        self.addCleanup(patched.stop)

    def clock(self, over: str) -> None:
        """Replaces the clock of suites: 0 until the file `over` is there, then 100."""
        clock = unittest.mock.Mock()
        clock.monotonic = lambda: 100.0 if (self.folder / over).exists() else 0.0
        patched = unittest.mock.patch.object(suites, "time", clock)
        patched.start()
        self.addCleanup(patched.stop)

    def test_build_that_takes_too_long_is_told_when_to_stop_and_left_out_by_name(self):
        self.bazel('(folder / "started").touch()')
        self.clock("started")
        late = suites.run_sanitizer("asan", 0.0)
        self.assertFalse((self.folder / "started").exists())
        with unittest.mock.patch.object(suites.progress, "run", wraps=suites.progress.run) as run:
            cut = suites.run_sanitizer("asan", 60.0)
        run.assert_called_once()
        self.assertEqual(run.call_args.kwargs["limit"], 60.0)
        self.assertTrue((self.folder / "started").exists())
        for result in (late, cut):
            self.assertEqual(len(result.skipped), 30)
            self.assertIn("//a:7_test: not built in time; deploy/test asan runs all",
                          result.skipped)
            self.assertEqual((result.passed, result.failures), (0, []))

    def test_targets_are_tested_a_few_at_a_time_until_time_is_over(self):
        # Tests that pass, each of one case; time is over in the second build.
        self.write("good.xml", GOOD)
        self.bazel("""
labels = [arg for arg in args if arg.startswith("//")]
if args[0] == "build":
    (folder / ("second" if (folder / "first").exists() else "first")).touch()
    sys.exit()
events, = (arg.partition("=")[2] for arg in args if arg.startswith("--build_event_json_file"))
with open(events, "w") as out:
    for label in labels:
        print(json.dumps({"id": {"testResult": {"label": label}}, "testResult": {
            "testActionOutput": [{"name": "test.xml", "uri": (folder / "good.xml").as_uri()}]}}),
            file=out)
        print(json.dumps({"id": {"testSummary": {"label": label}},
                          "testSummary": {"overallStatus": "PASSED"}}), file=out)
""")
        self.clock("second")
        result = suites.run_sanitizer("asan", 60.0)
        self.assertEqual(result.failures, [])
        self.assertEqual(result.passed, 2 * suites.SLICE)
        self.assertEqual(len(result.skipped), 30 - suites.SLICE)


if __name__ == "__main__":
    unittest.main()
