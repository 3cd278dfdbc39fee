// A tuner for the emulated GPU, and kernels for it. A test has athanor-tuner and the driver and
// compiler of the emulator among its data; its library of products, if there are to be calls.
#ifndef ATHANOR_TESTS_TUNER_GPU_TUNER_TEST_H_
#define ATHANOR_TESTS_TUNER_GPU_TUNER_TEST_H_

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {

// Doubles after `body`, for each item `g`.
inline std::string GpuKernel(const std::string& body, const std::string& before = "") {
  return absl::StrCat(
      "#include \"athanor/device.h\"\n", before,
      "\nstruct Arguments {\n"
      "  Buffer b0, b1;\n"
      "  i64 items;\n"
      "  u8* workspace;\n"
      "  i64 stride;\n"
      "  ErrorSlot* error;\n"
      "};\n"
      "KERNEL(athanor_kernel) {\n"
      "  for (i64 g = first(a); g < a.items; g += teams(a)) {\n",
      body, "\n    const f32 x = load<f32>(a.b0, g);\n    store<f32>(a.b1, g, x + x);\n  }\n}\n");
}

class GpuTunerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string emulator = std::filesystem::absolute("tests/emulator");
    setenv("LD_LIBRARY_PATH", emulator.c_str(), 1);
    setenv("ATHANOR_CUBLASLT", emulator.c_str(), 1);  // not one of this machine
    options_ = TestOptions();
    options_.gpu = 0;
    options_.nvrtc = emulator;
    target_.set_device("cuda");
    target_.set_triple("nvptx64-nvidia-cuda");
    target_.set_cpu("sm_80");
    target_.set_vector_bytes(1);
    target_.set_threads(270336);  // of an H100: nobody may start as many
    *request_.mutable_target() = target_;
  }
  void Start() {
    absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(options_);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    tuner_ = *std::move(tuner);
  }

  void Add(const std::string& source) {
    internal::TriedKernel* tried = request_.add_kernels();
    internal::SearchKernel* kernel = tried->mutable_kernel();
    *kernel->mutable_check() = DoublingCheck("");
    kernel->mutable_check()->clear_objects();
    v1::Plan* plan = kernel->mutable_check()->mutable_plan();
    plan->mutable_kernels(0)->set_source(source);
    *plan->mutable_target() = target_;
    kernel->set_key(absl::StrCat("k", request_.kernels_size()));
    kernel->set_task(static_cast<uint32_t>(request_.kernels_size()));
    kernel->add_sizes()->add_values(1000);
    tried->add_objects("");
  }
  // Returns how each kernel ended.
  std::vector<internal::TryOutcome> Try() {
    std::map<uint32_t, internal::TryOutcome> ends;
    const absl::Status status = tuner_->Try(request_, [&](internal::TryOutcome part) {
      if (part.ended()) ends[part.kernel()] = std::move(part);
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(ends.size(), request_.kernels_size());
    std::vector<internal::TryOutcome> outcomes;
    for (auto& [kernel, end] : ends) outcomes.push_back(std::move(end));
    outcomes.resize(request_.kernels_size());
    return outcomes;
  }

  // The check of a kernel that should double n floats.
  internal::CheckRequest CheckOf(const std::string& source) {
    internal::CheckRequest check = DoublingCheck(tuner_->Compile(source, target_).value());
    *check.mutable_plan()->mutable_target() = target_;
    return check;
  }

  TunerOptions options_;
  v1::Target target_;
  internal::TryRequest request_;
  std::unique_ptr<TunerProcess> tuner_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_GPU_TUNER_TEST_H_
