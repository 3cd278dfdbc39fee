#include "tests/fuzz/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "compiler/frontend/frontend.h"
#include "tests/fuzz/bundle_target.h"
#include "tests/fuzz/cache_target.h"
#include "tests/fuzz/checkpoint_target.h"
#include "tests/fuzz/onnx_mutate.h"
#include "tests/fuzz/onnx_seeds.h"
#include "tests/fuzz/onnx_target.h"
#include "tests/fuzz/seeds.h"

namespace athanor {
namespace {

using google::protobuf::Message;

std::vector<std::string> SomeHashes(size_t count) {
  std::vector<std::string> hashes;
  for (size_t i = 0; i < count; ++i) hashes.emplace_back(32, static_cast<char>('a' + i));
  return hashes;
}

}  // namespace

Corpus::Corpus(const std::string& onnx_folder) : graphs_(SeedGraphs()) {
  for (size_t i = 0; i < graphs_.size(); ++i) {
    binders_.push_back(RequestBinder::Create(graphs_[i]).value());
    v1::Graph message = GraphToProto(graphs_[i], SomeHashes(graphs_[i].ParameterIds().size()));
    graph_inputs_.push_back({0, message.SerializeAsString()});
    graph_messages_.push_back(std::make_unique<v1::Graph>(std::move(message)));
    AddRequests(i);
  }
  for (const std::string& bundle : SeedBundles()) {
    bundle_inputs_.push_back({kBundleTarget, bundle});
    for (v1::CacheBundleChunk& chunk : ParseBundle(bundle)) {
      bundle_messages_.push_back(std::make_unique<v1::CacheBundleChunk>(std::move(chunk)));
    }
  }
  for (const std::string& file : SeedCacheFiles()) cache_inputs_.push_back({kCacheTarget, file});
  for (const std::string& file : SeedGgufFiles()) checkpoint_inputs_.push_back({kGgufTarget, file});
  for (const std::string& file : SeedSafetensorsFiles()) {
    checkpoint_inputs_.push_back({kSafetensorsTarget, file});
  }
  for (::onnx::ModelProto& model : OnnxSeeds()) AddOnnx(std::move(model));
  if (!onnx_folder.empty()) AddOnnxFolder(onnx_folder);
}

void Corpus::AddOnnx(::onnx::ModelProto model) {
  onnx_inputs_.push_back({kOnnxTarget, model.SerializeAsString()});
  onnx_models_.push_back(std::make_unique<::onnx::ModelProto>(std::move(model)));
}

void Corpus::AddOnnxFolder(const std::string& folder) {
  std::vector<std::string> paths;  // sorted, so that all machines use one order
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string saved{std::istreambuf_iterator<char>(file), {}};
    if (saved.empty() || static_cast<uint8_t>(saved[0]) != kOnnxTarget) continue;
    ::onnx::ModelProto model;
    if (model.ParseFromString(saved.substr(1))) AddOnnx(std::move(model));
  }
}

// Adds requests with raw and with typed contents, with and without parameters.
void Corpus::AddRequests(size_t graph) {
  for (bool raw : {true, false}) {
    inference::ModelInferRequest request;
    if (!MakeRequest(graphs_[graph], raw, &request)) continue;
    const auto target = static_cast<uint8_t>(1 + graph);
    request_inputs_.push_back({target, request.SerializeAsString()});
    request.add_outputs()->set_name(graphs_[graph].outputs[0].name);
    (*request.mutable_parameters())["wait"].set_string_param("none");
    (*request.mutable_parameters())["timeout_us"].set_int64_param(1000);
    (*request.mutable_parameters())["priority"].set_uint64_param(2);
    request_inputs_.push_back({target, request.SerializeAsString()});
    request_messages_.push_back(std::make_unique<inference::ModelInferRequest>(std::move(request)));
  }
}

// Changes one chunk, or moves, drops or repeats chunks.
std::string Corpus::MutateBundle(const std::string& bytes, Mutator* mutator) const {
  BundleChunks chunks = ParseBundle(bytes);
  if (chunks.empty()) return bytes;
  std::vector<const Message*> donors;
  for (const auto& message : bundle_messages_) donors.push_back(message.get());
  const size_t i = mutator->Below(chunks.size());
  const auto at = chunks.begin() + static_cast<int64_t>(i);
  switch (mutator->Below(8)) {
    case 0:
      chunks.erase(at);
      break;
    case 1:
      chunks.insert(at, v1::CacheBundleChunk(chunks[mutator->Below(chunks.size())]));
      break;
    case 2:
      std::swap(chunks[i], chunks[mutator->Below(chunks.size())]);
      break;
    default:
      mutator->Mutate(donors, &chunks[i]);
  }
  return SerializeBundle(chunks);
}

Input Corpus::Mutate(const Input& input, Mutator* mutator) const {
  if (input.target == kCacheTarget) return {kCacheTarget, MutateCacheFile(input.bytes, mutator)};
  if (input.target == kGgufTarget) return {kGgufTarget, MutateGguf(input.bytes, mutator)};
  if (input.target == kSafetensorsTarget) {
    return {kSafetensorsTarget, MutateSafetensors(input.bytes, mutator)};
  }
  if (input.target == kBundleTarget) {
    Input changed = {kBundleTarget, MutateBundle(input.bytes, mutator)};
    if (mutator->OneIn(10)) mutator->MutateBytes(&changed.bytes);
    return changed;
  }
  if (input.target == kOnnxTarget) {
    std::vector<const ::onnx::ModelProto*> donors;
    for (const auto& model : onnx_models_) donors.push_back(model.get());
    Input changed = input;
    ::onnx::ModelProto model;
    if (model.ParsePartialFromString(input.bytes)) {
      MutateOnnx(donors, mutator, &model);
      changed.bytes = model.SerializePartialAsString();
    }
    if (mutator->OneIn(10)) mutator->MutateBytes(&changed.bytes);
    return changed;
  }
  const auto& messages = input.target == 0 ? graph_messages_ : request_messages_;
  std::vector<const Message*> donors;
  for (const auto& message : messages) donors.push_back(message.get());
  Input changed = input;
  const std::unique_ptr<Message> message(donors[0]->New());
  if (message->ParsePartialFromString(input.bytes)) {
    mutator->Mutate(donors, message.get());
    changed.bytes = message->SerializePartialAsString();
  }
  if (mutator->OneIn(10)) mutator->MutateBytes(&changed.bytes);
  return changed;
}

std::string Corpus::Run(const Input& input, FuzzStats* stats) const {
  if (input.target == 0) return FuzzGraph(input.bytes, stats);
  if (input.target == kBundleTarget) return FuzzBundle(input.bytes, stats);
  if (input.target == kCacheTarget) return FuzzCacheFile(input.bytes, stats);
  if (input.target == kOnnxTarget) return FuzzOnnx(input.bytes, stats);
  if (input.target == kGgufTarget) return FuzzGguf(input.bytes, stats);
  if (input.target == kSafetensorsTarget) return FuzzSafetensors(input.bytes, stats);
  const size_t graph = (input.target - 1) % graphs_.size();
  return FuzzRequest(binders_[graph], graphs_[graph], input.bytes, stats);
}

}  // namespace athanor
