#include "compiler/plan/plan_verify.h"

#include <string>

#include "compiler/plan/plan_text.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// x [b, 4] → arena 2 → arena 3 → output 4, with a weight prepared.
constexpr char kPlan[] = R"pb(
  format: 1
  plan_id: "p-1"
  kind: "baseline"
  arena_bytes: 384
  dims { name: "b" min: 1 max: 8 }
  kernels { name: "pack" }
  kernels { name: "mul" }
  buffers {
    kind: INPUT
    dtype: "f32"
    name: "x"
    shape {
      terms {
        coefficient: 1
        factors { symbol: "b" }
      }
    }
    shape { terms { coefficient: 4 } }
    bytes {
      terms {
        coefficient: 16
        factors { symbol: "b" }
      }
    }
  }
  buffers {
    kind: PARAMETER
    dtype: "f32"
    name: "w"
    shape { terms { coefficient: 4 } }
    bytes { terms { coefficient: 16 } }
  }
  buffers {
    kind: ARENA
    dtype: "f32"
    shape {
      terms {
        coefficient: 4
        factors { symbol: "b" }
      }
    }
    bytes {
      terms {
        coefficient: 16
        factors { symbol: "b" }
      }
    }
  }
  buffers {
    kind: ARENA
    arena_offset: 256
    dtype: "f32"
    shape {
      terms {
        coefficient: 4
        factors { symbol: "b" }
      }
    }
    bytes {
      terms {
        coefficient: 16
        factors { symbol: "b" }
      }
    }
  }
  buffers {
    kind: OUTPUT
    dtype: "f32"
    name: "y"
    shape {
      terms {
        coefficient: 4
        factors { symbol: "b" }
      }
    }
    bytes {
      terms {
        coefficient: 16
        factors { symbol: "b" }
      }
    }
  }
  buffers {
    kind: PREPARED
    dtype: "f32"
    shape { terms { coefficient: 4 } }
    bytes { terms { coefficient: 16 } }
  }
  prepare {
    kernel: 0
    buffers: [ 5, 1 ]
    grid { terms { coefficient: 1 } }
  }
  run {
    kernel: 1
    buffers: [ 2, 0, 5 ]
    grid {
      terms {
        coefficient: 1
        factors { symbol: "b" }
      }
    }
    label: "first"
  }
  run {
    kernel: 1
    buffers: [ 3, 2 ]
    grid { terms { coefficient: 1 } }
  }
  run {
    kernel: 1
    buffers: [ 4, 3 ]
    grid { terms { coefficient: 1 } }
  }
  outputs { name: "y" buffer: 4 }
)pb";

v1::Plan Good() {
  v1::Plan plan;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kPlan, &plan));
  return plan;
}

void ExpectBroken(const v1::Plan& plan, const std::string& says) {
  absl::Status s = VerifyPlan(plan);
  EXPECT_EQ(s.code(), absl::StatusCode::kInternal) << says;
  EXPECT_NE(std::string(s.message()).find(says), std::string::npos) << s << "\nnot: " << says;
}

template <typename Change>
void ExpectBrokenBy(Change change, const std::string& says) {
  v1::Plan plan = Good();
  change(plan);
  ExpectBroken(plan, says);
}

TEST(PlanVerifyTest, AGoodPlan) { EXPECT_TRUE(VerifyPlan(Good()).ok()) << VerifyPlan(Good()); }

// Step 1 of the plan, arena 2 → arena 3, as a library's product by the weight, with a workspace.
v1::Plan WithCall() {
  v1::Plan plan = Good();
  plan.set_format(3);
  plan.set_arena_bytes(640);
  v1::Buffer* workspace = plan.add_buffers();
  *workspace = plan.buffers(2);
  workspace->set_arena_offset(512);
  v1::Step* step = plan.mutable_run(1);
  step->set_kernel(2);
  v1::Kernel* kernel = plan.add_kernels();
  kernel->set_name("product");
  kernel->set_library_call(true);
  kernel->set_launch_buffers(1);
  step->add_buffers(5);
  step->add_buffers(6);
  v1::LibraryCall* call = step->mutable_library_call();
  call->mutable_rows()->add_terms()->set_coefficient(4);
  call->set_columns(8);
  call->set_sums(2);
  call->set_batch(1);
  call->add_ways()->set_rows(2);
  v1::LibraryCall::Way* way = call->add_ways();
  way->set_rows(4);
  way->set_workspace_bytes(16);
  return plan;
}

TEST(PlanVerifyTest, LibraryCalls) {
  EXPECT_TRUE(VerifyPlan(WithCall()).ok()) << VerifyPlan(WithCall());
  const auto broken = [](auto change, const std::string& says) {
    v1::Plan plan = WithCall();
    change(plan, *plan.mutable_run(1));
    ExpectBroken(plan, says);
  };
  broken([](v1::Plan& p, v1::Step&) { p.set_format(1); },
         "format 1; this code knows format 3 of plans with library calls");
  broken([](v1::Plan&, v1::Step& s) { s.mutable_library_call()->set_bias(true); },
         "calls a library with 4 buffers, 1 of the launch; they must be 5 and 1");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_kernels(2)->clear_launch_buffers(); },
         "calls a library with 4 buffers, 0 of the launch; they must be 4 and 1");
  broken(
      [](v1::Plan&, v1::Step& s) {
        s.mutable_library_call()->mutable_rows()->mutable_terms(0)->add_factors()->set_symbol("z");
      },
      "rows uses \"z\", which is not a dim of the plan");
  broken([](v1::Plan&, v1::Step& s) { s.set_scratch_bytes(64); }, "and has sizes or scratch");
  broken(
      [](v1::Plan& p, v1::Step&) {
        p.set_format(5);
        p.mutable_buffers(2)->set_kind(v1::Buffer::STATE);
        p.mutable_buffers(2)->set_name("kv");
      },
      "calls a library with buffer 2 (STATE \"kv\"), whose layout it does not know");
  broken([](v1::Plan&, v1::Step& s) { s.add_sizes(); }, "and has sizes or scratch");
  broken([](v1::Plan&, v1::Step& s) { s.set_kernel(3); }, "runs kernel 3 of 3");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_kernels(2)->clear_library_call(); },
         "calls a library by kernel 2, which is none of its calls");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_run(2)->set_kernel(2); },
         "runs kernel 2, a library's call");
  broken([](v1::Plan& p, v1::Step& s) { *p.add_prepare() = s; }, "may not read buffer 2");
  broken([](v1::Plan&, v1::Step& s) { s.set_buffers(3, 3); }, "and a second time");
  broken([](v1::Plan&, v1::Step& s) { s.set_buffers(3, 0); }, "which is in the ARENA");
  broken(
      [](v1::Plan& p, v1::Step&) {
        p.set_arena_bytes(704);
        p.mutable_buffers(6)->set_arena_offset(576);
      },
      "which is not aligned to 256");
  // A kernel may write over what it reads last, a library may not; nor may its workspace lie there.
  broken([](v1::Plan& p, v1::Step&) { p.mutable_buffers(3)->set_arena_offset(0); }, "overlaps");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_buffers(6)->set_arena_offset(0); }, "overlaps");
  // The call overwrites what the workspace held.
  broken([](v1::Plan& p, v1::Step&) { p.mutable_run(2)->set_buffers(1, 6); },
         "reads buffer 6 (ARENA), which nothing has written yet");
}

// Step 1 of the plan writes a state, buffer 3, which step 2 reads.
v1::Plan WithState() {
  v1::Plan plan = Good();
  plan.set_format(5);
  plan.set_signature("s1");
  v1::Buffer* state = plan.mutable_buffers(3);
  state->set_kind(v1::Buffer::STATE);
  state->clear_arena_offset();
  state->set_name("kv");
  state->set_layout("keys");
  return plan;
}

TEST(PlanVerifyTest, States) {
  EXPECT_TRUE(VerifyPlan(WithState()).ok()) << VerifyPlan(WithState());
  const auto broken = [](auto change, const std::string& says) {
    v1::Plan plan = WithState();
    change(plan);
    ExpectBroken(plan, says);
  };
  broken([](v1::Plan& p) { p.set_format(1); },
         "format 1; this code knows format 5 of plans with states");
  broken([](v1::Plan& p) { p.mutable_buffers(3)->clear_name(); }, "has no name, or that of");
  broken([](v1::Plan& p) { *p.add_buffers() = p.buffers(3); }, "has no name, or that of another");
  broken([](v1::Plan& p) { p.mutable_buffers(2)->set_layout("keys"); },
         "buffer 2 (ARENA) has layout \"keys\"; only a STATE has one");
  // Written twice, by `prepare`, and behind a reader.
  broken([](v1::Plan& p) { *p.add_run() = p.run(1); },
         "writes buffer 3 (STATE \"kv\") a second time");
  broken([](v1::Plan& p) { p.mutable_prepare(0)->set_buffers(0, 3); },
         "may not write buffer 3 (STATE \"kv\"): only run does");
  broken([](v1::Plan& p) { p.mutable_prepare(0)->set_buffers(1, 3); },
         "may not read buffer 3 (STATE \"kv\"): it belongs to a request");
  broken([](v1::Plan& p) { p.mutable_run(0)->add_buffers(3); },
         "writes buffer 3 (STATE \"kv\"), which a step read before");
  broken([](v1::Plan& p) { p.mutable_run(1)->add_buffers(3); },
         "writes buffer 3 (STATE \"kv\"), which a step read before");
  broken([](v1::Plan& p) { p.mutable_outputs(0)->set_buffer(3); },
         "output \"y\" is buffer 3 (STATE \"kv\"), which is not copied");
  broken(
      [](v1::Plan& p) {
        v1::Loop* loop = p.add_loops();
        loop->set_first(1);
        loop->set_steps(1);
        loop->mutable_count()->add_terms()->set_coefficient(2);
      },
      "writes buffer 3 (STATE \"kv\") in each turn of loop 0");
  // A state that no step writes is there all the same.
  v1::Plan plan = WithState();
  plan.mutable_run(1)->set_buffers(0, 4);
  plan.mutable_run()->RemoveLast();
  plan.mutable_run(1)->add_buffers(3);
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan);
  ExpectBrokenBy([](v1::Plan& p) { p.set_signature("s1"); }, "of a plan without states");
}

// Step 1 of the plan by a kernel of code with memory of the launch.
v1::Plan WithMemoryOfALaunch() {
  v1::Plan plan = WithCall();
  plan.set_format(1);
  plan.mutable_kernels(2)->clear_library_call();
  plan.mutable_run(1)->clear_library_call();
  return plan;
}

TEST(PlanVerifyTest, MemoryOfALaunch) {
  EXPECT_TRUE(VerifyPlan(WithMemoryOfALaunch()).ok()) << VerifyPlan(WithMemoryOfALaunch());
  const auto broken = [](auto change, const std::string& says) {
    v1::Plan plan = WithMemoryOfALaunch();
    change(plan, *plan.mutable_run(1));
    ExpectBroken(plan, says);
  };
  broken([](v1::Plan& p, v1::Step&) { p.mutable_kernels(2)->clear_launch_buffers(); },
         "reads buffer 6 (ARENA), which nothing has written yet");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_kernels(2)->set_launch_buffers(4); },
         "has 4 buffers, of which 4 are memory of the launch");
  broken([](v1::Plan&, v1::Step& s) { s.set_buffers(3, 4); },
         "has buffer 4 (OUTPUT \"y\") as memory of the launch, which is in the ARENA");
  broken([](v1::Plan&, v1::Step& s) { s.set_buffers(1, 6); },
         "has buffer 6 (ARENA) as memory of the launch, and a second time");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_buffers(6)->set_arena_offset(256); }, "overlaps");
  broken([](v1::Plan& p, v1::Step&) { p.mutable_run(2)->set_buffers(1, 6); },
         "reads buffer 6 (ARENA), which nothing has written yet");
  // Another step may have it as such again.
  v1::Plan plan = WithMemoryOfALaunch();
  plan.mutable_run(2)->set_kernel(2);
  plan.mutable_run(2)->add_buffers(6);
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan);
}

// A result lies over an operand that dies, but not over memory that its own launch uses.
TEST(PlanVerifyTest, NoResultReplacesMemoryOfItsLaunch) {
  v1::Plan plan = WithMemoryOfALaunch();
  plan.mutable_run(1)->set_buffers(0, 6);
  plan.mutable_run(1)->set_buffers(3, 3);
  plan.mutable_run(2)->set_buffers(1, 6);
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan);
  plan.mutable_buffers(6)->set_arena_offset(plan.buffers(3).arena_offset());
  ExpectBroken(plan, "overlaps");
}

// The same with counters beside that memory.
v1::Plan WithCounters() {
  v1::Plan plan = WithMemoryOfALaunch();
  plan.set_format(4);
  plan.set_arena_bytes(704);
  v1::Buffer* counters = plan.add_buffers();
  counters->set_kind(v1::Buffer::ARENA);
  counters->set_dtype("u32");
  counters->set_arena_offset(640);
  counters->set_zeroed(true);
  counters->add_shape()->add_terms()->set_coefficient(2);
  counters->mutable_bytes()->add_terms()->set_coefficient(8);
  plan.mutable_kernels(2)->set_launch_buffers(2);
  plan.mutable_run(1)->add_buffers(7);
  return plan;
}

TEST(PlanVerifyTest, CountersOfALaunch) {
  EXPECT_TRUE(VerifyPlan(WithCounters()).ok()) << VerifyPlan(WithCounters());
  EXPECT_NE(PlanToText(WithCounters()).find("b7 zeroed arena@640 u32[2]"), std::string::npos)
      << PlanToText(WithCounters());
  const auto broken = [](auto change, const std::string& says) {
    v1::Plan plan = WithCounters();
    change(plan);
    ExpectBroken(plan, says);
  };
  broken([](v1::Plan& p) { p.set_format(1); },
         "format 1; this code knows format 4 of plans with zeroed buffers");
  broken([](v1::Plan& p) { p.mutable_buffers(4)->set_zeroed(true); }, "is zeroed; only memory");
  // Nothing may lie over them, whether it dies before their launch, is alive in it or born later.
  v1::Plan apart = WithCounters();
  apart.mutable_run(1)->set_buffers(1, 5);  // reads no more what step 0 wrote
  apart.mutable_buffers(4)->set_kind(v1::Buffer::ARENA);
  apart.mutable_buffers(4)->clear_name();
  EXPECT_TRUE(VerifyPlan(apart).ok()) << VerifyPlan(apart);
  for (const int other : {2, 3, 4, 6}) {
    v1::Plan over = apart;
    over.set_arena_bytes(2048);
    over.mutable_buffers(7)->set_arena_offset(1024);
    over.mutable_buffers(other)->set_arena_offset(1024);
    ExpectBroken(over, "overlaps");
  }
  broken(
      [](v1::Plan& p) { p.mutable_run(1)->set_buffers(0, 7), p.mutable_run(1)->set_buffers(4, 3); },
      "run step 1 () may not write buffer 7 (ARENA), counters");
  broken([](v1::Plan& p) { p.mutable_run(2)->set_buffers(1, 7); }, "reads buffer 7 (ARENA)");
  broken([](v1::Plan& p) { p.mutable_outputs(0)->set_buffer(7); }, "which nothing writes");
  broken(
      [](v1::Plan& p) {
        *p.add_prepare() = p.run(1), p.mutable_prepare(1)->clear_buffers();
        for (uint32_t b : {1, 1, 1, 6, 7}) p.mutable_prepare(1)->add_buffers(b);
      },
      "may not write");
  broken(
      [](v1::Plan& p) {
        p.mutable_run(2)->set_kernel(2);
        p.mutable_run(2)->add_buffers(6);
        p.mutable_run(2)->add_buffers(7);
      },
      "run step 2 () has the counters buffer 7 (ARENA) of an earlier step");
}

TEST(PlanVerifyTest, TextOfALibraryCall) {
  const std::string text = PlanToText(WithCall());
  EXPECT_NE(
      text.find("run 1: product (kernel 2, library call 4 x 8 x 2, 2 rows workspace 0, 4 rows "
                "workspace 16)(b3 arena@256"),
      std::string::npos)
      << text;
}

TEST(PlanVerifyTest, IndicesAndSizes) {
  ExpectBrokenBy([](v1::Plan& p) { p.set_format(2); }, "format 2");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run(0)->set_kernel(7); },
                 "run step 0 (first) runs kernel 7 of 2");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run(0)->set_buffers(1, 9); }, "names buffer 9 of 6");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_outputs(0)->set_buffer(9); },
                 "output \"y\" is buffer 9 of 6");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run(0)->clear_buffers(); }, "no buffer to write");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_dims(0)->set_name("c"); },
                 "uses \"b\", which is not a dim");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_dims(0)->set_min(9); }, "range [9, 8]");
  ExpectBrokenBy([](v1::Plan& p) { *p.add_dims() = p.dims(0); }, "twice");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_buffers(1)->set_dtype("f64"); }, "its shape needs 32");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_buffers(1)->set_dtype("float"); },
                 "no dtype: \"float\"");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run(1)->set_scratch_bytes(10); },
                 "10 bytes of scratch");
  ExpectBrokenBy(
      [](v1::Plan& p) {
        p.mutable_buffers(1)->set_kind(v1::Buffer::CONSTANT);
        p.mutable_buffers(1)->set_literal("four");
      },
      "holds 4 bytes, not 16");
}

TEST(PlanVerifyTest, Order) {
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run()->SwapElements(0, 1); },
                 "nothing has written yet");
  ExpectBrokenBy([](v1::Plan& p) { p.clear_prepare(); },
                 "reads buffer 5 (PREPARED), which nothing");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run()->RemoveLast(); }, "which nothing writes");
  ExpectBrokenBy([](v1::Plan& p) { *p.add_run() = p.run(2); }, "a second time");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_prepare(0)->set_buffers(1, 0); },
                 "belongs to a request");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_prepare(0)->set_buffers(0, 2); },
                 "may not write buffer 2");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_run(0)->set_buffers(0, 0); },
                 "may not write buffer 0 (INPUT \"x\")");
}

TEST(PlanVerifyTest, Arena) {
  ExpectBrokenBy([](v1::Plan& p) { p.set_arena_bytes(383); }, "not inside the arena of 383");
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_buffers(3)->set_arena_offset(100); },
                 "not aligned to 64");
  // Shifted by less than its size they overlap; exactly over each other is fine, since buffer 2
  // dies where buffer 3 is born.
  ExpectBrokenBy([](v1::Plan& p) { p.mutable_buffers(3)->set_arena_offset(64); },
                 "both alive in run step 1");
  v1::Plan over = Good();
  over.mutable_buffers(3)->set_arena_offset(0);
  EXPECT_TRUE(VerifyPlan(over).ok()) << VerifyPlan(over);
  over.mutable_run(2)->add_buffers(2);  // does not die any more
  ExpectBroken(over, "both alive in run step 1");
  // A value that is copied out lives to the end.
  v1::Plan copied = Good();
  copied.mutable_buffers(3)->set_arena_offset(0);
  copied.add_outputs()->set_buffer(2);
  ExpectBroken(copied, "both alive in run step 1");
}

TEST(PlanTextTest, OneLinePerStep) {
  EXPECT_EQ(
      PlanToText(Good()),
      "plan p-1 baseline for  , 0 threads; arena 384 bytes\n"
      "dim b in [1, 8]\n"
      "prepare 0: pack (kernel 0)(b5 prepared f32[4] <- b1 parameter \"w\" f32[4]) grid 1 flops 0 "
      "bytes 0\n"
      "run 0: mul (kernel 1)(b2 arena@0 f32[4*b] <- b0 input \"x\" f32[b, 4], b5 prepared f32[4]) "
      "grid b "
      "flops 0 bytes 0 # first\n"
      "run 1: mul (kernel 1)(b3 arena@256 f32[4*b] <- b2 arena@0 f32[4*b]) grid 1 flops 0 bytes 0\n"
      "run 2: mul (kernel 1)(b4 output \"y\" f32[4*b] <- b3 arena@256 f32[4*b]) grid 1 flops 0 "
      "bytes 0\n"
      "output \"y\" = b4 output \"y\" f32[4*b]\n");
  v1::Plan broken = Good();
  broken.mutable_run(0)->set_kernel(9);
  broken.mutable_run(0)->set_buffers(1, 77);
  EXPECT_NE(PlanToText(broken).find("b77 ?"), std::string::npos);
}

}  // namespace
}  // namespace athanor
