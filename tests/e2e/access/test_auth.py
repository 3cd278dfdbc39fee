"""Identities (``--auth``) as clients meet them: the SDK, OpenAI's, HTTP; a file that changes."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import athanor
import numpy as np
import openai
import pytest
import tiny_decoder
from server_process import ATHANORD, ROOT, Server, built

TOKENS = ("team-token-1", "other-token-1", "watch-token-1", "admin-token-1", "later-token-1")
TEAM, OTHER, WATCH, ADMIN, LATER = TOKENS


def _section(name: str, token: str, *lines: str) -> str:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return "\n".join([f"[{name}]", f"token = sha256:{digest}", *lines, ""])


IDENTITIES = (_section("team", TEAM, "roles = infer, upload", "models = team/*") +
              _section("other", OTHER, "roles = infer", "models = other/*",
                       "calls_per_second = 5") +
              _section("watch", WATCH, "roles = monitor") +
              _section("ops", ADMIN, "roles = admin"))


def _replace(file: pathlib.Path, text: str) -> None:
    """Writes a file beside it, and renames that over it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def _graph() -> athanor.Graph:
    graph = athanor.Graph("double")
    x = graph.input("x", (4,), "f32")
    graph.output("y", x + x)
    return graph


@pytest.fixture(scope="module")
def auth_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with identities and the model "team/double"; no token is ever in its log."""
    folder = tmp_path_factory.mktemp("auth")
    file = folder / "auth.conf"
    file.write_text(IDENTITIES)
    server = Server(folder / "state", f"--auth={file}", "--http_listen=127.0.0.1:0",
                    "--openai_listen=127.0.0.1:0").start()
    with athanor.Client(server.address, token=TEAM) as client:
        client.upload(_graph(), name="team/double").wait("baseline", timeout=120)
    yield server
    assert server.stop() == 0, server.log.read_text()
    log = server.log.read_text()
    for token in TOKENS:
        assert token not in log


def test_each_does_what_it_may(auth_server: Server) -> None:
    x = np.ones(4, np.float32)
    with athanor.Client(auth_server.address, token=TEAM) as team:
        assert team.model("team/double").infer({"x": x})["y"].tolist() == [2, 2, 2, 2]
        assert [model.name for model in team.models()] == ["team/double"]
        with pytest.raises(athanor.PermissionDenied, match="only team/\\*"):
            team.model("other/double")
        with pytest.raises(athanor.PermissionDenied):
            team.upload(_graph(), name="elsewhere/double")
    with athanor.Client(auth_server.address, token=OTHER) as other:
        assert not list(other.models())
        with pytest.raises(athanor.PermissionDenied):
            other.delete("team/double")
        with pytest.raises(athanor.PermissionDenied, match="needs one of upload, admin"):
            other.upload(_graph(), name="other/double")
    with athanor.Client(auth_server.address, token=ADMIN) as ops:
        assert ops.model("team/double").infer({"x": x})["y"].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("token", [None, "wrong-token", TEAM.upper(), TEAM + "0"])
def test_nobody_else_gets_in(auth_server: Server, monkeypatch: pytest.MonkeyPatch,
                             token: str | None) -> None:
    monkeypatch.delenv("ATHANOR_TOKEN", raising=False)
    with athanor.Client(auth_server.address, token=token) as client:
        with pytest.raises(athanor.Unauthenticated) as caught:
            client.model("team/double")
        assert token is None or token not in str(caught.value)
        with pytest.raises(athanor.Unauthenticated):
            client.upload(_graph(), name="team/double")


def _status(server_address: str, path: str, token: str | None = None) -> int:
    request = urllib.request.Request(f"http://{server_address}{path}")
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_pages_are_for_those_who_monitor(auth_server: Server) -> None:
    for path in ("/", "/status.json", "/metrics"):
        assert _status(auth_server.http_address, path) == 401
        assert _status(auth_server.http_address, path, TEAM) == 403
        assert _status(auth_server.http_address, path, WATCH) == 200
        assert _status(auth_server.http_address, path, ADMIN) == 200


def test_rest_knows_the_models_of_the_caller(auth_server: Server) -> None:
    path = "/v2/models/team/double/ready"
    assert _status(auth_server.http_address, path) == 401
    assert _status(auth_server.http_address, path, WATCH) == 403
    assert _status(auth_server.http_address, path, OTHER) == 403
    assert _status(auth_server.http_address, path, TEAM) == 200
    assert _status(auth_server.http_address, "/v2/health/ready") == 200


def test_openai_clients_send_tokens_as_keys(auth_server: Server) -> None:
    url = f"http://{auth_server.openai_address}/v1"
    with openai.OpenAI(base_url=url, api_key=TEAM, max_retries=0) as client:
        assert client.models.list().data == []  # none that generates
        with pytest.raises(openai.PermissionDeniedError):
            client.completions.create(model="other/m", prompt="a")
    with openai.OpenAI(base_url=url, api_key="wrong-token", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_quotas_refuse_for_a_while(auth_server: Server) -> None:
    with athanor.Client(auth_server.address, token=OTHER) as other:
        def refused() -> bool:
            try:
                list(other.models())
            except athanor.ResourceExhausted:
                return True
            return False
        assert any(refused() for _ in range(200))
        end = time.monotonic() + 30
        while refused():
            assert time.monotonic() < end
            time.sleep(0.2)


def test_the_log_names_whom_it_refuses(auth_server: Server) -> None:
    """Lines of refusals are limited for each caller, so each has to have its own."""
    with athanor.Client(auth_server.address, token=WATCH) as watch:
        with pytest.raises(athanor.PermissionDenied) as unary:
            watch.delete("team/double")
        with pytest.raises(athanor.PermissionDenied) as streamed:
            watch.upload(_graph(), name="team/double")
    assert _status(auth_server.http_address, "/v2/models/team/double/ready", WATCH) == 403
    log = auth_server.log.read_text().splitlines()
    for what in (f"request={unary.value.request_id} ", f"request={streamed.value.request_id} ",
                 'method="GET /v2/models/team/double/ready"'):
        assert [line for line in log if what in line and " client=watch " in line], what


def test_a_new_file_counts_and_a_broken_one_does_not(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "auth.conf"
    file.write_text(IDENTITIES)
    server = Server(tmp_path / "state", f"--auth={file}").start()

    def until(token: str, admitted: bool) -> None:
        end = time.monotonic() + 30
        while True:
            with athanor.Client(server.address, token=token) as client:
                try:
                    list(client.models())
                    now = True
                except athanor.Unauthenticated:
                    now = False
            if now == admitted:
                return
            assert time.monotonic() < end, server.log.read_text()
            time.sleep(0.1)

    try:
        until(LATER, admitted=False)
        _replace(file, _section("later", LATER, "roles = admin"))
        until(LATER, admitted=True)
        until(ADMIN, admitted=False)  # revoked
        _replace(file, "[later]\nroles = everything\n")
        end = time.monotonic() + 30
        while 'unknown role \\"everything\\"' not in server.log.read_text():
            assert time.monotonic() < end, server.log.read_text()
            time.sleep(0.1)
        until(LATER, admitted=True)
    finally:
        assert server.stop() == 0


def test_identities_share_no_beginnings_of_prompts(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "auth.conf"
    file.write_text(_section("team", TEAM, "roles = infer", "models = *",
                             "cache_group = both") +
                    _section("other", OTHER, "roles = infer", "models = *") +
                    _section("friend", LATER, "roles = infer", "models = *",
                             "cache_group = both") +
                    _section("ops", ADMIN, "roles = admin"))
    server = Server(tmp_path / "state", f"--auth={file}").start()
    folder = tmp_path / "tiny"
    folder.mkdir()
    tiny_decoder.write(folder)
    prompt = ([1, *range(4, 20)] * 3)[:40]

    def cached(token: str) -> int:
        with athanor.Client(server.address, token=token) as client:
            answer = client.model("tiny").generate(prompt, max_tokens=2, timeout=120)
            return answer.result().usage.cached_tokens

    try:
        with athanor.Client(server.address, token=ADMIN) as ops:
            ops.upload(folder, name="tiny", budget="0").wait("baseline", timeout=120)
        assert cached(TEAM) == 0
        shared = cached(TEAM)
        assert shared > 0
        assert cached(OTHER) == 0, "it would learn what the other has asked"
        assert cached(OTHER) == shared
        assert cached(LATER) == shared
    finally:
        assert server.stop() == 0


def test_made_tokens_and_the_documents_example(tmp_path: pathlib.Path) -> None:
    made = subprocess.run([built(ATHANORD), "--make_token"], capture_output=True, text=True,
                          check=True).stdout.splitlines()
    assert len(made) == 2
    assert made[1] == "token = sha256:" + hashlib.sha256(made[0].encode()).hexdigest()
    text = (ROOT / "docs/security.md").read_text()
    example = re.search(r"```ini\n(# auth.conf\n.*?)```", text, re.S)
    assert example is not None
    file = tmp_path / "auth.conf"
    file.write_text(f"{example[1]}\n[made]\nroles = admin\n{made[1]}\n")
    server = Server(tmp_path / "state", f"--auth={file}").start()
    try:
        with athanor.Client(server.address, token=made[0]) as client:
            assert not list(client.models())
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("text, message", [
    ("", "names no identity"),
    ("[a]\nroles = root\n", "unknown role"),
    (_section("a", TEAM, "roles = infer"), "has no models"),
    (_section("a", TEAM, "roles = admin") + _section("b", TEAM, "roles = admin"),
     "the token of b is that of a too"),
])
def test_a_server_with_a_wrong_file_does_not_start(tmp_path: pathlib.Path, text: str,
                                                   message: str) -> None:
    file = tmp_path / "auth.conf"
    file.write_text(text)
    ended = subprocess.run([built(ATHANORD), "--listen=127.0.0.1:0", f"--auth={file}",
                            f"--state_dir={tmp_path / 'state'}"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert f"--auth={file}" in ended.stderr
    assert message in ended.stderr
