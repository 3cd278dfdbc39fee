"""The server loads finished kernels and links no compiler: neither Clang nor LLVM is among the
libraries of athanord, nor any stage of ours between the IR and a plan among its targets. All of
them are among those of athanor-tuner (so the check can fail)."""

import subprocess
import unittest

LIBRARIES = ("libclang", "libLLVM")
STAGES = ("egraph", "rules", "search", "codegen", "plan", "pipeline")


def needed(binary: str) -> str:
    """The dynamic section of an ELF file."""
    return subprocess.run(["readelf", "-d", binary], capture_output=True, text=True,
                          check=True).stdout


def linked(binary: str) -> set[str]:
    """The folders under compiler/ that a binary's targets come from."""
    with open(f"tests/layering/{binary}_targets", encoding="utf-8") as lines:
        targets = [line.strip() for line in lines]
    return {target.split("/")[3].split(":")[0] for target in targets
            if target.startswith("//compiler/")}


class ServerLinksNoCompiler(unittest.TestCase):
    def test_server(self):
        libraries = needed("server/athanord")
        self.assertIn("NEEDED", libraries)
        for word in LIBRARIES:
            self.assertNotIn(word, libraries)
        self.assertIn("ir", linked("athanord"))
        self.assertEqual(linked("athanord") & set(STAGES), set())

    def test_tuner(self):
        libraries = needed("server/athanor-tuner")
        for word in LIBRARIES:
            self.assertIn(word, libraries)
        self.assertLessEqual(set(STAGES) - {"egraph"}, linked("athanor-tuner"))


if __name__ == "__main__":
    unittest.main()
