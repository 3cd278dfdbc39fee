"""The command line tool against a real server."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import pty
import re
import subprocess

import athanor
import grpc
import ml_dtypes
import numpy as np
import pytest
from conftest import CLI, Server, built


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model with inputs of several kinds."""
    g = athanor.Graph("cli", dims={"b": (0, 16)})
    x = g.input("x", ("b", 3), "f32")
    g.output("y", x @ g.parameter("w", np.eye(3, dtype=np.float32) * 2))
    g.output("i", g.input("i", "b", "i64") + 1)
    g.output("h", g.input("h", (), "bf16") * 2)
    path = tmp_path_factory.mktemp("cli") / "cli.athanor"
    g.save(path)
    return path


class Cli:
    """Runs the tool against a server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, *arguments: object, status: int = 0) -> str:
        result = self.run(*arguments)
        assert result.returncode == status, (arguments, result.stdout, result.stderr)
        return result.stdout + result.stderr

    def run(self, *arguments: object) -> subprocess.CompletedProcess:
        command = [built(CLI), "--address", self.address, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def objects(self, *arguments: object) -> list[dict]:
        return [json.loads(line) for line in self("--json", *arguments).splitlines()]


@pytest.fixture(scope="module")
def cli(server: Server, bundle: pathlib.Path) -> Cli:
    tool = Cli(server.address)
    text = tool("upload", bundle)
    assert "stored cli/1" in text and "DONE" in text
    return tool


INPUTS = ("--input", "x=1,2,3,4,5,6", "--input", "i[2]=-1,9007199254740993", "--input", "h=0.5")


def test_infer_prints(cli: Cli) -> None:
    text = cli("infer", "cli", *INPUTS)
    assert "y: f32[2, 3] = 2 4 6 8 10 12" in text
    assert "i: i64[2] = 0 9007199254740994" in text
    assert "h: bf16[] = 1" in text


def test_infer_json(cli: Cli) -> None:
    objects = cli.objects("infer", "cli/1", *INPUTS, "--output", "i", "--output", "y")
    assert objects[0] == {"name": "i", "dtype": "i64", "shape": [2],
                          "values": [0, 9007199254740994]}
    assert objects[1]["values"] == [2, 4, 6, 8, 10, 12]
    assert objects[2]["plan_id"].startswith("p-")


def test_infer_files(cli: Cli, tmp_path: pathlib.Path) -> None:
    """numpy's files in and out, bf16 as ml_dtypes saves it."""
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "i.npy", np.arange(4))
    np.save(tmp_path / "h.npy", np.array(1.5, ml_dtypes.bfloat16))
    inputs = [part for n in "xih" for part in ("--input", f"{n}=@{tmp_path}/{n}.npy")]
    outputs = [part for n in "yih" for part in ("--output", f"{n}=@{tmp_path}/{n}_out.npy")]
    assert cli("infer", "cli", *inputs, *outputs) == ""
    np.testing.assert_allclose(np.load(tmp_path / "y_out.npy"), x * 2, rtol=1e-6)
    np.testing.assert_array_equal(np.load(tmp_path / "i_out.npy"), np.arange(4) + 1)
    assert np.load(tmp_path / "h_out.npy").view(ml_dtypes.bfloat16) == 3


def test_infer_taps(cli: Cli, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "w.npy"
    objects = cli.objects("infer", "cli", *INPUTS, "--taps", "w,h", "--output", "y",
                          "--output", f"w=@{path}")
    assert [o["name"] for o in objects if "name" in o] == ["y", "h"]
    assert objects[1]["values"] == [0.5]
    np.testing.assert_array_equal(np.load(path), np.eye(3, dtype=np.float32) * 2)
    assert 'not a node' in cli("infer", "cli", *INPUTS, "--taps", "q", status=1)


def test_infer_nothing(cli: Cli) -> None:
    objects = cli.objects("infer", "cli", "--input", "x=", "--input", "i=", "--input", "h=nan")
    assert objects[0] == {"name": "y", "dtype": "f32", "shape": [0, 3], "values": []}
    assert objects[2]["values"] == ["nan"]


def test_files_that_are_refused(cli: Cli, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.npy"
    others = ("--input", "i=1", "--input", "h=1")
    wrong = {"astype": np.zeros((1, 3)), "Fortran": np.zeros((2, 3), np.float32, "F"),
             "pickle": np.array([[None] * 3])}
    for words, array in wrong.items():
        np.save(path, array, allow_pickle=True)
        assert words in cli("infer", "cli", "--input", f"x=@{path}", *others, status=2)
    path.write_bytes(path.read_bytes()[:20])
    assert "ends inside" in cli("infer", "cli", "--input", f"x=@{path}", *others, status=2)


def test_models_status_watch_compile(cli: Cli) -> None:
    model = next(m for m in cli.objects("models", "cli") if m["version"] == "1")
    assert model["state"] == "READY" and model["dims"] == {"b": [0, 16]}
    heading, *rows = cli("models").splitlines()
    assert heading.split() == ["MODEL", "SERVES", "STATE", "DEVICE", "PLAN", "TAKES", "->", "GIVES"]
    row = next(row for row in rows if row.startswith("cli/1 "))
    assert row[heading.index("STATE"):].startswith("READY ")
    assert "x f32[b, 3]" in row[heading.index("TAKES"):]
    assert "cli/1 (serving): READY" in cli("models", "cli")
    assert "cli" in cli("models", "--names").splitlines()
    assert any(line.split()[:3] == ["1", "yes", "READY"]
               for line in cli("versions", "cli").splitlines())
    status = cli.objects("status")[0]
    assert status["ready"] and status["server"] == "athanor"
    (device,) = status["devices"]
    assert device["name"] == "cpu" and device["compiler"].startswith("clang ")
    assert 0 < device["memory_used"] < device["memory_limit"] < device["memory_bytes"]
    assert device["kernels_compiled"] > 0 and device["core_mhz"] is None
    assert re.search(r"device cpu: \S+; [0-9.]+ of [0-9.]+ GiB held; \d+ kernels", cli("status"))
    assert cli.objects("watch", "cli")[-1]["phase"] == "DONE"
    assert cli.objects("watch", model["compile_job_id"])[-1]["phase"] == "DONE"
    assert cli.objects("compile", "cli")[-1]["kernels_done"] > 0
    queued = cli.objects("compile", "cli/1", "--no_wait")[0]
    assert cli.objects("watch", queued["id"])[-1]["phase"] == "DONE"


def test_upload_again_and_delete(cli: Cli, bundle: pathlib.Path) -> None:
    stored = cli.objects("upload", bundle, "--name", "gone", "--budget", "0", "--no_wait")[0]
    assert stored["version"] == "1"
    assert "deleted gone/1" in cli("delete", "gone/1")
    assert "gone" in cli("infer", "gone", status=1)


def test_which_plan_and_version_serve(cli: Cli, bundle: pathlib.Path) -> None:
    for _ in range(2):
        cli("upload", bundle, "--name", "turns", "--budget", "0")
    newest = next(m for m in cli.objects("models", "turns") if m["serving"])
    assert newest["version"] == "2" and not newest["pinned"]
    assert "(pinned)" in cli("pin", "turns")
    assert "(pinned)" not in cli("unpin", "turns")
    assert cli.objects("pin", "turns/2", newest["plan_id"])[0]["pinned"]
    assert "p-none" in cli("pin", "turns", "p-none", status=1)
    assert cli.objects("rollback", "turns")[0]["version"] == "1"
    assert cli.objects("rollback", "turns/2")[0]["serving"]
    assert "it had ended already" in cli("cancel", "turns")


def test_a_search_is_cancelled(cli: Cli, tmp_path: pathlib.Path) -> None:
    """By the model's name; a layer is enough for a search that tries everything to take long."""
    g = athanor.Graph("layer", dims={"b": (1, 64)})
    x = g.input("x", ("b", 256), "f32")
    hidden = athanor.relu(x @ g.parameter("v", np.ones((256, 512), np.float32)))
    g.output("y", hidden @ g.parameter("w", np.ones((512, 256), np.float32)))
    g.save(tmp_path / "layer.athanor")
    cli("upload", tmp_path / "layer.athanor", "--budget", "0")
    cli("compile", "layer", "--no_wait", "--budget", "exhaust:300s")
    assert cli.objects("cancel", "layer")[0]["stop_reason"] == "STOP_CANCELLED"
    assert cli.objects("models", "layer")[0]["state"] == "READY"


class Terminal:
    """Runs the tool on a terminal of its own."""

    def __init__(self, cli: Cli, *arguments: str, answer: bytes = b"",
                 environment: dict[str, str] | None = None) -> None:
        terminal, inner = pty.openpty()
        command = [built(CLI), "--address", cli.address, *arguments]
        variables = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **(environment or {})}
        self.shown = b""
        with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner,
                              env=variables) as process:
            os.close(inner)
            os.write(terminal, answer)
            while True:
                try:
                    piece = os.read(terminal, 4096)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                self.shown += piece
        os.close(terminal)
        self.status = process.returncode


def test_bar_on_a_terminal(cli: Cli, tmp_path: pathlib.Path) -> None:
    """A terminal gets a bar that is redrawn, a pipe gets lines."""
    terminal = Terminal(cli, "compile", "cli", environment={"NO_COLOR": "1"})
    assert terminal.status == 0
    assert b"\r\x1b[K[" in terminal.shown and b"100 %" in terminal.shown
    assert b"\x1b[3" not in terminal.shown
    assert b"\x1b" not in cli("compile", "cli").encode()
    g = athanor.Graph("told", dims={"b": (1, 64)})
    x = g.input("x", ("b", 96), "f32")
    for width in (160, 224, 288):  # kernels that no cache has: compiled while the watch looks on
        x = athanor.softmax(athanor.relu(
            x @ g.parameter(f"w{width}", np.ones((x.shape[1], width), np.float32))))
    g.output("y", x)
    g.save(tmp_path / "told.athanor")
    assert re.search(r"told/1 serves after \d+\.\d s", cli("upload", tmp_path / "told.athanor"))


def test_colours_are_for_terminals_that_want_them(cli: Cli) -> None:
    green = b"\x1b[32mREADY\x1b[0m"
    assert green in Terminal(cli, "models").shown
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in Terminal(cli, "models", environment=unwanted).shown
    assert green in Terminal(cli, "models", environment={"NO_COLOR": ""}).shown
    assert "\x1b" not in cli("models")


def test_several_versions_are_deleted_only_when_asked(cli: Cli, bundle: pathlib.Path) -> None:
    def upload() -> None:
        for _ in range(2):
            cli("upload", bundle, "--name", "many", "--budget", "0", "--no_wait")

    upload()
    for answer in (b"n\n", b"\n", b"\x04"):
        kept = Terminal(cli, "delete", "many", answer=answer)
        assert kept.status == 1 and b"delete 2 versions of many (2, 1)? [y/N]" in kept.shown
        assert b"nothing was deleted" in kept.shown
    assert Terminal(cli, "delete", "many/2").status == 0
    assert b"?" not in Terminal(cli, "delete", "many").shown  # the last one
    upload()
    assert Terminal(cli, "delete", "many", answer=b"Yes\n").shown.count(b"deleted many/") == 2
    upload()
    assert b"?" not in Terminal(cli, "delete", "many", "--yes").shown
    upload()
    assert cli("delete", "many").count("deleted many/") == 2  # nobody to ask


def test_the_tool_about_itself(cli: Cli, tmp_path: pathlib.Path) -> None:
    assert re.fullmatch(r"athanor \d+\.\d+\.\d+\n", cli("version"))
    assert cli("help", "cache", "gc") == cli("cache", "gc", "--help")
    assert 'did you mean "cache gc"' in cli("help", "cache", "gx", status=2)
    cli("man", "--out", tmp_path)
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"athanor.1", "athanor-infer.1", "athanor-cache-gc.1"} <= pages
    assert cli("man", "infer") == (tmp_path / "athanor-infer.1").read_text()
    script = tmp_path / "athanor.bash"
    script.write_text(cli("completion", "bash") + f"""
athanor() {{ {built(CLI)} "$@"; }}
compopt() {{ :; }}
COMP_WORDS=(athanor --address {cli.address} infer cl) COMP_CWORD=4
_athanor
echo "${{COMPREPLY[@]}}"
""")
    found = subprocess.run(["bash", script], capture_output=True, text=True, check=True)
    assert "cli" in found.stdout.split()


def test_a_token_comes_from_a_file_or_the_environment(cli: Cli, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("short\n")
    refused = cli("--token_file", token, "status", status=2)
    assert f"--token_file {token}: a token is 8 to 256" in refused and "short" not in refused
    assert cli("--token_file", token, "version")  # asks no server
    token.write_text("secret-of-mine\n")
    assert "ready" in cli("--token_file", token, "status")  # this server asks for none


@pytest.mark.parametrize("command", ["models", "versions", "infer", "compile", "watch", "cancel",
                                     "explain", "pin", "unpin", "rollback", "delete"])
def test_an_unknown_model_is_refused_by_name(cli: Cli, command: str) -> None:
    for name in ("nobody",) if command == "versions" else ("nobody", "cli/99"):
        result = cli.run(command, name)
        assert result.returncode == 1 and result.stdout == "", (command, name, result)
        assert name.split("/")[0] in result.stderr and "NOT_FOUND" not in result.stderr
        error = json.loads(cli("--json", command, name, status=1))["error"]
        assert error["code"] == "NOT_FOUND"


def test_a_server_that_does_not_answer_is_a_timeout(own_server: Server) -> None:
    tool = Cli(own_server.address)
    own_server.pause()
    assert "within --timeout 0.3 seconds" in tool("--timeout", "0.3", "status", status=4)
    own_server.resume()
    assert tool("--timeout", "60", "status")


class OlderServer(grpc.GenericRpcHandler):
    """Answers every call but ListDevices, with a message of defaults."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method.endswith("/ListDevices"):
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def test_the_status_of_a_server_that_lists_no_devices() -> None:
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[OlderServer()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        (status,) = Cli(f"127.0.0.1:{port}").objects("status")
    finally:
        server.stop(None)
    assert status["devices"] == [] and status["jobs"] == []


def test_fsck(own_server: Server, bundle: pathlib.Path) -> None:
    tool = Cli(own_server.address)
    tool("upload", bundle)
    assert "is used by another server" in tool("fsck", "--state_dir", own_server.state, status=1)
    own_server.stop()
    text = tool("fsck", "--state_dir", own_server.state)
    assert "ok       version cli/1: 1 tensors" in text and "none damaged" in text
    weights = own_server.state / own_server.model_files()[0]
    weights.write_bytes(bytes(weights.stat().st_size))
    result = tool.run("--json", "fsck", "--state_dir", own_server.state)
    assert result.returncode == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    damaged = [row for row in found if row.get("verdict") == "damaged"]
    assert [row["kind"] for row in damaged] == ["tensor"] and "cli/1" in damaged[0]["detail"]
    assert found[-1]["error"]["code"] == "DATA_LOSS"
    assert "--state_dir" in tool("fsck", status=2)
    tool = Cli(own_server.start().address)
    assert "is damaged" in tool("infer", "cli", *INPUTS, status=1)
    tool("upload", bundle)
    tool("infer", "cli/1", *INPUTS)


def test_exit_statuses(cli: Cli, tmp_path: pathlib.Path) -> None:
    assert 'there is no command "modles"; did you mean "models"?' in cli("modles", status=2)
    assert "no option --inptu; did you mean --input?" in cli("infer", "m", "--inptu", "x=1",
                                                             status=2)
    assert "MODEL is missing" in cli("infer", status=2)
    assert "no input" in cli("infer", "cli", "--input", "z=1", status=2)
    assert "cannot read" in cli("upload", tmp_path / "none.athanor", status=2)
    (tmp_path / "bad.athanor").write_bytes(b"ATHANOR1")
    assert "ends inside" in cli("upload", tmp_path / "bad.athanor", status=2)
    (tmp_path / "m.onnx").write_bytes(b"bytes")
    assert "did you mean onnx?" in cli("upload", tmp_path / "m.onnx", "--format", "onx", status=2)
    refused = cli("upload", tmp_path / "m.onnx", status=1)
    assert "INVALID_ARGUMENT" not in refused and "header." not in refused
    assert 'model "nobody"' in cli("infer", "nobody", status=1)
    assert "--budget: " in cli("compile", "cli", "--budget", "soon", status=1)
    assert "neither a model nor a compile job" in cli("watch", "nobody", status=1)
    error = json.loads(cli("--json", "infer", "nobody", status=1))
    assert error["error"]["code"] == "NOT_FOUND"
    assert "no server answers at 127.0.0.1:1" in Cli("127.0.0.1:1")("status", status=3)
    assert "0 or more" in cli("--timeout", "-1", "models", status=2)
    assert "Exit status" in cli("--help")
