// Decides how the versions of a server are searched for, and whether there is something to search.
//
//   SearchPolicy policy = policies.Automatic(version);
//   if (policies.SearchDue(version, policy)) ...
//
// Thread-safe; borrows everything.
#ifndef ATHANOR_SERVER_JOBS_SEARCH_POLICIES_H_
#define ATHANOR_SERVER_JOBS_SEARCH_POLICIES_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/base/options.h"
#include "server/base/search_policy.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/model_version.h"
#include "server/plans/compile_backend.h"

namespace athanor {

class SearchPolicies {
 public:
  SearchPolicies(const ServerOptions& options, CompileBackends* backends, const PlanKeeper* keeper)
      : options_(options), backends_(*backends), keeper_(*keeper) {}

  // INVALID_ARGUMENT names a name that is neither a rule nor a family, and those there are. `what`
  // says where the names were given.
  absl::Status CheckRules(absl::string_view what, const std::set<std::string>& names) const;
  // Returns the policy of the version's searches, unless a request asks for another.
  SearchPolicy Of(const ModelVersion& version) const;
  // Returns the policy of a job that nobody asked for: a deterministic version is not searched for.
  SearchPolicy Automatic(const ModelVersion& version) const;
  // Reports whether an automatic search of the full range of a version that is served has something
  // left to search for.
  bool SearchDue(const ModelVersion& version, const SearchPolicy& policy) const;
  // Reports whether a version that its baseline serves could have a plan found for another version.
  bool BetterKept(const ModelVersion& version, const SearchPolicy& policy) const;

 private:
  const ServerOptions& options_;
  CompileBackends& backends_;
  const PlanKeeper& keeper_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_SEARCH_POLICIES_H_
