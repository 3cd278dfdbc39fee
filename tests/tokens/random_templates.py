"""Random templates and values for them."""

from __future__ import annotations

import random
from typing import Any

NAMES = ["a", "b", "c", "d", "missing"]
TEXTS = ["", "x", "Ab c", " pad\n", "é漢🎉", "a,b,,c", "<|im_end|>", "12", "-3.5",
         "it's \"q\"", "ß\t"]
FILTERS = ["abs", "capitalize", "count", "default('z')", "default('z', true)", "first", "float",
           "int", "int(7)", "items|list", "join", "join('-')", "last", "length", "list", "lower",
           "max", "min", "reverse|list", "round", "round(1)", "sort", "sort(reverse=true)",
           "string",
           "sum", "title", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)",
           "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "trim", "trim('a')",
           "unique|list", "upper", "select|list", "reject('none')|list", "map('string')|list",
           "map(attribute='k')|list", "selectattr('k')|list", "dictsort", "indent(2)",
           "indent('> ', true)", "replace('a', 'bb')", "replace('', '.')", "safe", "escape",
           "center(9)", "batch(2)|list", "selectattr('k', 'defined')|list", "reject('string')|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean",
         "mapping", "sequence", "iterable", "true", "false", "even", "odd", "divisibleby 3",
         "divisibleby(2)", "eq 1", "ne(2)", "in [1, 'x']", "lower", "upper", "sameas(none)",
         "equalto('x')", "callable", "gt 1", "le 2"]
METHODS = ["strip()", "strip('a ')", "lstrip()", "rstrip('\\n')", "split()", "split(',')",
           "split(',', 1)", "rsplit(',', 1)", "startswith('a')", "endswith(('c', ' '))", "upper()",
           "lower()", "title()", "capitalize()", "find('c')", "count('a')", "replace('a', '')",
           "splitlines()", "isdigit()", "isalpha()", "get('k')", "get('q', 4)", "items()|list",
           "keys()|list", "values()|list", "join(['p', 'q'])", "partition(',')", "index(1)",
           "removeprefix('a')", "append(1)", "format(1)", "rfind('a')", "isupper()", "islower()"]
SYMBOLS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in",
           "not in", "and", "or"]


class Draw:
    """Draws from `rng`: much of it has a meaning, some fails in Python."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def value(self, depth: int = 3) -> Any:
        """Returns a JSON value."""
        kind = self.rng.randrange(9 if depth else 6)
        if kind < 2:
            return self.rng.choice(TEXTS)
        if kind == 2:
            return self.rng.choice([0, 1, 2, 3, -1, 7, 100, 2**40])
        if kind == 3:
            return self.rng.choice([0.0, 1.5, -2.25, 1e20, 1e-7, 0.1, 3.0, 123456.789])
        if kind == 4:
            return self.rng.choice([True, False])
        if kind == 5:
            return None
        if kind < 8:
            return [self.value(depth - 1) for _ in range(self.rng.randrange(4))]
        names = self.rng.sample(["k", "a", "B", "é", "items"], self.rng.randrange(4))
        return {name: self.value(depth - 1) for name in names}

    def variables(self) -> dict[str, Any]:
        """Returns values for all names but one."""
        return {name: self.value() for name in NAMES[:-1]}

    def literal(self) -> str:
        kind = self.rng.randrange(6)
        if kind < 2:
            text = self.rng.choice(TEXTS)
            return repr(text) if "\t" not in text else "'t\\tb'"
        return self.rng.choice([["0", "1", "2", "-3", "10"], ["1.5", "2.0", "1e3", "0.1"],
                                ["true", "false", "none"], ["[]", "{}", "()"]][kind - 2])

    def expression(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.15:
            return self.rng.choice(NAMES) if self.rng.random() < 0.6 else self.literal()
        inner = [self.expression(depth - 1) for _ in range(3)]
        ways = [
            lambda: f"{inner[0]} {self.rng.choice(SYMBOLS)} {inner[1]}",
            lambda: f"({inner[0]} {self.rng.choice(SYMBOLS)} {inner[1]})",
            lambda: f"{inner[0]}|{self.rng.choice(FILTERS)}",
            lambda: f"({inner[0]})|{self.rng.choice(FILTERS)}",
            lambda: f"({inner[0]} is {self.rng.choice(['', 'not '])}{self.rng.choice(TESTS)})",
            lambda: f"({inner[0]}).{self.rng.choice(METHODS)}",
            lambda: f"({inner[0]} if {inner[1]} else {inner[2]})",
            lambda: f"({inner[0]} if {inner[1]})",
            lambda: f"[{inner[0]}, {inner[1]}]",
            lambda: f"({inner[0]}, {inner[1]})",
            lambda: f"{{'k': {inner[0]}, 'B': {inner[1]}}}",
            lambda: f"{self.rng.choice(NAMES)}[{self.rng.choice(['0', '-1', '2', repr('k')])}]",
            lambda: f"{self.rng.choice(NAMES)}.{self.rng.choice(['k', 'a', 'items', '0'])}",
            # Not of constants: jinja2 folds them, and then prints nothing where it would raise.
            lambda: f"{self.rng.choice(NAMES)}[{self.bound()}:{self.bound()}{self.stride()}]",
            lambda: f"not {inner[0]}",
            lambda: f"-{inner[0]}",
            lambda: f"{inner[0]} < {inner[1]} <= {inner[2]}",
            lambda: f"'%s|%r' % ({inner[0]}, {inner[1]})",
            lambda: f"'{{}} {{!r}}'.format({inner[0]}, {inner[1]})",
            lambda: f"range({self.rng.choice(['3', '1, 4', '5, 0, -2'])})|list",
            lambda: f"dict(k={inner[0]})",
        ]
        return self.rng.choice(ways)()

    def bound(self) -> str:
        return self.rng.choice(["", "0", "1", "-1", "2", "-9", "9"])

    def stride(self) -> str:
        return self.rng.choice(["", "", ":", ":2", ":-1"])

    def tag(self, text: str) -> str:
        left, right = self.rng.choice(["", "", "-", "+"]), self.rng.choice(["", "", "-", "+"])
        return f"{{%{left} {text} {right}%}}"

    def text(self) -> str:
        return self.rng.choice(["", " ", "\n", "  \n  ", "word", "\n\n", "  x ", "{# no #}",
                                "{#- no -#}",
                                "\t", "{% raw %} {{ {% endraw %}", "é"])

    def statement(self, depth: int, in_loop: bool) -> str:
        def body() -> str:
            return self.body(depth - 1, in_loop)
        short = self.expression(self.rng.randrange(4))
        dash = self.rng.choice(["", "-"])
        kind = self.rng.randrange(12 if depth else 4)
        name = self.rng.choice(NAMES)
        if kind < 4:
            return f"{{{{{dash} {short} {dash}}}}}"
        if kind < 6:
            other = self.tag("else") + body() if self.rng.random() < 0.5 else ""
            return self.tag(f"if {short}") + body() + other + self.tag("endif")
        if kind < 8:
            target = self.rng.choice(["a", "x", "x, y"])
            test = f" if {self.expression(1)}" if self.rng.random() < 0.3 else ""
            inside = self.body(depth - 1, True)
            shows = self.rng.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.length }}",
                                     "{{ x }}", "{{ loop.previtem }}{{ loop.nextitem }}"])
            other = self.tag("else") + body() if self.rng.random() < 0.3 else ""
            start = self.tag(f"for {target} in ({self.expression(1)}){test}")
            return start + shows + inside + other + self.tag("endfor")
        if kind == 8:
            return self.tag(f"set {name} = {short}")
        if kind == 9:
            start = self.tag(f"set {name}{self.rng.choice(['', '|upper'])}")
            return start + self.body(depth - 1, False) + self.tag("endset")
        if kind == 10 and in_loop:
            jump = self.rng.choice(["break", "continue"])
            return self.tag(f"if {self.expression(1)}") + self.tag(jump) + self.tag("endif")
        kind = self.rng.randrange(4)
        if kind == 0:
            start = self.tag(f"set ns = namespace(n={short})")
            return start + self.tag(f"set ns.n = ns.n ~ {name}") + "{{ ns.n }}"
        if kind == 1:
            return (self.tag(f"macro m(p, q={self.expression(1)})") + "[{{ p }}{{ q }}]"
                    + self.tag("endmacro") + f"{{{{ m({short}) }}}}{{{{ m(q=1, p=2) }}}}")
        if kind == 2:
            return self.tag("filter upper") + self.body(depth - 1, False) + self.tag("endfilter")
        return self.tag(f"with w = {short}") + "{{ w }}" + body() + self.tag("endwith")

    def body(self, depth: int, in_loop: bool) -> str:
        return "".join(self.text() + self.statement(depth, in_loop)
                       for _ in range(self.rng.randrange(1, 3))) + self.text()

    def template(self) -> str:
        """Returns a template that jinja2 often accepts."""
        return self.body(self.rng.randrange(4), False)
