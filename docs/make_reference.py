"""Writes docs/reference from the tables in the source, and from --help of the commands.

    .venv/bin/python docs/make_reference.py            # all pages; needs the two built commands
    .venv/bin/python docs/make_reference.py flags rpcs metrics   # these need no build
    .venv/bin/python docs/make_reference.py --check    # writes nothing, names the pages that differ

A page of the reference that is not in PAGES is written by hand.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs/reference"
MAKE = ".venv/bin/python docs/make_reference.py"


class Wrong(Exception):
    """The source has a form that this generator cannot read; the text says where."""


# Markdown

def plain(text: str) -> str:
    """Escapes `text` so that Markdown shows it literally; text in backticks is code already."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    # A lone - or + would begin a list if a line broke before it.
    return "".join(part if part.startswith("`")
                   else re.sub(r"([<*\\]|(?<!\S)[-+](?!\S))", r"\\\1", part) for part in parts)


def wrap(text: str, indent: str = "") -> str:
    """Wraps `text` at 120 characters; lines after the first get `indent`."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def item(head: str, about: list[str], text: str) -> str:
    """Formats a list entry: the name, in parentheses its properties, then its meaning."""
    known = f" ({'; '.join(filter(None, about))})" if any(about) else ""
    return wrap(f"- {head}{known}{': ' if text else ''}{text}", "  ")


def page(title: str, source: str, *parts: str) -> str:
    """Formats a page, with a note on its source."""
    note = f"<!-- Made from {source}; change that, and run\n     {MAKE} -->"
    return "\n\n".join([f"# {title}", note, *(part.strip("\n") for part in parts)]) + "\n"


# Tables in C++ sources

class Code(str):
    """A C++ expression, as it is written."""


TOKEN = re.compile(r'\s+|//[^\n]*|("(?:[^"\\]|\\.)*")|([{},;])|((?:[^\s"{},;/]|/(?!/))+)')


def tokens(text: str) -> Iterator[str]:
    """Splits text into literals, braces, commas and the pieces between them."""
    at = 0
    while found := TOKEN.match(text, at):
        at = found.end()
        if found.lastindex:
            yield found[found.lastindex]


def initialiser(text: str, name: str) -> list:
    """Parses the rows of `NAME[] = {...};`: lists for braces, str for literals, Code for
    expressions."""
    begin = re.search(rf"\b{name}\[\] =", text)
    if not begin:
        raise Wrong(f"no table {name}[]")
    stack: list[list] = [[]]
    open_item = False  # True: the next token continues the item, as in `a << b`
    for token in tokens(text[begin.end():]):
        if token == ";":
            return stack[0][0]
        if token == "{" and open_item:  # int64_t{1}
            raise Wrong(f"{name}[]: braces inside an expression")
        if token == "{":
            stack.append([])
        elif token == "}":
            done = stack.pop()
            stack[-1].append(done)
        elif token != ",":
            literal = token.startswith('"')
            value = ast.literal_eval(token) if literal else Code(token)
            if open_item:
                last = stack[-1].pop()
                value = last + value if literal else Code(f"{last} {value}")
            stack[-1].append(value)
        open_item = token not in "{},"
    raise Wrong(f"{name}[]: no end")


def number(text: str, constants: dict[str, int]) -> int:
    """Evaluates an integer expression of literals, constants, `*` and `<<`."""
    text = re.sub(r"int64_t\{(\w+)\}", r"\1", text).replace("'", "")
    text = text.replace("std::numeric_limits<int64_t>::max()", str(2**63 - 1))
    text = text.replace("std::numeric_limits<int32_t>::max()", str(2**31 - 1))
    text = re.sub(r"\bk[A-Z]\w*", lambda name: str(constants.get(name[0], name[0])), text)
    if not re.fullmatch(r"[\d\s*<()]+", text):
        raise Wrong(f"'{text}' is not a number that this generator reads")
    return eval(text)


def constants_of(text: str) -> dict[str, int]:
    """Returns the integer constants of a source, by name."""
    result: dict[str, int] = {}
    for name, value in re.findall(r"constexpr int64_t (k\w+) = ([^;]+);", text):
        result[name] = number(value, result)
    return result


# Flags of the server

# First flag of each group of the table; a group ends where the next one begins.
FLAG_GROUPS = {
    "listen": "Addresses and TLS",
    "state_dir": "State and cache",
    "device": "Device, threads and workers",
    "search_budget": "Searches",
    "memory_limit": "Memory, configuration and log",
    "max_message_bytes": "Sizes of messages, models and files",
    "max_nodes": "Graphs",
    "max_models": "Models and uploads",
    "max_connections": "Connections and calls",
    "max_queue": "Queues and shared calls",
    "max_compile_jobs": "Compile jobs, taps and buckets",
    "metrics_versions": "Metrics, runs and waits",
}

UNITS = {
    "kBytes": [("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)],
    "kDuration": [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)],
    "kShortDuration": [("m", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)],
}
FLAG_TYPES = {"kBool": "true or false", "kInt": "", "kBytes": "size", "kDuration": "time",
              "kShortDuration": "short time", "kRatio": "number", "kString": "text"}


def amount(value: int, kind: str) -> str:
    """Formats a number as the flag takes it, in the largest unit that divides it."""
    if kind == "kRatio":
        return f"{value / 1_000_000:g}"
    for unit, factor in UNITS.get(kind, []):
        if value and value % factor == 0:
            return f"{value // factor:,}{unit}"
    return f"{value:,}"


def flag_range(kind: str, least: int, most: int) -> str:
    """Describes the values that a flag takes; empty if the type says it all."""
    if kind in ("kBool", "kString"):
        return ""
    if most == 2**63 - 1:
        return f"at least {amount(least, kind)}" if least else ""
    return f"{amount(least, kind)} to {amount(most, kind)}"


def flags() -> str:
    """Returns the page of athanord's flags."""
    source = (ROOT / "server/base/options.cc").read_text()
    header = (ROOT / "server/base/options.h").read_text()
    constants = constants_of(source)
    parts = [wrap(
        "Every flag of `athanord` is also an environment variable (`ATHANOR_STATE_DIR` for "
        "`--state_dir`) and a `name = value` line of the file that `--config` names. The command "
        "line wins, then the environment, then the file. A limit refuses what is beyond it, or "
        "ends it; [errors](errors.md) says with what. Sizes are bytes, or take a unit: `KiB`, "
        "`MiB`, `GiB`, `TiB`. Times take `ms`, `s`, `m` or `h`; short times take `us`, `ms`, `s` "
        "or `m`. `--help` and `man athanord` show the flags too, and the "
        "[signals](../signals.md).")]
    groups = dict(FLAG_GROUPS)
    rows: list[str] = []
    for name, kind, field, least, most, text, *limit in initialiser(source, "kFlags"):
        if name in groups:
            parts += ["\n".join(rows), f"## {groups.pop(name)}"]
            rows = []
        kind, field = kind.removeprefix("FlagType::"), field.removeprefix("&O::")
        member = re.search(rf"\b{field}(?: = ([^;]+))?;", header)
        if not member or kind not in FLAG_TYPES:
            raise Wrong(f"options: --{name}: no member {field} or no type {kind}")
        default = member[1] or ""
        if named := re.fullmatch(r"std::string\((\w+)\)", default):
            default = re.search(rf'\b{named[1]} = ("[^"]*");', header)[1]
        if kind == "kString":
            default = f"`{ast.literal_eval(default)}`" if default else ""
        elif kind != "kBool":
            default = amount(number(default, constants), kind)
        what = flag_range(kind, number(least, constants), number(most, constants))
        rows.append(item(f"`--{name}`", [FLAG_TYPES[kind], what, default and f"default {default}",
                                         "a limit" if limit else ""], plain(text)))
    if groups:
        raise Wrong(f"options: no flag {', '.join(groups)}; FLAG_GROUPS names it")
    parts.append("\n".join(rows))
    return page("Flags of the server", "the table in server/base/options.cc", *filter(None, parts))


# Metrics

METRIC_SCOPES = {
    "kOfVersion": ("Of a model version",
                   "Each has the labels `model` and `version` before its own. Versions above "
                   "[`--metrics_versions`](flags.md#metrics-runs-and-waits) are counted together, "
                   "as `version=\"other\"`."),
    "kOfServer": ("Of the server", "Counted since the server started."),
    "kAsked": ("Read when asked", "Read from where they are known when somebody asks."),
}


def seconds(nanoseconds: int) -> str:
    """Formats a bound of a histogram in a suitable unit."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:g} {unit}"
    return f"{nanoseconds} ns"


def metrics() -> str:
    """Returns the page of the metrics."""
    source = (ROOT / "server/metrics/metric_table.cc").read_text()
    constants = constants_of(source)
    by_scope: dict[str, list[str]] = {scope: [] for scope in METRIC_SCOPES}
    bounds_of: dict[str, list[str]] = {}  # a table of bounds: the histograms that have it

    def table(name: str | list) -> list:
        return initialiser(source, name) if name else []

    for _, name, kind, scope, unit, text, labels, values, bounds in table("kTable"):
        about = [kind.removeprefix("k").lower(), unit]
        if labels:
            names = [f"`{label}`" for label in table(labels)]
            about.append(("label " if len(names) == 1 else "labels ") + ", ".join(names))
        named = [f"`{value}`" for value in table(values) if value]
        text = plain(text) + (f" Values: {', '.join(named)}." if named else "")
        by_scope[scope].append(item(f"`{name}`", about, text))
        if bounds:
            bounds_of.setdefault(bounds, []).append(f"`{name}`")
    parts = [wrap(
        "The page `/metrics` of the HTTP side (`--http_listen`) has these in Prometheus' text "
        "format. [`server/metrics`](../../server/metrics/README.md) says how the times of one call "
        "add up.")]
    for scope, rows in by_scope.items():
        title, about = METRIC_SCOPES[scope]
        parts += [f"## {title}", wrap(about), "\n".join(rows)]
    parts += ["## Bounds of histograms",
              "A histogram also counts what lies above its largest bound."]
    rows = []
    for name, histograms in bounds_of.items():
        numbers = [number(bound, constants) for bound in table(name)]
        texts = map(str if name in ("kRowBounds", "kStepTokenBounds") else seconds, numbers)
        rows.append(wrap(f"- {', '.join(histograms)}: {', '.join(texts)}", "  "))
    parts.append("\n".join(rows))
    return page("Metrics", "the table in server/metrics/metric_table.cc", *parts)


# RPCs

# Packages in the order of the page, with their files and what they are.
PACKAGES = {
    "athanor.v1": (
        ["model", "generate", "compile", "search", "cache", "graph", "plan", "target"],
        "proto/athanor/v1/{}.proto", "Athanor's own services, for what the standard ones lack."),
    "inference": (
        ["open_inference_grpc", "model_config"], "proto/inference/{}.proto",
        "The standard Open Inference Protocol v2 and Triton's extensions: any client of it calls "
        "models served here. "
        "[`proto/README.md`](../../proto/README.md) has the datatypes and the request parameters."),
    "grpc.health.v1": (
        ["health"], "proto/health/{}.proto", "gRPC's standard health checking."),
}
Field = descriptor_pb2.FieldDescriptorProto


class ProtoFile:
    """A .proto with its comments, as lists in Markdown."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file = file
        self.comments = {
            tuple(place.path): place.leading_comments or place.trailing_comments
            for place in file.source_code_info.location
            if place.leading_comments or place.trailing_comments}

    def comment(self, *path: int) -> str:
        return plain(self.comments.get(path, ""))

    def type_name(self, name: str) -> str:
        """Returns a link to a message or an enum; those of protobuf itself get only their name."""
        if name.startswith(".google."):
            return f"`{name[1:]}`"
        short = name.removeprefix(f".{self.file.package}.")
        return f"[`{short}`](#{anchor(short)})"

    def field_type(self, field: Field, message: descriptor_pb2.DescriptorProto) -> str:
        entries = {nested.name: nested for nested in message.nested_type
                   if nested.options.map_entry}
        entry = entries.get(field.type_name.rsplit(".")[-1])
        if entry:
            key, value = (self.field_type(one, message) for one in entry.field)
            return f"map of {key} to {value}"
        text = (self.type_name(field.type_name) if field.type_name
                else f"`{Field.Type.Name(field.type).removeprefix('TYPE_').lower()}`")
        return f"repeated {text}" if field.label == Field.LABEL_REPEATED else text

    def services(self) -> Iterator[str]:
        for number_, service in enumerate(self.file.service):
            yield f"### Service `{self.file.package}.{service.name}`"
            if text := self.comment(6, number_):
                yield wrap(text)
            rows = []
            for i, method in enumerate(service.method):
                takes, gives = map(self.type_name, (method.input_type, method.output_type))
                takes = f"stream of {takes}" if method.client_streaming else takes
                gives = f"stream of {gives}" if method.server_streaming else gives
                rows.append(item(f"**`{method.name}`**", [f"{takes} → {gives}"],
                                 self.comment(6, number_, 2, i)))
            yield "\n".join(rows)

    def messages(self) -> Iterator[str]:
        for i, message in enumerate(self.file.message_type):
            yield from self.message(message, message.name, (4, i))
        for i, enum in enumerate(self.file.enum_type):
            yield from self.enum(enum, enum.name, (5, i))

    def message(self, message: descriptor_pb2.DescriptorProto, name: str,
                path: tuple[int, ...]) -> Iterator[str]:
        yield f"#### `{name}`"
        if text := self.comment(*path):
            yield wrap(text)
        rows = []
        for i, field in enumerate(message.field):
            one_of = ""
            if field.proto3_optional:
                one_of = "optional"
            elif field.HasField("oneof_index"):
                one_of = f"one of `{message.oneof_decl[field.oneof_index].name}`"
            rows.append(item(f"`{field.name}`", [self.field_type(field, message), one_of],
                             self.comment(*path, 2, i)))
        yield "\n".join(rows) or "No fields."
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                yield from self.message(nested, f"{name}.{nested.name}", (*path, 3, i))
        for i, enum in enumerate(message.enum_type):
            yield from self.enum(enum, f"{name}.{enum.name}", (*path, 4, i))

    def enum(self, enum: descriptor_pb2.EnumDescriptorProto, name: str,
             path: tuple[int, ...]) -> Iterator[str]:
        yield f"#### `{name}`"
        if text := self.comment(*path):
            yield wrap(text)
        yield "\n".join(item(f"`{value.name}`", [str(value.number)], self.comment(*path, 2, i))
                        for i, value in enumerate(enum.value))


def anchor(name: str) -> str:
    """Returns the anchor that GitHub makes of a type's heading."""
    return name.lower().replace(".", "")


def proto_files(names: list[str]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Returns the .proto files as protoc reads them, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        # protoc's own files lie beside it in the package.
        known = pathlib.Path(protoc.__file__).parent / "_proto"
        if protoc.main(["protoc", f"-I{ROOT}", f"-I{known}", "--include_source_info",
                        f"--descriptor_set_out={out}", *names]):
            raise Wrong("protoc does not read the .proto files")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in files.file}


def rpcs() -> str:
    """Returns the page of services and messages."""
    names = {package: [pattern.format(stem) for stem in stems]
             for package, (stems, pattern, _) in PACKAGES.items()}
    files = proto_files([name for group in names.values() for name in group])
    parts = ["The server serves three packages over gRPC, and gRPC's own server reflection.\n"
             "[Errors](errors.md) says how calls fail."]
    details: list[str] = []
    for package, group in names.items():
        protos = [ProtoFile(files[name]) for name in group]
        if {proto.file.package for proto in protos} != {package}:
            raise Wrong(f"PACKAGES: not all of {group} are of package {package}")
        parts += [f"## Package `{package}`", wrap(PACKAGES[package][2])]
        for name, proto in zip(group, protos, strict=True):
            parts += proto.services()
            details += [f"### `{name}`", wrap(proto.comment(12)), *proto.messages()]
    headings = re.findall(r"^#### `(.*)`$", "\n".join(details), re.M)
    if twice := {name for name in headings if headings.count(name) > 1}:
        raise Wrong(f"types of one name in two packages: {', '.join(twice)}")
    return page("RPCs", "the .proto files under proto/", *parts, "## Messages",
                *filter(None, details))


# Commands

def command_help(binary: pathlib.Path, *command: str) -> dict[str, list[tuple[str, str]]]:
    """Returns what --help of a (sub)command lists, by heading; "" has its first line and last
    part."""
    text = subprocess.run([binary, *command, "--help"], check=True, capture_output=True,
                          text=True, env={}).stdout
    first, rest = text.split("\n", 1)
    body, _, last = rest.rstrip("\n").rpartition("\n\n")
    sections: dict[str, list[tuple[str, str]]] = {"": [(first, last)]}
    rows: list[tuple[str, str]] = []
    for line in body.splitlines():
        # A name of 28 characters or more has its text on the next line.
        if line.startswith(" " * 30):
            rows[-1] = (rows[-1][0], line.strip())
        elif line.startswith("  "):
            long = line[29:30].strip()
            rows.append((line.strip(), "") if long else (line[:30].strip(), line[30:].strip()))
        elif line.endswith(":"):
            rows = sections.setdefault(line[:-1], [])
        elif line and not line.startswith("Usage: "):
            raise Wrong(f"{binary.name} {' '.join(command)} --help: '{line}'")
    return sections


def option(name: str, text: str) -> str:
    """Formats an option or argument; --help has `--x TEXT:FILE=y REQUIRED Needs: --z`."""
    found = re.fullmatch(r"(?P<name>\S+)(?: (?P<type>[A-Z]+)(?::[A-Z]+(?: \[.*?\])?)?"
                         r"(?:=(?P<default>\S+))?(?P<many> \.\.\.| x \d+)?)?"
                         r"(?P<required> REQUIRED)?(?: \(Env:(?P<env>\w+)\))?"
                         r"(?: Needs: (?P<needs>.*?))?"
                         r"(?: Excludes: (?P<excludes>.*))?", name)
    if not found:
        raise Wrong(f"--help: '{name}'")
    head = found["name"] + (f" {found['type']}" if found["name"].startswith("-") and found["type"]
                            else "") + (found["many"] or "")
    about = ["required" if found["required"] else "",
             found["default"] and f"default `{found['default']}`",
             found["env"] and f"or `{found['env']}`",
             found["needs"] and f"needs `{found['needs']}`",
             found["excludes"] and "not with " + ", ".join(
                 f"`{other}`" for other in found["excludes"].split())]
    return item(f"`{head}`", about, plain(text))


def command_parts(binary: pathlib.Path, *command: str) -> Iterator[str]:
    """Yields the parts of a command and its subcommands."""
    sections = command_help(binary, *command)
    about = sections[""][0][0]
    yield f"{'###' if command else '##'} `{' '.join([binary.name, *command])}`"
    yield wrap(plain(about.rstrip(".") + "."))
    if not command:
        yield wrap(plain(sections[""][0][1]))
    rows = [option(*row) for heading in ("Positionals", "Options")
            for row in sections.get(heading, []) if row[0] != "-h,--help"]
    if rows:
        yield "\n".join(rows)
    for name, _ in sections.get("Subcommands", []):
        yield from command_parts(binary, *command, name)


def commands(binaries: pathlib.Path | None = None) -> str:
    """Returns the page of the command line tools; `binaries` is a folder like bazel-bin."""
    binaries = binaries or ROOT / "bazel-bin"
    parts = []
    for target in ("clients/cpp/athanor", "clients/bench/athanor-bench"):
        if not (binaries / target).exists():
            raise Wrong(f"{binaries / target} is not there; build it first: bazel build "
                        f"//{target.replace('/athanor', ':athanor')}")
        parts += command_parts(binaries / target)
    return page("Commands", "--help of the built commands",
                wrap("Options of `athanor` itself come before the name of its subcommand. `...` "
                     "takes several values."), *parts)


PAGES: dict[str, Callable[[], str]] = {
    "flags": flags, "commands": commands, "rpcs": rpcs, "metrics": metrics}


def differing(names: list[str]) -> list[str]:
    """Returns the pages that differ from what the generator writes now."""
    return [name for name in names
            if not (path := REFERENCE / f"{name}.md").exists() or path.read_text() != PAGES[name]()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE",
                        help=f"of {', '.join(PAGES)}; none: all")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page differs")
    args = parser.parse_args()
    names = args.pages or list(PAGES)
    if unknown := [name for name in names if name not in PAGES]:
        parser.error(f"no page {', '.join(unknown)}; there are {', '.join(PAGES)}")
    try:
        stale = differing(names)
        if not args.check:
            REFERENCE.mkdir(exist_ok=True)
            for name in stale:
                (REFERENCE / f"{name}.md").write_text(PAGES[name]())
    except Wrong as error:
        print(error, file=sys.stderr)
        return 2
    for name in stale:
        print(f"docs/reference/{name}.md {'differs' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
