#include "server/jobs/kernel_work.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace athanor {

KernelWork::KernelWork(internal::LowerReply lowered, Calls calls)
    : lowered_(std::move(lowered)),
      calls_(std::move(calls)),
      is_compiled_(lowered_.plan().kernels_size()),
      objects_(lowered_.plan().kernels_size()) {
  const auto& kernels = lowered_.plan().kernels();
  absl::flat_hash_map<absl::string_view, int> by_source;
  for (int i = 0; i < kernels.size(); ++i) {
    by_source.emplace(kernels[i].source_hash(), i);
    waiting_.push_back({.check = false, .index = i});
  }
  std::sort(waiting_.begin(), waiting_.end(), [&](const Task& a, const Task& b) {
    const size_t size = kernels[a.index].source().size(), other = kernels[b.index].source().size();
    return size != other ? size > other : a.index < b.index;
  });
  for (int i = 0; i < lowered_.checks_size(); ++i) {
    waiting_.push_back({.check = true, .index = i});
    std::vector<int>& runs = runs_.emplace_back();
    for (const v1::Kernel& kernel : lowered_.checks(i).request().plan().kernels()) {
      const auto found = by_source.find(kernel.source_hash());
      if (found != by_source.end()) runs.push_back(found->second);
    }
  }
}

bool KernelWork::IsReady(const Task& task) const {
  if (!task.check) return true;
  for (int kernel : runs_[task.index]) {
    if (!is_compiled_[kernel]) return false;
  }
  return true;
}

std::vector<KernelWork::Task>::const_iterator KernelWork::Next(bool owner) const {
  if (failed_) return waiting_.end();
  auto next = waiting_.begin();
  while (next != waiting_.end() && ((next->failed && !owner) || !IsReady(*next))) ++next;
  return next;
}

std::optional<KernelWork::Task> KernelWork::Take(bool owner) {
  const auto next = Next(owner);
  if (next == waiting_.end()) return std::nullopt;
  const Task task = *next;
  waiting_.erase(next);
  ++running_;
  return task;
}

bool KernelWork::HasTask() const {
  MutexLock lock(mu_);
  return Next(/*owner=*/false) != waiting_.end();
}

absl::Status KernelWork::Compile(int kernel, CompileBackend& backend) {
  absl::StatusOr<KernelObject> object = backend.CompileKernel(lowered_.plan(), kernel);
  if (!object.ok()) return object.status();
  objects_[kernel] = *std::move(object);
  calls_.compiled(kernel, objects_[kernel]);
  MutexLock lock(mu_);
  is_compiled_[kernel] = true;
  last_compiled_ = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

absl::Status KernelWork::Do(const Task& task, CompileBackend& backend) {
  absl::Status status = calls_.stopped();
  if (!status.ok()) return status;
  if (!task.check) return Compile(task.index, backend);
  return backend.CheckKernel(lowered_.plan(), lowered_.checks(task.index), objects_);
}

void KernelWork::End(const Task& task, bool done) {
  {
    MutexLock lock(mu_);
    --running_;
    if (!done) waiting_.insert(waiting_.begin(), {task.check, task.index, /*failed=*/true});
    done_.NotifyAll();
  }
  calls_.changed();
}

void KernelWork::DoTask(CompileBackend& backend) {
  std::optional<Task> task;
  {
    MutexLock lock(mu_);
    task = Take(/*owner=*/false);
  }
  if (task.has_value()) End(*task, Do(*task, backend).ok());
}

absl::Status KernelWork::Finish(CompileBackend& backend) {
  absl::Status status;
  for (;;) {
    std::optional<Task> task;
    {
      MutexLock lock(mu_);
      failed_ = !status.ok();
      while (!(task = Take(/*owner=*/true)).has_value() && running_ > 0) done_.Wait(lock);
      if (!task.has_value()) return status;
    }
    status = Do(*task, backend);
    End(*task, /*done=*/true);
  }
}

std::vector<KernelObject> KernelWork::TakeObjects() { return std::move(objects_); }

std::chrono::steady_clock::time_point KernelWork::compiled() const {
  MutexLock lock(mu_);
  return last_compiled_;
}

}  // namespace athanor
