#include "compiler/cache/keys.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/cache/schema.h"
#include "deploy/bazel/libs/sha256.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace athanor {
namespace {

constexpr bool kCondition = false;  // for KeyField::gates

std::string HashWhere(const KeyFields& fields, bool gates) {
  std::vector<absl::string_view> values;
  for (const KeyField& field : fields) {
    if (field.gates == gates) values.push_back(field.value);
  }
  return HashOfFields(values);
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& features) {
  return absl::StrJoin(features, ",");
}

}  // namespace

std::string GateHash(const KeyFields& fields) { return HashWhere(fields, true); }

std::string ConditionHash(const KeyFields& fields) { return HashWhere(fields, false); }

KeyFields PlanKey::Fields() const {
  const v1::Target& target = made_under.target;
  std::vector<std::string> disabled = disabled_rules;
  std::sort(disabled.begin(), disabled.end());
  return {
      {"semantics_version", absl::StrCat(semantics_version)},
      {"plan_format", absl::StrCat(plan_format)},
      {"codegen_version", absl::StrCat(codegen_version)},
      {"graph_hash", graph_hash},
      {"interface_hash", interface_hash},
      {"dim_box", dim_box},
      {"approximate", approximate ? "1" : "0"},
      {"device", target.device()},
      {"triple", target.triple()},
      {"cpu", target.cpu()},
      {"features", Joined(target.features())},
      {"rule_set", made_under.rule_set, kCondition},
      {"disabled_rules", absl::StrJoin(disabled, ","), kCondition},
      {"compiler_version", made_under.compiler_version, kCondition},
      {"libraries", made_under.libraries, kCondition},
      {"driver", made_under.driver, kCondition},
      {"threads", absl::StrCat(target.threads()), kCondition},
      {"clocks", made_under.clocks, kCondition},
  };
}

KeyFields RecipeKey::Fields() const {
  return {
      {"region_hash", region_hash},
      {"dim_box", dim_box},
      {"facts", facts},
      {"semantics_version", absl::StrCat(semantics_version)},
      {"recipe_format", absl::StrCat(recipe_format)},
  };
}

KeyFields TimingKey::Fields() const {
  const v1::Target& target = made_under.target;
  return {
      {"kernel", kernel},
      {"sizes", sizes},
      {"flags", flags},
      {"context", context},
      {"measure_version", absl::StrCat(measure_version)},
      {"device", target.device()},
      {"triple", target.triple()},
      {"cpu", target.cpu()},
      {"features", Joined(target.features())},
      {"compiler_version", made_under.compiler_version},
      {"libraries", made_under.libraries},
      {"driver", made_under.driver},
      {"threads", absl::StrCat(target.threads())},
      {"clocks", made_under.clocks},
  };
}

KeyFields KernelKey::Fields() const {
  return {
      {"source_hash", source_hash},
      {"flags", flags},
      {"triple", triple},
      {"cpu", cpu},
      {"features", features},
      {"compiler_version", compiler_version},
      {"codegen_version", absl::StrCat(codegen_version)},
  };
}

std::string KernelKey::Hash() const { return GateHash(Fields()); }

KernelKey MakeKernelKey(absl::string_view source, const v1::Target& target, absl::string_view flags,
                        absl::string_view compiler_version) {
  KernelKey key;
  key.source_hash = Sha256Hex(source);
  key.flags = std::string(flags);
  key.triple = target.triple();
  key.cpu = target.cpu();
  key.features = Joined(target.features());
  key.compiler_version = std::string(compiler_version);
  key.codegen_version = kCodegenVersion;
  return key;
}

std::string CheckKey(const internal::CheckRequest& request, int64_t check_version) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return HashOfFields({absl::StrCat(check_version), bytes});
}

std::string InterfaceHash(absl::Span<const std::string> inputs,
                          absl::Span<const std::string> parameters,
                          absl::Span<const std::string> outputs,
                          absl::Span<const std::string> dims) {
  std::vector<std::string> counts;
  std::vector<absl::string_view> fields;
  counts.reserve(4);  // `fields` holds views of these strings
  for (absl::Span<const std::string> names : {inputs, parameters, outputs, dims}) {
    fields.push_back(counts.emplace_back(absl::StrCat(names.size())));
    fields.insert(fields.end(), names.begin(), names.end());
  }
  return absl::BytesToHexString(HashOfFields(fields));
}

std::vector<KeyDifference> Differences(const KeyFields& wanted, const KeyFields& found) {
  std::vector<KeyDifference> differences;
  for (const KeyField& want : wanted) {
    const auto at = std::find_if(found.begin(), found.end(), [&](const KeyField& field) {
      return field.column == want.column;
    });
    const std::string value = at == found.end() ? "" : at->value;
    if (value == want.value) continue;
    differences.push_back({std::string(want.column), want.value, value, want.gates});
  }
  return differences;
}

}  // namespace athanor
