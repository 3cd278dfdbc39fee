#include "clients/bench/outputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "clients/bench/figures/report.h"
#include "clients/bench/figures/store.h"
#include "clients/bench/figures/summary.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

bool SamePath(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || std::filesystem::weakly_canonical(a, failed) ==
                       std::filesystem::weakly_canonical(b, failed);
}

absl::Status CheckFlags(const Outputs& outputs) {
  if (outputs.detailed && outputs.out.empty()) {
    return absl::InvalidArgumentError(
        "--detailed: adds to the JSON; give its file with --out FILE");
  }
  if (outputs.save_calls && outputs.db.empty()) {
    return absl::InvalidArgumentError(
        "--save_calls: adds to a results file; give it with --db FILE");
  }
  const std::pair<const char*, const std::string*> flags[] = {
      {"--out", &outputs.out}, {"--html", &outputs.html}, {"--db", &outputs.db}};
  for (const auto& [flag, path] : flags) {
    for (const auto& [other, other_path] : flags) {
      if (path == other_path) break;
      if (path->empty() || *path == "-" || !SamePath(*path, *other_path)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " ", *path, ": is the file of ", other, " too; give another"));
    }
  }
  return absl::OkStatus();
}

// Checks by opening the file, since nothing else detects full and read-only file systems. Leaves a
// pipe alone: its reader would take the close for the end of the data.
absl::Status CheckPath(absl::string_view flag, const std::string& path) {
  if (path.empty() || (flag == "--out" && path == "-")) return absl::OkStatus();
  struct stat there;
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) return absl::OkStatus();
  errno = 0;
  const bool opened = std::ofstream(path, std::ios::binary | std::ios::app).is_open();
  const int error = errno;
  if (opened && !exists) unlink(path.c_str());
  if (opened) return absl::OkStatus();
  return absl::ErrnoToStatus(error != 0 ? error : EIO,
                             absl::StrCat(flag, " ", path, ": cannot be written"));
}

absl::Status CheckStore(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path);
  absl::Status s = store.ok() ? (*store)->CheckWritable() : store.status();
  return s.ok() ? s : absl::Status(s.code(), absl::StrCat("--db ", s.message()));
}

absl::Status KeepInStore(const Outputs& outputs, const std::vector<Part>& parts,
                         std::vector<std::string>* names) {
  ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Open(outputs.db));
  for (const Part& part : parts) {
    std::vector<NewRun> rows;
    for (const Measured& run : part.runs) {
      rows.push_back({run.summary, outputs.save_calls ? run.result : nullptr});
    }
    ASSIGN_OR_RETURN(std::vector<int64_t> ids, store->AddAll(rows, part.comparison));
    for (int64_t id : ids) names->push_back(absl::StrCat(outputs.db, ":", id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOutputs(const Outputs& outputs) {
  RETURN_IF_ERROR(CheckFlags(outputs));
  RETURN_IF_ERROR(CheckPath("--out", outputs.out));
  RETURN_IF_ERROR(CheckPath("--html", outputs.html));
  return CheckStore(outputs.db);
}

Kept Keep(const Outputs& outputs, const std::vector<Part>& parts) {
  Kept kept;
  if (!outputs.db.empty()) kept.status = KeepInStore(outputs, parts, &kept.names);
  std::vector<json> summaries, comparisons;
  for (const Part& part : parts) {
    for (const Measured& run : part.runs) summaries.push_back(*run.summary);
    if (!part.comparison.is_null()) comparisons.push_back(part.comparison);
  }
  if (!outputs.html.empty()) {
    kept.status.Update(client::WriteFile(outputs.html, ReportHtml(summaries, comparisons)));
  }
  if (outputs.out.empty()) return kept;
  size_t at = 0;
  for (const Part& part : parts) {
    for (const Measured& run : part.runs) {
      if (outputs.detailed) summaries[at]["detailed"] = Detailed(*run.result);
      ++at;
    }
  }
  json document = summaries[0];
  if (parts.size() > 1) {
    document = {{"runs", summaries}, {"comparisons", comparisons}};
  } else if (summaries.size() > 1) {
    document = {{"runs", summaries}, {"comparison", parts[0].comparison}};
  }
  kept.status.Update(WriteJson(outputs.out, document));
  return kept;
}

absl::Status WriteJson(const std::string& path, const json& value) {
  const std::string text = value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  if (path != "-") return client::WriteFile(path, text);
  errno = 0;
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno != 0 ? errno : EIO, "cannot write to stdout");
}

}  // namespace athanor::bench
