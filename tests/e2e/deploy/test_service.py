"""The systemd unit: systemd takes it, its walls leave what server and compilers need."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import athanor
import numpy as np
import pytest
from conftest import ATHANORD, ROOT, built
from server_process import Server

UNIT = ROOT / "deploy/systemd/athanord.service"
CONFIG = ROOT / "deploy/systemd/athanord.conf"
# Calls that the compilers' own walls allow, as server/tuner/sandbox names them.
CALLS = re.compile(r"\bSYS_(\w+)")
PR_SET_MDWE = 65


def settings(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", unit, re.M):
        found.setdefault(key, []).append(value)
    return found


def systemd(*arguments: object) -> str:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed (Debian's systemd)")
    result = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def with_programs(unit: str) -> str:
    """The unit with a program that exists here, and without a manual page that need not."""
    return re.sub(r"^Documentation=.*\n", "", unit, flags=re.M).replace("/usr/bin/athanord",
                                                                       str(built(ATHANORD)))


def test_systemd_takes_the_unit(tmp_path: pathlib.Path) -> None:
    path = tmp_path / UNIT.name
    path.write_text(with_programs(UNIT.read_text()))
    said = systemd("verify", "--man=no", path)
    # What it does not know it ignores, with a line that names the file.
    assert UNIT.name not in said, said


def test_a_wrong_line_is_noticed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / UNIT.name
    path.write_text(with_programs(UNIT.read_text()).replace("UMask=", "Umask=")
                    + "SystemCallFilter=@nonsense\n")
    said = systemd("verify", "--man=no", path)
    assert "Umask" in said or "@nonsense" in said


def test_the_walls_are_narrow(tmp_path: pathlib.Path) -> None:
    systemd("security", "--offline=true", "--threshold=20", UNIT)


def allowed_by(filters: list[str]) -> set[str]:
    """The calls that the unit's SystemCallFilter lines allow."""
    calls: set[str] = set()
    waiting = [name for line in filters for name in line.split()]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if not name.startswith("@"):
            calls.add(name)
        elif name not in seen:
            seen.add(name)
            listed = systemd("syscall-filter", name).splitlines()[1:]
            waiting += [line.strip() for line in listed
                        if line.strip() and not line.strip().startswith("#")]
    return calls


def test_the_compilers_may_call_what_their_own_walls_allow() -> None:
    source = (ROOT / "server/tuner/sandbox/allowed_calls.cc").read_text()
    calls = allowed_by(settings(UNIT.read_text())["SystemCallFilter"])
    allowed = re.findall(r"Allow\(\{(.*?)\}\)|AllowIf\(\s*(SYS_\w+)", source, re.S)
    wanted = set(CALLS.findall(str(allowed))) | {"seccomp", "landlock_create_ruleset",
                                           "landlock_add_rule", "landlock_restrict_self"}
    assert len(wanted) > 60
    assert not wanted - calls, sorted(wanted - calls)


def test_its_flags_are_the_servers() -> None:
    help_text = subprocess.run([built(ATHANORD), "--help"], check=True, capture_output=True,
                               text=True).stdout
    command = settings(UNIT.read_text())["ExecStart"][0]
    flags = set(re.findall(r"--(\w+)=", command))
    flags |= set(re.findall(r"^(?:# )?(\w+) = ", CONFIG.read_text(), re.M))
    assert len(flags) > 5
    for flag in flags:
        assert f"--{flag}" in help_text, flag


def test_the_server_tells_systemd_what_it_does(tmp_path: pathlib.Path) -> None:
    assert settings(UNIT.read_text())["Type"] == ["notify"]
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        manager.settimeout(60)
        server = Server(tmp_path / "state", environment={"NOTIFY_SOCKET": str(place)}).start()
        try:
            assert manager.recv(1000) == b"READY=1"
            with server.client() as client:
                assert client.models() == [], "ready is said when it serves"
            os.kill(server.pid, signal.SIGHUP)
            assert manager.recv(1000) == b"RELOADING=1"
            assert manager.recv(1000) == b"READY=1"
            assert server.stop() == 0
            assert manager.recv(1000) == b"STOPPING=1"
        finally:
            server.kill()


def test_a_server_whose_manager_has_gone_serves_and_says_so(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path / "state", environment={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    server.start()
    try:
        with server.client() as client:
            assert client.models() == []
        assert server.stop() == 0
    finally:
        server.kill()
    assert "service manager not told" in server.log.read_text()


def test_a_server_needs_no_memory_both_written_and_executed(tmp_path: pathlib.Path) -> None:
    """MemoryDenyWriteExecute: the kernel's own form of it, inherited by the compilers."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(66, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip("the kernel has no PR_SET_MDWE (Linux 6.3)")
    deny = tmp_path / "deny.py"
    deny.write_text("import ctypes, os, sys\n"
                    f"assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0) == 0\n"
                    "os.execvp(sys.argv[1], sys.argv[1:])\n")
    server = Server(tmp_path / "state", prefix=(sys.executable, str(deny)),
                    environment={"OPENBLAS_NUM_THREADS": "1"}).start()
    try:
        with server.client() as client:
            g = athanor.Graph("walled", dims={"b": (1, 8)})
            x = g.input("x", ("b", 64), "f32")
            g.output("y", athanor.softmax(x @ g.parameter("w", np.eye(64, dtype=np.float32))))
            y = client.upload(g, name="walled").infer({"x": np.zeros((2, 64), np.float32)})["y"]
        np.testing.assert_allclose(y, np.full((2, 64), 1 / 64, np.float32), rtol=1e-6)
    finally:
        server.kill()
