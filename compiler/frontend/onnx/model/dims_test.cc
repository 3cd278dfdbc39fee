#include "compiler/frontend/onnx/model/dims.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using ::onnx::ValueInfoProto;

// Axes as text: a number, "" for an unstated size, or a dim_param.
using Input = std::pair<std::string, std::vector<std::string>>;

void SetShape(const std::vector<std::string>& axes, ::onnx::TypeProto* type) {
  auto* shape = type->mutable_tensor_type()->mutable_shape();
  for (const std::string& axis : axes) {
    auto* dim = shape->add_dim();
    const bool number = !axis.empty() && axis.find_first_not_of("-0123456789") == axis.npos;
    if (number) {
      dim->set_dim_value(std::stoll(axis));
    } else if (!axis.empty()) {
      dim->set_dim_param(axis);
    }
  }
}

absl::StatusOr<DimTable> Table(const std::vector<Input>& inputs, const std::vector<DimGiven>& given,
                               const GraphLimits& limits = {}) {
  std::vector<ValueInfoProto> protos(inputs.size());
  std::vector<const ValueInfoProto*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    protos[i].set_name(inputs[i].first);
    SetShape(inputs[i].second, protos[i].mutable_type());
    pointers.push_back(&protos[i]);
  }
  return DimTable::Create(pointers, given, limits);
}

DimGiven Range(std::string name, int64_t min, int64_t max) {
  return {std::move(name), min, max, ""};
}
DimGiven Equals(std::string name, std::string value) {
  return {std::move(name), std::nullopt, std::nullopt, std::move(value)};
}

std::string ErrorOf(const std::vector<Input>& inputs, const std::vector<DimGiven>& given,
                    const GraphLimits& limits = {}) {
  const absl::StatusOr<DimTable> table = Table(inputs, given, limits);
  if (table.ok()) return "no error";
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

std::string ShapeOf(const DimTable& table, std::string_view input) {
  std::string text;
  for (const Expr& size : table.ShapeOf(input))
    text += (text.empty() ? "" : ", ") + size.ToString();
  return text;
}

std::string DimsOf(const DimTable& table) {
  std::string text;
  for (const Dim& dim : table.dims()) {
    text += (text.empty() ? "" : ", ") + dim.name + " " + std::to_string(dim.min) + " to " +
            std::to_string(dim.max);
  }
  return text;
}

// A text and the expression it is read as; "" if it is none.
TEST(ParseDimParamTest, WhatExportersWrite) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"batch", "batch"},
      {"s0", "s0"},
      {"unk__12", "unk__12"},
      {"input.1_dim_0", "input.1_dim_0"},
      {"2*s0", "2*s0"},
      {"s1 + 1", "s1 + 1"},
      {"past_sequence_length + sequence_length", "past_sequence_length + sequence_length"},
      {"floor(s2/8)", "floordiv(s2, 8)"},
      {"floor((s2 - 1)/2) + 1", "floordiv(s2 - 1, 2) + 1"},
      {"ceiling(s2/8)", "floordiv(s2 + 7, 8)"},
      {"(frames - 1)//2 + 1", "floordiv(frames - 1, 2) + 1"},
      {"8*(s0//8)", "8*floordiv(s0, 8)"},
      {"s0 % 4", "s0 - 4*floordiv(s0, 4)"},
      {"Mod(s0, 4)", "s0 - 4*floordiv(s0, 4)"},
      {"Max(1, s0)", "max(1, s0)"},
      {"s0*s1", "s0*s1"},
      {"-s0 + 10", "-s0 + 10"},
      {"12", "12"},
      {"2*3", "6"},
      {"floor(s0/2/3)", "floordiv(s0, 6)"},
      {"floor(s0*3/(2*4))", "floordiv(3*s0, 8)"},
      {"batch size", ""},
      {"", ""},
      {"s0/2", ""},
      {"s0**2", ""},
      {"floor(s0/0)", ""},
      {"s0//-1", ""},
      {"s0 % 0", ""},
      {"foo(s0)", ""},
      {"max(s0)", ""},
      {"s0 +", ""},
      {"(s0", ""},
      {"s0)", ""},
      {"1.5*s0", ""},
      {"2s", ""},
      {"99999999999999999999", ""},
      {"$0", ""},
      {"a$b", ""},
      {"b\xc3\xa4tch", ""},
  };
  for (const auto& [text, want] : cases) {
    const std::optional<Expr> e = ParseDimParam(text);
    const std::optional<Expr> wanted =
        want.empty() ? std::nullopt : std::optional<Expr>(Expr::Parse(want).value());
    EXPECT_EQ(e.has_value(), wanted.has_value()) << text;
    if (e && wanted) {
      EXPECT_EQ(*e, *wanted) << text << " is " << e->ToString();
    }
  }
}

TEST(ParseDimParamTest, DeepAndLongTextsAreNone) {
  EXPECT_FALSE(ParseDimParam(std::string(100'000, '(')));
  EXPECT_FALSE(ParseDimParam(std::string(3'000, '-') + "a"));
  EXPECT_FALSE(ParseDimParam(std::string(5'000, 'a')));
  std::string big = "9223372036854775807";
  EXPECT_TRUE(ParseDimParam(big));
  EXPECT_FALSE(ParseDimParam(big + " + 1"));
}

TEST(SymbolForTest, MakesNames) {
  EXPECT_EQ(SymbolFor("batch size"), "batch_size");
  EXPECT_EQ(SymbolFor("1x"), "_1x");
  EXPECT_EQ(SymbolFor("a$b"), "a_b");
  EXPECT_EQ(SymbolFor(""), "_");
  EXPECT_EQ(SymbolFor("x::y/z"), "x__y_z");
  EXPECT_TRUE(Expr::IsSymbolName(SymbolFor(std::string(2000, 'x'))));
}

TEST(DimTableTest, NumbersNamesAndNothing) {
  const DimTable table =
      Table({{"x", {"b", "3", ""}}, {"y", {"b", "0", "?"}}},
            {Range("b", 1, 64), Range("x_2", 0, 8), {"y_2", std::nullopt, 5, ""}})
          .value();
  EXPECT_EQ(ShapeOf(table, "x"), "b, 3, x_2");
  EXPECT_EQ(ShapeOf(table, "y"), "b, 0, y_2");
  EXPECT_EQ(DimsOf(table), "b 1 to 64, x_2 0 to 8, y_2 1 to 5");
}

TEST(DimTableTest, UnknownSizesOfOneNameAreOneDim) {
  const DimTable table = Table({{"x", {"batch size"}}, {"y", {"batch size", "batch_size"}}},
                               {Range("batch size", 1, 4), Range("batch_size", 2, 3)})
                             .value();
  EXPECT_EQ(ShapeOf(table, "x"), "batch_size_2");
  EXPECT_EQ(ShapeOf(table, "y"), "batch_size_2, batch_size");
  EXPECT_EQ(DimsOf(table), "batch_size_2 1 to 4, batch_size 2 to 3");
}

TEST(DimTableTest, AnAxisWithoutNameIsNoOthers) {
  const DimTable table =
      Table({{"x", {"", "x_0"}}}, {Range("x_0", 1, 4), Range("x_0_2", 1, 8)}).value();
  EXPECT_EQ(ShapeOf(table, "x"), "x_0_2, x_0");
}

TEST(DimTableTest, MinusOneIsNotKnown) {
  EXPECT_EQ(ShapeOf(Table({{"x", {"-1"}}}, {Range("x_0", 1, 4)}).value(), "x"), "x_0");
  EXPECT_EQ(ErrorOf({{"x", {"2", "-3"}}}, {}), "input \"x\": axis 1 has the negative size -3");
}

TEST(DimTableTest, ExpressionsOfTorchAndOptimum) {
  const DimTable optimum = Table({{"ids", {"b", "sequence_length"}},
                                  {"mask", {"b", "past_sequence_length + sequence_length"}},
                                  {"past", {"b", "past_sequence_length"}}},
                                 {Range("b", 1, 4), Range("sequence_length", 1, 16),
                                  Range("past_sequence_length", 0, 64)})
                               .value();
  EXPECT_EQ(ShapeOf(optimum, "mask"), "b, past_sequence_length + sequence_length");
  // past_sequence_length is not an axis of its own; the sum determines it.
  const DimTable sum =
      Table({{"ids", {"s"}}, {"mask", {"past + s"}}}, {Range("s", 1, 16), Range("past", 0, 64)})
          .value();
  EXPECT_EQ(ShapeOf(sum, "mask"), "past + s");
  EXPECT_EQ(DimsOf(sum), "s 1 to 16, past 0 to 64");
  const DimTable even = Table({{"x", {"2*s0"}}, {"y", {"2*s0"}}}, {Range("s0", 1, 8)}).value();
  EXPECT_EQ(ShapeOf(even, "y"), "2*s0");
  // a and b cannot be told apart, so each text becomes one dim.
  const DimTable both =
      Table({{"x", {"a*b", "a+b"}}}, {Range("a*b", 1, 8), Range("a+b", 1, 9)}).value();
  EXPECT_EQ(ShapeOf(both, "x"), "a_b, a_b_2");
  // A quotient alone does not determine s2.
  const DimTable quotient = Table({{"x", {"floor(s2/8)"}}}, {Range("floor(s2/8)", 1, 8)}).value();
  EXPECT_EQ(ShapeOf(quotient, "x"), "floor_s2_8_");
  const DimTable two = Table({{"x", {"floor(s2/8)", "s2"}}}, {Range("s2", 8, 64)}).value();
  EXPECT_EQ(ShapeOf(two, "x"), "floordiv(s2, 8), s2");
}

TEST(DimTableTest, GivenValues) {
  const DimTable number =
      Table({{"x", {"b", "s"}}, {"y", {"s", "s + 1"}}}, {Range("b", 1, 4), Equals("s", "128")})
          .value();
  EXPECT_EQ(ShapeOf(number, "x"), "b, 128");
  EXPECT_EQ(ShapeOf(number, "y"), "128, 129");
  EXPECT_EQ(DimsOf(number), "b 1 to 4");
  const DimTable total =
      Table({{"ids", {"s"}}, {"mask", {"total"}}, {"past", {"past len"}}},
            {Range("s", 1, 4), Range("past len", 0, 8), Equals("total", "past_len + s")})
          .value();
  EXPECT_EQ(ShapeOf(total, "mask"), "past_len + s");
  // Refers to a dim by the file's text; that dim is itself stated by another.
  const DimTable chain = Table({{"x", {"a", "b", "my c"}}},
                               {Equals("a", "2*b"), Equals("b", "my c"), Range("my c", 1, 3)})
                             .value();
  EXPECT_EQ(ShapeOf(chain, "x"), "2*my_c, my_c, my_c");
  // A name of the user's own, which the size determines.
  const DimTable own = Table({{"x", {"h"}}}, {Equals("h", "32*n"), Range("n", 1, 10)}).value();
  EXPECT_EQ(ShapeOf(own, "x"), "32*n");
  EXPECT_EQ(DimsOf(own), "n 1 to 10");
  // Stating a number turns the text into an expression.
  EXPECT_EQ(ShapeOf(Table({{"x", {"a + b"}}}, {Equals("a", "3"), Range("b", 1, 2)}).value(), "x"),
            "b + 3");
}

TEST(DimTableTest, DimsWithoutBoundsAreNamedAtOnce) {
  EXPECT_EQ(ErrorOf({{"ids", {"batch", "seq len"}}, {"mask", {"batch", "4"}}}, {}),
            "dims without bounds: \"batch\" (axis 0 of input \"ids\", axis 0 of input \"mask\"), "
            "\"seq len\" (axis 1 of input \"ids\"); give dims={\"batch\": (1, N), ...}");
  EXPECT_EQ(ErrorOf({{"x", {"b"}}}, {{"b", 1, std::nullopt, ""}}),
            "dims without bounds: \"b\" (axis 0 of input \"x\"); give dims={\"b\": (1, N), ...}");
}

TEST(DimTableTest, ManyDimsAreToldShortly) {
  std::vector<Input> inputs;
  for (int i = 0; i < 2000; ++i) {
    inputs.push_back({"x" + std::to_string(i), {"d" + std::to_string(i)}});
  }
  const std::string error = ErrorOf(inputs, {});
  EXPECT_NE(error.find("\"d15\" (axis 0 of input \"x15\") and 1984 more; give dims={"),
            std::string::npos)
      << error;
  for (int i = 0; i < 100; ++i) inputs.push_back({"y" + std::to_string(i), {""}});
  EXPECT_EQ(ErrorOf(inputs, {}),
            "input \"y48\": with it the inputs have more than 2048 different symbolic sizes; the "
            "limit is 64 (--max_dims) for independent ones");
}

TEST(DimTableTest, WhatIsGivenWrongly) {
  const std::vector<Input> inputs = {{"x", {"batch", "seq"}}};
  const DimGiven batch = Range("batch", 1, 4), seq = Range("seq", 1, 4);
  EXPECT_EQ(ErrorOf(inputs, {batch, seq, Range("bach", 1, 4)}),
            "dim \"bach\" is given, but no input has it; did you mean \"batch\"?; the inputs have "
            "batch, seq");
  EXPECT_EQ(ErrorOf({{"x", {"3"}}}, {batch}),
            "dim \"batch\" is given, but no input has it; all sizes of this model's inputs are "
            "numbers");
  EXPECT_EQ(ErrorOf({{"x", {"s", "s + 1"}}}, {Range("s", 1, 4), Range("s + 1", 1, 4)}),
            "dim \"s + 1\" is given, but it is s + 1; give the dims in it");
  EXPECT_EQ(ErrorOf(inputs, {batch, seq, seq}), "dim \"seq\" is given twice");
  EXPECT_EQ(ErrorOf(inputs, {batch, Range("seq", 4, 3)}),
            "dim \"seq\" is given the bounds 4 to 3; they must be 0 <= min <= max and max >= 1");
  EXPECT_EQ(ErrorOf(inputs, {batch, Range("seq", -1, 3)}),
            "dim \"seq\" is given the bounds -1 to 3; they must be 0 <= min <= max and max >= 1");
  EXPECT_EQ(ErrorOf(inputs, {batch, Range("seq", 0, 0)}),
            "dim \"seq\" is given the bounds 0 to 0; they must be 0 <= min <= max and max >= 1");
  EXPECT_EQ(ErrorOf(inputs, {batch, {"seq", 1, 3, "4"}}),
            "dim \"seq\" is given bounds and a value; give one of them");
  EXPECT_EQ(
      ErrorOf(inputs, {batch, Equals("seq", "4 +")}),
      "dim \"seq\" is given as \"4 +\", which is neither a number nor an expression over dims");
  EXPECT_EQ(ErrorOf(inputs, {Equals("batch", "seq + 1"), Equals("seq", "batch - 1")}),
            "dims are defined by each other in a cycle: \"batch\" = seq + 1, \"seq\" = batch - 1");
  EXPECT_EQ(ErrorOf(inputs, {Equals("batch", "batch"), seq}),
            "dims are defined by each other in a cycle: \"batch\" = batch");
  EXPECT_EQ(ErrorOf(inputs, {batch, Equals("seq", "-3")}),
            "input \"x\": axis 1 is -3, which is not at least 0 for all sizes within the bounds of "
            "its dims");
  EXPECT_EQ(ErrorOf(inputs, {batch, Equals("seq", "floor(n/2)"), Range("n", 2, 8)}),
            "dim \"n\" (axis 1 of input \"x\") does not follow from the shapes of the inputs; "
            "state it as a number or as an expression over other dims");
  EXPECT_EQ(ErrorOf({{"x", {"s"}}, {"y", {"s - 2"}}}, {Range("s", 1, 8)}),
            "input \"y\": axis 0 is s - 2, which is not at least 0 for all sizes within the bounds "
            "of its dims");
}

TEST(DimTableTest, InputsThatAreNoTensorsOrHaveNoShape) {
  ValueInfoProto input;
  input.set_name("x");
  input.mutable_type()->mutable_sequence_type();
  const std::vector<const ValueInfoProto*> inputs = {&input};
  EXPECT_EQ(DimTable::Create(inputs, {}, {}).status().message(), "input \"x\": it is not a tensor");
  input.mutable_type()->mutable_tensor_type()->set_elem_type(1);
  EXPECT_EQ(DimTable::Create(inputs, {}, {}).status().message(),
            "input \"x\": the model states no shape of it; its rank must be known");
  input.mutable_type()->mutable_tensor_type()->mutable_shape();
  EXPECT_TRUE(DimTable::Create(inputs, {}, {})->ShapeOf("x").empty());
}

TEST(DimTableTest, Limits) {
  EXPECT_EQ(ErrorOf({{"x", {"1", "1", "1"}}}, {}, {.max_rank = 2}),
            "input \"x\": rank 3 is too high; the limit is 2 (--max_rank)");
  EXPECT_EQ(ErrorOf({{"x", {"a", "b"}}}, {Range("a", 1, 2), Range("b", 1, 2)}, {.max_dims = 1}),
            "the model has 2 dims; the limit is 1 (--max_dims)");
  std::vector<DimGiven> many(1025, Range("a", 1, 2));
  EXPECT_EQ(ErrorOf({{"x", {"a"}}}, many), "1025 dims are given; at most 1024 can be");
}

std::string Claim(const DimTable& table, const std::vector<std::string>& claim,
                  const Shape& inferred) {
  ::onnx::TypeProto type;
  SetShape(claim, &type);
  Bounds bounds;
  for (const Dim& dim : table.dims()) bounds.Set(dim.name, dim.min, dim.max);
  return table.WrongClaim("value \"v\"", type, inferred, bounds);
}

TEST(ClaimTest, OnlyWhatIsProvablyOtherwiseIsWrong) {
  const DimTable table =
      Table({{"x", {"frames", "s"}}, {"y", {"s + 1"}}}, {Range("frames", 2, 100), Range("s", 1, 8)})
          .value();
  const Expr frames = Expr::Symbol("frames"), s = Expr::Symbol("s");
  EXPECT_EQ(Claim(table, {"frames", "4", "", "other", "batch size"}, {frames, 4, 5, s, s}), "");
  EXPECT_EQ(Claim(table, {"(frames - 1)//2 + 1"}, {FloorDiv(frames - 1, 2) + 1}), "");
  EXPECT_EQ(Claim(table, {"s + 1"}, {s + 1}), "");
  EXPECT_EQ(Claim(table, {"s"}, {frames}), "");  // may be equal
  EXPECT_EQ(Claim(table, {"-1"}, {3}), "");
  EXPECT_EQ(Claim(table, {"4", "3"}, {4, 5}),
            "value \"v\" has shape [4, 5], which holds; the file states [4, 3]: axis 1 is wrong");
  EXPECT_EQ(Claim(table, {"s"}, {s + 1}),
            "value \"v\" has shape [s + 1], which holds; the file states [s]: axis 0 is wrong");
  EXPECT_EQ(Claim(table, {"9"}, {s}),
            "value \"v\" has shape [s], which holds; the file states [9]: axis 0 is wrong");
  EXPECT_EQ(Claim(table, {"4", ""}, {4}),
            "value \"v\" has shape [4], which holds; the file states [4, ?]: its rank is wrong");
}

TEST(ClaimTest, DimsThatWereGivenValuesAreThose) {
  const DimTable table =
      Table({{"x", {"s", "2*t"}}}, {Equals("s", "128"), Range("t", 1, 4)}).value();
  EXPECT_EQ(Claim(table, {"s"}, {128}), "");
  EXPECT_NE(Claim(table, {"s"}, {127}), "");
  EXPECT_EQ(Claim(table, {"t"}, {Expr::Symbol("t")}), "");
  EXPECT_NE(Claim(table, {"t"}, {Expr::Symbol("t") + 1}), "");
}

TEST(ClaimTest, NoShapeClaimsNothing) {
  const DimTable table = Table({}, {}).value();
  ::onnx::TypeProto type;
  EXPECT_EQ(table.WrongClaim("v", type, {1, 2}, {}), "");
  type.mutable_tensor_type()->set_elem_type(1);
  EXPECT_EQ(table.WrongClaim("v", type, {1, 2}, {}), "");
}

TEST(DimTableTest, WhatASizeDividesByIsAtLeastOne) {
  const auto message = [](int64_t least) {
    const std::vector<DimGiven> given = {{.name = "a", .min = 0, .max = 8},
                                         {.name = "b", .min = least, .max = 8}};
    const absl::Status status = Table({{"x", {"a", "b", "a % b"}}}, given).status();
    return std::string(absl::string_view(status.message()));
  };
  EXPECT_EQ(message(1), "");
  EXPECT_NE(message(0).find("which divides by b; that must be at least 1"), std::string::npos)
      << message(0);
}

TEST(DimTableTest, DimParamsAreUtf8) {
  const std::string message = Table({{"x", {"b\x83"}}}, {}).status().ToString();
  EXPECT_NE(message.find("dim_param \"b\\203\", which is not UTF-8"), std::string::npos) << message;
  const DimTable table = Table({{"x", {"2"}}}, {}).value();
  ::onnx::TypeProto claim;
  SetShape({"3", "b\x83"}, &claim);
  const std::string wrong = table.WrongClaim("y", claim, {Expr(2), Expr(2)}, Bounds());
  EXPECT_NE(wrong.find("\"b\\203\""), std::string::npos) << wrong;
}

}  // namespace
}  // namespace athanor::onnx
