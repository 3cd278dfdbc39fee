// Converts plans and ended searches to rows, and to the records of bundles. For the files of this
// folder.
//
//   CacheRow row = PlanCacheRow(key.Fields(), plan);        // to be written to the file
//   *record.mutable_plan() = CachedPlanOf(view).value();    // read, to be sent to another machine
#ifndef ATHANOR_COMPILER_CACHE_PLAN_RECORDS_H_
#define ATHANOR_COMPILER_CACHE_PLAN_RECORDS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/keys.h"
#include "compiler/cache/rows.h"
#include "proto/athanor/v1/cache.pb.h"

namespace athanor {

// Convert a key's columns to a message with fields of their names, and back.
v1::CachedPlanKey KeyMessageOf(const KeyFields& fields);
KeyFields PlanFieldsOf(const v1::CachedPlanKey& key);

CacheRow PlanCacheRow(const KeyFields& fields, const PlanRow& plan);
CacheRow PlanCacheRow(const v1::CachedPlan& record);
// `options`: the hash of the options.
CacheRow SearchCacheRow(const KeyFields& fields, absl::string_view options,
                        const SearchState& state);
CacheRow SearchCacheRow(const v1::EndedSearch& record);

// Returns nullopt if the row's body is no plan.
std::optional<v1::CachedPlan> CachedPlanOf(const RowView& row);
v1::EndedSearch EndedSearchOf(const RowView& row, const PlanKey& key);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_PLAN_RECORDS_H_
