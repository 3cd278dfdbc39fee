"""The container image: buildah builds deploy/image/Containerfile on a Debian root made here. What
it builds serves, restores its models, is upgraded, removed and purged.

No registry is asked: mmdebstrap makes `debian:12-slim`, kept for a week below ~/.cache/athanor. The
package of the first stage is the one built from bazel-bin, so that nothing is compiled again: with
the tuner of `bazel build --config=package //server:athanor-tuner`, as the image has it.
Needs root, mounts, as mmdebstrap and buildah's isolation by chroot do, and Debian's archive: it is
skipped where a first container does not run.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from conftest import ROOT, built
from server_process import Server

sys.path.insert(0, str(ROOT))
from deploy.package import deb  # noqa: E402

if os.geteuid() != 0:
    pytest.skip("makes a Debian root: needs root", allow_module_level=True)

BASE_DAYS = 7
MIRRORS = [f"deb http://deb.debian.org/{archive} {suite} main" for archive, suite in
           (("debian", "bookworm"), ("debian", "bookworm-updates"),
            ("debian-security", "bookworm-security"))]
# What Debian's slim images leave out.
SLIM = [f"--dpkgopt={line}" for line in
        ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*",
         "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/doc/*",
         "path-include=/usr/share/doc/*/copyright")]
# The hook makes /bin a link into /usr before anything is unpacked, as Debian's images have it; the
# package that does so afterwards needs all of Perl.
DEBOOTSTRAP = ["mmdebstrap", "--variant=minbase",
               "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
               '--aptopt=APT::Install-Recommends "0"', *SLIM, "bookworm"]
MADE_BY = hashlib.sha256("\n".join([*DEBOOTSTRAP, *MIRRORS]).encode()).hexdigest()[:8]
BASE = pathlib.Path.home() / f".cache/athanor/debian-12-slim-{MADE_BY}.tar"
# Unpacked.
MOST_MB = 400


def run(*command: object, **options: object) -> str:
    """Returns what a program prints; what it said if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A folder in memory: dpkg waits for the disk after every file."""
    folder = tmp_path_factory.mktemp("memory")
    try:
        run("mount", "-t", "tmpfs", "-o", "size=4g,dev", "athanor-image", folder)
    except AssertionError as error:
        pytest.skip(f"mounts are not permitted here: {error}")
    yield folder
    run("umount", "--lazy", folder)


@pytest.fixture(scope="module")
def permitted(memory: pathlib.Path) -> None:
    """Skips where buildah cannot run even a program of this machine: what fails later, fails."""
    (memory / "probe").mkdir()
    probe = Image(memory / "probe")
    try:
        probe.name = probe.buildah("from", "scratch").strip()
        folders = [word for folder in ("/usr", "/lib", "/lib64")
                   for word in ("--volume", f"{folder}:{folder}:ro")]
        probe.buildah("run", "--isolation", "chroot", *folders, probe.name, "--", "/usr/bin/true")
        probe.buildah("rm", probe.name)
    except AssertionError as error:
        pytest.skip(f"buildah cannot run a container here: {error}")


@pytest.fixture(scope="module")
def base(permitted: None, memory: pathlib.Path) -> pathlib.Path:
    """The files of debian:12-slim."""
    if not BASE.exists() or time.time() - BASE.stat().st_mtime > BASE_DAYS * 86400:
        BASE.parent.mkdir(parents=True, exist_ok=True)
        new = memory / "base.tar"
        run(*DEBOOTSTRAP, new, *MIRRORS, env={**os.environ, "TMPDIR": str(memory)})
        shutil.move(new, BASE.with_suffix(".new"))
        BASE.with_suffix(".new").rename(BASE)
    return BASE


@pytest.fixture(scope="module")
def package(memory: pathlib.Path) -> pathlib.Path:
    """A context in place of the stage `build`: the folder with its package."""
    for program in deb.PROGRAMS:
        built(ROOT / "bazel-bin" / program)
    tuner = ROOT / "bazel-bin/server/athanor-tuner"
    assert not [name for name in deb.needed(tuner) if "LLVM" in name], \
        "build it as the package has it: bazel build --config=package //server:athanor-tuner"
    folder = memory / "build/package"
    folder.mkdir(parents=True)
    deb.build(folder, ROOT / "bazel-bin")
    return folder.parent


class Image:
    """The image that buildah built, and a container of it, in a store of their own."""

    def __init__(self, store: pathlib.Path) -> None:
        self.store = store
        self.name = ""
        # vfs copies layers: it works inside a container, too.
        self.command = ["buildah", "--root", store / "root", "--runroot", store / "run",
                        "--storage-driver", "vfs"]
        self.environment = {**os.environ, "TMPDIR": str(store)}

    def buildah(self, *arguments: object) -> str:
        return run(*self.command, *arguments, env=self.environment)

    def build(self, base: pathlib.Path, package: pathlib.Path) -> None:
        name = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", name, base, "/")
        self.buildah("commit", "--quiet", "--rm", name, "localhost/debian:12-slim")
        self.buildah("bud", "--isolation", "chroot", "--tag", "athanor",
                     "--build-arg", "DEBIAN=localhost/debian:12-slim",
                     "--build-context", f"build={package}",
                     "--file", ROOT / "deploy/image/Containerfile", ROOT)
        self.name = self.buildah("from", "athanor").strip()

    def config(self) -> dict:
        inspected = json.loads(self.buildah("inspect", "--type", "image", "athanor"))
        return inspected["OCIv1"]["config"]

    def megabytes(self) -> float:
        """Sums the layers, unpacked."""
        inspected = json.loads(self.buildah("inspect", "--type", "image", "athanor"))
        return sum(layer["size"] for layer in json.loads(inspected["Manifest"])["layers"]) / 1e6

    def inside(self, *command: object, user: str = "athanor",
               volume: str | None = None) -> list[object]:
        """The command that runs a command in the container."""
        return [*self.command, "run", "--isolation", "chroot", "--user", user,
                *(["--volume", volume] if volume else []), self.name, "--", *command]

    def do(self, *command: object, user: str = "athanor") -> str:
        return run(*self.inside(*command, user=user), env=self.environment)


@pytest.fixture(scope="module")
def image(memory: pathlib.Path, base: pathlib.Path, package: pathlib.Path) -> Image:
    (memory / "store").mkdir()
    made = Image(memory / "store")
    made.build(base, package)
    return made


def below(pid: int, program: str) -> int:
    """The process of a program among the descendants of a process."""
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        words = pathlib.Path(f"/proc/{at}/cmdline").read_bytes().split(b"\0")
        if words[0].decode() == program:
            return at
        children = pathlib.Path(f"/proc/{at}/task").glob("*/children")
        waiting += [int(child) for file in children for child in file.read_text().split()]
    raise AssertionError(f"{program} does not run")


class Contained(Server):
    """The server as the image starts it, on free ports of this machine."""

    def __init__(self, image: Image, state: pathlib.Path) -> None:
        entry = image.config()["Entrypoint"]
        super().__init__(state, environment=image.environment)
        self.program = entry[0]
        self.line = image.inside(*entry, "--insecure", "--listen=127.0.0.1:0",
                                 "--http_listen=127.0.0.1:0", "--search_budget=0",
                                 volume=f"{state}:/var/lib/athanor")

    def command(self) -> list[object]:
        return self.line

    def stop(self, timeout: float = 60) -> int:
        # The runtime of a container signals the program itself.
        os.kill(below(self.pid, self.program), signal.SIGTERM)
        status = self._process.wait(timeout)
        self._process = None
        return status


@pytest.fixture(scope="module")
def state(memory: pathlib.Path, image: Image) -> pathlib.Path:
    """The volume with the models."""
    folder = memory / "state"
    folder.mkdir()
    os.chown(folder, int(image.do("id", "-u")), -1)
    return folder


def test_it_is_small_and_runs_as_its_own_user(image: Image) -> None:
    megabytes = image.megabytes()
    print(f"the image has {megabytes:.0f} MB")
    assert megabytes <= MOST_MB
    config = image.config()
    assert config["User"] == "athanor" and config["StopSignal"] == "SIGTERM"
    assert set(config["ExposedPorts"]) == {"50051/tcp", "8080/tcp"}
    assert image.do("id", "-un") == "athanor\n"


def test_nothing_of_the_build_is_left(image: Image) -> None:
    packages = image.do("dpkg-query", "--show", "--showformat", "${Package}\n").split()
    assert "athanor" in packages
    assert not [name for name in packages if name.endswith("-dev") or name.startswith("clang")]
    assert not image.do("ls", "/tmp", "/var/lib/apt/lists").replace("/tmp:", "").replace(
        "/var/lib/apt/lists:", "").strip()


def test_it_serves_and_restores(image: Image, state: pathlib.Path) -> None:
    graph = athanor.Graph("kept", dims={"b": (1, 8)})
    graph.output("y", graph.input("x", ("b", 3), "f32") + 1)
    server = Contained(image, state).start()
    with server.client() as client:
        client.upload(graph, "kept").wait("baseline")
    assert server.stop() == 0, server.log.read_text()
    answers(Contained(image, state))


def answers(server: Contained) -> None:
    """Starts it, calls the model that it restores, and stops it."""
    begin = time.monotonic()
    server.start()
    print(f"ready with a restored model after {time.monotonic() - begin:.2f} s, buildah included")
    try:
        with server.client() as client:
            reply = client.model("kept").infer({"x": np.zeros((2, 3), np.float32)}, wait="none")
        np.testing.assert_array_equal(reply["y"], np.ones((2, 3), np.float32))
        assert server.stop() == 0, server.log.read_text()
    finally:
        server.kill()


def test_an_upgrade_keeps_models_and_settings_and_a_purge_keeps_models(
        image: Image, package: pathlib.Path, state: pathlib.Path) -> None:
    """The package's scripts, with dpkg: after the tests above, which leave a model."""
    (file,) = (package / "package").glob("*.deb")
    image.buildah("copy", image.name, file, "/tmp/athanor.deb")
    image.do("sh", "-c", "echo '# mine' >> /etc/athanor/athanord.conf", user="root")
    image.do("dpkg", "--install", "/tmp/athanor.deb", user="root")
    assert "# mine" in image.do("cat", "/etc/athanor/athanord.conf")
    answers(Contained(image, state))
    image.do("dpkg", "--remove", "athanor", user="root")
    left = image.do("sh", "-c", "ls /usr/bin/athanor* /usr/lib/athanor /etc/athanor 2>&1 || true")
    assert "athanord.conf" in left and "No such file" in left, left
    said = image.do("sh", "-c", "dpkg --purge athanor 2>&1", user="root")
    assert "the models in /var/lib/athanor are kept" in said
    assert image.do("sh", "-c", "ls -d /etc/athanor /var/lib/athanor 2>/dev/null || true") \
        == "/var/lib/athanor\n"
