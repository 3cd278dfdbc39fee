// Ops that are refused by name, with the reason.
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kSequence = "sequences of tensors are not supported, only tensors";
constexpr std::string_view kOptional = "optional values are not supported, only tensors";
constexpr std::string_view kString = "strings are not supported, only numbers and bools";

constexpr HandlerRow kRows[] = {
    {"", "ConcatFromSequence", 1, nullptr, kSequence},
    {"", "SequenceAt", 1, nullptr, kSequence},
    {"", "SequenceConstruct", 1, nullptr, kSequence},
    {"", "SequenceEmpty", 1, nullptr, kSequence},
    {"", "SequenceErase", 1, nullptr, kSequence},
    {"", "SequenceInsert", 1, nullptr, kSequence},
    {"", "SequenceLength", 1, nullptr, kSequence},
    {"", "SequenceMap", 1, nullptr, kSequence},
    {"", "SplitToSequence", 1, nullptr, kSequence},
    {"", "Optional", 1, nullptr, kOptional},
    {"", "OptionalGetElement", 1, nullptr, kOptional},
    {"", "OptionalHasElement", 1, nullptr, kOptional},
    {"", "RegexFullMatch", 1, nullptr, kString},
    {"", "StringConcat", 1, nullptr, kString},
    {"", "StringNormalizer", 1, nullptr, kString},
    {"", "StringSplit", 1, nullptr, kString},
    {"", "ImageDecoder", 1, nullptr,
     "image decoding is not supported; decode images before the request"},
};

}  // namespace

absl::Span<const HandlerRow> RefusedRows() { return kRows; }

}  // namespace athanor::onnx
