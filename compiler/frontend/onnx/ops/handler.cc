#include "compiler/frontend/onnx/ops/handler.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace athanor::onnx {
namespace {

using RowsOf = absl::Span<const HandlerRow> (*)();

constexpr RowsOf kFamilies[] = {
    ElementwiseRows, CastRows,    QuantisedRows, ReduceRows,    NormRows,      LossRows,
    RandomRows,      ShapeRows,   MovementRows,  IndexRows,     ResizeRows,    LinearRows,
    SignalRows,      SortRows,    WindowRows,    AttentionRows, RecurrentRows, ControlRows,
    MicrosoftRows,   PreviewRows, NgramRows,     RefusedRows,
};

using Key = std::tuple<std::string_view, std::string_view, int64_t>;  // domain, op, version

// All rows by key. Two rows for one op and version are a programming error, which stops the server
// at its start.
const std::map<Key, const HandlerRow*>& Rows() {
  static const auto* const rows = [] {
    auto* all = new std::map<Key, const HandlerRow*>;
    for (RowsOf family : kFamilies) {
      for (const HandlerRow& row : family()) {
        if (all->emplace(Key(row.domain, row.op, row.since), &row).second) continue;
        std::fprintf(stderr, "two handlers of %s-%d\n", std::string(row.op).c_str(), row.since);
        std::abort();
      }
    }
    return all;
  }();
  return *rows;
}

}  // namespace

const HandlerRow* FindHandler(std::string_view domain, std::string_view op, int64_t version) {
  auto after = Rows().upper_bound(Key(domain, op, version));
  if (after == Rows().begin()) return nullptr;
  const HandlerRow* row = std::prev(after)->second;
  return row->domain == domain && row->op == op ? row : nullptr;
}

std::vector<std::string_view> KnownOpNames(std::string_view domain) {
  std::vector<std::string_view> names;
  for (const auto& [key, row] : Rows()) {
    if (row->domain == domain && row->handler != nullptr &&
        (names.empty() || names.back() != row->op)) {
      names.push_back(row->op);
    }
  }
  return names;
}

}  // namespace athanor::onnx
