// Reads what a request generates from, and how. Checks come first, and cost little; making tokens
// may take long.
//
//   ASSIGN_OR_RETURN(GenerateInput input, ReadSettings(request, model, arrived));
//   ASSIGN_OR_RETURN(input.sequence.prompt, PromptTokens(request, model));
#ifndef ATHANOR_SERVER_CALLS_PROMPT_H_
#define ATHANOR_SERVER_CALLS_PROMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/calls/request_limits.h"
#include "server/generate/engine.h"
#include "server/generate/language_model.h"
#include "server/text/base/part.h"

namespace athanor {

// Text of more bytes a token than this, on average, is not made into tokens: it has no room in the
// model's context, or says nothing.
inline constexpr int64_t kMostTokenBytes = 32;
// Prompts from so many bytes or tokens on, those of all choices together, are made into tokens away
// from the threads that read.
inline constexpr int64_t kLongText = int64_t{2} << 10;

// Returns all but the prompt's tokens. FAILED_PRECONDITION: the model lacks what the request needs;
// INVALID_ARGUMENT names the field that is wrong.
absl::StatusOr<GenerateInput> ReadSettings(const v1::GenerateRequest& request,
                                           const LanguageModel& model, SequenceTime arrived);

// Reports whether it may take long to make the prompt's tokens, and to start so many sequences.
bool TakesLong(const v1::GenerateRequest& request, int64_t choices);

// REQUIRES: ReadSettings is OK.
absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::GenerateRequest& request,
                                                  const LanguageModel& model);

// Returns the tokens of a chat's parts. Its template writes the model's beginning itself.
// REQUIRES: the model has a tokenizer.
absl::StatusOr<std::vector<int32_t>> ChatTokens(const std::vector<Part>& parts,
                                                const LanguageModel& model);

// For other calls. `field` names what is wrong.
absl::Status CheckTextBytes(absl::string_view field, int64_t bytes, const LanguageModel& model);
absl::Status CheckIds(absl::string_view field, absl::Span<const int32_t> ids,
                      const LanguageModel& model);
absl::Status CheckHasTokenizer(const LanguageModel& model);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_PROMPT_H_
