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
#include "server/generate/engine.h"
#include "server/generate/language_model.h"
#include "server/text/part.h"

namespace athanor {

// Text of more bytes a token than this, on average, is not made into tokens: it has no room in the
// model's context, or says nothing.
inline constexpr int64_t kMostTokenBytes = 32;
// Most tokens of `stop_tokens`.
inline constexpr int64_t kMostStopTokens = 1024;
// Most bytes of `cache_salt`, which is hashed with each prompt.
inline constexpr int64_t kMostSaltBytes = 1024;
// Text from so many bytes on is made into tokens away from the threads that read.
inline constexpr int64_t kLongText = int64_t{2} << 10;

// Returns all but the prompt's tokens. FAILED_PRECONDITION: the model lacks what the request needs;
// INVALID_ARGUMENT names the field that is wrong.
absl::StatusOr<GenerateInput> ReadSettings(const v1::GenerateRequest& request,
                                           const LanguageModel& model, SequenceTime arrived);

// Reports whether PromptTokens may take long.
bool TakesLong(const v1::GenerateRequest& request);

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
