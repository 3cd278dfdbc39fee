// Checkpoints for tests: those of tests/tokens, as files in memory that a test may change.
//
//   Checkpoint checkpoint = Checkpoint::Hf("llama");
//   checkpoint.files["config.json"] = "{}";
//   absl::StatusOr<ImportedCheckpoint> decoder = checkpoint.Import();
#ifndef ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/checkpoint/import.h"

namespace athanor::checkpoint {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline std::filesystem::path TinyFolder(const std::string& name) {
  return std::filesystem::path("tests/tokens/testdata") / name;
}

// Returns config.json or golden.json of a tiny checkpoint.
inline nlohmann::json TinyJson(const std::string& name, const std::string& file) {
  return nlohmann::json::parse(ReadFile(TinyFolder(name) / file));
}

// Names a tiny checkpoint in one of its formats, as a parameter of tests.
struct TinyCase {
  std::string name;
  CheckpointFormat format;
};
inline void PrintTo(const TinyCase& of, std::ostream* out) { *out << of.name; }

// Returns every tiny checkpoint, in each format that it has.
inline std::vector<TinyCase> TinyCases() {
  return {{"llama", CheckpointFormat::kHf},       {"llama", CheckpointFormat::kGguf},
          {"llama3", CheckpointFormat::kHf},      {"llama3", CheckpointFormat::kGguf},
          {"mistral", CheckpointFormat::kHf},     {"qwen2", CheckpointFormat::kHf},
          {"qwen2", CheckpointFormat::kGguf},     {"qwen2_window", CheckpointFormat::kHf},
          {"qwen3", CheckpointFormat::kHf},       {"qwen3", CheckpointFormat::kGguf},
          {"phi3", CheckpointFormat::kHf},        {"phi3", CheckpointFormat::kGguf},
          {"gemma2", CheckpointFormat::kHf},      {"gemma2", CheckpointFormat::kGguf},
          {"gemma2_bf16", CheckpointFormat::kHf}, {"gemma3", CheckpointFormat::kHf},
          {"gemma3", CheckpointFormat::kGguf},    {"olmo2", CheckpointFormat::kHf},
          {"olmo2", CheckpointFormat::kGguf},     {"qwen3_moe", CheckpointFormat::kHf},
          {"qwen3_moe", CheckpointFormat::kGguf}, {"qwen3_moe_sums", CheckpointFormat::kHf}};
}
inline std::string NameOf(const testing::TestParamInfo<TinyCase>& info) {
  return info.param.name + (info.param.format == CheckpointFormat::kHf ? "Hf" : "Gguf");
}

struct Checkpoint {
  CheckpointFormat format = CheckpointFormat::kHf;
  std::map<std::string, std::string> files;
  ImportOptions options;
  std::vector<ImportRefusal> refusals = {};  // of the last Import

  static Checkpoint Hf(const std::string& name) {
    Checkpoint checkpoint;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(TinyFolder(name))) {
      const std::string file = entry.path().lexically_relative(TinyFolder(name));
      if (!entry.is_directory() && file != "golden.json" && file != "model.gguf") {
        checkpoint.files[file] = ReadFile(entry.path());
      }
    }
    return checkpoint;
  }
  static Checkpoint Gguf(const std::string& name) {
    Checkpoint checkpoint;
    checkpoint.format = CheckpointFormat::kGguf;
    checkpoint.files["model.gguf"] = ReadFile(TinyFolder(name) / "model.gguf");
    return checkpoint;
  }

  std::vector<CheckpointFile> Files() const {
    std::vector<CheckpointFile> found;
    for (const auto& [path, bytes] : files) found.push_back({path, bytes});
    return found;
  }
  absl::StatusOr<ImportedCheckpoint> Import() {
    return ImportCheckpoint(format, Files(), options, &refusals);
  }
  // "node: reason" of each refusal of an Import.
  std::vector<std::string> Refused() {
    EXPECT_FALSE(Import().ok());
    std::vector<std::string> texts;
    for (const ImportRefusal& refusal : refusals) {
      texts.push_back(refusal.node + ": " + refusal.reason);
    }
    return texts;
  }
};

// A safetensors file whose tensors can be changed.
struct Shard {
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Entry> tensors;

  static Shard Read(const std::string& file) {
    uint64_t size = 0;
    std::copy_n(file.data(), sizeof(size), reinterpret_cast<char*>(&size));
    Shard shard;
    const nlohmann::json head = nlohmann::json::parse(file.substr(sizeof(size), size));
    for (const auto& [name, entry] : head.items()) {
      if (name == "__metadata__") continue;
      const int64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      shard.tensors[name] = {entry["dtype"], entry["shape"],
                             file.substr(sizeof(size) + size + begin, end - begin)};
    }
    return shard;
  }
  std::string Write() const {
    nlohmann::json head = nlohmann::json::object();
    std::string bytes;
    for (const auto& [name, entry] : tensors) {
      head[name] = {{"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"data_offsets", {bytes.size(), bytes.size() + entry.bytes.size()}}};
      bytes += entry.bytes;
    }
    const std::string text = head.dump();
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + bytes;
  }
};

// Returns the inputs ids, position and wanted of a sequence from its start.
inline std::vector<Tensor> InputsOf(const std::vector<int32_t>& ids,
                                    const std::vector<int32_t>& wanted) {
  const auto rows = static_cast<int64_t>(ids.size());
  std::vector<int32_t> position(rows);
  for (int64_t i = 0; i < rows; ++i) position[i] = static_cast<int32_t>(i);
  return {Tensor::Of<int32_t>(DType::kI32, {rows}, ids),
          Tensor::Of<int32_t>(DType::kI32, {rows}, position),
          Tensor::Of<int32_t>(DType::kI32, {static_cast<int64_t>(wanted.size())}, wanted)};
}

inline std::vector<Tensor> ParametersOf(const Checkpoint& checkpoint,
                                        const ImportedCheckpoint& decoder) {
  const std::vector<CheckpointFile> files = checkpoint.Files();
  std::vector<Tensor> parameters;
  for (const FileTensor& parameter : decoder.parameters) {
    const TensorType type = TypeOfBytes(parameter);
    Tensor& tensor = parameters.emplace_back();
    tensor.dtype = type.dtype;
    for (const Expr& size : type.shape) tensor.shape.push_back(*size.constant());
    tensor.bytes = files[parameter.file].bytes.substr(parameter.offset, parameter.bytes);
  }
  return parameters;
}

// Returns the rows of logits [wanted, vocabulary].
inline std::vector<std::vector<float>> RowsOf(const Tensor& logits) {
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < logits.shape[0]; ++i) {
    const float* row = logits.data<float>() + i * logits.shape[1];
    rows.emplace_back(row, row + logits.shape[1]);
  }
  return rows;
}

// Returns what the reference evaluator computes.
inline std::vector<std::vector<float>> Logits(const Checkpoint& checkpoint,
                                              const ImportedCheckpoint& decoder,
                                              const std::vector<int32_t>& ids,
                                              const std::vector<int32_t>& wanted) {
  std::vector<Tensor> inputs = InputsOf(ids, wanted);
  for (Tensor& parameter : ParametersOf(checkpoint, decoder)) {
    inputs.push_back(std::move(parameter));
  }
  const absl::StatusOr<std::vector<Tensor>> results = Evaluate(decoder.graph, inputs);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? RowsOf(results->front()) : std::vector<std::vector<float>>();
}

// Expects logits as a golden.json has them.
inline void ExpectGolden(const std::vector<std::vector<float>>& logits,
                         const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(logits.size(), expected.size());
  // transformers' own f32 results are up to 4e-6 of a row's largest logit off those in f64.
  for (size_t row = 0; row < logits.size(); ++row) {
    ASSERT_EQ(logits[row].size(), expected[row].size());
    double error = 0, largest = 0;
    for (size_t i = 0; i < logits[row].size(); ++i) {
      ASSERT_TRUE(std::isfinite(logits[row][i])) << "row " << row << ", token " << i;
      error = std::max<double>(error, std::abs(logits[row][i] - expected[row][i]));
      largest = std::max<double>(largest, std::abs(expected[row][i]));
    }
    EXPECT_LT(error, 2e-5 * largest) << "row " << row;
  }
}

}  // namespace athanor::checkpoint

#endif  // ATHANOR_COMPILER_FRONTEND_CHECKPOINT_IMPORT_TESTING_H_
