#include "compiler/cache/plan_records.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace athanor {
namespace {

using google::protobuf::FieldDescriptor;

const FieldDescriptor& FieldOf(const v1::CachedPlanKey& key, absl::string_view column) {
  // plan_records_test checks that all columns have a field
  return *key.GetDescriptor()->FindFieldByName(std::string(column));
}

std::string JoinedKeys(const internal::StoredPlan& stored) {
  std::string keys;
  for (const std::string& key : stored.kernel_keys()) keys += key;
  return keys;
}

}  // namespace

v1::CachedPlanKey KeyMessageOf(const KeyFields& fields) {
  v1::CachedPlanKey key;
  for (const KeyField& field : fields) {
    const FieldDescriptor& to = FieldOf(key, field.column);
    int64_t number = 0;
    if (to.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      key.GetReflection()->SetString(&key, &to, field.value);
    } else if (absl::SimpleAtoi(field.value, &number)) {
      key.GetReflection()->SetInt64(&key, &to, number);
    }
  }
  return key;
}

KeyFields PlanFieldsOf(const v1::CachedPlanKey& key) {
  KeyFields fields = PlanKey().Fields();
  for (KeyField& field : fields) {
    const FieldDescriptor& from = FieldOf(key, field.column);
    field.value = from.cpp_type() == FieldDescriptor::CPPTYPE_STRING
                      ? key.GetReflection()->GetString(key, &from)
                      : absl::StrCat(key.GetReflection()->GetInt64(key, &from));
  }
  return fields;
}

CacheRow PlanCacheRow(const KeyFields& fields, const PlanRow& plan) {
  CacheRow out{.tier = Tier::kPlans, .key = GateHash(fields), .incumbent = plan.incumbent};
  out.values = ValuesOf(Tier::kPlans, fields,
                        {{"key", Bytes{out.key}},
                         {"conditions", Bytes{ConditionHash(fields)}},
                         {"plan_id", plan.stored.plan().plan_id()},
                         {"kind", plan.stored.plan().kind()},
                         {"share_of_baseline", plan.share_of_baseline},
                         {"low", plan.low},
                         {"high", plan.high},
                         {"compared_with", plan.compared_with},
                         {"kernel_keys", Bytes{JoinedKeys(plan.stored)}},
                         {"body", Bytes{plan.stored.SerializeAsString()}}});
  return out;
}

CacheRow PlanCacheRow(const v1::CachedPlan& record) {
  PlanRow plan;
  *plan.stored.mutable_plan() = record.plan();
  *plan.stored.mutable_kernel_keys() = record.kernel_keys();
  if (record.has_how()) *plan.stored.mutable_how() = record.how();
  *plan.stored.mutable_costs() = record.costs();
  plan.incumbent = record.incumbent();
  plan.share_of_baseline = record.share_of_baseline();
  plan.low = record.low();
  plan.high = record.high();
  plan.compared_with = record.compared_with();
  return PlanCacheRow(PlanFieldsOf(record.key()), plan);
}

CacheRow SearchCacheRow(const KeyFields& fields, absl::string_view options,
                        const SearchState& state) {
  const std::string hash = GateHash(fields), conditions = ConditionHash(fields);
  CacheRow out{.tier = Tier::kSearches, .key = absl::StrCat(hash, conditions, options)};
  out.values = ValuesOf(Tier::kSearches, {},
                        {{"key", Bytes{hash}},
                         {"conditions", Bytes{conditions}},
                         {"options", Bytes{std::string(options)}},
                         {"stop", int64_t{state.stop}},
                         {"seconds", state.seconds},
                         {"candidates", state.candidates}});
  out.value = state;
  return out;
}

CacheRow SearchCacheRow(const v1::EndedSearch& record) {
  return SearchCacheRow(PlanFieldsOf(record.key()), record.options(),
                        {record.stop(), record.seconds(), record.candidates()});
}

std::optional<v1::CachedPlan> CachedPlanOf(const RowView& row) {
  internal::StoredPlan stored;
  const absl::string_view body = row.Text("body");
  if (!stored.ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
  v1::CachedPlan plan;
  *plan.mutable_key() = KeyMessageOf(row.Fields(PlanKey().Fields()));
  plan.mutable_plan()->Swap(stored.mutable_plan());
  plan.mutable_kernel_keys()->Swap(stored.mutable_kernel_keys());
  if (stored.has_how()) plan.mutable_how()->Swap(stored.mutable_how());
  plan.mutable_costs()->Swap(stored.mutable_costs());
  plan.set_incumbent(row.incumbent());
  plan.set_share_of_baseline(row.Real("share_of_baseline"));
  plan.set_low(row.Real("low"));
  plan.set_high(row.Real("high"));
  plan.set_compared_with(std::string(row.Text("compared_with")));
  return plan;
}

v1::EndedSearch EndedSearchOf(const RowView& row, const PlanKey& key) {
  v1::EndedSearch search;
  *search.mutable_key() = KeyMessageOf(key.Fields());
  search.set_options(std::string(row.Text("options")));
  search.set_stop(static_cast<v1::CompileJob::StopReason>(row.Int("stop")));
  search.set_seconds(row.Real("seconds"));
  search.set_candidates(row.Int("candidates"));
  return search;
}

}  // namespace athanor
