#include "server/text/chat_template.h"

#include <utility>

#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/evaluator.h"
#include "server/text/jinja/marked.h"
#include "server/text/jinja/parser.h"

namespace athanor {

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(jinja::Statement::Pointer root, jinja::Parse(source));
  return ChatTemplate(std::move(root));
}

absl::StatusOr<std::vector<Part>> ChatTemplate::Render(const ChatInput& input,
                                                       const RenderLimits& limits) const {
  if (!input.request.is_object() || !input.model.is_object()) {
    return absl::InvalidArgumentError("a chat's variables are no JSON object");
  }
  jinja::Work work(limits);
  jinja::Evaluator evaluator(&work, input.now);
  for (const auto* variables : {&input.model, &input.request}) {
    for (auto row = variables->begin(); row != variables->end(); ++row) {
      evaluator.Set(row.key(), jinja::OfJson(&work, row.value(), variables == &input.model));
    }
  }
  const jinja::Marked text = work.failed() ? jinja::Marked() : evaluator.Run(*root_);
  if (work.failed()) return work.status();
  std::vector<Part> parts;
  size_t begin = 0;
  for (const jinja::Marked::Run& run : text.runs()) {
    parts.push_back({text.bytes().substr(begin, run.end - begin), run.trusted});
    begin = run.end;
  }
  return parts;
}

}  // namespace athanor
