#include "tests/bench/graph_file.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/onnx/model/wire.h"
#include "compiler/frontend/onnx/testing/testing.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::StatusOr<Graph> ReadGraph(const std::string& path) {
  const std::optional<std::string> bytes = ReadFile(path);
  v1::Graph message;
  if (!bytes || !message.ParseFromString(*bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no serialised athanor.v1.Graph"));
  }
  absl::StatusOr<ImportedGraph> imported = ImportGraph(message);
  if (!imported.ok()) return imported.status();
  return std::move(imported->graph);
}

absl::StatusOr<Graph> ReadOnnx(const std::string& path, const OnnxDims& dims) {
  const std::optional<std::string> bytes = ReadFile(path);
  if (!bytes) return absl::InvalidArgumentError(absl::StrCat(path, " cannot be read"));
  onnx::FileTable table;
  table.files.push_back({"", static_cast<int64_t>(bytes->size())});
  auto lifted = onnx::LiftPayloads(*bytes, {});
  if (!lifted.ok()) return lifted.status();
  auto model = onnx::ParseOnnx(*std::move(lifted), std::move(table));
  if (!model.ok()) return model.status();
  std::vector<ImportRefusal> refusals;
  onnx::ImportOptions options;
  options.dims = dims;
  auto imported = onnx::ImportOnnx(*model, onnx::BytesReader({*bytes}), options, &refusals);
  if (!imported.ok()) return imported.status();
  return std::move(imported->graph);
}

bool ParseDims(const std::string& text, OnnxDims* dims) {
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(item, ':');
    onnx::DimGiven dim{.name = parts[0]};
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &dim.min.emplace()) ||
        !absl::SimpleAtoi(parts[2], &dim.max.emplace())) {
      return false;
    }
    dims->push_back(std::move(dim));
  }
  return true;
}

}  // namespace athanor
