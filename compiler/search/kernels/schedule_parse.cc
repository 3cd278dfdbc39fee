// Parses what ScheduleText writes.
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/value/message.h"
#include "compiler/search/kernels/schedule.h"

namespace athanor {
namespace {

// Sets the field that `word` names, as "mr=12" or "swap" do. Returns false if there is none.
class ScheduleReader {
 public:
  explicit ScheduleReader(KernelChoice* choice) : choice_(*choice) {}

  bool Read(absl::string_view word) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    return sides.second.empty() ? ReadFlag(word) : ReadNumber(sides.first, sides.second);
  }

  // Sets the contraction that the words are about. Returns what they lack; "" if nothing.
  std::string SetContract() {
    const bool tensor = by_ == "tensor", tile = tensor || by_ == "staged";
    if (stages_ != 1 && !tensor) return "stages= needs tensor: other contractions have one stage";
    if (split_ != 1 && !tile) return "split= needs staged or tensor: only tiles share their sums";
    const PanelSchedule& p = panels_;
    if (p.panel > 0 && (p.columns != ColumnAccess::kAhead || p.panel % p.nv != 0)) {
      return absl::StrCat("panel=", p.panel,
                          " needs ahead and a multiple of nv: panels are stored by `prepare`, and "
                          "tiles walk whole parts of them");
    }
    if (tile) {
      choice_.contract = TileSchedule{.swap = p.swap,
                                      .mr = p.mr,
                                      .nv = p.nv,
                                      .kc = p.kc,
                                      .stages = tensor ? stages_ : 0,
                                      .split = split_};
    } else if (by_ == "openblas") {
      choice_.contract = LibrarySchedule{p.swap, p.rows_per_item, p.panels_per_item};
    } else if (by_ == "cublaslt") {
      choice_.contract = CallSchedule{p.swap, call_.proposal, call_.workspace};
    } else {
      choice_.contract = p;
    }
    return "";
  }

 private:
  bool ReadFlag(absl::string_view word) {
    if (choice_.kind != KernelKind::kContract) return false;
    constexpr std::pair<absl::string_view, ColumnAccess> kColumns[] = {
        {"ahead", ColumnAccess::kAhead},
        {"in_place", ColumnAccess::kInPlace},
        {"dots", ColumnAccess::kDots}};
    for (const auto& [name, columns] : kColumns) {
      if (word != name) continue;
      panels_.columns = columns;
      by_ = "";
      return true;
    }
    for (const absl::string_view by : {"staged", "tensor", "openblas", "cublaslt"}) {
      if (word != by) continue;
      by_ = by;
      return true;
    }
    if (word == "swap") return panels_.swap = true;
    if (word == "copy") return panels_.copy_rows = true;
    if (word == "prefetch") return panels_.prefetch = true;
    return false;
  }

  bool ReadNumber(absl::string_view name, absl::string_view value) {
    PanelSchedule& c = panels_;
    AttentionSchedule& a = choice_.attention;
    WalkSchedule& w = choice_.walk;
    const bool paged = choice_.kind == KernelKind::kPaged;
    const bool attention = choice_.kind == KernelKind::kAttention || paged;
    const std::pair<absl::string_view, int*> small[] = {{"mr", attention ? &a.mr : &c.mr},
                                                        {"nv", attention ? &a.nv : &c.nv},
                                                        {"panel", &c.panel},
                                                        {"stages", &stages_},
                                                        {"split", &split_},
                                                        {"unroll", &w.unroll}};
    const bool map = choice_.kind == KernelKind::kMap;
    const std::pair<absl::string_view, int64_t*> large[] = {
        {"rows", map ? &w.rows : &c.rows_per_item},
        {"panels", &c.panels_per_item},
        {"kc", &c.kc},
        {"keys", &a.key_block},
        {"elements", &w.elements}};
    if (name == "proposal") return absl::SimpleAtoi(value, &call_.proposal) && call_.proposal >= 0;
    if (name == "workspace")
      return absl::SimpleAtoi(value, &call_.workspace) && call_.workspace >= 0;
    if (name == "team") return absl::SimpleAtoi(value, &choice_.team) && TakesTeam();
    if (paged && name == "rows") {
      return absl::SimpleAtoi(value, &a.row_tile) && (a.row_tile == 1 || a.row_tile == kPagedRows);
    }
    for (const auto& [known, field] : small) {
      if (name == known) return absl::SimpleAtoi(value, field) && *field > 0;
    }
    for (const auto& [known, field] : large) {
      if (name == known) return absl::SimpleAtoi(value, field) && *field > 0;
    }
    return false;
  }

  bool TakesTeam() const {
    const bool one = choice_.kind == KernelKind::kSort || choice_.kind == KernelKind::kLoop ||
                     choice_.kind == KernelKind::kPaged;
    return IsTeam(choice_.team) && !one;
  }

  KernelChoice& choice_;
  // The words about a contraction, whose kind they may name late.
  PanelSchedule panels_;
  CallSchedule call_;
  int stages_ = 1, split_ = 1;
  absl::string_view by_;  // who computes it, if not panels
};

}  // namespace

absl::StatusOr<KernelChoice> ParseSchedule(absl::string_view text) {
  constexpr std::pair<absl::string_view, KernelKind> kKinds[] = {
      {"map", KernelKind::kMap},
      {"row", KernelKind::kRow},
      {"point", KernelKind::kPoint},
      {"contract", KernelKind::kContract},
      {"attention", KernelKind::kAttention},
      {"paged", KernelKind::kPaged},
      {"scatter", KernelKind::kScatter},
      {"state_write", KernelKind::kStateWrite},
      {"sort", KernelKind::kSort},
      {"loop", KernelKind::kLoop}};
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  KernelChoice choice;
  bool known = false;
  for (const auto& [name, kind] : kKinds) {
    if (parts.first != name) continue;
    choice.kind = kind;
    known = true;
  }
  if (!known)
    return Invalid("schedule: ", Quoted(std::string(text)), ": unknown kernel kind; the kinds are ",
                   absl::StrJoin(kKinds, ", ", [](std::string* out, const auto& row) {
                     absl::StrAppend(out, row.first);
                   }));
  ScheduleReader reader(&choice);
  for (const absl::string_view word : absl::StrSplit(parts.second, ' ', absl::SkipEmpty())) {
    if (!reader.Read(word)) {
      return Invalid("schedule: ", Quoted(std::string(text)), ": unknown parameter ",
                     Quoted(std::string(word)));
    }
  }
  if (const std::string lacks = reader.SetContract(); !lacks.empty()) {
    return Invalid("schedule: ", Quoted(std::string(text)), ": ", lacks);
  }
  // Writing the schedule again reveals a parameter that is missing, repeated, out of order or of
  // another kind of kernel.
  if (const std::string read = ScheduleText(choice); read != text) {
    return Invalid("schedule: ", Quoted(std::string(text)), " is not canonical; it should be ",
                   Quoted(read));
  }
  return choice;
}

}  // namespace athanor
