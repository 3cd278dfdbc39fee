#include "server/calls/shared_tensors.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "compiler/frontend/datatype.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using inference::ModelInferResponse;

constexpr char kRegion[] = "shared_memory_region";
constexpr char kOffset[] = "shared_memory_offset";
constexpr char kByteSize[] = "shared_memory_byte_size";

// Takes a parameter out; nullopt: there is none.
template <typename Parameters>
std::optional<InferParameter> TakeParameter(const char* name, Parameters* parameters) {
  const auto found = parameters->find(name);
  if (found == parameters->end()) return std::nullopt;
  std::optional<InferParameter> taken = std::move(found->second);
  parameters->erase(found);
  return taken;
}

absl::StatusOr<int64_t> BytesOf(const char* name, const InferParameter& parameter) {
  if (parameter.has_int64_param() && parameter.int64_param() >= 0) return parameter.int64_param();
  if (parameter.has_uint64_param()) {
    return static_cast<int64_t>(
        std::min<uint64_t>(parameter.uint64_param(), std::numeric_limits<int64_t>::max()));
  }
  return Invalid("parameter ", name, " has to be a number of bytes, 0 or more");
}

// Returns the bytes of dense contents; nullopt if datatype or shape make no sense, which
// RequestBinder says better.
std::optional<int64_t> DenseBytes(const ModelInferRequest::InferInputTensor& tensor) {
  const DatatypeRow* datatype = FindDatatype(tensor.datatype());
  if (datatype == nullptr) return std::nullopt;
  int64_t bytes = DTypeBytes(datatype->dtype);
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::optional<SharedTensors::Place>> SharedTensors::TakePlace(
    const SharedRegions& regions, const SharedUser& user, Parameters* parameters) {
  const auto region = TakeParameter(kRegion, parameters);
  const auto offset = TakeParameter(kOffset, parameters);
  const auto byte_size = TakeParameter(kByteSize, parameters);
  if (!region && !offset && !byte_size) return std::nullopt;
  if (!region || !region->has_string_param()) {
    return Invalid("parameter ", kRegion, " is missing; it has to be the name of a region");
  }
  if (!byte_size) return Invalid("parameter ", kByteSize, " is missing");
  Place place;
  ASSIGN_OR_RETURN(place.bytes, BytesOf(kByteSize, *byte_size));
  if (offset) {
    ASSIGN_OR_RETURN(place.offset, BytesOf(kOffset, *offset));
  }
  ASSIGN_OR_RETURN(place.region, regions.Find(user, region->string_param()));
  RETURN_IF_ERROR(place.region->CheckRange(place.offset, place.bytes));
  return place;
}

absl::Status SharedTensors::Take(const SharedRegions& regions, const SharedUser& user,
                                 ModelInferRequest* request) {
  for (int i = 0; i < request->inputs_size(); ++i) {
    auto& tensor = *request->mutable_inputs(i);
    if (tensor.parameters().empty()) continue;
    absl::StatusOr<std::optional<Place>> place =
        TakePlace(regions, user, tensor.mutable_parameters());
    const std::string prefix = Cat("input ", Quoted(tensor.name()), ": ");
    if (!place.ok()) return Prefixed(prefix, place.status());
    if (!place->has_value()) continue;
    if (const auto dense = DenseBytes(tensor); dense && (*place)->bytes != *dense) {
      return Invalid(prefix, kByteSize, " is ", (*place)->bytes, "; ", tensor.datatype(),
                     " of its shape needs ", *dense);
    }
    if (tensor.has_contents()) {
      return Invalid(prefix,
                     "it has contents, and lies in shared memory; send it in one of the two");
    }
    // Objects may be sparse: their sizes bound nothing.
    if (__builtin_add_overflow(input_bytes_, (*place)->bytes, &input_bytes_)) {
      return Invalid(prefix, "with it the inputs in shared memory have more than 2^63 bytes");
    }
    inputs_.push_back({i, **std::move(place)});
  }
  for (auto& output : *request->mutable_outputs()) {
    if (output.parameters().empty()) continue;
    absl::StatusOr<std::optional<Place>> place =
        TakePlace(regions, user, output.mutable_parameters());
    if (!place.ok()) return Prefixed(Cat("output ", Quoted(output.name()), ": "), place.status());
    if (place->has_value()) outputs_.push_back({output.name(), **std::move(place)});
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::ReadInputs(ServerLedger* ledger, ModelInferRequest* request) {
  if (inputs_.empty()) return absl::OkStatus();
  const int sent = request->inputs_size() - static_cast<int>(inputs_.size());
  if (request->raw_input_contents_size() != sent) {
    return Invalid("raw_input_contents has ", request->raw_input_contents_size(), " entries for ",
                   sent, " inputs that do not lie in shared memory; it must have one for each");
  }
  ASSIGN_OR_RETURN(memory_,
                   ledger->Reserve(HeldKind::kRequests, input_bytes_, "inputs in shared memory"));
  google::protobuf::RepeatedPtrField<std::string> raw;
  auto shared = inputs_.begin();
  int next = 0;  // of those that were sent
  for (int i = 0; i < request->inputs_size(); ++i) {
    if (shared == inputs_.end() || shared->tensor != i) {
      raw.Add(std::move(*request->mutable_raw_input_contents(next++)));
      continue;
    }
    const Place& place = shared->place;
    std::string& bytes = *raw.Add();
    bytes.resize(place.bytes);
    absl::Status read = place.region->Read(place.offset, place.bytes, bytes.data());
    if (!read.ok()) return Prefixed(Cat("input ", Quoted(request->inputs(i).name()), ": "), read);
    ++shared;
  }
  request->mutable_raw_input_contents()->Swap(&raw);
  inputs_.clear();
  return absl::OkStatus();
}

absl::Status SharedTensors::DescribeOutputs(ModelInferResponse* reply) const {
  for (const Output& output : outputs_) {
    for (auto& tensor : *reply->mutable_outputs()) {
      if (tensor.name() != output.name) continue;
      int64_t bytes = DTypeBytes(FindDatatype(tensor.datatype())->dtype);
      for (const int64_t size : tensor.shape()) bytes *= size;  // fits a reply
      if (bytes > output.place.bytes) {
        return Invalid("output ", Quoted(output.name), " has ", bytes, " bytes; ", kByteSize,
                       " is ", output.place.bytes);
      }
      auto& parameters = *tensor.mutable_parameters();
      parameters[kRegion].set_string_param(output.place.region->place().name);
      parameters[kByteSize].set_int64_param(bytes);
      if (output.place.offset > 0) parameters[kOffset].set_int64_param(output.place.offset);
    }
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::WriteOutputs(ModelInferResponse* reply) const {
  for (const Output& output : outputs_) {
    for (int i = 0; i < reply->outputs_size(); ++i) {
      if (reply->outputs(i).name() != output.name) continue;
      std::string& raw = *reply->mutable_raw_output_contents(i);
      absl::Status written = output.place.region->Write(output.place.offset, raw);
      if (!written.ok()) return Prefixed(Cat("output ", Quoted(output.name), ": "), written);
      std::string().swap(raw);  // with its memory
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
