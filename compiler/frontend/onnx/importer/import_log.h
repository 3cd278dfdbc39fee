// Collects the refusals and notes of one import.
//
//   log.Refuse(&node, frame.path, version, status);
//   const ImportLog::Mark mark = log.mark();
//   if (!Try()) log.RollBack(mark);      // as if it had not been tried
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_LOG_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_LOG_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {

// Reports whether the status ends the import instead of being one refusal of several.
bool EndsImport(const absl::Status& status);

class ImportLog {
 public:
  // Writes to `refusals`, which outlives it, at most `max_refusals`; the last one counts the
  // others.
  ImportLog(int64_t max_refusals, std::vector<ImportRefusal>* refusals)
      : max_refusals_(max_refusals), refusals_(*refusals) {}

  // `node` may be null; `path` leads to the graph it is in. `inputs`: see ImportRefusal.
  void Refuse(const ::onnx::NodeProto* node, std::string_view path, int64_t version,
              const absl::Status& status, std::vector<std::string> inputs = {});
  // Keeps a note once. Notes about outputs come first.
  void Note(std::string text, bool of_output = false);

  int64_t refused() const { return refused_; }  // includes those beyond max_refusals
  const std::vector<ImportRefusal>& refusals() const { return refusals_; }
  // Returns the first notes, and the number of the others as the last one.
  std::vector<std::string> TakeNotes();

  // A point to roll back to.
  struct Mark {
    size_t kept = 0;
    ImportRefusal last;  // may change: it counts the refusals that are not listed
    int64_t refused = 0;
    size_t notes = 0;
    int64_t notes_left_out = 0;
  };
  Mark mark() const;
  // Forgets everything since `mark`. REQUIRES: no note about an output since then
  void RollBack(const Mark& mark);

 private:
  const int64_t max_refusals_;
  std::vector<ImportRefusal>& refusals_;
  int64_t refused_ = 0;
  std::vector<std::string> notes_;  // each once, first those of outputs
  std::set<std::string> noted_;
  int64_t output_notes_ = 0, notes_left_out_ = 0;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_IMPORTER_IMPORT_LOG_H_
