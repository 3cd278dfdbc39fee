// One plan for people: a table of its steps with what each costs, a picture, and files of
// everything it was made of.
//
//   for (const std::string& line : PlanTable(details)) out.Line(line);
//   WritePlan(details, "plan/");     // genome, KIR and source of each kernel, plan.svg, plan.json
#ifndef ATHANOR_CLIENTS_CPP_PLAN_VIEW_H_
#define ATHANOR_CLIENTS_CPP_PLAN_VIEW_H_

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

// Per size: each step of a run with kernel, time, share of the whole, bytes, operations, and how
// much of the machine's limit it reaches. Columns of what was not measured hold "-". A loop has a
// line before its steps, which are indented.
std::vector<std::string> PlanTable(const v1::PlanDetails& details);
nlohmann::json PlanDetailsJson(const v1::PlanDetails& details);

// The plan as a picture (plan_svg.cc): steps as boxes from top to bottom with their share of the
// time at the last size, buffers as edges from the step that writes to those that read.
std::string PlanSvg(const v1::PlanDetails& details);

// Writes plan.svg, plan.json, genome.txt, and per kernel NN_name.kir and NN_name.cc into
// `directory`, which is made if need be. The names of the files.
absl::StatusOr<std::vector<std::string>> WritePlan(const v1::PlanDetails& details,
                                                   const std::string& directory);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_PLAN_VIEW_H_
