#include "compiler/frontend/onnx/importer/import_log.h"

#include <utility>

#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr size_t kMostNotes = 1000;  // kept; those beyond are counted
constexpr size_t kShownNotes = 16;

}  // namespace

bool EndsImport(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

void ImportLog::Refuse(const ::onnx::NodeProto* node, std::string_view path, int64_t version,
                       const absl::Status& status, std::vector<std::string> inputs) {
  ++refused_;
  if (refused_ > max_refusals_) {
    refusals_.back() = {
        .code = refusals_.back().code,
        .reason = Cat(refused_ - max_refusals_ + 1, " more refusals are not listed")};
    return;
  }
  ImportRefusal refusal;
  refusal.code = status.code() == absl::StatusCode::kUnimplemented
                     ? absl::StatusCode::kUnimplemented
                     : absl::StatusCode::kInvalidArgument;
  if (node != nullptr) {
    refusal.node = Cat(path, NodeName(*node));
    refusal.domain = CanonicalDomain(node->domain());
    refusal.op = node->op_type();
  }
  refusal.version = version;
  refusal.reason = std::string(absl::string_view(Shortened(status).message()));
  refusal.inputs = std::move(inputs);
  refusals_.push_back(std::move(refusal));
}

void ImportLog::Note(std::string text, bool of_output) {
  if (noted_.contains(text)) return;
  if (notes_.size() >= kMostNotes && !of_output) {
    ++notes_left_out_;
    return;
  }
  noted_.insert(text);
  notes_.insert(of_output ? notes_.begin() + output_notes_++ : notes_.end(), std::move(text));
}

std::vector<std::string> ImportLog::TakeNotes() {
  if (notes_.size() > kShownNotes) {
    const size_t more = notes_.size() - kShownNotes + static_cast<size_t>(notes_left_out_);
    notes_.resize(kShownNotes);
    notes_.push_back(Cat("and ", more, " more notes"));
  }
  return std::move(notes_);
}

ImportLog::Mark ImportLog::mark() const {
  return {.kept = refusals_.size(),
          .last = refusals_.empty() ? ImportRefusal() : refusals_.back(),
          .refused = refused_,
          .notes = notes_.size(),
          .notes_left_out = notes_left_out_};
}

void ImportLog::RollBack(const Mark& mark) {
  refusals_.resize(mark.kept);
  if (mark.kept > 0) refusals_.back() = mark.last;
  refused_ = mark.refused;
  for (size_t i = mark.notes; i < notes_.size(); ++i) noted_.erase(notes_[i]);
  notes_.resize(mark.notes);
  notes_left_out_ = mark.notes_left_out;
}

}  // namespace athanor::onnx
