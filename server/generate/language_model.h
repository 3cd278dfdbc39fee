// Holds what a version of a language model has beside its plans: text, defaults, and the engine.
#ifndef ATHANOR_SERVER_GENERATE_LANGUAGE_MODEL_H_
#define ATHANOR_SERVER_GENERATE_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/generate/engine.h"
#include "server/generate/sample/sampling.h"
#include "server/text/model_text.h"

namespace athanor {

struct LanguageModel {
  std::string family;  // "llama"
  ModelText text;
  Sampling sampling;                // of requests that are silent
  std::vector<int32_t> end_tokens;  // any of them ends a sequence
  int64_t token_kv_bytes = 0;       // of one position
  std::unique_ptr<Engine> engine;   // never null; waits while there is no plan yet
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_LANGUAGE_MODEL_H_
