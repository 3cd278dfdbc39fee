// Compares windows and recurrences, node by node, with ONNX Runtime's results
// (testdata/oracle_cases.py): once with sizes as numbers, once with dims where dims are allowed.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

struct Case {
  std::string op;
  int64_t opset = 0;
  std::map<std::string, TestAttr> attrs;
  std::vector<std::optional<Tensor>> operands;
  std::vector<Tensor> results;
};

template <typename T, typename Parse>
std::vector<T> Numbers(const std::vector<std::string>& words, size_t first, Parse parse) {
  std::vector<T> values;
  for (size_t i = first; i < words.size(); ++i) values.push_back(static_cast<T>(parse(words[i])));
  return values;
}

double Real(const std::string& word) {
  double value = 0;
  EXPECT_TRUE(absl::SimpleAtod(word, &value)) << word;
  return value;
}

int64_t Whole(const std::string& word) {
  int64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(word, &value)) << word;
  return value;
}

// Parses text such as "float32 1,3 0.5 1 2".
Tensor TensorOf(const std::vector<std::string>& words, size_t first) {
  static const std::map<std::string, DType> kDTypes = {
      {"float32", DType::kF32}, {"float64", DType::kF64}, {"int32", DType::kI32},
      {"int64", DType::kI64},   {"uint8", DType::kU8},    {"int8", DType::kI8}};
  std::vector<int64_t> shape;
  if (words[first + 1] != "-") {
    shape = Numbers<int64_t>(absl::StrSplit(words[first + 1], ','), 0, Whole);
  }
  Tensor t = Tensor::Zeros(kDTypes.at(words[first]), shape);
  EXPECT_EQ(static_cast<size_t>(t.elements()), words.size() - first - 2);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const std::string& word = words[first + 2 + i];
    StoreScalar(t, i,
                IsFloat(t.dtype) ? Scalar::Float(t.dtype, Real(word))
                                 : Scalar::Signed(t.dtype, Whole(word)));
  }
  return t;
}

TestAttr AttrOf(const std::vector<std::string>& words) {
  const std::string& kind = words[2];
  if (kind == "int") return Whole(words[3]);
  if (kind == "float") return static_cast<float>(Real(words[3]));
  if (kind == "string") return words[3];
  if (kind == "ints") return Numbers<int64_t>(words, 3, Whole);
  if (kind == "floats") return Numbers<float>(words, 3, Real);
  return std::vector<std::string>(words.begin() + 3, words.end());
}

std::vector<Case> CasesOf(const std::string& file) {
  std::ifstream in("compiler/frontend/onnx/ops/testdata/" + file);
  EXPECT_TRUE(in.good()) << file;
  std::vector<Case> cases;
  std::string line;
  while (std::getline(in, line)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "case") {
      cases.push_back({words[1], Whole(words[2])});
    } else if (words[0] == "attr") {
      cases.back().attrs[words[1]] = AttrOf(words);
    } else if (words[0] == "in") {
      cases.back().operands.push_back(words[1] == "-" ? std::nullopt
                                                      : std::optional(TensorOf(words, 1)));
    } else {
      cases.back().results.push_back(TensorOf(words, 1));
    }
  }
  return cases;
}

bool IsRecurrent(const std::string& op) { return op == "RNN" || op == "GRU" || op == "LSTM"; }

// Returns the dim that an axis of an operand may be; empty if it must be a number.
std::string DimOf(const std::string& op, size_t operand, size_t axis) {
  if (!IsRecurrent(op)) {
    const bool alike = operand == 0 || (op == "MaxUnpool" && operand == 1);
    return alike && axis != 1 ? absl::StrCat("d", axis) : "";
  }
  if (operand == 0) return axis == 0 ? "length" : axis == 1 ? "batch" : "";
  if (operand == 4) return "batch";
  return (operand == 5 || operand == 6) && axis == 1 ? "batch" : "";
}

// Runs the case as a model of one node, with weights in the file.
absl::StatusOr<std::vector<Tensor>> Run(const Case& c, bool dims) {
  TestModel model(c.opset);
  std::vector<std::string> names, results;
  std::vector<Tensor> inputs;
  std::map<std::string, DimGiven> given;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    names.push_back(c.operands[i] ? absl::StrCat("x", i) : "");
    if (!c.operands[i]) continue;
    const Tensor& t = *c.operands[i];
    std::vector<TestSize> shape;
    bool any = i == 0;
    for (size_t axis = 0; axis < t.shape.size(); ++axis) {
      const std::string dim = dims ? DimOf(c.op, i, axis) : "";
      any = any || !dim.empty();
      shape.push_back(dim.empty() ? TestSize(t.shape[axis]) : TestSize(dim));
      if (dim.empty()) continue;
      // A window must fit even at the smallest size; a recurrence may be shorter or longer than
      // here.
      const int64_t least = IsRecurrent(c.op) ? 1 : t.shape[axis];
      given[dim] = {.name = dim, .min = least, .max = t.shape[axis] + 3};
    }
    if (any) {
      model.Input(names[i], ElemOf(t.dtype), shape);
      inputs.push_back(t);
    } else {
      model.Initializer(names[i], t);
    }
  }
  for (size_t i = 0; i < c.results.size(); ++i) results.push_back(absl::StrCat("y", i));
  model.Node(c.op, names, results, c.attrs);
  for (size_t i = 0; i < c.results.size(); ++i) {
    model.Output(results[i], ElemOf(c.results[i].dtype));
  }
  ImportOptions options;
  for (const auto& [name, dim] : given) options.dims.push_back(dim);
  return RunModel(model, inputs, options);
}

void CheckCases(const std::string& file, int least) {
  const std::vector<Case> cases = CasesOf(file);
  EXPECT_GE(static_cast<int>(cases.size()), least);
  for (size_t i = 0; i < cases.size(); ++i) {
    for (bool dims : {false, true}) {
      SCOPED_TRACE(absl::StrCat("case ", i, ", ", cases[i].op, "-", cases[i].opset,
                                dims ? " with dims" : ""));
      const absl::StatusOr<std::vector<Tensor>> got = Run(cases[i], dims);
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) continue;
      ASSERT_EQ(got->size(), cases[i].results.size());
      for (size_t r = 0; r < got->size(); ++r) {
        const Tensor& want = cases[i].results[r];
        const absl::Status same = CompareTensors((*got)[r], want, 1e-5, 2e-6);
        EXPECT_TRUE(same.ok()) << "result " << r << ": " << same;
      }
    }
  }
}

TEST(HandlersOracleTest, Windows) { CheckCases("window_cases.txt", 150); }
TEST(HandlersOracleTest, Recurrences) { CheckCases("recurrent_cases.txt", 70); }

}  // namespace
}  // namespace athanor::onnx
