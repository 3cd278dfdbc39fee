#include "tests/fuzz/corpus.h"

#include <utility>

#include "compiler/frontend/frontend.h"
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

Corpus::Corpus() : graphs_(SeedGraphs()) {
  for (size_t i = 0; i < graphs_.size(); ++i) {
    binders_.push_back(RequestBinder::Create(graphs_[i]).value());
    v1::Graph message = GraphToProto(graphs_[i], SomeHashes(graphs_[i].ParameterIds().size()));
    graph_inputs_.push_back({0, message.SerializeAsString()});
    graph_messages_.push_back(std::make_unique<v1::Graph>(std::move(message)));
    AddRequests(i);
  }
}

// With raw and with typed contents, with and without parameters.
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

Input Corpus::Mutate(const Input& input, Mutator* mutator) const {
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
  const size_t graph = (input.target - 1) % graphs_.size();
  return FuzzRequest(binders_[graph], graphs_[graph], input.bytes, stats);
}

}  // namespace athanor
