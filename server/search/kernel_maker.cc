#include "server/search/kernel_maker.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/search/tuner_channel.h"

namespace athanor {
namespace {

// The graph was accepted, so a kernel that does not compile or check is our fault, not the
// caller's.
absl::Status Named(const v1::Kernel& kernel, const absl::Status& status) {
  const bool ours = absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
                    absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
  return absl::Status(ours ? absl::StatusCode::kInternal : status.code(),
                      absl::StrCat("kernel ", kernel.name(), " (source ",
                                   kernel.source_hash().substr(0, 16), "): ", status.message()));
}

}  // namespace

bool WorthRetrying(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kUnavailable;
}

absl::StatusOr<KernelObject> KernelMaker::Compile(const v1::Kernel& kernel) {
  const KernelKey key =
      MakeKernelKey(kernel.source(), machine_.target(),
                    CompileFlags::For(machine_.target()).ToString(), machine_.compiler_version());
  if (std::optional<std::string> object = cache_.kernels().Find(key)) {
    ++cache_.work().kernels_from_cache;
    return KernelObject{*std::move(object), true};
  }
  absl::StatusOr<std::string> object = tuner_.Compile(kernel.source(), machine_.target());
  if (!object.ok() && WorthRetrying(object.status())) {
    LogWarn("kernel compiled once more", {{"kernel", kernel.name()},
                                          {"source_hash", kernel.source_hash()},
                                          {"error", object.status().message()}});
    object = tuner_.Compile(kernel.source(), machine_.target());
  }
  if (!object.ok()) return Named(kernel, object.status());
  ++cache_.work().kernels_compiled;
  cache_.kernels().Put(key, *object);
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

absl::Status KernelMaker::Check(const internal::CheckRequest& request, const v1::Kernel& about) {
  const std::string key = CheckKey(request, kCheckVersion);
  if (cache_.checks().Has(key)) return absl::OkStatus();
  absl::StatusOr<internal::CheckReply> passed = tuner_.CheckReport(request);
  if (WorthRetrying(passed.status())) passed = tuner_.CheckReport(request);
  if (!passed.ok()) return Named(about, passed.status());
  for (const std::string& left_out : passed->left_out()) {
    LogWarn("kernel not compared at large sizes", {{"kernel", about.name()},
                                                   {"sampled", passed->sampled_elements()},
                                                   {"left_out", left_out}});
  }
  cache_.checks().Put(key);
  return absl::OkStatus();
}

}  // namespace athanor
