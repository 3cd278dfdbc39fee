// Shows a plan to people: a table of its steps with their costs, a drawing, and files with
// everything it is made of.
//
//   for (const std::string& line : PlanTable(details)) out.Line(line);
//   WritePlan(details, "plan/");     // genome, KIR and source of each kernel, plan.svg, plan.json
#ifndef ATHANOR_CLIENTS_CPP_TEXT_PLAN_VIEW_H_
#define ATHANOR_CLIENTS_CPP_TEXT_PLAN_VIEW_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "proto/athanor/v1/model.pb.h"

namespace athanor::client {

// "2*b*s + 1"
std::string SizeText(const v1::SizeExpr& size);
// "f32[b, 64]"
std::string BufferText(const v1::Buffer& buffer);
// "contract_gelu"; of a library call "contract by cuBLASLt 13.1.0"
std::string KernelName(const v1::Plan& plan, const v1::Step& step);

// Returns one table per size. A row is a step of the run: kernel, time, share of the total, bytes,
// operations, the least time that the device's limits allow, and how close it comes to that. "-"
// stands for what was not measured. A line before each loop names it; its steps are indented. A
// GPU's kernels follow, with what each takes.
std::vector<std::string> PlanTable(const v1::PlanDetails& details);
nlohmann::json PlanDetailsJson(const v1::PlanDetails& details);

// Draws the plan (plan_svg.cc): steps as boxes from top to bottom, with their share of the time at
// the last size; buffers as edges from the step that writes them to those that read them.
std::string PlanSvg(const v1::PlanDetails& details);

// Writes plan.svg, plan.json, genome.txt, and per kernel NN_name.kir and, unless it is a library
// call, NN_name.cc into `directory`, which is created if needed. Returns the names of the files.
absl::StatusOr<std::vector<std::string>> WritePlan(const v1::PlanDetails& details,
                                                   const std::string& directory);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_PLAN_VIEW_H_
