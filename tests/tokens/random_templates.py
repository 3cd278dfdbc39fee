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
        self.in_macro = False  # what is drawn now; macros that call each other seldom end

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

    # Templates about names: scopes that read and set few of them, in any order.

    def name_expression(self) -> str:
        """Returns what reads one name, or none."""
        name = self.rng.choice([*NAMES, "x", "y", "p", "loop", "caller", "range"])
        ways = ["{}|string", "{}|string", "{} is defined", "{}|default('z')", "'<' ~ {} ~ '>'"]
        if name == "loop":
            ways = ["loop.index if loop is defined", "loop is defined", "loop.length if loop",
                    "loop.previtem if loop is defined", "loop.nextitem if loop is defined"]
        if name in ("caller", "range"):
            ways = ["{} is defined"]
        if name == "caller" and self.rng.random() < 0.3:
            ways = ["caller() if caller is defined"]
        if self.rng.random() < 0.1:
            return self.literal()
        way = self.rng.choice(ways).format(name)
        return f"({way})" if " " in way else way

    def name_target(self) -> str:
        target = self.rng.choice([*NAMES, *NAMES, "x", "y", "p", "x, y", "(x, a), b", "ns.k"])
        return self.rng.choice(["caller", "loop", "range"]) if self.rng.random() < 0.01 else target

    def name_set(self) -> str:
        target = self.name_target()
        value = self.name_expression()
        if target == "x, y":
            value = f"{value}, {self.name_expression()}"
        if target == "(x, a), b":
            value = f"({value}, {self.name_expression()}), {self.name_expression()}"
        return self.tag(f"set {target} = {value}")

    def name_call(self) -> str:
        """Returns a call of a macro that may be there, or may have outlived its scope."""
        if self.in_macro and self.rng.random() < 0.95:
            return self.name_expression()
        callee = self.rng.choice(["m", "n", "ns.m"])
        given = self.rng.choice(["", "", self.name_expression(), f"q={self.name_expression()}"])
        return f"{callee}({given}) if {callee} is defined"

    def name_loop(self, depth: int, jumps: bool) -> str:
        target = self.rng.choice(["x", "y", "a", "b", "x, y", "m", "p"])
        items = self.rng.choice(["[1, 2]", "[1, 2, 3]", "[]", "(a|string)[:2]", "range(2)",
                                 "missing"])
        if target == "x, y":
            items = "[[1, 2], [3, 4]]"
        test = f" if {self.name_expression()}" if self.rng.random() < 0.3 else ""
        other = ""
        if self.rng.random() < 0.3:
            other = self.tag("else") + self.name_body(depth, jumps)
        return (self.tag(f"for {target} in {items}{test}") + self.name_body(depth, True) + other
                + self.tag("endfor"))

    def name_macro(self, depth: int) -> str:
        name = self.rng.choice(["m", "m", "n", "a"])
        escapes = self.tag(f"set ns.m = {name}") if self.rng.random() < 0.4 else ""
        start = self.tag(f"macro {name}({self.name_parameters()})")
        outer, self.in_macro = self.in_macro, True
        body = self.name_body(depth, False)
        self.in_macro = outer
        return start + body + self.tag("endmacro") + escapes

    def name_parameters(self) -> str:
        names = self.rng.sample(["p", "q", "a", "x"], self.rng.randrange(3))
        values = [f"={self.name_expression()}" if self.rng.random() < 0.5 else "" for _ in names]
        return ", ".join(name + value for name, value in
                         zip(names, sorted(values, key=bool), strict=True))

    def name_statement(self, depth: int, jumps: bool) -> str:
        kind = self.rng.randrange(18 if depth else 8)
        if kind < 3:
            return f"{{{{ {self.name_expression()} }}}}"
        if kind < 6:
            return self.name_set()
        if kind == 6:
            return f"{{{{ {self.name_call()} }}}}"
        if kind == 7:
            if not jumps:
                return f"{{{{ {self.name_expression()} }}}}"
            return (self.tag(f"if {self.name_expression()}")
                    + self.tag(self.rng.choice(["break", "continue"])) + self.tag("endif"))
        if kind < 11:
            return self.name_if(depth - 1, jumps)
        if kind < 13:
            return self.name_loop(depth - 1, jumps)
        if kind == 13:
            return self.name_macro(depth - 1)
        return self.name_block(depth - 1, jumps)

    def name_if(self, depth: int, jumps: bool) -> str:
        text = self.tag(f"if {self.name_expression()}") + self.name_body(depth, jumps)
        for _ in range(self.rng.choice([0, 0, 0, 1, 2])):
            text += self.tag(f"elif {self.name_expression()}") + self.name_body(depth, jumps)
        if self.rng.random() < 0.5:
            text += self.tag("else") + self.name_body(depth, jumps)
        return text + self.tag("endif")

    def name_block(self, depth: int, jumps: bool) -> str:
        """Returns a block with a scope of its own, or a call block."""
        kind = self.rng.randrange(5)
        if kind == 0:
            names = self.rng.sample(["x", "a", "b", "w"], self.rng.randrange(3))
            values = ", ".join(f"{name} = {self.name_expression()}" for name in names)
            return self.tag(f"with {values}") + self.name_body(depth, jumps) + self.tag("endwith")
        if kind == 1:
            given = self.name_expression()
            return (self.tag(f"filter replace('1', {given}|string)")
                    + self.name_body(depth, jumps) + self.tag("endfilter"))
        if kind == 2:
            given = self.rng.choice(["", "|upper", f"|replace('1', {self.name_expression()})"])
            return (self.tag(f"set {self.rng.choice(NAMES)}{given}") + self.name_body(depth, jumps)
                    + self.tag("endset"))
        if kind == 3:
            return (self.tag("generation") + self.name_body(depth, False)
                    + self.tag("endgeneration"))
        callee = self.rng.choice(["m", "n", "ns.m"])
        if self.in_macro:
            return self.name_if(depth, jumps)
        return (self.tag(f"if {callee} is defined")
                + self.tag(f"call({self.name_parameters()}) {callee}()")
                + self.name_body(depth, False) + self.tag("endcall") + self.tag("endif"))

    def name_body(self, depth: int, jumps: bool) -> str:
        return "".join(self.name_statement(depth, jumps) + self.rng.choice(["", "|"])
                       for _ in range(self.rng.randrange(1, 5)))

    def template_of_names(self) -> str:
        """Returns a template whose scopes read names before and after they set them."""
        start = self.tag("set ns = namespace()") if self.rng.random() < 0.95 else ""
        return start + "".join(self.name_statement(3, False) for _ in range(1, 6))
