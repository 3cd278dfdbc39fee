// Unit tests: marks, refusals, limits. tests/tokens holds texts against jinja2.
#include "server/text/chat_template.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::vector<Part>> Try(absl::string_view source, Json request = Json::object(),
                                      const RenderLimits& limits = {}) {
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) return chat.status();
  return chat->Render({.request = std::move(request),
                       .model = {{"bos", "<s>"}},
                       .now = absl::CivilSecond(2026, 2, 3, 4, 5, 6)},
                      limits);
}

// Trusted parts stand in brackets; an error is its code.
std::string Shown(absl::string_view source, Json request = Json::object(),
                  const RenderLimits& limits = {}) {
  const auto parts = Try(source, std::move(request), limits);
  if (!parts.ok()) return absl::StatusCodeToString(parts.status().code());
  std::string text;
  for (const Part& part : *parts) {
    absl::StrAppend(&text, part.trusted ? "[" : "", part.text, part.trusted ? "]" : "");
  }
  return text;
}

std::string Error(absl::string_view source, Json request = Json::object()) {
  return std::string(Try(source, std::move(request)).status().message());
}

TEST(ChatTemplateTest, EmptyHasNoParts) {
  EXPECT_EQ(Shown(""), "");
  EXPECT_EQ(Shown("\n"), "");
  EXPECT_EQ(Shown("a"), "[a]");
}

TEST(ChatTemplateTest, MarksGoThroughEachOperation) {
  const Json u = {{"u", " Ab,<x> "}, {"l", {"p", "q"}}, {"d", {{"k", "v"}}}};
  EXPECT_EQ(Shown("<{{ u }}>", u), "[<] Ab,<x> [>]");
  EXPECT_EQ(Shown("{{ '<' + u|trim ~ bos }}", u), "[<]Ab,<x>[<s>]");
  EXPECT_EQ(Shown("{{ ('(' ~ u ~ ')')[1:4] }}", u), " Ab");
  EXPECT_EQ(Shown("{{ ('(' ~ u ~ ')')[::-1] }}", u), "[)] >x<,bA [(]");
  EXPECT_EQ(Shown("{{ ('(' ~ u)[0] }}", u), "[(]");
  EXPECT_EQ(Shown("{{ u.split(',') | join('|') }}", u), " Ab[|]<x> ");
  EXPECT_EQ(Shown("{{ (u ~ '!').split(',')[1] }}", u), "<x> [!]");
  EXPECT_EQ(Shown("{{ 'a-b'.replace('-', u) }}", u), "[a] Ab,<x> [b]");
  EXPECT_EQ(Shown("{{ u|replace(',', '|') }}", u), " Ab[|]<x> ");
  EXPECT_EQ(Shown("{{ '%s!' % u }}{{ '{}?'.format(u) }}", u), " Ab,<x> [!] Ab,<x> [?]");
  EXPECT_EQ(Shown("{{ '12' % nothing }}{{ '3' % [1] }}"), "[123]");
  EXPECT_EQ(Shown("{{ u|upper }}{{ bos|upper }}", u), " AB,<X> [<S>]");
  EXPECT_EQ(Shown("{{ u|tojson }}", u), "\" Ab,<x> \"");
  EXPECT_EQ(Shown("{{ {'k': u}|tojson }}", u), "{\"[k]\": \" Ab,<x> \"}");
  EXPECT_EQ(Shown("{{ [u, 'x'] }}", u), "[' Ab,<x> ', '[x]']");
  EXPECT_EQ(Shown("{% for c in '>' ~ l[0] %}{{ c }}{% endfor %}", u), "[>]p");
  EXPECT_EQ(Shown("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(l[1]) }}", u), "[<]q[>]");
  EXPECT_EQ(Shown("{% set x %}({{ l[0] }}{% endset %}{{ x * 2 }}", u), "[(]p[(]p");
  EXPECT_EQ(Shown("{% filter indent %}a\n{{ l[0] }}{% endfilter %}", u), "[a\n    ]p");
  EXPECT_EQ(Shown("{{ d|items|list|first|join }}{{ d.items()|map('last')|join }}", u), "kvv");
  EXPECT_EQ(Shown("{{ l|join(u[1]) }}{{ u.strip()|list|sort|first }}", u), "pAq,");
  EXPECT_EQ(Shown("{{ ('{\"a\": \"' ~ l[0] ~ '\"}')|from_json }}", u), "{'a': 'p'}");
  EXPECT_EQ(Shown("{{ u|safe + '<' }}", u), " Ab,<x> [&lt;]");
}

TEST(ChatTemplateTest, NamesAreThoseOfTheirScopes) {
  const Json a = {{"a", "A"}, {"l", {1, 2}}};
  // A scope that sets a name has it from its beginning.
  EXPECT_EQ(Shown("{% for i in l %}{{ a }}{% endfor %}{% set a = 'b' %}", a), "");
  EXPECT_EQ(Shown("{{ a }}{% for i in l %}{{ a }}{% endfor %}{% set a = 'b' %}", a), "AAA");
  EXPECT_EQ(Shown("{% if 0 %}{% set a = 'b' %}{% endif %}{{ a }}", a), "A");
  EXPECT_EQ(Shown("{% for i in l %}{{ a }}{% set a = 'b' %}{{ a }}{% endfor %}", a), "A[b]A[b]");
  EXPECT_EQ(
      Shown("{% set a = 'b' %}{% for i in l %}{{ a }}{% set a = 'c' %}{% endfor %}{{ a }}", a),
      "[bbb]");
  // Macros see where they were defined, when they are called.
  EXPECT_EQ(Shown("{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 'b' %}{{ m() }}", a),
            "[b]");
  EXPECT_EQ(Shown("{% set n = namespace() %}{% for i in l %}{% set b = 'b' %}{% macro m() %}{{ b }}"
                  "{% endmacro %}{% set n.m = m %}{{ m() }}{% endfor %}({{ n.m() }})",
                  a),
            "[bb()]");
  EXPECT_EQ(Shown("{% set n = namespace() %}{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}"
                  "{% set n.m = m %}{% endfor %}{{ n.m() }}",
                  a),
            "UNIMPLEMENTED");
  EXPECT_EQ(Shown("{% macro m(x=y, y=1) %}{{ x }}{{ y }}{% endmacro %}{{ m() }}"), "[1]");
  EXPECT_EQ(Shown("{% for i in l %}{% with loop = 1 %}{% endwith %}{{ loop is defined }}"
                  "{% endfor %}",
                  a),
            "[FalseFalse]");
  EXPECT_EQ(Shown("{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m(caller=none) }}"),
            "[False]");
  // A loop with a test remembers what its targets were set to.
  EXPECT_EQ(Shown("{% for x, y in [[1, 2], [3, 4]] if x %}{{ loop.previtem }}{{ loop.nextitem }}"
                  "{% endfor %}"),
            "([3], [4])([1], [2])");
  EXPECT_EQ(Shown("{% for (x, y), z in [[[1, 2], 3], [[4, 5], [6]]] if x %}{{ loop.previtem }}"
                  "{% endfor %}"),
            "(([1], [2]), [3])");
  EXPECT_EQ(Shown("{% for x in [[1], [2]] if x %}{{ loop.previtem }}{% endfor %}"), "[[1]]");
  // A set looks for its namespaces first.
  EXPECT_EQ(Shown("{% set n, n.b = namespace(), 1 %}"), "INVALID_ARGUMENT");
  EXPECT_EQ(Shown("{% set n = {} %}{% set n.b = 1 %}"), "INVALID_ARGUMENT");
  // A filter of a block runs inside it; a jump out of a block leaves it out.
  EXPECT_EQ(Shown("{% filter replace('x', a) %}x{% set a = 'y' %}{% endfilter %}", a), "[y]");
  EXPECT_EQ(Shown("{% for i in l %}{% filter upper %}x{% break %}{% endfilter %}{% endfor %}", a),
            "");
  EXPECT_EQ(
      Error("\n{% set a|replace('x', b) %}x{% endset %}"),
      "the chat template, line 2: the filter of a set block reads \"b\", which nothing around "
      "the block and nothing in it reads or sets; read it ahead of the block");
  EXPECT_EQ(Error("{% for i in [] %}{% set loop = 1 %}{% endfor %}"),
            "the chat template, line 1: \"loop\" is set inside this loop");
}

TEST(ChatTemplateTest, NumbersAreTrustedIfTheTemplateMadeThem) {
  EXPECT_EQ(Shown("<|image_{{ l|length }}|>", {{"l", {1, 2}}}), "[<|image_2|>]");
  EXPECT_EQ(Shown("<{{ n }}{{ n + 1 }}{{ b }}>", {{"n", 4}, {"b", true}}), "[<]45True[>]");
}

TEST(ChatTemplateTest, OnlyKnownRolesAreTrusted) {
  const auto turn = [](const char* role) { return Json{{"m", {{"role", role}}}}; };
  EXPECT_EQ(Shown("<|{{ m.role }}|>", turn("user")), "[<|user|>]");
  EXPECT_EQ(Shown("<|{{ m.role }}|>", turn("end")), "[<|]end[|>]");
  EXPECT_EQ(Shown("<|{{ m.name }}|>", {{"m", {{"name", "user"}}}}), "[<|]user[|>]");
}

TEST(ChatTemplateTest, VariablesOfTheRequestHideTheModels) {
  EXPECT_EQ(Shown("{{ bos }}", {{"bos", "<s>"}}), "<s>");
}

TEST(ChatTemplateTest, ErrorsNameTheLineAndTheCause) {
  EXPECT_EQ(Error("a\n{{ raise_exception('Only ' ~ 'text!') }}"),
            "the chat template, line 2: raises an exception: Only text!");
  std::string cut = "the chat template, line 1: raises an exception: a";
  for (int i = 0; i < 999; ++i) cut += "\xC3\xA9";
  EXPECT_EQ(Error("{{ raise_exception('a' ~ '\xC3\xA9' * 2000) }}"), cut);
  EXPECT_EQ(Error("\n\n{{ x + 1 }}"), "the chat template, line 3: \"x\" is undefined");
  EXPECT_EQ(Error("{{ 1 + 'a' }}"), "the chat template, line 1: \"+\" of a integer and a string");
  EXPECT_EQ(Error("{% include 'x' %}"),
            "the chat template, line 1: not supported: the tag \"include\"");
  EXPECT_EQ(Error("\n{{ x|urlize }}"),
            "the chat template, line 2: not supported: the filter \"urlize\"");
  EXPECT_EQ(Error("{{ x is filter }}"),
            "the chat template, line 1: not supported: the test \"filter\"");
  EXPECT_EQ(Error("{{ x|map('pprint') }}"),
            "the chat template, line 1: not supported: the filter \"pprint\"");
  EXPECT_EQ(Error("{{ x.encode() }}"),
            "the chat template, line 1: not supported: the method \"encode\"");
  EXPECT_EQ(Error("{% if x %}"),
            "the chat template, line 1: the template ends where \"endif\" is wanted");
}

TEST(ChatTemplateTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(Error("{% macro m() %}{% endmacro %}{{ m.name }}"),
            "the chat template, line 1: a macro's attribute \"name\" is not supported");
  EXPECT_EQ(Error("{% macro m() %}{{ caller.arguments }}{% endmacro %}{% call m() %}{% endcall %}"),
            "the chat template, line 1: a macro's attribute \"arguments\" is not supported");
  EXPECT_EQ(Shown("{% macro m() %}{% endmacro %}{{ m.other }}{{ range.name }}"), "");
  EXPECT_EQ(Error("{% set d = {} %}{% set d.a %}x{% endset %}"),
            "the chat template, line 1: setting the attribute of a dict is not supported");
  EXPECT_EQ(Error("{% for i in [1] %}{{ loop|list }}{% endfor %}"),
            "the chat template, line 1: the elements of \"loop\" are not supported");
  EXPECT_EQ(Error("{% for i in [1] %}{{ 1 in loop }}{% endfor %}"),
            "the chat template, line 1: the elements of \"loop\" are not supported");
  EXPECT_EQ(Error("{% with a, b = [1, 2] %}{% endwith %}"),
            "the chat template, line 1: not supported: several names in one part of a with");
  EXPECT_EQ(Error("{% with (a, b) = [1, 2] %}{% endwith %}"),
            "the chat template, line 1: not supported: several names in one part of a with");
}

TEST(ChatTemplateTest, WhatIsNotSupportedIsRefusedByParse) {
  for (const char* source :
       {"{% for x in y recursive %}{% endfor %}", "{{ f(*x) }}", "{{ x[1, 2] }}",
        "{{ '\\N{DASH}' }}", "{% block a %}{% endblock %}", "{{ 99999999999999999999 }}",
        "{{ joiner() }}", "{% macro m() %}{{ varargs }}{% endmacro %}",
        "{{ x|select('escaped')|list }}"}) {
    EXPECT_EQ(ChatTemplate::Parse(source).status().code(), absl::StatusCode::kUnimplemented)
        << source;
  }
  for (const char* source :
       {"{{", "{{ a b }}", "{{ ) }}", "{% break %}", "{% endif %}", "{{ 'a }}", "{% raw %}", "{# ",
        "{{ a is true is true }}", "{% set true = 1 %}", "\xff", "{% with none = 1 %}{% endwith %}",
        "{% macro none() %}{% endmacro %}", "{% macro m(none) %}{% endmacro %}",
        "{% call m(caller=1) %}{% endcall %}",
        "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"}) {
    EXPECT_EQ(ChatTemplate::Parse(source).status().code(), absl::StatusCode::kInvalidArgument)
        << source;
  }
}

TEST(ChatTemplateTest, HostileTemplatesEndAtALimit) {
  const RenderLimits small{.steps = 1'000'000, .bytes = 1 << 24, .depth = 400};
  for (const char* source :
       {"{{ 'a' * 10**9 }}", "{{ [1] * 10**12 }}", "{{ 'a' * 2**62 }}", "{{ 'a'.center(10**9) }}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) "
        "}}",
        "{% set ns = namespace(x='aa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x|tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% endfor %}{{ ns.x == (ns.x|list) }}{{ ns.x|tojson|length }}",
        "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
        "{{ range(99999)|list|tojson(indent=1000000) }}", "{{ [1]|batch(10**15, 0)|list }}",
        "{{ [1]|batch(9223372036854775807, 0)|list }}",
        "{{ [1]|tojson(indent=9223372036854775807) }}", "{{ 'x'|center(9223372036854775807) }}",
        "{{ 'x'|indent(10**12) }}", "{{ '[' * 10**6|int }}{{ ('[' * 999999)|from_json }}"}) {
    EXPECT_EQ(Shown(source, Json::object(), small), "RESOURCE_EXHAUSTED") << source;
  }
  EXPECT_EQ(Shown("{{ 'ab'|center(-9223372036854775807) }}"), "[ab]");
  EXPECT_EQ(Shown("{{ 'ab'.center(-9223372036854775807 - 1) }}"), "[ab]");
  EXPECT_EQ(Shown("{{ (('a' * 99) is lower) and ('a' * 900000) is lower }}", Json::object(),
                  {.steps = 100'000}),
            "RESOURCE_EXHAUSTED");
  // A loop without turns undefines its body's names, which takes steps too.
  std::string names = "a0";
  for (int i = 1; i < 1000; ++i) absl::StrAppend(&names, "~a", i);
  EXPECT_EQ(Shown(absl::StrCat("{% for i in range(99) %}{% for j in [] %}{{ ", names,
                               " }}{% endfor %}{% endfor %}"),
                  Json::object(), {.steps = 50'000}),
            "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Shown("{{ range(10**15) }}"), "INVALID_ARGUMENT");
  EXPECT_EQ(Shown("{{ 10**40 }}"), "UNIMPLEMENTED");
  EXPECT_EQ(Shown("{{ '%999999999d' % 1 }}"), "UNIMPLEMENTED");
}

// Each takes minutes where a search is naive.
TEST(ChatTemplateTest, LongTextsTakeLinearTime) {
  EXPECT_EQ(Shown("{% set t = 'a' * 2000000 %}{% set p = 'a' * 1000000 ~ 'b' %}"
                  "{{ t.rfind(p) }},{{ t.rpartition(p)[0]|length }},{{ t.rsplit(p, 1)|length }}"),
            "[-1,0,1]");
  EXPECT_EQ(Shown("{{ 'abcbc'.rfind('bc') }}{{ 'abc'.rfind('') }}{{ 'abcbc'.rpartition('b') }}"
                  "{{ 'a-b-c'.rsplit('-', 1) }}"),
            "[33]('[abc]', '[b]', '[c]')['[a-b]', '[c]']");
  std::string object = "{\"k\": 1";
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&object, ",\"", i, "\":0");
  EXPECT_EQ(Shown("{{ u|from_json|length }}", {{"u", object + "}"}}), "[100001]");
  std::string names;
  for (int i = 0; i < 90'000; ++i) absl::StrAppend(&names, i == 0 ? "" : ",", "n", i, "=0");
  EXPECT_TRUE(ChatTemplate::Parse(absl::StrCat("{{ dict(", names, ") }}")).ok());
  EXPECT_TRUE(ChatTemplate::Parse(absl::StrCat("{% macro m(", names, ") %}{% endmacro %}")).ok());
}

TEST(ChatTemplateTest, FromJsonMakesWhatTheTextSays) {
  const auto of = [](const char* text) { return Shown("{{ u|from_json }}", {{"u", text}}); };
  EXPECT_EQ(of("{\"a\": [1, -2, 0.5, true, null, {}], \"b\": [], \"a\": \"x\"}"),
            "{'a': 'x', 'b': []}");
  EXPECT_EQ(Shown("{{ u|from_json|map('string')|join(' ') }}", {{"u", "[1, -2, 0.5, true]"}}),
            "1[ ]-2[ ]0.5[ ]True");
  EXPECT_EQ(Shown("{{ (u|from_json).role }}", {{"u", "{\"role\": \"user\"}"}}), "[user]");
  for (const char* bad : {"", "[", "[1,]", "{\"a\"}", "1 2", "18446744073709551615", "1e999"}) {
    EXPECT_EQ(of(bad), "INVALID_ARGUMENT") << bad;
  }
  EXPECT_EQ(of((std::string(500, '[') + std::string(500, ']')).c_str()), "RESOURCE_EXHAUSTED");
}

TEST(ChatTemplateTest, WhatFillsKeepsItsMark) {
  const Json u = {
      {"u", "<"}, {"f", "{0:<>3}{0:3}{1:<03}"}, {"p", "%3s%%%03d"}, {"n", 7}, {"m", 7.5}};
  EXPECT_EQ(Shown("{{ ''.ljust(2, u) }}{{ 'x'.center(3, u) }}", u), "<<<[x]<");
  EXPECT_EQ(Shown("{{ f.format('x', 1) }}", u), "<<[xx]  100");
  EXPECT_EQ(Shown("{{ p % ('x', 1) }}", u), "  [x]%001");
  EXPECT_EQ(Shown("{{ '%3s%%%03d' % ('x', 1) }}", u), "[  x%001]");
  EXPECT_EQ(Shown("{{ n|abs }}{{ m|abs }}{{ (-n)|abs }}{{ -3|abs }}{{ 3|abs }}", u), "77.57[33]");
}

TEST(ChatTemplateTest, DeepSourcesAreRefused) {
  const auto times = [](absl::string_view text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) absl::StrAppend(&all, text);
    return all;
  };
  for (const std::string& source :
       {"{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}",
        "{{ " + times("[", 5000) + times("]", 5000) + " }}", "{{ 1" + times(" + 1", 5000) + " }}",
        "{{ " + times("not ", 5000) + "1 }}", "{{ " + times("-", 5000) + "1 }}",
        "{{ a" + times(".b", 5000) + " }}", "{{ a" + times("|trim", 5000) + " }}",
        "{{ a" + times(" if b else c", 5000) + " }}",
        times("{% if a %}", 5000) + times("{% endif %}", 5000),
        "{% set " + times("(", 5000) + "a" + times(")", 5000) + " = 1 %}"}) {
    EXPECT_EQ(ChatTemplate::Parse(source).status().code(), absl::StatusCode::kUnimplemented)
        << source.substr(0, 20);
  }
  // Long is not deep.
  EXPECT_TRUE(ChatTemplate::Parse(times("{% if a %}{{ 'x' ~ 1 }}{% endif %}", 5000)).ok());
  EXPECT_TRUE(ChatTemplate::Parse("{{ 'a'" + times(" ~ 'a'", 5000) + " }}").ok());
}

TEST(ChatTemplateTest, BadChatsAreRefused) {
  Json deep = Json::array();
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(Shown("", {{"x", deep}}), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Shown("", {{"x", "\xff"}}), "INVALID_ARGUMENT");
  EXPECT_EQ(Shown("", {{"x", uint64_t{1} << 63}}), "INVALID_ARGUMENT");
  EXPECT_EQ(Shown("", Json::array()), "INVALID_ARGUMENT");
}

// However texts are cut and joined, bytes of the user are never trusted: only upper-case letters
// come from the user here, and only lower-case ones from the template.
TEST(ChatTemplateTest, RandomOperationsKeepTrustApart) {
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<const char*> from) {
    return std::string(*(from.begin() + random() % from.size()));
  };
  for (int round = 0; round < 500; ++round) {
    std::string text = "u";
    for (int step = 0; step < 6; ++step) {
      const std::string with = pick({"u", "'tmpl'", "w", "(n|abs)"});
      text = pick({"(", "(", "(", "f.format("}) + text + ")" +
             pick({"|trim", "[1:]", "[::-1]", "[:-1]", "|string", ".strip('T')",
                   ".split('S')|join('m')", "|replace('T', 'p')", "|replace('p', u)",
                   "|list|join('t')", "|indent", "|center(9)", ".splitlines()|join", "|tojson",
                   ".partition('T')|join", "|list|sort|join", ".ljust(20, u[1])",
                   ".center(20, u[2])"}) +
             (random() % 2 == 0 ? " ~ " + with : "");
    }
    const auto parts =
        Try("{{ " + text + " }}", {{"u", "<STOP>\nT"}, {"w", "WS S"}, {"f", "{0:W>20}"}, {"n", 7}});
    ASSERT_TRUE(parts.ok()) << text << parts.status();
    for (const Part& part : *parts) {
      const char* const foreign = part.trusted ? "STOPW<>7" : "tmpl";
      const size_t at = part.text.find_first_of(foreign);
      // A newline as text, "\n" of tojson, is the user's.
      EXPECT_EQ(at, std::string::npos) << text << ": " << part.text;
    }
  }
}

}  // namespace
}  // namespace athanor
