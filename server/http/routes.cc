#include "server/http/routes.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

bool Fits(const Route& route, absl::string_view path) {
  absl::string_view stem = route.path;
  if (!absl::ConsumeSuffix(&stem, "*")) return path == stem;
  return path.size() > stem.size() && path.substr(0, stem.size()) == stem;
}

}  // namespace

Routes::Found Routes::Find(absl::string_view method, absl::string_view path) const {
  std::set<std::string> methods;
  for (const Route& route : routes_) {
    if (!Fits(route, path)) continue;
    const bool gets = route.method == "GET";
    if (method == route.method || (gets && method == "HEAD")) return {&route, 200, ""};
    methods.insert(route.method);
    if (gets) methods.insert("HEAD");
  }
  if (methods.empty()) return {nullptr, 404, ""};
  return {nullptr, 405, absl::StrJoin(methods, ", ")};
}

std::string Routes::Paths() const {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const Route& route : routes_) {
    if (seen.insert(route.path).second) paths.push_back(absl::StrCat(" ", route.path));
  }
  return absl::StrJoin(paths, "");
}

}  // namespace athanor
