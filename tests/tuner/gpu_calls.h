// A plan whose one kernel is a call of the emulated GPU's library.
#ifndef ATHANOR_TESTS_TUNER_GPU_CALLS_H_
#define ATHANOR_TESTS_TUNER_GPU_CALLS_H_

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/plan.pb.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {

// Sets the library that processes find from now on, by its folder among the emulator's.
inline void UseCublaslt(const std::string& folder) {
  setenv("ATHANOR_CUBLASLT", std::filesystem::absolute("tests/emulator/" + folder).c_str(), 1);
}

// The plan's rows are n.
inline constexpr char kCallGraph[] = R"(graph "product" { dim n in [1, 16]
  %0 = Input "x" : f32[n, 8] %1 = Input "w" : f32[8, 8]
  %2 = Contract(%0, %1) {spec="nk,km->nm"} output "y" = %2 })";

// Returns a product of 8 columns, of up to 16 rows. Without workspace the library knows two ways to
// compute it; with 4 MiB, four.
inline std::string CallText(int proposal, int64_t workspace = 0) {
  return absl::StrCat(
      "kernel(s0) grid 1\nb0: f32 out\nb1: f32 in\nb2: f32 in\n",
      workspace > 0 ? absl::StrCat("b3: u8 launch ", workspace, "\n") : "",
      "call b0[0] stride 8 = b1[0] stride 8 * b2[0] stride 8: f32 rows s0 columns 8 "
      "sums 8 batch 1 ways 4 16 proposal ",
      proposal, "\n");
}

// Returns the plan, without a target, of such a call.
inline v1::Plan CallPlan(const std::string& text, int64_t workspace) {
  v1::Plan plan;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(format: 3 plan_id: "p-0000000000000000" dims { name: "n" min: 1 max: 16 }
         kernels { name: "product" library_call: true }
         buffers { kind: INPUT name: "x" dtype: "f32" }
         buffers { kind: INPUT name: "w" dtype: "f32" }
         buffers { kind: OUTPUT name: "y" dtype: "f32" }
         run { buffers: 2 buffers: 0 buffers: 1 label: "product" grid { terms { coefficient: 1 } }
               library_call {
                 rows { terms { coefficient: 1 factors { symbol: "n" } } }
                 columns: 8 sums: 8 batch: 1
                 left { stride: 8 } right { stride: 8 } result { stride: 8 }
                 ways { rows: 4 } ways { rows: 16 } } }
         outputs { name: "y" buffer: 2 })",
      &plan));
  plan.mutable_kernels(0)->set_source(text);
  for (v1::Buffer& buffer : *plan.mutable_buffers()) {
    const bool square = buffer.name() == "w";
    *buffer.add_shape() = square ? Scaled(8, "") : Scaled(1, "n");
    *buffer.add_shape() = Scaled(8, "");
    *buffer.mutable_bytes() = square ? Scaled(256, "") : Scaled(32, "n");
  }
  if (workspace == 0) return plan;
  v1::Buffer* const own = plan.add_buffers();
  own->set_kind(v1::Buffer::ARENA);
  own->set_dtype("u8");
  *own->add_shape() = Scaled(workspace, "");
  *own->mutable_bytes() = Scaled(workspace, "");
  plan.set_arena_bytes(workspace);
  plan.mutable_kernels(0)->set_launch_buffers(1);
  plan.mutable_run(0)->add_buffers(3);
  for (auto& way : *plan.mutable_run(0)->mutable_library_call()->mutable_ways()) {
    way.set_workspace_bytes(workspace);
  }
  return plan;
}

}  // namespace athanor

#endif  // ATHANOR_TESTS_TUNER_GPU_CALLS_H_
