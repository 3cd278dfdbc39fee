#include "runtime/memory/uploaded_weights.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

int64_t BytesOf(const Program& program, int index) {
  return program.sizes.range(program.buffers[index].bytes_size).min;
}

// Returns by index in program.parameters whether runs or these steps of program.prepare read it.
std::vector<bool> Needed(const Program& program, absl::Span<const int> steps) {
  std::vector<bool> needed;
  for (const int index : program.parameters) needed.push_back(program.buffers[index].kept);
  for (const int s : steps) {
    const Program::Step& step = program.prepare[s];
    for (int i = 0; i < step.buffers; ++i) {
      const Program::Buffer& buffer = program.buffers[program.buffer_refs[step.first_buffer + i]];
      if (buffer.kind == v1::Buffer::PARAMETER) needed[buffer.place] = true;
    }
  }
  return needed;
}

}  // namespace

absl::Status UploadedWeights::Reserve(const Program& program, const ParameterHashes& hashes,
                                      absl::Span<const int> steps) {
  if (host_memory_) return absl::OkStatus();
  const size_t count = program.parameters.size();
  const std::vector<bool> needed = Needed(program, steps);
  keys_.resize(count);
  made_.resize(count);
  blocks_.resize(count);
  std::vector<PreparedPool::Wanted> wanted;
  int64_t all = 0, made = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!needed[i]) continue;
    const int index = program.parameters[i];
    const auto hash = hashes.find(program.buffers[index].name);
    if (shares_ && hash != hashes.end()) keys_[i] = WeightKey(hash->second);
    blocks_[i] = pool_.Find(keys_[i]).value_or(PreparedPool::Block());
    made_[i] = !blocks_[i];
    const int64_t bytes = BytesOf(program, index);
    all += PreparedPool::Rounded(bytes);
    if (!made_[i]) continue;
    made += PreparedPool::Rounded(bytes);
    wanted.emplace_back(bytes, /*is_brief=*/!program.buffers[index].kept);
  }
  auto allocated = pool_.Allocate(wanted, MemoryKind::kWeights);
  if (!allocated.ok()) {
    const absl::Status& s = allocated.status();
    return absl::Status(s.code(), absl::StrCat("plan '", program.plan_id, "' needs ", all,
                                               " bytes for weights on the device, ", made,
                                               " of them new: ", s.message()));
  }
  auto next = allocated->begin();
  for (size_t i = 0; i < count; ++i) {
    if (made_[i]) blocks_[i] = std::move(*next++);
  }
  return absl::OkStatus();
}

absl::Status UploadedWeights::Upload(const Program& program,
                                     absl::Span<const ParameterView> parameters,
                                     DeviceQueue& queue) {
  absl::flat_hash_map<absl::string_view, const ParameterView*> by_name;
  for (const ParameterView& parameter : parameters) by_name[parameter.name] = &parameter;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const int index = program.parameters[i];
    const std::string& name = program.buffers[index].name;
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' is missing"));
    }
    const absl::string_view data = found->second->data;
    const int64_t bytes = BytesOf(program, index);
    if (static_cast<int64_t>(data.size()) != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' has ", data.size(),
                                                     " bytes, the plan wants ", bytes));
    }
    if (host_memory_) {
      views_.push_back(*found->second);
    } else if (made_[i]) {
      RETURN_IF_ERROR(queue.Copy(blocks_[i].data(), data.data(), bytes, CopyKind::kToDevice));
    }
  }
  return absl::OkStatus();
}

void* UploadedWeights::data(int64_t place) const {
  if (host_memory_) return const_cast<char*>(views_[place].data.data());
  return blocks_[place] ? blocks_[place].data() : nullptr;
}

void UploadedWeights::Keep(const Program& program) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!program.buffers[program.parameters[i]].kept) {
      blocks_[i] = PreparedPool::Block();
    } else if (made_[i] && !keys_[i].empty()) {
      blocks_[i] = pool_.Publish(keys_[i], std::move(blocks_[i]));
    }
  }
}

}  // namespace athanor
