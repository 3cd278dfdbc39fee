"""What is shown while Bazel runs."""

import io
import unittest

from deploy import progress


class Terminal(io.StringIO):

    def isatty(self) -> bool:
        return True


def lines(seconds: int, count: int, total: int) -> progress.Progress:
    """A build of which `count` actions end evenly within `seconds`."""
    result = progress.Progress()
    for i in range(count + 1):
        result.read(f"[{i} / {total}] Compiling x.cc", seconds * i / count)
    return result


class ProgressTest(unittest.TestCase):

    def test_time_left_follows_from_the_speed(self):
        self.assertEqual(lines(60, 60, 90).text(), "[60/90] about 30 s left; Compiling x.cc")
        self.assertEqual(lines(100, 100, 400).text(), "[100/400] about 5 min left; Compiling x.cc")

    def test_only_the_last_time_counts(self):
        build = lines(10, 1000, 1100)  # what came from the cache
        for i in range(1, 121):
            build.read(f"[{1000 + i // 2} / 1,100] Compiling y.cc", 10.0 + i)
        self.assertEqual(build.text(), "[1060/1100] about 80 s left; Compiling y.cc")

    def test_tests_are_counted_instead_of_their_actions(self):
        build = lines(100, 100, 104)
        for i in range(1, 101):
            build.read(f"[{100 + i} / {104 + i}] {i} / 400 tests; Testing //x", 100.0 + i)
        self.assertEqual(build.text(), "[100/400] about 5 min left; 100 / 400 tests; Testing //x")

    def test_no_time_is_told_before_the_speed_is_known(self):
        self.assertEqual(lines(30, 10, 90).text(), "[10/90] Compiling x.cc")

    def test_other_lines_are_not_progress(self):
        self.assertFalse(progress.Progress().read("ERROR: server/x.cc:1: no", 1))
        self.assertFalse(progress.Progress().read("Analyzing: 3 targets", 1))

    def run_shell(self, script: str, **options) -> tuple[int, str]:
        stream = options.pop("stream", io.StringIO())
        return progress.run(["bash", "-c", script], stream=stream, **options), stream.getvalue()

    def test_output_is_kept_until_failure(self):
        self.assertEqual(self.run_shell("echo warning", quiet=True), (0, ""))
        self.assertEqual(self.run_shell("echo broken >&2; exit 3", quiet=True), (3, "broken\n"))
        self.assertEqual(self.run_shell("echo seen"), (0, "seen\n"))

    def test_a_terminal_has_one_line(self):
        status, text = self.run_shell("echo '[1 / 2] a'; echo '[2 / 2] b'", stream=Terminal())
        self.assertEqual((status, text), (0, "\r\x1b[K[1/2] a\r\x1b[K[2/2] b\r\x1b[K"))

    def test_a_limit_interrupts(self):
        status, _ = self.run_shell("trap 'kill $!; exit 8' INT; sleep 600 & wait", limit=0.5)
        self.assertEqual(status, 8)


if __name__ == "__main__":
    unittest.main()
