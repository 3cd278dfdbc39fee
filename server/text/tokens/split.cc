#include "server/text/tokens/split.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/characters.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

struct Segment {
  TextRange range;
  bool delimiter = false;
};

void FindLiteral(std::string_view text, std::string_view what, std::vector<TextRange>* matches) {
  matches->clear();
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    matches->push_back({at, at + what.size()});
  }
}

// Covers the text by matches and what is between them.
void CoverText(size_t size, const std::vector<TextRange>& matches, bool invert,
               std::vector<Segment>* segments) {
  segments->clear();
  size_t at = 0;
  for (const TextRange& match : matches) {
    if (at < match.begin) segments->push_back({{at, match.begin}, invert});
    segments->push_back({match, !invert});
    at = match.end;
  }
  if (at < size) segments->push_back({{at, size}, invert});
}

// Joins neighbours as `behavior` says.
void JoinSegments(SplitStep::Behavior behavior, std::vector<Segment>* segments) {
  if (behavior == SplitStep::kIsolated) return;
  if (behavior == SplitStep::kRemoved) {
    std::erase_if(*segments, [](const Segment& segment) { return segment.delimiter; });
    return;
  }
  const bool backward = behavior == SplitStep::kMergedWithNext;
  if (backward) std::reverse(segments->begin(), segments->end());
  std::vector<Segment> joined;
  bool last = false;  // the segment ahead is a delimiter
  for (const Segment& segment : *segments) {
    const bool joins =
        behavior == SplitStep::kContiguous ? segment.delimiter == last : segment.delimiter && !last;
    if (joins && !joined.empty()) {
      TextRange& range = joined.back().range;
      (backward ? range.begin : range.end) = backward ? segment.range.begin : segment.range.end;
    } else {
      joined.push_back(segment);
    }
    last = segment.delimiter;
  }
  if (backward) std::reverse(joined.begin(), joined.end());
  *segments = std::move(joined);
}

// Appends the words of BERT's pre-tokenizer.
void AddBertWords(std::string_view text, std::vector<std::string_view>* words) {
  size_t begin = 0;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const Utf8Step step = StepUtf8(text.substr(at));
    bytes = step.bytes;
    const bool space = IsSpace(step.point);
    if (!space && !IsBertPunctuation(step.point)) continue;
    if (begin < at) words->push_back(text.substr(begin, at - begin));
    if (!space) words->push_back(text.substr(at, bytes));
    begin = at + bytes;
  }
  if (begin < text.size()) words->push_back(text.substr(begin));
}

}  // namespace

absl::StatusOr<Splitter> Splitter::Create(std::vector<SplitStep> steps) {
  Splitter splitter;
  for (SplitStep& step : steps) {
    std::optional<Regex> regex;
    if (step.kind == SplitStep::kRegex) {
      ASSIGN_OR_RETURN(regex, Regex::Compile(step.pattern));
    } else if (step.pattern.empty() && step.kind != SplitStep::kPrefixSpace &&
               step.kind != SplitStep::kBert) {
      return absl::InvalidArgumentError("a pre-tokenizer splits at the empty text");
    }
    splitter.steps_.push_back({std::move(step), std::move(regex)});
  }
  return splitter;
}

absl::Status Splitter::Run(std::string_view text, bool first, std::deque<std::string>* owned,
                           std::vector<std::string_view>* words) const {
  words->clear();
  if (!text.empty()) words->push_back(text);
  std::vector<std::string_view> next;
  std::vector<TextRange> matches;
  std::vector<Segment> segments;
  for (const auto& [step, regex] : steps_) {
    if (step.kind == SplitStep::kPrefixSpace) {
      for (std::string_view& word : *words) {
        if (!word.starts_with(" ")) word = owned->emplace_back(Cat(" ", word));
      }
      continue;
    }
    if (step.kind == SplitStep::kMetaspace) {
      for (std::string_view& word : *words) {
        const bool begins = first && &word == words->data();
        std::string replaced =
            absl::StrReplaceAll(absl::string_view(word.data(), word.size()), {{" ", step.pattern}});
        const bool wanted =
            step.prefix == SplitStep::kAlways || (step.prefix == SplitStep::kFirst && begins);
        if (wanted && !replaced.starts_with(step.pattern)) replaced.insert(0, step.pattern);
        word = owned->emplace_back(std::move(replaced));
      }
      continue;
    }
    next.clear();
    for (std::string_view word : *words) {
      if (step.kind == SplitStep::kBert) {
        AddBertWords(word, &next);
        continue;
      }
      if (regex) {
        RETURN_IF_ERROR(regex->FindAll(word, &matches));
      } else {
        FindLiteral(word, step.pattern, &matches);
      }
      CoverText(word.size(), matches, step.invert, &segments);
      JoinSegments(step.behavior, &segments);
      for (const Segment& segment : segments) {
        const TextRange& range = segment.range;
        if (range.begin < range.end)
          next.push_back(word.substr(range.begin, range.end - range.begin));
      }
    }
    words->swap(next);
  }
  return absl::OkStatus();
}

}  // namespace athanor
