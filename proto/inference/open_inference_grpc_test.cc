// Compares our protocol files with tables written down from the public specification: what is on
// the wire is the name of the service and its calls, and the number, type and label of each field.
// Names count too: JSON transcoding, reflection clients and config.pbtxt use them.
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/inference/model_config.pb.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "proto/inference/specification_testing.h"

namespace inference {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

const FileDescriptor* File() { return ModelInferRequest::descriptor()->file(); }

std::vector<const FileDescriptor*> Files() { return {File(), ModelConfig::descriptor()->file()}; }

std::string WithoutPackage(const std::string& full_name) {
  return full_name.substr(std::string("inference.").size());
}

std::string PlainType(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return WithoutPackage(field.message_type()->full_name());
  if (field.enum_type() != nullptr) return WithoutPackage(field.enum_type()->full_name());
  return field.type_name();
}

std::string TypeText(const FieldDescriptor& field) {
  if (field.is_map()) {
    const std::string key = PlainType(*field.message_type()->map_key());
    const std::string value = PlainType(*field.message_type()->map_value());
    return key == "string" ? "map " + value : "map of " + key + " " + value;
  }
  std::string text = PlainType(field);
  if (field.real_containing_oneof() != nullptr) text = "oneof " + text;
  if (field.is_repeated()) text += "[]";
  return text;
}

// Every message of the files but the entries that maps are made of, nested ones too.
void CollectMessages(const Descriptor& message, std::map<std::string, const Descriptor*>* out) {
  if (message.options().map_entry()) return;
  (*out)[WithoutPackage(message.full_name())] = &message;
  for (int i = 0; i < message.nested_type_count(); ++i) {
    CollectMessages(*message.nested_type(i), out);
  }
}

std::map<std::string, const Descriptor*> Messages() {
  std::map<std::string, const Descriptor*> messages;
  for (const FileDescriptor* file : Files()) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      CollectMessages(*file->message_type(i), &messages);
    }
  }
  return messages;
}

using EnumValues = std::set<std::tuple<std::string, int, std::string>>;

void CollectValues(const EnumDescriptor& descriptor, EnumValues* values) {
  for (int i = 0; i < descriptor.value_count(); ++i) {
    values->emplace(WithoutPackage(descriptor.full_name()), descriptor.value(i)->number(),
                    descriptor.value(i)->name());
  }
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
}

TEST(OpenInferenceTest, EnumsAreThoseOfTheSpecification) {
  EnumValues actual, expected;
  for (const FileDescriptor* file : Files()) {
    for (int i = 0; i < file->enum_type_count(); ++i) CollectValues(*file->enum_type(i), &actual);
  }
  for (const auto& [name, message] : Messages()) {
    for (int i = 0; i < message->enum_type_count(); ++i) {
      CollectValues(*message->enum_type(i), &actual);
    }
  }
  for (const EnumRow& row : kEnums) expected.emplace(row.name, row.number, row.value);
  EXPECT_EQ(actual, expected);
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

TEST(OpenInferenceTest, ServiceHasTheCallsOfTheSpecification) {
  EXPECT_EQ(File()->package(), "inference");
  ASSERT_EQ(File()->service_count(), 1);
  const ServiceDescriptor& service = *File()->service(0);
  EXPECT_EQ(service.full_name(), "inference.GRPCInferenceService");
  EXPECT_EQ(service.method_count(), static_cast<int>(std::size(kCalls)));
  for (const CallRow& row : kCalls) {
    const std::string name = row.name;
    const MethodDescriptor* method = service.FindMethodByName(name);
    ASSERT_NE(method, nullptr) << name;
    EXPECT_EQ(WithoutPackage(method->input_type()->full_name()),
              name == "ModelStreamInfer" ? "ModelInferRequest" : name + "Request");
    EXPECT_EQ(WithoutPackage(method->output_type()->full_name()), name + "Response");
    EXPECT_EQ(method->client_streaming(), row.streams) << name;
    EXPECT_EQ(method->server_streaming(), row.streams) << name;
  }
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
