#!/usr/bin/env python3
"""Builds the Debian package `athanor` from what Bazel has built.

    bazel build --config=package //server:athanord //server:athanor-tuner //clients/cpp:athanor \\
        //clients/bench:athanor-bench
    deploy/package/deb.py --out .

It depends on the packages of the libraries that the programs are linked with, as they are on the
machine that it is built on: build it on the Debian that it is for.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The child process is looked for beside the server's own file; links are followed to it.
LIBEXEC = pathlib.PurePosixPath("usr/lib/athanor")
PROGRAMS = {
    "server/athanord": LIBEXEC / "athanord",
    "server/athanor-tuner": LIBEXEC / "athanor-tuner",
    "clients/cpp/athanor": pathlib.PurePosixPath("usr/bin/athanor"),
    "clients/bench/athanor-bench": pathlib.PurePosixPath("usr/bin/athanor-bench"),
}
TOOLS = ("athanor", "athanor-bench")
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/{}",
    "zsh": "usr/share/zsh/vendor-completions/_{}",
    "fish": "usr/share/fish/vendor_completions.d/{}.fish",
}
FILES = {
    "deploy/systemd/athanord.service": "lib/systemd/system/athanord.service",
    "deploy/systemd/athanor.sysusers": "usr/lib/sysusers.d/athanor.conf",
    "deploy/systemd/athanord.conf": "etc/athanor/athanord.conf",
    "deploy/systemd/athanord-gpu.conf": "usr/share/doc/athanor/examples/athanord-gpu.conf",
    "deploy/prometheus/alerts.yml": "usr/share/athanor/prometheus/alerts.yml",
    "deploy/grafana/tensors.json": "usr/share/athanor/grafana/tensors.json",
    "deploy/grafana/tokens.json": "usr/share/athanor/grafana/tokens.json",
}
CHANGELOG = "usr/share/doc/athanor/changelog.gz"
COPYRIGHT = """\
Copyright: The Athanor developers.

Athanor is distributed under the Apache License, Version 2.0.

On Debian systems its text is in /usr/share/common-licenses/Apache-2.0.
"""
# Nobody's: no domain ends in .invalid (RFC 2606), and lintian refuses localhost's.
MAINTAINER = "The Athanor developers <athanor@athanor.invalid>"
# Loaded by name when the server starts, so that no program names it as needed.
LOADED = ("libopenblas0-pthread",)
# What dpkg runs.
SCRIPTS = ("postinst", "prerm", "postrm")


class Wrong(Exception):
    """The package cannot be built; says why."""


@dataclasses.dataclass(frozen=True)
class Package:
    """An installed package and its version."""

    name: str
    version: str

    def depends(self) -> str:
        """How another package asks for it: at least this version, whatever Debian made of it."""
        upstream = self.version.rpartition("-")[0] or self.version
        return f"{self.name} (>= {upstream})"


def run(*command: object, **options: object) -> str:
    """Returns what a program prints."""
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout
    except FileNotFoundError as error:
        raise Wrong(f"{words[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise Wrong(f"{' '.join(words)}: {error.stderr.strip() or error.stdout.strip()}") from error


def version() -> str:
    """The version of this tree."""
    text = (ROOT / "deploy/bazel/libs/version.h").read_text()
    found = re.search(r'kVersion\[\] = "([^"]+)"', text)
    if not found:
        raise Wrong("deploy/bazel/libs/version.h names no version")
    return found[1]


def is_elf(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(program: pathlib.Path) -> list[str]:
    """Returns the libraries that a program itself is linked with, not those of its libraries."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", program))


def libraries(program: pathlib.Path) -> list[pathlib.Path]:
    """Returns where the loader finds the libraries of a program."""
    found = dict(re.findall(r"^\s*(\S+) => (/\S+) \(0x", run("ldd", program), re.MULTILINE))
    paths = []
    for name in needed(program):
        if name.startswith("ld-linux"):
            continue  # libc6's, like libc itself
        if name not in found:
            raise Wrong(f"{program}: the loader does not find {name}")
        paths.append(pathlib.Path(found[name]))
    return paths


def names_of(library: pathlib.Path) -> set[str]:
    """Returns the names by which dpkg may know a file, not the links to it, which development
    packages have: /lib may be a link to /usr/lib."""
    name = str(library.resolve())
    return {name, name.removeprefix("/usr")} if name.startswith("/usr/") else {name, f"/usr{name}"}


def owners(files: set[pathlib.Path]) -> set[str]:
    """Returns the names of the installed packages that these libraries are of."""
    names = {file: names_of(file) for file in files}
    listed = subprocess.run(["dpkg-query", "--search", *sorted(set().union(*names.values()))],
                            capture_output=True, text=True, check=False).stdout
    known = {path: package.split(":")[0] for package, path in
             (line.rsplit(": ", 1) for line in listed.splitlines()
              if not line.startswith("diversion "))}
    packages = set()
    for file in sorted(files):
        found = {known[name] for name in names[file] if name in known}
        if len(found) != 1:
            raise Wrong(f"{file} is of {sorted(found) or 'no package'}; build the package on a "
                        "Debian whose libraries come from its packages")
        packages |= found
    return packages


def installed(names: set[str]) -> list[Package]:
    listed = run("dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n",
                 *sorted(names))
    return [Package(*line.split(" ")) for line in dict.fromkeys(listed.splitlines())]


def depends(programs: list[pathlib.Path]) -> str:
    """Returns the field Depends for these programs."""
    files = {library for program in programs if is_elf(program) for library in libraries(program)}
    packages = installed(owners(files) | set(LOADED))
    return ", ".join(sorted(package.depends() for package in packages))


def copy(source: pathlib.Path, target: pathlib.Path, mode: int) -> None:
    if not source.exists():
        raise Wrong(f"{source} is not there")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def compressed(path: pathlib.Path) -> bytes:
    """Returns equal bytes for equal texts: they hold no name and no time."""
    return gzip.compress(path.read_bytes(), mtime=0)


def fill(root: pathlib.Path, binaries: pathlib.Path) -> None:
    """Lays out the package's files below `root`."""
    for source, target in PROGRAMS.items():
        copy(binaries / source, root / target, 0o755)
        if is_elf(root / target):
            # A build-id is no symbol: it stays.
            run("strip", "--strip-all", "--remove-section=.comment", root / target)
    (root / "usr/bin/athanord").symlink_to("../lib/athanor/athanord")
    for source, target in FILES.items():
        copy(ROOT / source, root / target, 0o644)
    (root / CHANGELOG).write_bytes(compressed(ROOT / "CHANGELOG.md"))
    (root / "usr/share/doc/athanor/copyright").write_text(COPYRIGHT)
    for tool in TOOLS:
        program = root / "usr/bin" / tool
        for shell, place in COMPLETIONS.items():
            path = root / place.format(tool)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(run(program, "completion", shell))
        manuals = root / "usr/share/man/man1"
        manuals.mkdir(parents=True, exist_ok=True)
        run(program, "man", "--out", manuals)
    (manuals / "athanord.1").write_text(run(root / "usr/bin/athanord", "--man"))
    for page in sorted(manuals.glob("*.1")):
        page.with_suffix(".1.gz").write_bytes(compressed(page))
        page.unlink()


def control(root: pathlib.Path) -> None:
    """Writes what dpkg reads: DEBIAN/."""
    folder = root / "DEBIAN"
    folder.mkdir()
    kibibytes = sum(path.stat().st_size for path in root.rglob("*")
                    if path.is_file() and not path.is_symlink()) // 1024
    fields = {
        "Package": "athanor",
        "Version": version(),
        "Architecture": run("dpkg", "--print-architecture").strip(),
        "Maintainer": MAINTAINER,
        "Section": "science",
        "Priority": "optional",
        "Installed-Size": str(kibibytes),
        "Depends": depends([root / target for target in PROGRAMS.values()]),
        "Suggests": "prometheus, grafana",
        "Description": "inference server that keeps searching for faster plans\n"
                       " Serves model graphs over the Open Inference Protocol v2 at once from a\n"
                       " correct baseline plan, searches for faster ones in the background, and\n"
                       " swaps them in without dropping a request. With the command line tools\n"
                       " athanor and athanor-bench.",
    }
    (folder / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    etc = sorted(f"/{target}" for target in FILES.values() if target.startswith("etc/"))
    (folder / "conffiles").write_text("".join(f"{path}\n" for path in etc))
    for script in SCRIPTS:
        copy(ROOT / "deploy/package" / script, folder / script, 0o755)


def build(out: pathlib.Path, binaries: pathlib.Path) -> pathlib.Path:
    """Builds the package into the folder `out` and returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "athanor"
        root.mkdir(mode=0o755)
        fill(root, binaries)
        control(root)
        for path in root.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        architecture = run("dpkg", "--print-architecture").strip()
        target = out / f"athanor_{version()}_{architecture}.deb"
        # The least effort of xz: a third of the bytes in a second.
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", root, target)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(),
                        help="folder to write the package to; default: this one")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "bazel-bin",
                        help="folder of built programs; default: bazel-bin")
    arguments = parser.parse_args()
    try:
        print(build(arguments.out, arguments.binaries))
    except Wrong as error:
        print(f"deb.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
