#include "compiler/codegen/kir/tickets.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/kir/memory_accesses.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::kir {
namespace {

class TicketChecker {
 public:
  explicit TicketChecker(const Kernel& kernel) : kernel_(kernel) {
    for (size_t i = 0; i < kernel.sizes.size(); ++i) {
      bounds_.Set(Cat("s", i), 0, Expr::Symbol(Cat("$end", i)));  // no known maximum
    }
    bounds_.Set(kGrid, 0, kernel.grid - 1);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(Block(kernel_.body, /*top=*/true, /*last=*/false));
    return stored_ < 0 || ticket_ != nullptr
               ? absl::OkStatus()
               : Invalid("b", stored_, ": no ticket is drawn behind its stores");
  }

 private:
  // `last`: only the last item to draw the counter is here.
  absl::Status Block(const std::vector<Stmt>& block, bool top, bool last) {
    for (const Stmt& s : block) {
      if (s.opcode == Opcode::kTicket) {
        RETURN_IF_ERROR(Prefixed(Cat("v", s.result, ": "), Ticket(s, top)));
      } else {
        RETURN_IF_ERROR(Buffers(s, last));
      }
      Define(s);
      RETURN_IF_ERROR(Block(s.body, /*top=*/false,
                            last || (s.opcode == Opcode::kIf && lasts_.contains(s.args[0]))));
    }
    return absl::OkStatus();
  }

  absl::Status Ticket(const Stmt& s, bool top) {
    if (ticket_ != nullptr) {
      return Invalid("a ticket after v", ticket_->result, "; a kernel draws at most one");
    }
    if (!top) {
      return Invalid("a ticket in a loop or under a condition; each item draws one, once");
    }
    ticket_ = &s;
    const auto& terms = kernel_.grid.terms();
    if (!std::all_of(terms.begin(), terms.end(),
                     [&](const Expr::Term& t) { return t.coefficient % s.step == 0; })) {
      return Invalid("of ", s.step, " teams; the grid ", kernel_.grid.ToString(),
                     " is not proved to be a multiple");
    }
    const Expr own = FloorDiv(Expr::Symbol(kGrid), s.step);
    return bounds_.NonNegative(s.index - own) && bounds_.NonNegative(own - s.index)
               ? absl::OkStatus()
               : Invalid("counter ", s.index.ToString(), "; ", s.step, " items draw each at ",
                         own.ToString());
  }

  // Checks how a statement touches memory of the launch.
  absl::Status Buffers(const Stmt& s, bool last) {
    std::vector<int> touched = {s.buffer};
    for (const Matrix& m : s.matrices) touched.push_back(m.buffer);
    for (const int b : touched) {
      if (b < 0 || kernel_.buffers[b].space != Space::kLaunch) continue;
      if (kernel_.buffers[b].zeroed) {
        return Invalid("b", b, " holds counters, which only tickets touch");
      }
      if (s.opcode == Opcode::kStore) {
        stored_ = b;
        if (ticket_ == nullptr) continue;
        return Invalid("store to b", b, " behind the ticket v", ticket_->result,
                       ": the last item may be reading; what items share is stored ahead of it");
      }
      if (s.opcode != Opcode::kLoad) {
        return Invalid("b", b, " is memory of the launch, which is only loaded and stored");
      }
      if (!last) {
        return Invalid("v", s.result, " = load b", b, "[", s.index.ToString(), "]",
                       ": other items may not have stored it; it must stand in an if that the ",
                       "ticket is the last");
      }
    }
    return absl::OkStatus();
  }

  // Remembers constants, and which conditions say that all others drew before.
  void Define(const Stmt& s) {
    if (s.opcode == Opcode::kConst && s.type == Type{DType::kI32}) {
      constants_[s.result] = s.constant.i;
    } else if (ticket_ != nullptr && s.opcode == Opcode::kCompute && IsComparison(s.op) &&
               s.args[1] == ticket_->result) {
      const auto limit = constants_.find(s.args[0]);
      if (limit != constants_.end() && limit->second == ticket_->step - 2) {
        lasts_.insert(s.result);
      }
    }
  }

  const Kernel& kernel_;
  Bounds bounds_;
  const Stmt* ticket_ = nullptr;
  int stored_ = -1;  // a buffer
  std::map<Var, int64_t> constants_;
  std::set<Var> lasts_;
};

// Finds stores by which two items may be at one element of the launch's memory.
absl::Status CheckItemsDiffer(const Kernel& kernel) {
  const bool shares =
      std::any_of(kernel.buffers.begin(), kernel.buffers.end(),
                  [](const Buffer& b) { return b.space == Space::kLaunch && !b.zeroed; });
  if (!shares) return absl::OkStatus();
  Accesses accesses(kernel);
  if (accesses.loop(kItems).counter.empty()) return absl::OkStatus();  // of one item
  for (int later = 0; later < accesses.size(); ++later) {
    const MemoryAccess& store = accesses.access(later);
    if (!store.store || kernel.buffers[store.buffer].space != Space::kLaunch) continue;
    for (int earlier = 0; earlier < accesses.size(); ++earlier) {
      const MemoryAccess& other = accesses.access(earlier);
      if (!other.store || !accesses.ItemsMeet(earlier, later)) continue;
      return Invalid("b", store.buffer, ": two items may be at one element in \"", other.text,
                     "\" and \"", store.text, "\"; each item needs elements of its own, by g");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTickets(const Kernel& kernel) {
  RETURN_IF_ERROR(TicketChecker(kernel).Run());
  return CheckItemsDiffer(kernel);
}

}  // namespace athanor::kir
