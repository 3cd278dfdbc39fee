#include "tests/bench/graph_file.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/frontend.h"
#include "proto/athanor/v1/graph.pb.h"

namespace athanor {

absl::StatusOr<Graph> ReadGraph(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  v1::Graph message;
  if (!file || !message.ParseFromString({std::istreambuf_iterator<char>(file), {}})) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no serialised athanor.v1.Graph"));
  }
  absl::StatusOr<ImportedGraph> imported = ImportGraph(message);
  if (!imported.ok()) return imported.status();
  return std::move(imported->graph);
}

}  // namespace athanor
