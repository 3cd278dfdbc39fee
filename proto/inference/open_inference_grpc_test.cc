// Compares our protocol file with a table written down from the public specification (Open
// Inference Protocol v2): what is on the wire is the name of the service and its calls, and the
// number, type and label of each field. Names count too: JSON transcoding and reflection clients
// use them.
#include <map>
#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace inference {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

struct FieldRow {
  const char* message;
  int number;
  const char* name;
  // The scalar or message type; "[]" for repeated; "map" for a map of string to it; "oneof" for a
  // member of the union `parameter_choice`.
  const char* type;
};

constexpr FieldRow kFields[] = {
    {"ServerLiveResponse", 1, "live", "bool"},
    {"ServerReadyResponse", 1, "ready", "bool"},
    {"ModelReadyRequest", 1, "name", "string"},
    {"ModelReadyRequest", 2, "version", "string"},
    {"ModelReadyResponse", 1, "ready", "bool"},
    {"ServerMetadataResponse", 1, "name", "string"},
    {"ServerMetadataResponse", 2, "version", "string"},
    {"ServerMetadataResponse", 3, "extensions", "string[]"},
    {"ModelMetadataRequest", 1, "name", "string"},
    {"ModelMetadataRequest", 2, "version", "string"},
    {"ModelMetadataResponse", 1, "name", "string"},
    {"ModelMetadataResponse", 2, "versions", "string[]"},
    {"ModelMetadataResponse", 3, "platform", "string"},
    {"ModelMetadataResponse", 4, "inputs", "ModelMetadataResponse.TensorMetadata[]"},
    {"ModelMetadataResponse", 5, "outputs", "ModelMetadataResponse.TensorMetadata[]"},
    {"ModelMetadataResponse", 6, "properties", "map string"},
    {"ModelMetadataResponse.TensorMetadata", 1, "name", "string"},
    {"ModelMetadataResponse.TensorMetadata", 2, "datatype", "string"},
    {"ModelMetadataResponse.TensorMetadata", 3, "shape", "int64[]"},
    {"ModelInferRequest", 1, "model_name", "string"},
    {"ModelInferRequest", 2, "model_version", "string"},
    {"ModelInferRequest", 3, "id", "string"},
    {"ModelInferRequest", 4, "parameters", "map InferParameter"},
    {"ModelInferRequest", 5, "inputs", "ModelInferRequest.InferInputTensor[]"},
    {"ModelInferRequest", 6, "outputs", "ModelInferRequest.InferRequestedOutputTensor[]"},
    {"ModelInferRequest", 7, "raw_input_contents", "bytes[]"},
    {"ModelInferRequest.InferInputTensor", 1, "name", "string"},
    {"ModelInferRequest.InferInputTensor", 2, "datatype", "string"},
    {"ModelInferRequest.InferInputTensor", 3, "shape", "int64[]"},
    {"ModelInferRequest.InferInputTensor", 4, "parameters", "map InferParameter"},
    {"ModelInferRequest.InferInputTensor", 5, "contents", "InferTensorContents"},
    {"ModelInferRequest.InferRequestedOutputTensor", 1, "name", "string"},
    {"ModelInferRequest.InferRequestedOutputTensor", 2, "parameters", "map InferParameter"},
    {"ModelInferResponse", 1, "model_name", "string"},
    {"ModelInferResponse", 2, "model_version", "string"},
    {"ModelInferResponse", 3, "id", "string"},
    {"ModelInferResponse", 4, "parameters", "map InferParameter"},
    {"ModelInferResponse", 5, "outputs", "ModelInferResponse.InferOutputTensor[]"},
    {"ModelInferResponse", 6, "raw_output_contents", "bytes[]"},
    {"ModelInferResponse.InferOutputTensor", 1, "name", "string"},
    {"ModelInferResponse.InferOutputTensor", 2, "datatype", "string"},
    {"ModelInferResponse.InferOutputTensor", 3, "shape", "int64[]"},
    {"ModelInferResponse.InferOutputTensor", 4, "parameters", "map InferParameter"},
    {"ModelInferResponse.InferOutputTensor", 5, "contents", "InferTensorContents"},
    {"InferParameter", 1, "bool_param", "oneof bool"},
    {"InferParameter", 2, "int64_param", "oneof int64"},
    {"InferParameter", 3, "string_param", "oneof string"},
    {"InferParameter", 4, "double_param", "oneof double"},
    {"InferParameter", 5, "uint64_param", "oneof uint64"},
    {"InferTensorContents", 1, "bool_contents", "bool[]"},
    {"InferTensorContents", 2, "int_contents", "int32[]"},
    {"InferTensorContents", 3, "int64_contents", "int64[]"},
    {"InferTensorContents", 4, "uint_contents", "uint32[]"},
    {"InferTensorContents", 5, "uint64_contents", "uint64[]"},
    {"InferTensorContents", 6, "fp32_contents", "float[]"},
    {"InferTensorContents", 7, "fp64_contents", "double[]"},
    {"InferTensorContents", 8, "bytes_contents", "bytes[]"},
};

constexpr const char* kEmptyMessages[] = {"ServerLiveRequest", "ServerReadyRequest",
                                          "ServerMetadataRequest"};

constexpr const char* kCalls[] = {"ServerLive",     "ServerReady",   "ModelReady",
                                  "ServerMetadata", "ModelMetadata", "ModelInfer"};

const FileDescriptor* File() { return ModelInferRequest::descriptor()->file(); }

std::string WithoutPackage(const std::string& full_name) {
  return full_name.substr(std::string("inference.").size());
}

std::string PlainType(const FieldDescriptor& field) {
  return field.message_type() != nullptr ? WithoutPackage(field.message_type()->full_name())
                                         : field.type_name();
}

std::string TypeText(const FieldDescriptor& field) {
  if (field.is_map()) {
    const FieldDescriptor& key = *field.message_type()->map_key();
    EXPECT_EQ(key.type(), FieldDescriptor::TYPE_STRING) << field.full_name();
    return "map " + PlainType(*field.message_type()->map_value());
  }
  std::string text = PlainType(field);
  if (field.real_containing_oneof() != nullptr) {
    EXPECT_EQ(field.real_containing_oneof()->name(), "parameter_choice");
    text = "oneof " + text;
  }
  if (field.is_repeated()) text += "[]";
  return text;
}

// Every message of the file but the entries that maps are made of, nested ones too.
void CollectMessages(const Descriptor& message, std::map<std::string, const Descriptor*>* out) {
  if (message.options().map_entry()) return;
  (*out)[WithoutPackage(message.full_name())] = &message;
  for (int i = 0; i < message.nested_type_count(); ++i) {
    CollectMessages(*message.nested_type(i), out);
  }
}

std::map<std::string, const Descriptor*> Messages() {
  std::map<std::string, const Descriptor*> messages;
  for (int i = 0; i < File()->message_type_count(); ++i) {
    CollectMessages(*File()->message_type(i), &messages);
  }
  return messages;
}

TEST(OpenInferenceTest, EveryFieldOfTheSpecificationIsHere) {
  const auto messages = Messages();
  for (const FieldRow& row : kFields) {
    auto it = messages.find(row.message);
    ASSERT_NE(it, messages.end()) << row.message;
    const FieldDescriptor* field = it->second->FindFieldByNumber(row.number);
    ASSERT_NE(field, nullptr) << row.message << " " << row.number;
    EXPECT_EQ(field->name(), row.name) << row.message << " " << row.number;
    EXPECT_EQ(TypeText(*field), row.type) << row.message << "." << row.name;
  }
}

TEST(OpenInferenceTest, NothingElseIsHere) {
  std::map<std::string, int> expected;
  for (const char* message : kEmptyMessages) expected[message] = 0;
  for (const FieldRow& row : kFields) ++expected[row.message];
  std::map<std::string, int> actual;
  for (const auto& [name, message] : Messages()) actual[name] = message->field_count();
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(File()->enum_type_count(), 0);
}

TEST(OpenInferenceTest, RepeatedNumbersArePacked) {
  for (const auto& [name, message] : Messages()) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor& field = *message->field(i);
      if (field.is_repeated() && FieldDescriptor::IsTypePackable(field.type())) {
        EXPECT_TRUE(field.is_packed()) << field.full_name();
      }
    }
  }
}

TEST(OpenInferenceTest, ServiceHasTheSixUnaryCalls) {
  EXPECT_EQ(File()->package(), "inference");
  ASSERT_EQ(File()->service_count(), 1);
  const ServiceDescriptor& service = *File()->service(0);
  EXPECT_EQ(service.full_name(), "inference.GRPCInferenceService");
  std::set<std::string> names;
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    names.insert(method.name());
    EXPECT_EQ(WithoutPackage(method.input_type()->full_name()), method.name() + "Request");
    EXPECT_EQ(WithoutPackage(method.output_type()->full_name()), method.name() + "Response");
    EXPECT_FALSE(method.client_streaming()) << method.name();
    EXPECT_FALSE(method.server_streaming()) << method.name();
  }
  EXPECT_EQ(names, std::set<std::string>(std::begin(kCalls), std::end(kCalls)));
}

// Bytes as another implementation sends them: field 5 {name, datatype, packed shape}, field 7.
TEST(OpenInferenceTest, ReadsAForeignRequest) {
  const std::string wire(
      "\x0a\x01m"
      "\x2a\x0d\x0a\x01x\x12\x04"
      "FP32\x1a\x02\x01\x02"
      "\x3a\x08\x00\x00\x80\x3f\x00\x00\x00\x40",
      3 + 15 + 10);
  ModelInferRequest request;
  ASSERT_TRUE(request.ParseFromString(wire));
  EXPECT_EQ(request.model_name(), "m");
  ASSERT_EQ(request.inputs_size(), 1);
  EXPECT_EQ(request.inputs(0).name(), "x");
  EXPECT_EQ(request.inputs(0).datatype(), "FP32");
  ASSERT_EQ(request.inputs(0).shape_size(), 2);
  EXPECT_EQ(request.inputs(0).shape(1), 2);
  ASSERT_EQ(request.raw_input_contents_size(), 1);
  EXPECT_EQ(request.raw_input_contents(0).size(), 8u);
  EXPECT_TRUE(request.GetReflection()->GetUnknownFields(request).empty());
}

}  // namespace
}  // namespace inference
