#include "server/models/version_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::StatusOr<int64_t> ParseVersion(absl::string_view text) {
  int64_t version = 0;
  // Accepts one spelling only: SimpleAtoi also parses " 1" and "01".
  if (!absl::SimpleAtoi(text, &version) || version < 1 || absl::StrCat(version) != text) {
    return absl::InvalidArgumentError(absl::StrCat("version ", Quoted(std::string(text)),
                                                   ": versions are \"1\", \"2\", ..., or empty"));
  }
  return version;
}

}  // namespace

void VersionTable::Load(std::vector<NameRow> names, const VersionList& versions) {
  MutexLock lock(mu_);
  for (NameRow& name : names) {
    const std::string key = name.name;
    names_[key].row = std::move(name);
  }
  for (const auto& version : versions) {
    Name& name = names_[version->name()];
    name.row.name = version->name();
    name.versions[version->version()] = version;
  }
  count_ = static_cast<int64_t>(versions.size());
  std::erase_if(names_, [](const auto& entry) { return entry.second.versions.empty(); });
}

absl::StatusOr<std::shared_ptr<ModelVersion>> VersionTable::FindLocked(
    absl::string_view name, absl::string_view version) const {
  auto it = names_.find(std::string_view(name.data(), name.size()));
  if (it == names_.end()) {
    return absl::NotFoundError(absl::StrCat("model ", Quoted(std::string(name)),
                                            " does not exist; ListModels shows those that do"));
  }
  const Name& found = it->second;
  if (version.empty()) {
    auto serving = found.versions.find(found.row.serving);
    return serving != found.versions.end() ? serving->second : found.versions.rbegin()->second;
  }
  ASSIGN_OR_RETURN(int64_t number, ParseVersion(version));
  auto chosen = found.versions.find(number);
  if (chosen != found.versions.end()) return chosen->second;
  return absl::NotFoundError(absl::StrCat("model ", Quoted(std::string(name)), " has no version ",
                                          number, "; the newest is ",
                                          found.versions.rbegin()->first));
}

absl::StatusOr<std::shared_ptr<ModelVersion>> VersionTable::Find(absl::string_view name,
                                                                 absl::string_view version) const {
  MutexLock lock(mu_);
  return FindLocked(name, version);
}

VersionList VersionTable::List(absl::string_view name) const {
  VersionList found;
  MutexLock lock(mu_);
  for (const auto& [key, entry] : names_) {
    if (!name.empty() && name != absl::string_view(key)) continue;
    for (auto it = entry.versions.rbegin(); it != entry.versions.rend(); ++it) {
      found.push_back(it->second);
    }
  }
  return found;
}

VersionList VersionTable::With(absl::FunctionRef<bool(const std::string& hash)> wanted) const {
  VersionList found;
  MutexLock lock(mu_);
  for (const auto& [name, entry] : names_) {
    for (const auto& [number, version] : entry.versions) {
      const std::vector<TensorRow>& tensors = version->row().tensors;
      const bool has = std::any_of(tensors.begin(), tensors.end(),
                                   [&](const TensorRow& tensor) { return wanted(tensor.hash); });
      if (has) found.push_back(version);
    }
  }
  return found;
}

bool VersionTable::Serves(const ModelVersion& version) const {
  MutexLock lock(mu_);
  auto it = names_.find(version.name());
  return it != names_.end() && it->second.row.serving == version.version();
}

int64_t VersionTable::count() const {
  MutexLock lock(mu_);
  return count_;
}

int64_t VersionTable::NextNumber(const std::string& name) const {
  MutexLock lock(mu_);
  auto it = names_.find(name);
  return it == names_.end() ? 0 : it->second.row.next_version;
}

std::shared_ptr<ModelVersion> VersionTable::Add(const std::shared_ptr<ModelVersion>& version) {
  MutexLock lock(mu_);
  Name& name = names_[version->name()];
  name.row.name = version->name();
  name.row.next_version = std::max(name.row.next_version, version->version() + 1);
  // As in the database: one that was rolled back and is another now may take over again.
  if (name.row.rolled_back == version->version()) --name.row.rolled_back;
  std::shared_ptr<ModelVersion> replaced =
      std::exchange(name.versions[version->version()], version);
  if (replaced == nullptr) ++count_;
  return replaced;
}

bool VersionTable::Holds(const ModelVersion& version) const {
  MutexLock lock(mu_);
  const auto name = names_.find(version.name());
  if (name == names_.end()) return false;
  const auto found = name->second.versions.find(version.version());
  return found != name->second.versions.end() && found->second.get() == &version;
}

std::optional<NameRow> VersionTable::Remove(const std::string& name, const VersionList& gone) {
  MutexLock lock(mu_);
  Name& entry = names_[name];
  for (const auto& version : gone) {
    entry.versions.erase(version->version());
    --count_;
  }
  if (entry.versions.empty()) {
    names_.erase(name);  // the next version's number is in the database
    return std::nullopt;
  }
  if (entry.row.serving == 0 || entry.versions.contains(entry.row.serving)) return std::nullopt;
  entry.row.serving = 0;
  for (const auto& [number, version] : entry.versions) {
    if (version->plan() != nullptr) entry.row.serving = number;
  }
  if (entry.row.serving == 0) return std::nullopt;
  return entry.row;
}

std::optional<NameRow> VersionTable::TakenOverBy(const ModelVersion& version) const {
  MutexLock lock(mu_);
  const auto it = names_.find(version.name());
  if (it == names_.end()) return std::nullopt;  // deleted meanwhile
  const Name& name = it->second;
  const bool newer = version.version() > std::max(name.row.serving, name.row.rolled_back);
  const auto entry = name.versions.find(version.version());
  const bool known = entry != name.versions.end() && entry->second.get() == &version;
  if (!known || (!newer && name.row.serving != 0)) return std::nullopt;
  NameRow row = name.row;
  row.serving = version.version();
  return row;
}

absl::StatusOr<NameRow> VersionTable::RolledBack(const std::string& name,
                                                 const std::string& version) const {
  MutexLock lock(mu_);
  ASSIGN_OR_RETURN(auto found, FindLocked(name, version));
  const Name& entry = names_.find(name)->second;
  NameRow row = entry.row;
  row.rolled_back = entry.versions.rbegin()->first;
  if (!version.empty()) {
    if (found->plan() == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(found->Describe(), " has no plan that serves"));
    }
    row.serving = found->version();
    return row;
  }
  for (auto it = entry.versions.rbegin(); it != entry.versions.rend(); ++it) {
    if (it->first < entry.row.serving && it->second->plan() != nullptr) {
      row.serving = it->first;
      return row;
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "model ", Quoted(name), " has no earlier version that is ready",
      entry.row.serving == 0 ? "; none serves yet"
                             : absl::StrCat("; version ", entry.row.serving, " serves")));
}

void VersionTable::SetServing(const NameRow& row) {
  MutexLock lock(mu_);
  const auto it = names_.find(row.name);
  if (it == names_.end()) return;
  it->second.row.serving = row.serving;
  it->second.row.rolled_back = row.rolled_back;
}

}  // namespace athanor
