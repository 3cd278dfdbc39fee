// A model's answer as text for a terminal, and as JSON.
//
//   std::fputs(TerminalText(piece.text()).c_str(), stdout);
//   std::fprintf(stderr, "%s\n", SummaryText(last).c_str());
#ifndef ATHANOR_CLIENTS_CPP_TEXT_GENERATE_TEXT_H_
#define ATHANOR_CLIENTS_CPP_TEXT_GENERATE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "proto/athanor/v1/generate.pb.h"

namespace athanor::client {

// Writes control characters, with which a model could steer the terminal, as "\x1b"; line feeds and
// tabs stay. `text` is UTF-8 of whole code points.
std::string TerminalText(absl::string_view text);
// Sums up the last message of an answer: "64 tokens behind 23 (16 of them cached), first after
// 0.213 s, then 48.3 tokens a second; ended at its most tokens; seed 7"
std::string SummaryText(const v1::GenerateResponse& last);
// Holds the message's own fields: a piece's, and in the last message also `finish`, `usage` and
// `times`.
nlohmann::json GenerateJson(const v1::GenerateResponse& message);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_GENERATE_TEXT_H_
