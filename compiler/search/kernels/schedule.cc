#include "compiler/search/kernels/schedule.h"

#include "absl/strings/str_cat.h"

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
    case ColumnAccess::kStaged:
      return " staged";
    case ColumnAccess::kTensor:
      return " tensor";
    case ColumnAccess::kLibrary:
      return " openblas";
    case ColumnAccess::kCall:
      return " cublaslt";
  }
  return "";
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
    case KernelKind::kSort:
      return "sort";
    case KernelKind::kLoop:
      return "loop";
    case KernelKind::kContract: {
      const ContractSchedule& s = choice.contract;
      if (s.columns == ColumnAccess::kLibrary) {
        return absl::StrCat("contract openblas rows=", s.rows_per_item,
                            " panels=", s.panels_per_item, s.swap ? " swap" : "");
      }
      if (s.columns == ColumnAccess::kCall) {
        return absl::StrCat("contract cublaslt proposal=", s.proposal, " workspace=", s.workspace,
                            s.swap ? " swap" : "");
      }
      return absl::StrCat("contract mr=", s.mr, " nv=", s.nv, " rows=", s.rows_per_item,
                          " panels=", s.panels_per_item, " kc=", s.kc, s.swap ? " swap" : "",
                          ColumnsText(s.columns), s.copy_rows ? " copy" : "",
                          s.prefetch ? " prefetch" : "",
                          s.stages == 1 ? "" : absl::StrCat(" stages=", s.stages),
                          s.split == 1 ? "" : absl::StrCat(" split=", s.split));
    }
    case KernelKind::kAttention: {
      const AttentionSchedule& s = choice.attention;
      return absl::StrCat("attention mr=", s.mr, " nv=", s.nv, " keys=", s.key_block);
    }
  }
  return "";
}

}  // namespace

std::string ScheduleText(const KernelChoice& choice) {
  return absl::StrCat(KindText(choice),
                      choice.team == 1 ? "" : absl::StrCat(" team=", choice.team));
}

}  // namespace athanor
