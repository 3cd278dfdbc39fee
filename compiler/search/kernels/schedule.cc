#include "compiler/search/kernels/schedule.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/contract_schedule.h"

namespace athanor {

std::vector<bool> MemoryOf(const Graph& graph, const Genome& genome) {
  std::vector<bool> memory(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    memory[n] = IsDeclared(node.op) ||
                (IsConstant(node.op) && GetAttr<Tensor>(node.attrs, "value").elements() != 1);
  }
  for (const KernelChoice& k : genome.kernels) memory[k.root] = true;
  return memory;
}

namespace {

const char* ColumnsText(ColumnAccess columns) {
  switch (columns) {
    case ColumnAccess::kPack:
      return "";
    case ColumnAccess::kAhead:
      return " ahead";
    case ColumnAccess::kInPlace:
      return " in_place";
    case ColumnAccess::kDots:
      return " dots";
  }
  return "";
}

const char* SwapText(bool swap) { return swap ? " swap" : ""; }

std::string ContractText(const PanelSchedule& s) {
  return absl::StrCat(
      "mr=", s.mr, " nv=", s.nv, s.panel > 0 ? absl::StrCat(" panel=", s.panel) : "",
      " rows=", s.rows_per_item, " panels=", s.panels_per_item, " kc=", s.kc, SwapText(s.swap),
      ColumnsText(s.columns), s.copy_rows ? " copy" : "", s.prefetch ? " prefetch" : "");
}

std::string ContractText(const TileSchedule& s) {
  return absl::StrCat("mr=", s.mr, " nv=", s.nv, " rows=", TileRows(s), " panels=1 kc=", s.kc,
                      SwapText(s.swap), s.tensor() ? " tensor" : " staged",
                      s.stages > 1 ? absl::StrCat(" stages=", s.stages) : "",
                      s.split > 1 ? absl::StrCat(" split=", s.split) : "");
}

std::string ContractText(const LibrarySchedule& s) {
  return absl::StrCat("openblas rows=", s.rows_per_item, " panels=", s.panels_per_item,
                      SwapText(s.swap));
}

std::string ContractText(const CallSchedule& s) {
  return absl::StrCat("cublaslt proposal=", s.proposal, " workspace=", s.workspace,
                      SwapText(s.swap));
}

std::string KindText(const KernelChoice& choice) {
  switch (choice.kind) {
    case KernelKind::kMap:
      return absl::StrCat("map elements=", choice.walk.elements, " unroll=", choice.walk.unroll,
                          choice.walk.rows > 1 ? absl::StrCat(" rows=", choice.walk.rows) : "");
    case KernelKind::kRow:
      return absl::StrCat("row unroll=", choice.walk.unroll);
    case KernelKind::kPoint:
      return absl::StrCat("point unroll=", choice.walk.unroll);
    case KernelKind::kScatter:
      return "scatter";
    case KernelKind::kStateWrite:
      return "state_write";
    case KernelKind::kSort:
      return "sort";
    case KernelKind::kLoop:
      return "loop";
    case KernelKind::kContract:
      return absl::StrCat(
          "contract ", std::visit([](const auto& s) { return ContractText(s); }, choice.contract));
    case KernelKind::kAttention: {
      const AttentionSchedule& s = choice.attention;
      return absl::StrCat("attention mr=", s.mr, " nv=", s.nv, " keys=", s.key_block);
    }
    case KernelKind::kPaged: {
      const AttentionSchedule& s = choice.attention;
      return absl::StrCat("paged mr=", s.mr, " nv=", s.nv, " rows=", s.row_tile);
    }
  }
  return "";
}

}  // namespace

int WayOf(const ContractSchedule& schedule) {
  if (const auto* panels = std::get_if<PanelSchedule>(&schedule)) {
    return static_cast<int>(panels->columns);
  }
  constexpr int kTiles = static_cast<int>(ColumnAccess::kDots) + 1;
  if (std::holds_alternative<TileSchedule>(schedule)) return kTiles + (IsTensor(schedule) ? 1 : 0);
  return std::holds_alternative<LibrarySchedule>(schedule) ? kTiles + 2 : kTiles + 3;
}

std::string ScheduleText(const KernelChoice& choice) {
  return absl::StrCat(KindText(choice),
                      choice.team == 1 ? "" : absl::StrCat(" team=", choice.team));
}

}  // namespace athanor
