"""The server loads finished kernels and links no compiler: neither Clang nor LLVM is among the
libraries of athanord, and both are among those of athanor-tuner (so the check can fail)."""

import subprocess
import unittest


def needed(binary: str) -> str:
    """The dynamic section of an ELF file."""
    return subprocess.run(["readelf", "-d", binary], capture_output=True, text=True,
                          check=True).stdout


class ServerLinksNoCompiler(unittest.TestCase):
    def test_server(self):
        libraries = needed("server/athanord")
        self.assertIn("NEEDED", libraries)
        for word in ("libclang", "libLLVM"):
            self.assertNotIn(word, libraries)

    def test_tuner(self):
        libraries = needed("server/athanor-tuner")
        for word in ("libclang", "libLLVM"):
            self.assertIn(word, libraries)


if __name__ == "__main__":
    unittest.main()
