// Runs concatenations (Selects by position between filled maps) through pipeline, Clang and
// executor against the reference evaluator: the pieces of an axis are ranges of rows.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

// A graph over dims n, h and w in [0, 60], written line by line.
class Text {
 public:
  std::string Add(const std::string& line) {
    absl::StrAppend(&body_, " %", next_, " = ", line, "\n");
    return absl::StrCat("%", next_++);
  }
  std::string Input(const std::string& shape) {
    return Add(absl::StrCat("Input \"x", next_, "\" : f32[", shape, "]"));
  }

  // Concatenates `parts` of `sizes` along axis 1 of [n, ., height, width], or of [n, .] if both are
  // empty.
  std::string Concat(const std::vector<std::string>& parts, const std::vector<int>& sizes,
                     const std::string& inner) {
    int total = 0;
    for (int size : sizes) total += size;
    const std::string shape = absl::StrCat("n, ", total, inner);
    const size_t rank = 2 + static_cast<size_t>(std::count(inner.begin(), inner.end(), ';'));
    std::string result;
    int begin = total;
    for (size_t k = parts.size(); k-- > 0;) {
      const int end = begin;
      begin -= sizes[k];
      std::vector<std::string> at = {"$0", absl::StrCat("$1 - ", begin)};
      for (size_t i = 2; i < rank; ++i) at.push_back(absl::StrCat("$", i));
      const std::string dims = Shape(shape);
      const std::string spread =
          Add(absl::StrCat("IndexMap(", parts[k], ") {fill=f32[] {0.0}, map=map[", dims, "](",
                           absl::StrJoin(at, ", "), ")}"));
      if (result.empty()) {
        result = spread;
        continue;
      }
      const std::string place =
                            Add(absl::StrCat("Iota {axis=1, dtype=i64, shape=shape[", dims, "]}")),
                        number = Add(absl::StrCat("Constant {value=i64[] {", end, "}}")),
                        splat = Add(absl::StrCat("IndexMap(", number, ") {map=map[", dims, "]()}")),
                        below = Add(absl::StrCat("LessThan(", place, ", ", splat, ")"));
      result = Add(absl::StrCat("Select(", below, ", ", spread, ", ", result, ")"));
    }
    return result;
  }
  // Extents after the second axis each begin with ';', because an extent may contain commas.
  static std::string Shape(std::string text) {
    for (char& c : text) c = c == ';' ? ',' : c;
    return text;
  }

  Graph Parse(const std::vector<std::string>& outputs) {
    std::string text = absl::StrCat(
        "graph \"g\" {\n dim n in [0, 3]\n dim h in [0, 60]\n dim w in [0, 60]\n", body_);
    for (const std::string& o : outputs)
      absl::StrAppend(&text, " output \"y", o.substr(1), "\" = ", o, "\n");
    text += "}";
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    EXPECT_TRUE(graph.ok()) << graph.status() << text;
    return graph.ok() ? *graph : Graph();
  }

 private:
  std::string body_;
  int next_ = 0;
};

void Check(const Graph& graph) {
  std::mt19937 rng(1);
  for (const Expr::Env& dims : std::vector<Expr::Env>{{{"n", 1}, {"h", 1}, {"w", 1}},
                                                      {{"n", 2}, {"h", 0}, {"w", 7}},
                                                      {{"n", 2}, {"h", 7}, {"w", 0}},
                                                      {{"n", 0}, {"h", 7}, {"w", 7}},
                                                      {{"n", 3}, {"h", 17}, {"w", 31}},
                                                      {{"n", 2}, {"h", 16}, {"w", 16}},
                                                      {{"n", 1}, {"h", 60}, {"w", 60}}}) {
    std::vector<Tensor> inputs;
    for (NodeId i : graph.InputIds()) {
      inputs.push_back(
          RandomTensor(DType::kF32, ConcreteShape(graph.node(i).type.shape, dims).value(), rng));
    }
    ExpectMatchesReference(graph, inputs);
  }
}

// Covers short rows, long rows that are cut up, rows of quotients of dims; one, two and many
// channels.
TEST(ConcatTest, ChannelsOfImages) {
  for (const std::string inner :
       {";h;w", ";floordiv(h + 1, 2);floordiv(w + 1, 2)", ";floordiv(h, 3);w", ";h;3*w", ";w",
        ";3*h*w", ";floordiv(h, 2)*floordiv(w, 2)"}) {
    for (const std::vector<int>& sizes :
         {std::vector<int>{3, 5}, {1, 1}, {20, 13}, {2, 1, 4}, {1, 2, 3, 4, 5, 6}}) {
      Text t;
      std::vector<std::string> parts;
      for (int size : sizes)
        parts.push_back(t.Input(Text::Shape(absl::StrCat("n, ", size, inner))));
      const std::string all = t.Concat(parts, sizes, inner);
      SCOPED_TRACE(absl::StrCat(inner, " ", absl::StrJoin(sizes, " ")));
      // No dim can be read off a quotient or a product.
      const std::string dims = t.Add(absl::StrCat("Floor(", t.Input("n, h, w"), ")"));
      Check(t.Parse({t.Add(absl::StrCat("Mul(", all, ", ", all, ")")), dims}));
    }
  }
}

// Covers more pieces than get code of their own, and a concatenation inside another.
TEST(ConcatTest, ManyPiecesAndNested) {
  Text t;
  std::vector<std::string> parts;
  for (int i = 0; i < 12; ++i) parts.push_back(t.Input("n, 2, h, w"));
  const std::string all = t.Concat(parts, std::vector<int>(12, 2), ";h;w");
  const std::string more = t.Input("n, 3, h, w"), last = t.Input("n, 1, h, w");
  const std::string nested =
      t.Concat({t.Concat({more, last}, {3, 1}, ";h;w"), more}, {4, 3}, ";h;w");
  Check(t.Parse({t.Add(absl::StrCat("Mul(", all, ", ", all, ")")),
                 t.Add(absl::StrCat("Mul(", nested, ", ", nested, ")"))}));
}

// Along the last axis pieces are no ranges of rows, and the lanes of one vector differ.
TEST(ConcatTest, TheLastAxis) {
  Text t;
  const std::string a = t.Input("n, 3"), b = t.Input("n, 40"), c = t.Input("n, 1");
  Check(t.Parse({t.Concat({a, b, c}, {3, 40, 1}, "")}));
}

// Two kernels distinguish their pieces by one condition; windows read another one's rows.
TEST(ConcatTest, SharedConditionsAndWindows) {
  Text t;
  const std::string a = t.Input("n, 4, h, w"), b = t.Input("n, 4, h, w");
  const std::string place = t.Add("Iota {axis=1, dtype=i64, shape=shape[n, 8, h, w]}"),
                    number = t.Add("Constant {value=i64[] {4}}"),
                    splat = t.Add(absl::StrCat("IndexMap(", number, ") {map=map[n, 8, h, w]()}")),
                    below = t.Add(absl::StrCat("LessThan(", place, ", ", splat, ")"));
  std::vector<std::string> outputs;
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    const std::string first = t.Add(
        absl::StrCat("IndexMap(", x, ") {fill=f32[] {0.0}, map=map[n, 8, h, w]($0, $1, $2, $3)}"));
    const std::string second = t.Add(absl::StrCat(
        "IndexMap(", y, ") {fill=f32[] {0.0}, map=map[n, 8, h, w]($0, $1 - 4, $2, $3)}"));
    outputs.push_back(t.Add(absl::StrCat("Select(", below, ", ", first, ", ", second, ")")));
  }
  const std::string windows = t.Add(absl::StrCat(
      "IndexMap(", outputs[0],
      ") {fill=f32[] {0.0}, map=map[n, 8, h, w, 3, 3]($0, $1, $2 + $4 - 1, $3 + $5 - 1)}"));
  outputs.push_back(t.Add(absl::StrCat("MaxReduce(", windows, ") {axes=[4, 5]}")));
  Check(t.Parse(outputs));
}

// Pieces begin at places given by dims; the first or the last may be empty.
TEST(ConcatTest, PiecesAlongADim) {
  Text t;
  const std::string a = t.Input("n, h, 5, 9"), b = t.Input("n, w, 5, 9");
  const std::string shape = "n, h + w, 5, 9";
  const std::string first = t.Add(absl::StrCat("IndexMap(", a, ") {fill=f32[] {0.0}, map=map[",
                                               shape, "]($0, $1, $2, $3)}")),
                    second = t.Add(absl::StrCat("IndexMap(", b, ") {fill=f32[] {0.0}, map=map[",
                                                shape, "]($0, $1 - h, $2, $3)}"));
  // The same Iota gives the place in the concatenation and the place where the second piece begins.
  const std::string place =
                        t.Add(absl::StrCat("Iota {axis=1, dtype=i64, shape=shape[", shape, "]}")),
                    ends = t.Add("Iota {axis=0, dtype=i64, shape=shape[h + 1]}"),
                    end = t.Add(absl::StrCat("IndexMap(", ends, ") {map=map[", shape, "](h)}")),
                    below = t.Add(absl::StrCat("LessThan(", place, ", ", end, ")"));
  Check(t.Parse({t.Add(absl::StrCat("Select(", below, ", ", first, ", ", second, ")"))}));
}

}  // namespace
}  // namespace athanor
