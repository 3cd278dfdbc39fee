"""jinja2 set up as transformers sets it for chat templates, and our renderer beside it.

Facts read in transformers' `utils/chat_template_utils.py`: the immutable sandbox, trim_blocks and
lstrip_blocks, loop controls, a tag `generation`, the filter `tojson`, two functions.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "bazel-bin" / "tests" / "tokens" / "template_tool"
NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: text that the model wrote; here it only prints it."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_text")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @staticmethod
    def _text(caller: Any) -> str:
        return caller()


class Raised(jinja2.TemplateError):
    """What a template raises itself."""


def _raise(message: str) -> None:
    raise Raised(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Returns the environment that templates are compiled in."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = _tojson
    made.filters["from_json"] = json.loads
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = NOW.strftime
    return made


ENVIRONMENT = environment()


def case(template: str, request: dict[str, Any] | None = None,
         model: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns a request of template_tool."""
    return {"template": template, "request": request or {}, "model": model or {}}


def theirs(asked: dict[str, Any]) -> str | Exception:
    """Renders by jinja2."""
    try:
        template = ENVIRONMENT.from_string(asked["template"])
        return template.render(**(asked["model"] | asked["request"]))
    except Exception as error:  # noqa: BLE001
        return error


def ours(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Renders by template_tool; answers are in the order of `cases`."""
    lines = "".join(json.dumps(asked) + "\n" for asked in cases)
    done = subprocess.run([TOOL], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(cases)
    return answers


def difference(asked: dict[str, Any], answer: dict[str, Any]) -> str:
    """Returns "equal", "failed" (both), "refused" (by name), or what differs."""
    expected = theirs(asked)
    if "parts" not in answer:
        if answer["code"] == "UNIMPLEMENTED":
            return "refused"
        if isinstance(expected, Exception):
            return "failed"
        return f"we fail: {answer['error']}; jinja2 says {expected!r}"
    text = "".join(part[0] for part in answer["parts"])
    if isinstance(expected, Exception):
        return f"jinja2 fails: {expected!r}; we say {text!r}"
    return "equal" if text == expected else f"jinja2 says {expected!r}; we say {text!r}"
