#include "clients/cpp/text/plan_view.h"

#include <filesystem>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

v1::SizeExpr Sum(std::vector<std::pair<int64_t, std::vector<std::string>>> terms) {
  v1::SizeExpr size;
  for (auto& [coefficient, symbols] : terms) {
    v1::SizeExpr::Term* term = size.add_terms();
    term->set_coefficient(coefficient);
    for (std::string& symbol : symbols) term->add_factors()->set_symbol(std::move(symbol));
  }
  return size;
}

uint32_t AddBuffer(v1::Buffer::Kind kind, const std::string& name, v1::Plan* plan) {
  v1::Buffer* buffer = plan->add_buffers();
  buffer->set_kind(kind);
  buffer->set_name(name);
  buffer->set_dtype("f32");
  *buffer->add_shape() = Sum({{1, {"b"}}});
  *buffer->add_shape() = Sum({{64, {}}});
  return static_cast<uint32_t>(plan->buffers_size() - 1);
}

void AddStep(uint32_t kernel, const std::string& label, std::vector<uint32_t> buffers,
             v1::Plan* plan) {
  v1::Step* step = plan->add_run();
  step->set_kernel(kernel);
  step->set_label(label);
  for (uint32_t b : buffers) step->add_buffers(b);
}

// x -> h -> a, b(h), y = a + b + x: has edges between neighbours and edges that skip one and three
// boxes.
v1::PlanDetails Diamond() {
  v1::PlanDetails details;
  details.mutable_info()->set_plan_id("p-1");
  details.mutable_info()->set_kind("search");
  v1::Plan* plan = details.mutable_plan();
  for (const char* name : {"contract", "map"}) {
    v1::Kernel* kernel = plan->add_kernels();
    kernel->set_name(name);
    kernel->set_kir(std::string("kernel ") + name);
    kernel->set_source("void f();");
  }
  plan->set_genome("genome");
  const uint32_t x = AddBuffer(v1::Buffer::INPUT, "x", plan);
  const uint32_t w = AddBuffer(v1::Buffer::PREPARED, "", plan);
  const uint32_t h = AddBuffer(v1::Buffer::ARENA, "", plan);
  const uint32_t a = AddBuffer(v1::Buffer::ARENA, "", plan);
  const uint32_t b = AddBuffer(v1::Buffer::ARENA, "", plan);
  const uint32_t y = AddBuffer(v1::Buffer::OUTPUT, "y", plan);
  AddStep(0, "h = x @ w", {h, x, w}, plan);
  AddStep(1, "a <exp>", {a, h}, plan);
  AddStep(1, "b & tanh", {b, h}, plan);
  AddStep(1, "y", {y, a, b, x}, plan);
  v1::PlanOutput* output = plan->add_outputs();
  output->set_name("y");
  output->set_buffer(y);
  v1::PlanCost* cost = details.add_costs();
  cost->set_size("b=8");
  for (double us : {60.0, 20.0, 10.0, 10.0}) {
    v1::StepCost* step = cost->add_steps();
    step->set_seconds(us * 1e-6);
    step->set_roofline_seconds(us * 5e-7);
    step->set_flops(65'536);
    step->set_bytes(1.25e6);
  }
  return details;
}

TEST(PlanView, Sizes) {
  EXPECT_EQ(SizeText({}), "0");
  EXPECT_EQ(SizeText(Sum({{2, {"b", "s"}}, {-1, {"s"}}, {3, {}}})), "2*b*s - s + 3");
  EXPECT_EQ(SizeText(Sum({{-1, {}}})), "-1");
  EXPECT_EQ(SizeText(Sum({{std::numeric_limits<int64_t>::min(), {"b"}}})),
            "-9223372036854775808*b");
  v1::SizeExpr half;
  auto* pair = half.add_terms()->add_factors()->mutable_floor_div();
  half.mutable_terms(0)->set_coefficient(1);
  *pair->mutable_a() = Sum({{1, {"s"}}});
  *pair->mutable_b() = Sum({{2, {}}});
  EXPECT_EQ(SizeText(half), "floor_div(s, 2)");
}

TEST(PlanView, TableOfSteps) {
  const std::vector<std::string> lines = PlanTable(Diamond());
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "Steps at b=8, 100 us in all:");
  EXPECT_EQ(lines[2],
            "     0   60.0 us  60.0 %    1.25 M    65.5 k   30.0 us     50 %  contract: h = x @ w");
  v1::PlanDetails untimed = Diamond();
  for (v1::StepCost& step : *untimed.mutable_costs(0)->mutable_steps()) step.clear_seconds();
  EXPECT_EQ(PlanTable(untimed)[2],
            "     0         -       -    1.25 M    65.5 k   30.0 us        -  contract: h = x @ w");
}

TEST(PlanView, DeviceAndWhatItsKernelsTake) {
  v1::PlanDetails details = Diamond();
  details.set_device("cuda:0");
  EXPECT_THAT(PlanTable(details)[0], HasSubstr("Device cuda:0, whose limits are not known yet"));
  details.mutable_limits()->set_read_bytes_per_second(3.35e12);
  details.mutable_limits()->set_cache_bytes_per_second(6.7e12);
  details.mutable_limits()->set_f32_flops_per_second(66.9e12);
  v1::KernelResources* contract = details.add_resources();
  contract->set_registers(255);
  contract->set_shared_bytes(16'384);
  contract->set_stack_bytes(40);
  contract->set_spill_store_bytes(24);
  contract->set_spill_load_bytes(28);
  details.add_resources();  // its log did not tell
  const std::vector<std::string> lines = PlanTable(details);
  ASSERT_EQ(lines.size(), 11u);
  EXPECT_EQ(lines[0],
            "Device cuda:0: 3.35 TB/s of memory, 6.70 TB/s of its cache, 66.9 Tflop/s in f32");
  EXPECT_EQ(lines[9], "        255   16384      40      24      28  contract");
  EXPECT_EQ(lines[10], "          -       0       0       0       0  map");
  const nlohmann::json all = PlanDetailsJson(details);
  EXPECT_EQ(all["device"], "cuda:0");
  EXPECT_EQ(all["limits"]["f32_flops_per_second"], 66.9e12);
  EXPECT_EQ(all["kernels"][0]["resources"]["spill_store_bytes"], 24);
  EXPECT_EQ(all["kernels"][1]["resources"]["registers"], nullptr);
  EXPECT_EQ(PlanDetailsJson(Diamond())["kernels"][0]["resources"], nullptr);
}

TEST(PlanView, LibraryCallsNameTheirLibrary) {
  v1::PlanDetails details = Diamond();
  v1::Plan& plan = *details.mutable_plan();
  plan.mutable_target()->set_blas("cuBLASLt 13.1.0");
  plan.mutable_kernels(0)->set_library_call(true);
  plan.mutable_run(0)->mutable_library_call();
  EXPECT_THAT(PlanTable(details)[2], HasSubstr("contract by cuBLASLt 13.1.0: h = x @ w"));
  EXPECT_THAT(PlanSvg(details), HasSubstr("0: contract by cuBLASLt 13.1.0, 60.0 us"));
  const nlohmann::json all = PlanDetailsJson(details);
  EXPECT_EQ(all["steps"][0]["kernel"], 0);
  EXPECT_EQ(all["steps"][0]["library"], "cuBLASLt 13.1.0");
  EXPECT_EQ(all["steps"][1]["library"], "");
  const absl::StatusOr<std::vector<std::string>> files = WritePlan(details, ::testing::TempDir());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, Contains(HasSubstr("00_contract.kir")));
  EXPECT_THAT(*files, Not(Contains(HasSubstr("00_contract.cc"))));
  EXPECT_THAT(*files, Contains(HasSubstr("01_map.cc")));
}

std::vector<std::vector<int>> Matches(const std::string& text, const char* pattern) {
  std::vector<std::vector<int>> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    std::vector<int>& groups = found.emplace_back();
    for (size_t g = 1; g < it->size(); ++g) groups.push_back(std::stoi((*it)[g].str()));
  }
  return found;
}

TEST(PlanView, PictureHasNoOverlap) {
  const std::string svg = PlanSvg(Diamond());
  // Matches x, y, width and height of the boxes, from top to bottom.
  const auto boxes =
      Matches(svg, R"re(<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx)re");
  ASSERT_EQ(boxes.size(), 6u);
  for (size_t b = 1; b < boxes.size(); ++b) {
    EXPECT_GT(boxes[b][1], boxes[b - 1][1] + boxes[b - 1][3]);
  }
  // The edges inputs-h, h-a and a-b run between neighbours; h-b and a-y skip one box, x-y skips
  // three.
  const auto lanes = Matches(svg, R"re(<path d="M(\d+) (\d+) H(\d+) V(\d+) H)re");
  ASSERT_EQ(lanes.size(), 3u);
  for (size_t i = 0; i < lanes.size(); ++i) {
    EXPECT_GT(lanes[i][2], boxes[0][0] + boxes[0][2]) << "beside the boxes";
    for (size_t j = 0; j < i; ++j) {
      const bool apart =
          lanes[i][2] != lanes[j][2] || lanes[i][1] > lanes[j][3] || lanes[j][1] > lanes[i][3];
      EXPECT_TRUE(apart) << i << " and " << j << " share a lane";
    }
  }
  EXPECT_THAT(svg, HasSubstr("a &lt;exp&gt;"));
  EXPECT_THAT(svg, HasSubstr("b &amp; tanh"));
  EXPECT_THAT(svg, HasSubstr("0: contract, 60.0 us, 60.0 %"));
  EXPECT_THAT(svg, HasSubstr("x f32[b, 64]"));
}

TEST(PlanView, WhatAServerMaySendIsDrawn) {
  v1::PlanDetails details = Diamond();
  details.mutable_plan()->mutable_run(1)->set_kernel(99);
  details.mutable_plan()->mutable_run(2)->set_buffers(1, 99);
  details.mutable_plan()->mutable_run(3)->set_label(std::string(500, 'x') + "\xc3\xa4\n");
  details.mutable_costs(0)->mutable_steps()->RemoveLast();
  EXPECT_THAT(PlanSvg(details), HasSubstr("1: ?"));
  EXPECT_EQ(PlanTable(details).size(), 5u);
  EXPECT_THAT(PlanSvg(v1::PlanDetails()), HasSubstr("outputs"));
  EXPECT_TRUE(PlanTable(v1::PlanDetails()).empty());
}

TEST(PlanView, Files) {
  const std::string directory = testing::TempDir() + "/plan/view";
  const absl::StatusOr<std::vector<std::string>> names = WritePlan(Diamond(), directory);
  ASSERT_TRUE(names.ok()) << names.status();
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    found.insert(entry.path().filename().string());
    EXPECT_GT(entry.file_size(), 0u) << entry.path();
  }
  EXPECT_EQ(found, (std::set<std::string>{"00_contract.cc", "00_contract.kir", "01_map.cc",
                                          "01_map.kir", "genome.txt", "plan.json", "plan.svg"}));
  EXPECT_EQ(names->size(), found.size());
  EXPECT_FALSE(WritePlan(Diamond(), "/proc/none").ok());
}

// x -> [h -> a, b(h)] -> y: one loop inside another.
TEST(PlanView, LoopsAreMarked) {
  v1::PlanDetails details = Diamond();
  v1::Loop* outer = details.mutable_plan()->add_loops();
  outer->set_first(1);
  outer->set_steps(2);
  *outer->mutable_count() = Sum({{1, {"s"}}});
  v1::Loop* inner = details.mutable_plan()->add_loops();
  inner->set_first(2);
  inner->set_steps(1);
  *inner->mutable_count() = Sum({{4, {}}});
  const std::vector<std::string> lines = PlanTable(details);
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[2].substr(65), "contract: h = x @ w");
  EXPECT_EQ(lines[3], std::string(65, ' ') + "loop of s turns: steps 1 to 2");
  EXPECT_EQ(lines[4].substr(65), "  map: a <exp>");
  EXPECT_EQ(lines[5], std::string(65, ' ') + "  loop of 4 turns: step 2");
  EXPECT_EQ(lines[6].substr(65), "    map: b & tanh");
  EXPECT_EQ(lines[7].substr(65), "map: y");
  const std::string svg = PlanSvg(details);
  EXPECT_THAT(svg, HasSubstr("<title>loop of s turns</title>"));
  EXPECT_THAT(svg, HasSubstr("4 turns</text>"));
  // Matches x, y, width and height of frames and boxes; each frame must surround its own boxes.
  const auto frames =
      Matches(svg, R"re(<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx="8")re");
  const auto boxes =
      Matches(svg, R"re(<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx="5")re");
  ASSERT_EQ(frames.size(), 2u);
  ASSERT_EQ(boxes.size(), 6u);
  const auto around = [](const std::vector<int>& a, const std::vector<int>& b) {
    return a[0] < b[0] && a[1] < b[1] && a[0] + a[2] > b[0] + b[2] && a[1] + a[3] > b[1] + b[3];
  };
  EXPECT_TRUE(around(frames[0], frames[1]));
  for (int b : {2, 3}) EXPECT_TRUE(around(frames[0], boxes[b])) << b;
  for (int b : {1, 4}) EXPECT_FALSE(around(frames[0], boxes[b])) << b;
  EXPECT_TRUE(around(frames[1], boxes[3]));
  EXPECT_FALSE(around(frames[1], boxes[2]));
  EXPECT_EQ(PlanDetailsJson(details)["loops"][0]["count"], "s");
}

}  // namespace
}  // namespace athanor::client
