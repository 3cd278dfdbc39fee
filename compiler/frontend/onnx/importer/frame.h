// The place of a node in the file, and the facts about the graph it is in.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FRAME_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FRAME_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// The surroundings in which a node is visited.
struct Frame {
  using Opsets = std::map<std::string, int64_t, std::less<>>;
  using Attributes = std::map<std::string_view, const ::onnx::AttributeProto*, std::less<>>;

  const Opsets* opsets = nullptr;  // opsets of the model or the function
  // Attributes of the function's call; null outside functions.
  const Attributes* attributes = nullptr;
  std::string path;  // such as "loop1/body/"
  int depth = 0;
  bool check_only = false;  // builds nothing, since the values may be wrong
};

inline constexpr std::string_view kOutput = "output";

// The type that a graph states for one of its values.
struct Claim {
  const ::onnx::ValueInfoProto* info;
  std::string_view kind;  // "input", "value" or kOutput
};

// Facts about a graph, computed once however often it is visited.
struct GraphInfo {
  absl::Status status;               // result of OrderOf
  std::vector<int> order;            // indices of nodes
  std::set<std::string_view> names;  // names that the graph defines
  const GraphInfo* outer = nullptr;  // the enclosing graph's
  std::set<std::string_view> inputs;
  std::multimap<std::string_view, Claim> claims;  // by name
  int64_t looked_at = 0;  // items per visit besides nodes: names, attributes
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_FRAME_H_
