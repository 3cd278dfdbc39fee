"""The Debian package: what it holds and asks for, and a model served from what it unpacks."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import athanor
import numpy as np
import pytest
from conftest import ROOT, built
from server_process import Server

sys.path.insert(0, str(ROOT))
from deploy.package import deb  # noqa: E402


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    for program in deb.PROGRAMS:
        built(ROOT / "bazel-bin" / program)
    return deb.build(tmp_path_factory.mktemp("deb"), ROOT / "bazel-bin")


@pytest.fixture(scope="module")
def unpacked(package: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("root")
    deb.run("dpkg-deb", "--extract", package, root)
    return root


def fields(package: pathlib.Path) -> dict[str, str]:
    return dict(re.findall(r"^(\S+): (.*)$", deb.run("dpkg-deb", "--field", package), re.M))


def test_it_asks_for_the_libraries_of_its_programs(package: pathlib.Path) -> None:
    about = fields(package)
    assert about["Package"] == "athanor" and about["Version"] == athanor.__version__
    # lintian takes no host of one part, and not localhost.localdomain either.
    assert re.fullmatch(r".+ <\S+@(?!localhost\.)[a-z]+\.[a-z]+>", about["Maintainer"])
    names = {entry.split(" ")[0] for entry in about["Depends"].split(", ")}
    assert {"libc6", "libstdc++6", "libgrpc++1.51", "libopenblas0-pthread", "libsqlite3-0"} <= names
    assert not any(name.endswith("-dev") for name in names)
    status = deb.run("dpkg-query", "--show", "--showformat", "${Package}\\n")
    assert names <= set(status.split())


def test_it_holds_all_that_belongs_to_it(package: pathlib.Path) -> None:
    listed = deb.run("dpkg-deb", "--contents", package)
    assert all(line.split()[1] == "root/root" for line in listed.splitlines())
    paths = {line.split()[5].removeprefix(".") for line in listed.splitlines()}
    for path in ("/usr/bin/athanord", "/usr/lib/athanor/athanor-tuner",
                 "/etc/athanor/athanord.conf",
                 "/lib/systemd/system/athanord.service", "/usr/share/man/man1/athanor.1.gz",
                 "/usr/share/man/man1/athanord.1.gz",
                 "/usr/share/man/man1/athanor-bench-run.1.gz",
                 "/usr/share/man/man1/athanor-cache-gc.1.gz",
                 "/usr/share/bash-completion/completions/athanor",
                 "/usr/share/zsh/vendor-completions/_athanor",
                 "/usr/share/fish/vendor_completions.d/athanor-bench.fish",
                 "/usr/share/doc/athanor/changelog.gz",
                 "/usr/share/doc/athanor/copyright"):
        assert path in paths, path
    assert deb.run("dpkg-deb", "--info", package, "conffiles") == "/etc/athanor/athanord.conf\n"


def test_its_programs_are_stripped_and_keep_their_build_ids(unpacked: pathlib.Path) -> None:
    for source, target in deb.PROGRAMS.items():
        if not deb.is_elf(ROOT / "bazel-bin" / source):
            continue
        assert ".symtab" in deb.run("readelf", "--sections", ROOT / "bazel-bin" / source)
        assert ".symtab" not in deb.run("readelf", "--sections", unpacked / target)
        assert "Build ID: " in deb.run("readelf", "--notes", unpacked / target)


@pytest.mark.parametrize("script", deb.SCRIPTS)
def test_its_scripts_are_shell(script: str) -> None:
    subprocess.run(["sh", "-n", ROOT / "deploy/package" / script], check=True)


def test_what_it_unpacks_serves(unpacked: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tool = unpacked / "usr/bin/athanor"
    assert deb.run(tool, "version") == f"athanor {athanor.__version__}\n"
    graph = athanor.Graph("packed", dims={"b": (1, 8)})
    graph.output("y", graph.input("x", ("b", 3), "f32") + 1)
    bundle = tmp_path / "packed.athanor"
    graph.save(bundle)

    class Unpacked(Server):
        """The server of the package, its child process beside it."""
        binary = unpacked / "usr/bin/athanord"

    config = tmp_path / "athanord.conf"
    text = (unpacked / "etc/athanor/athanord.conf").read_text()
    config.write_text(text.replace("127.0.0.1:8080", "127.0.0.1:0"))
    server = Unpacked(tmp_path / "state", f"--config={config}").start()
    try:
        deb.run(tool, "--address", server.address, "upload", bundle)
        with server.client() as client:
            reply = client.model("packed").infer({"x": np.zeros((2, 3), np.float32)})
        np.testing.assert_array_equal(reply["y"], np.ones((2, 3), np.float32))
    finally:
        server.kill()


def test_a_library_of_no_package_is_named(tmp_path: pathlib.Path) -> None:
    stray = tmp_path / "libstray.so.1"
    stray.write_bytes(b"")
    with pytest.raises(deb.Wrong, match=f"{stray} is of no package"):
        deb.owners({stray})


def test_a_missing_program_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(deb.Wrong, match="athanord is not there"):
        deb.build(tmp_path, tmp_path)


def test_all_parts_have_one_version() -> None:
    project = (ROOT / "clients/python/pyproject.toml").read_text()
    assert f'\nversion = "{deb.version()}"\n' in project
    assert athanor.__version__ == deb.version()
    for manifest in ("athanor.yaml", "serving-runtime.yaml"):
        text = (ROOT / "deploy/kubernetes" / manifest).read_text()
        assert re.findall(r"image: athanor:(.*)", text) == [deb.version()]
