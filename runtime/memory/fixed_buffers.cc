#include "runtime/memory/fixed_buffers.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::Status FixedBuffers::Reserve(const v1::Plan& plan, const Program& program,
                                   const ParameterHashes& hashes, DeviceQueue& queue) {
  const size_t count = program.fixed.size();
  keys_ = shares_ ? PreparedKeys(plan, program, hashes) : std::vector<PreparedKey>(count);
  blocks_.resize(count);
  for (size_t i = 0; i < count; ++i)
    blocks_[i] = pool_.Find(keys_[i]).value_or(PreparedPool::Block());
  FindSame(program);
  ChooseSteps(program);
  if (absl::Status s = Allocate(program); !s.ok()) {
    const PlanMemory memory =
        MemoryOf(program, keys_, shares_ ? hashes : ParameterHashes(), pool_.host_memory());
    return absl::Status(
        s.code(), absl::StrCat("plan '", program.plan_id, "' needs ", memory.WeightBytes(),
                               " bytes of prepared weights, constants and copies of weights, ",
                               memory.NewBytes(pool_), " of them new, and for each call up to ",
                               memory.arena, " bytes of arena and ", memory.scratch,
                               " of scratch per thread: ", s.message()));
  }
  for (size_t i = 0; i < count; ++i) {
    const int buffer = program.fixed[i].buffer;
    if (!made_[i] || program.buffers[buffer].kind != v1::Buffer::CONSTANT) continue;
    const std::string& literal = plan.buffers(buffer).literal();
    RETURN_IF_ERROR(queue.Copy(data(i), literal.data(), std::ssize(literal), CopyKind::kToDevice));
  }
  return absl::OkStatus();
}

// Finds equal buffers. Constants come first, because they are there before any step; of prepared
// weights the one made first counts, so that it is there when a step reads one of the others.
void FixedBuffers::FindSame(const Program& program) {
  std::vector<int> order(keys_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tie(program.fixed[a].step, a) < std::tie(program.fixed[b].step, b);
  });
  first_.resize(keys_.size());
  absl::flat_hash_map<absl::string_view, int> seen;
  for (const int i : order) {
    first_[i] = keys_[i].empty() ? i : seen.emplace(keys_[i], i).first->second;
  }
}

void FixedBuffers::ChooseSteps(const Program& program) {
  needed_.assign(keys_.size(), !program.prepares_once);
  kept_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    kept_[i] = program.buffers[program.fixed[i].buffer].kept;
  }
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!kept_[i]) continue;
    kept_[first_[i]] = true;
    needed_[first_[i]] = true;
  }
  // Goes backwards, so that the steps that read a buffer are decided before the step that makes it.
  // A step is left out if everything it makes is unneeded or exists already.
  for (int s = static_cast<int>(program.prepare.size()) - 1; s >= 0; --s) {
    const Program::Step& step = program.prepare[s];
    bool left = !program.prepares_once;
    const auto buffers =
        absl::MakeSpan(program.buffer_refs).subspan(step.first_buffer, step.buffers);
    for (const int index : buffers) {
      const Program::Buffer& buffer = program.buffers[index];
      if (buffer.kind != v1::Buffer::PREPARED || program.fixed[buffer.place].step != s) continue;
      left |=
          first_[buffer.place] == buffer.place && needed_[buffer.place] && !blocks_[buffer.place];
    }
    if (!left) continue;
    steps_.push_back(s);
    for (const int index : buffers) {
      const Program::Buffer& buffer = program.buffers[index];
      if (buffer.kind != v1::Buffer::PARAMETER) needed_[first_[buffer.place]] = true;
    }
  }
  std::reverse(steps_.begin(), steps_.end());
}

absl::Status FixedBuffers::Allocate(const Program& program) {
  std::vector<PreparedPool::Wanted> wanted;
  made_.assign(keys_.size(), false);
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!needed_[i] || first_[i] != static_cast<int>(i) || blocks_[i]) continue;
    made_[i] = true;
    wanted.emplace_back(program.fixed[i].bytes, /*is_brief=*/!kept_[i]);
  }
  ASSIGN_OR_RETURN(const std::vector<PreparedPool::Block> made, pool_.Allocate(wanted));
  auto next = made.begin();
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (made_[i]) blocks_[i] = *next++;
  }
  // Equal buffers share one block.
  for (size_t i = 0; i < keys_.size(); ++i) blocks_[i] = blocks_[first_[i]];
  return absl::OkStatus();
}

void FixedBuffers::Keep() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (made_[i] && kept_[i] && !keys_[i].empty()) {
      blocks_[i] = pool_.Publish(keys_[i], std::move(blocks_[i]));
    }
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    // Frees the buffers that only steps of `prepare` read.
    blocks_[i] = kept_[i] ? blocks_[first_[i]] : PreparedPool::Block();
  }
}

}  // namespace athanor
