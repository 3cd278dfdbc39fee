// Runs ONNX's backend test cases through the importer and the reference evaluator, without codegen,
// to tell whether a wrong result is the importer's. tests/onnx/cases.py writes the cases.
//
//   onnx_cases DIR [--filter 'test_softmax*']... [--kind node] [--quiet]
//
// Prints a line per case: right, pinned (right with values of inputs given, as a user gives them at
// upload), drawn (random numbers that differ from the expected ones but have the right type, shape
// and range), refused (with the reason), wrong, error; then sums by op. The exit status is 0 unless
// a case is wrong or an error. Real models are only imported: the evaluator is too slow for them.
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

namespace fs = std::filesystem;

constexpr double kBf16Tolerance = 1.0 / 64;  // the tolerance of ONNX's own runner, 2^-6

struct Case {
  std::string kind, name, excluded;
  double rtol = 0, atol = 0;
};

// Reads bounds of dims, for cases that have some.
std::vector<DimGiven> ReadDims(const fs::path& folder) {
  std::vector<DimGiven> dims;
  std::ifstream table(folder / "dims.tsv");
  DimGiven dim;
  for (int64_t low = 0, high = 0; table >> dim.name >> low >> high; dims.push_back(dim)) {
    dim.min = low;
    dim.max = high;
  }
  return dims;
}

struct Outcome {
  std::string word;  // right, pinned, imported, refused, wrong, error
  std::string text;
  std::set<std::string> ops;  // ops that were refused
};

struct DataSet {
  std::vector<Tensor> inputs, outputs;  // with the dtypes of their carriers
  std::vector<std::string> output_elements;
};

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::vector<Case> ReadCases(const fs::path& folder) {
  std::vector<Case> cases;
  std::ifstream table(folder / "cases.tsv");
  for (std::string line; std::getline(table, line);) {
    std::stringstream fields(line);
    Case one;
    std::string rtol, atol;
    std::getline(fields, one.kind, '\t');
    std::getline(fields, one.name, '\t');
    std::getline(fields, rtol, '\t');
    std::getline(fields, atol, '\t');
    std::getline(fields, one.excluded, '\t');
    one.rtol = std::strtod(rtol.c_str(), nullptr);
    one.atol = std::strtod(atol.c_str(), nullptr);
    cases.push_back(std::move(one));
  }
  return cases;
}

absl::StatusOr<DataSet> ReadDataSet(const fs::path& folder) {
  DataSet set;
  for (auto [what, values] : {std::pair("input_", &set.inputs), {"output_", &set.outputs}}) {
    for (int i = 0; fs::exists(folder / Cat(what, i, ".pb")); ++i) {
      ::onnx::TensorProto proto;
      const std::string name = Cat(what, i, ".pb");
      if (!proto.ParseFromString(ReadFile(folder / name))) return Invalid(name, " is no tensor");
      absl::StatusOr<Tensor> tensor = FromProto(proto);
      if (!tensor.ok()) return Prefixed(name + ": ", tensor.status());
      values->push_back(*std::move(tensor));
    }
  }
  return set;
}

double Number(const Tensor& tensor, int64_t i) {
  if (!Computes(tensor.dtype)) {
    return DecodeFloat(tensor.dtype, static_cast<uint8_t>(tensor.bytes[i]));
  }
  const Scalar s = LoadScalar(tensor, i);
  if (IsFloat(tensor.dtype)) return s.f;
  return IsSigned(tensor.dtype) ? static_cast<double>(s.i) : static_cast<double>(s.u);
}

// Compares like ONNX's own runner.
bool Close(const Tensor& got, const Tensor& expected, int64_t i, const Case& one) {
  const auto bytes = static_cast<size_t>(DTypeBytes(got.dtype));
  if (got.bytes.compare(i * bytes, bytes, expected.bytes, i * bytes, bytes) == 0) return true;
  const double a = Number(got, i), b = Number(expected, i);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  const double rtol = got.dtype == DType::kBF16 ? std::max(one.rtol, kBf16Tolerance) : one.rtol;
  return std::abs(a - b) <= one.atol + rtol * std::abs(b);
}

std::string Difference(const Tensor& got, const Tensor& expected, const Case& one) {
  if (got.dtype != expected.dtype) {
    return Cat("is ", DTypeName(got.dtype), ", expected ", DTypeName(expected.dtype));
  }
  const auto text = [](const Tensor& t) {
    return ShapeToString(Shape(t.shape.begin(), t.shape.end()));
  };
  if (got.shape != expected.shape) return Cat("is ", text(got), ", expected ", text(expected));
  Case within = one;
  if (one.kind == "zoo") {  // relative to the largest value
    double largest = 1;
    for (int64_t i = 0; i < expected.elements(); ++i) {
      largest = std::max(largest, std::abs(Number(expected, i)));
    }
    within.atol *= largest;
  }
  int64_t first = -1, count = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (Close(got, expected, i, within)) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return "";
  return Cat(count, " of ", got.elements(), " differ, first ", first, ": ", Number(got, first),
             ", expected ", Number(expected, first));
}

// Converts a tensor to its form on the wire.
Tensor OnWire(Tensor tensor, std::string_view element) {
  for (const ElemRow& row : kElems) {
    if (row.name == element) tensor.dtype = WireOf(row.elem);
  }
  return tensor;
}

Outcome RunSet(const TestImport& import, const DataSet& set, const Case& one) {
  const OnnxImported& imported = import.imported;
  std::vector<Tensor> inputs;
  if (set.inputs.size() != imported.input_elements.size()) {
    return {"error", Cat("has ", imported.input_elements.size(), " inputs, the data set ",
                         set.inputs.size())};
  }
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    inputs.push_back(OnWire(set.inputs[i], imported.input_elements[i]));
  }
  const absl::StatusOr<std::vector<Tensor>> results = Evaluate(import, inputs);
  if (!results.ok()) return {"error", std::string(absl::string_view(results.status().message()))};
  if (results->size() != set.outputs.size()) {
    return {"wrong", Cat(results->size(), " outputs, expected ", set.outputs.size())};
  }
  for (size_t i = 0; i < results->size(); ++i) {
    Tensor got = (*results)[i];
    const Tensor& expected = set.outputs[i];
    if (DTypeBytes(got.dtype) == DTypeBytes(expected.dtype) &&
        !imported.output_elements[i].empty()) {
      got.dtype = expected.dtype;  // same codes and bits
    }
    const std::string difference = Difference(got, expected, one);
    if (!difference.empty()) {
      return {"wrong", Cat("output ", Quoted(imported.graph.outputs[i].name), " ", difference)};
    }
  }
  return {"right", ""};
}

std::string OpText(const ImportRefusal& refusal) {
  if (refusal.op.empty()) return "(no op)";
  return Cat(refusal.domain, refusal.domain.empty() ? "" : ".", refusal.op, "-", refusal.version);
}

Outcome Refused(const TestImport& import) {
  Outcome outcome{"refused", std::string(absl::string_view(import.status.message()))};
  for (const ImportRefusal& refusal : import.refusals) outcome.ops.insert(OpText(refusal));
  const absl::StatusCode code = import.status.code();
  const bool by_name = !import.refusals.empty() && (code == absl::StatusCode::kUnimplemented ||
                                                    code == absl::StatusCode::kInvalidArgument);
  if (!by_name) outcome.word = "error";
  return outcome;
}

// Returns the inputs whose values would settle all refusals; empty if values cannot settle one of
// them.
std::set<std::string> Wanted(const TestImport& import) {
  std::set<std::string> wanted;
  for (const ImportRefusal& refusal : import.refusals) {
    if (refusal.inputs.empty()) return {};
    wanted.insert(refusal.inputs.begin(), refusal.inputs.end());
  }
  return wanted;
}

std::vector<std::string> InputNames(const std::string& model) {
  ::onnx::ModelProto proto;
  proto.ParseFromString(model);
  std::set<std::string> weights;
  for (const auto& tensor : proto.graph().initializer()) weights.insert(tensor.name());
  std::vector<std::string> names;
  for (const auto& input : proto.graph().input()) {
    if (!weights.contains(input.name())) names.push_back(input.name());
  }
  return names;
}

// Imports with the values of one data set for inputs that a refusal asks for; repeats, since the
// next import may ask for more.
TestImport ImportPinned(const std::string& model, ImportOptions options, const DataSet& set,
                        bool* pinned) {
  const std::vector<std::string> names = InputNames(model);
  TestImport import = ImportBytes(model, options);
  while (!import.status.ok()) {
    bool more = false;
    for (const std::string& name : Wanted(import)) {
      const auto at = std::find(names.begin(), names.end(), name) - names.begin();
      if (static_cast<size_t>(at) >= set.inputs.size()) continue;
      more |= options.values.emplace(name, set.inputs[at]).second;
    }
    if (!more) break;
    *pinned = true;
    import = ImportBytes(model, options);
  }
  return import;
}

bool Draws(const std::string& model) {
  ::onnx::ModelProto proto;
  proto.ParseFromString(model);
  return std::any_of(proto.graph().node().begin(), proto.graph().node().end(), [](const auto& n) {
    return n.op_type() == "Bernoulli" || n.op_type().starts_with("Random");
  });
}

// ONNX leaves the random numbers to implementations; all cases draw either 0 or 1.
bool IsDrawnLike(const TestImport& import, const DataSet& set) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    inputs.push_back(OnWire(set.inputs[i], import.imported.input_elements[i]));
  }
  const absl::StatusOr<std::vector<Tensor>> results = Evaluate(import, inputs);
  if (!results.ok() || results->size() != set.outputs.size()) return false;
  for (size_t i = 0; i < results->size(); ++i) {
    const Tensor& got = (*results)[i];
    if (got.dtype != set.outputs[i].dtype || got.shape != set.outputs[i].shape) return false;
    for (int64_t e = 0; e < got.elements(); ++e) {
      if (Number(got, e) != 0 && Number(got, e) != 1) return false;
    }
  }
  return true;
}

Outcome RunCase(const fs::path& folder, const Case& one) {
  const std::string model = ReadFile(folder / "model.onnx");
  if (one.kind == "real") {
    const TestImport import = ImportBytes(model);
    return import.status.ok() ? Outcome{"imported", ""} : Refused(import);
  }
  ImportOptions options;
  options.dims = ReadDims(folder);
  const TestImport plain = ImportBytes(model, options);
  if (!plain.status.ok() && Wanted(plain).empty()) return Refused(plain);
  Outcome outcome{"error", "has no data set"};
  bool pinned = false;
  for (int k = 0; fs::exists(folder / Cat("set_", k)); ++k) {
    const absl::StatusOr<DataSet> set = ReadDataSet(folder / Cat("set_", k));
    if (!set.ok()) {
      return {"error",
              Cat("set_", k, ": ", std::string(absl::string_view(set.status().message())))};
    }
    const TestImport import = ImportPinned(model, options, *set, &pinned);
    if (!import.status.ok()) return Refused(import);
    outcome = RunSet(import, *set, one);
    if (outcome.word == "wrong" && Draws(model) && IsDrawnLike(import, *set)) {
      return {"drawn", outcome.text};
    }
    if (outcome.word != "right") return outcome;
  }
  if (pinned && outcome.word == "right") outcome.word = "pinned";
  return outcome;
}

struct Arguments {
  fs::path folder;
  std::vector<std::string> filters, kinds;
  bool quiet = false;
};

bool Matches(const std::vector<std::string>& patterns, const std::string& text) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) {
           return fnmatch(p.c_str(), text.c_str(), 0) == 0;
         });
}

int Run(const Arguments& arguments) {
  std::map<std::string, int> words, excluded, refused_ops, wrong_cases;
  int counted = 0;
  for (const Case& one : ReadCases(arguments.folder)) {
    if (!Matches(arguments.filters, one.name) || !Matches(arguments.kinds, one.kind)) continue;
    if (!one.excluded.empty()) {
      ++excluded[one.excluded];
      continue;
    }
    ++counted;
    const Outcome outcome = RunCase(arguments.folder / one.kind / one.name, one);
    ++words[outcome.word];
    for (const std::string& op : outcome.ops) ++refused_ops[op];
    if (!arguments.quiet || (outcome.word != "right" && outcome.word != "pinned")) {
      std::cout << outcome.word << " " << one.kind << "/" << one.name
                << (outcome.text.empty() ? "" : ": ") << outcome.text << std::endl;
    }
  }
  std::vector<std::pair<int, std::string>> ops;
  for (const auto& [op, count] : refused_ops) ops.emplace_back(-count, op);
  std::sort(ops.begin(), ops.end());
  std::cout << "\nrefused cases by op:";
  for (const auto& [count, op] : ops) std::cout << "\n  " << -count << " " << op;
  std::cout << "\nnot counted:";
  for (const auto& [reason, count] : excluded) std::cout << " " << count << " " << reason;
  std::cout << "\n" << counted << " counted:";
  for (const auto& [word, count] : words) std::cout << " " << count << " " << word;
  const int right = words["right"] + words["pinned"] + words["imported"];
  std::cout << "; " << 100.0 * right / std::max(counted, 1) << " % right" << std::endl;
  return counted > 0 && words["wrong"] + words["error"] == 0 ? 0 : 1;
}

}  // namespace
}  // namespace athanor::onnx

int main(int argc, char** argv) {
  athanor::onnx::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--filter" && i + 1 < argc) {
      arguments.filters.emplace_back(argv[++i]);
    } else if (argument == "--kind" && i + 1 < argc) {
      arguments.kinds.emplace_back(argv[++i]);
    } else if (argument == "--quiet") {
      arguments.quiet = true;
    } else if (!argument.starts_with("--") && arguments.folder.empty()) {
      arguments.folder = argument;
    } else {
      std::cerr << "usage: onnx_cases DIR [--filter PATTERN]... [--kind KIND]... [--quiet]\n";
      return 2;
    }
  }
  if (!std::filesystem::exists(arguments.folder / "cases.tsv")) {
    std::cerr << arguments.folder << " has no cases.tsv; tests/onnx/cases.py writes it\n";
    return 2;
  }
  return athanor::onnx::Run(arguments);
}
