#include "server/search/kernel_maker.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/child/kernel_key.h"
#include "server/child/tuner_channel.h"
#include "server/plans/kernel_resources.h"

namespace athanor {

absl::Status NamedKernel(const v1::Kernel& kernel, const absl::Status& status) {
  const bool ours = absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
                    absl::IsUnimplemented(status);
  return absl::Status(ours ? absl::StatusCode::kInternal : status.code(),
                      absl::StrCat("kernel ", kernel.name(), " (source ",
                                   kernel.source_hash().substr(0, 16), "): ", status.message()));
}

std::optional<std::string> KernelMaker::Find(const v1::Kernel& kernel) {
  std::optional<std::string> object = cache_.kernels().Find(KernelKeyOf(kernel, machine_));
  if (object.has_value()) ++cache_.work().kernels_from_cache;
  return object;
}

void KernelMaker::Put(const v1::Kernel& kernel, const std::string& object) {
  ++cache_.work().kernels_compiled;
  if (compiled_ != nullptr) ++*compiled_;
  cache_.kernels().Put(KernelKeyOf(kernel, machine_), object);
}

absl::StatusOr<KernelObject> KernelMaker::Compile(const v1::Kernel& kernel) {
  if (std::optional<std::string> object = Find(kernel)) {
    return KernelObject{*std::move(object), true};
  }
  const auto compile = [&] {
    return tuner_.Compile(kernel.source(), machine_.target(), kernel.library_call());
  };
  absl::StatusOr<std::string> object = compile();
  if (!object.ok() && WorthRetrying(object.status())) {
    LogWarn("kernel compiled once more", {{"kernel", kernel.name()},
                                          {"source_hash", kernel.source_hash()},
                                          {"error", object.status().message()}});
    object = compile();
  }
  if (!object.ok()) return NamedKernel(kernel, object.status());
  // A search tries no such kernel; a baseline has no other.
  if (const auto resources = ResourcesOf(*object);
      resources.has_value() && resources->spill_store_bytes() + resources->spill_load_bytes() > 0) {
    LogWarn("kernel spills registers", {{"kernel", kernel.name()},
                                        {"source_hash", kernel.source_hash()},
                                        {"bytes_stored", resources->spill_store_bytes()},
                                        {"bytes_loaded", resources->spill_load_bytes()}});
  }
  Put(kernel, *object);
  return KernelObject{*std::move(object), false};
}

absl::Status KernelMaker::AddObjects(internal::CheckRequest* request) {
  for (const v1::Kernel& kernel : request->plan().kernels()) {
    absl::StatusOr<KernelObject> object = Compile(kernel);
    if (!object.ok()) return object.status();
    request->add_objects(std::move(object->object));
  }
  return absl::OkStatus();
}

bool KernelMaker::HasPassed(const internal::CheckRequest& request) const {
  return cache_.checks().Has(CheckKey(request, kCheckVersion));
}

void KernelMaker::PutPassed(const internal::CheckRequest& request,
                            const internal::CheckReply& report, const v1::Kernel& about) {
  for (const std::string& left_out : report.left_out()) {
    LogWarn(
        "kernel not compared at large sizes",
        {{"kernel", about.name()}, {"sampled", report.sampled_elements()}, {"left_out", left_out}});
  }
  cache_.checks().Put(CheckKey(request, kCheckVersion));
}

absl::Status KernelMaker::Check(const internal::CheckRequest& request, const v1::Kernel& about) {
  if (HasPassed(request)) return absl::OkStatus();
  absl::StatusOr<internal::CheckReply> passed = tuner_.CheckReport(request);
  if (WorthRetrying(passed.status())) passed = tuner_.CheckReport(request);
  if (!passed.ok()) return NamedKernel(about, passed.status());
  PutPassed(request, *passed, about);
  return absl::OkStatus();
}

}  // namespace athanor
