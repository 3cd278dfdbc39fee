#include "compiler/frontend/onnx/model/wire.h"

#include <string>
#include <vector>

#include "compiler/frontend/parse.h"
#include "gtest/gtest.h"
#include "proto/onnx/onnx.pb.h"

namespace athanor::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::TensorProto;

// A model with tensors in every place that can hold one.
ModelProto Model() {
  ModelProto model;
  model.set_ir_version(8);
  model.set_producer_name("test");
  GraphProto* graph = model.mutable_graph();
  graph->set_name("g");
  const auto fill = [](TensorProto* t, std::string name, int floats) {
    t->set_name(std::move(name));
    t->set_data_type(TensorProto::FLOAT);
    t->add_dims(floats);
    std::vector<float> values(floats);
    for (int i = 0; i < floats; ++i) values[i] = static_cast<float>(i);
    t->set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), floats * 4));
  };
  fill(graph->add_initializer(), "large", 1000);
  fill(graph->add_initializer(), "small", 4);
  fill(graph->add_sparse_initializer()->mutable_values(), "sparse", 300);
  ::onnx::NodeProto* node = graph->add_node();
  node->set_name("n");
  fill(node->add_attribute()->mutable_t(), "constant", 500);
  GraphProto* branch = node->add_attribute()->mutable_g();
  branch->set_name("branch");
  fill(branch->add_initializer(), "inner", 600);
  AttributeProto* many = node->add_attribute();
  fill(many->add_graphs()->add_initializer(), "first", 257);
  fill(many->add_tensors(), "listed", 258);
  fill(model.add_functions()->add_node()->add_attribute()->mutable_t(), "of function", 700);
  TensorProto* typed = graph->add_initializer();
  typed->set_name("typed");
  for (int i = 0; i < 2000; ++i) typed->add_int64_data(i - 1000);
  return model;
}

std::string LiftError(std::string_view bytes, const LiftLimits& limits = {},
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::StatusOr<Lifted> lifted = LiftPayloads(bytes, limits);
  if (lifted.ok()) return "no error";
  EXPECT_EQ(lifted.status().code(), code) << lifted.status();
  return std::string(lifted.status().message());
}

// Puts payloads back into the fields they came from.
void Restore(const std::string& bytes, const Lifted& lifted, google::protobuf::Message* message) {
  if (auto* tensor = dynamic_cast<TensorProto*>(message)) {
    if (tensor->external_data_size() == 1 && tensor->external_data(0).key() == kPayloadKey) {
      const PayloadRef& ref = lifted.payloads[std::stoi(tensor->external_data(0).value())];
      const std::string payload = bytes.substr(ref.offset, ref.bytes);
      tensor->clear_external_data();
      if (ref.field == 9) {
        tensor->set_raw_data(payload);
      } else {
        ASSERT_EQ(ref.field, 7u);
        std::string field;  // tag and length before the packed values
        field.push_back(static_cast<char>(7 << 3 | 2));
        for (size_t n = payload.size();; n >>= 7) {
          field.push_back(static_cast<char>(n < 0x80 ? n : n | 0x80));
          if (n < 0x80) break;
        }
        ASSERT_TRUE(tensor->MergeFromString(field + payload));
      }
    }
    return;
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  const google::protobuf::Reflection* reflection = message->GetReflection();
  reflection->ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (!field->is_repeated()) {
      Restore(bytes, lifted, reflection->MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      Restore(bytes, lifted, reflection->MutableRepeatedMessage(message, field, i));
    }
  }
}

TEST(WireTest, WhatIsLiftedAndWhatIsLeftAreTheModel) {
  const ModelProto model = Model();
  const std::string bytes = model.SerializeAsString();
  for (const int64_t inline_bytes : {0, 1, 15, 16, 1024, 1028, 4000, 1 << 20}) {
    const absl::StatusOr<Lifted> lifted = LiftPayloads(bytes, {.inline_bytes = inline_bytes});
    ASSERT_TRUE(lifted.ok()) << lifted.status();
    ModelProto parsed;
    ASSERT_TRUE(ParseMessage(lifted->message, &parsed).ok());
    Restore(bytes, *lifted, &parsed);
    EXPECT_EQ(parsed.SerializeAsString(), bytes) << inline_bytes;
  }
}

TEST(WireTest, SmallTensorsStay) {
  const std::string bytes = Model().SerializeAsString();
  const Lifted lifted = LiftPayloads(bytes, {}).value();
  EXPECT_EQ(lifted.payloads.size(), 8u);
  EXPECT_LT(lifted.message.size(), 1000u);
  EXPECT_EQ(LiftPayloads(bytes, {.inline_bytes = 0})->payloads.size(), 9u);
  const Lifted all = LiftPayloads(bytes, {.inline_bytes = 1 << 20}).value();
  EXPECT_TRUE(all.payloads.empty());
  EXPECT_EQ(all.message, bytes);
}

TEST(WireTest, PayloadsAreNamedInTheMessage) {
  const Lifted lifted = LiftPayloads(Model().SerializeAsString(), {}).value();
  ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(lifted.message));
  const TensorProto& large = parsed.graph().initializer(0);
  EXPECT_EQ(large.name(), "large");
  EXPECT_FALSE(large.has_raw_data());
  EXPECT_EQ(large.external_data(0).key(), kPayloadKey);
  const PayloadRef ref = lifted.payloads[std::stoi(large.external_data(0).value())];
  EXPECT_EQ(ref.bytes, 4000);
  EXPECT_EQ(ref.field, 9u);
}

TEST(WireTest, CutAtEveryByte) {
  const std::string bytes = Model().SerializeAsString();
  int refused = 0, parsed = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::StatusOr<Lifted> lifted = LiftPayloads(std::string_view(bytes).substr(0, size), {});
    if (!lifted.ok()) {
      EXPECT_EQ(lifted.status().code(), absl::StatusCode::kInvalidArgument);
      ++refused;
      continue;
    }
    // A cut between two fields of the model gives a shorter, valid model.
    ModelProto shorter;
    EXPECT_TRUE(shorter.ParseFromString(lifted->message)) << size;
    ++parsed;
  }
  EXPECT_LE(parsed, 8);
  EXPECT_EQ(refused + parsed, static_cast<int>(bytes.size()));
}

TEST(WireTest, SaysWhereBytesAreMissing) {
  ModelProto model;
  TensorProto* tensor = model.mutable_graph()->add_initializer();
  model.mutable_graph()->add_initializer()->CopyFrom(*tensor);
  model.mutable_graph()->mutable_initializer(1)->set_raw_data(std::string(4096, 'x'));
  std::string bytes = model.SerializeAsString();
  bytes.resize(bytes.size() - 100);
  EXPECT_EQ(LiftError(bytes), "graph: 4104 bytes stated, 4004 left");
  // The raw data states more bytes than the tensor holds.
  std::string raw = "\x4a\xff\x7f";  // raw_data, 16383 bytes
  std::string inner = "\x2a" + std::string(1, static_cast<char>(raw.size())) + raw;
  std::string outer = "\x3a" + std::string(1, static_cast<char>(inner.size() + 2)) + "\x2a" +
                      std::string(1, '\0') + inner;
  EXPECT_EQ(LiftError(outer), "graph.initializer[1].raw_data: 16383 bytes stated, 0 left");
}

TEST(WireTest, CorruptBytesNeverCrash) {
  const std::string bytes = Model().SerializeAsString();
  for (size_t at = 0; at < bytes.size(); at += at < 200 ? 1 : 37) {
    for (const int with : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(with);
      const absl::StatusOr<Lifted> lifted = LiftPayloads(changed, {});
      if (lifted.ok()) {
        for (const PayloadRef& ref : lifted->payloads) {
          ASSERT_LE(ref.offset + ref.bytes, static_cast<int64_t>(bytes.size()));
        }
      } else {
        EXPECT_EQ(lifted.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST(WireTest, MalformedFieldsAreNamed) {
  EXPECT_EQ(LiftError(std::string("\x00\x01", 2)),
            "the model: its tag is cut off or malformed at byte 1 of 2");
  EXPECT_EQ(LiftError("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            "ir_version: a varint is cut off or malformed at byte 11 of 12");
  EXPECT_EQ(LiftError("\x0b"),
            "ir_version: a group or an unknown wire type is cut off or malformed at "
            "byte 1 of 1");
  EXPECT_EQ(LiftError("\x3d\x01\x02"),
            "graph: a fixed-width value is cut off or malformed at byte "
            "1 of 3");
  EXPECT_EQ(LiftError("\xfa\x7f\x05"), "field 2047: 5 bytes stated, 0 left");
  EXPECT_EQ(LiftError("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            "graph: 9223372036854775807 bytes stated, 0 left");
}

TEST(WireTest, UsersCannotNamePayloads) {
  ModelProto model;
  auto* entry = model.mutable_graph()->add_initializer()->add_external_data();
  entry->set_key(std::string(kPayloadKey));
  entry->set_value("0");
  EXPECT_EQ(LiftError(model.SerializeAsString()),
            "graph.initializer[0].external_data[0]: the key \"athanor.payload\" is this server's "
            "own and cannot be in a file");
  entry->set_key("location");
  entry->set_value("athanor.payload");  // a file may have this name
  EXPECT_TRUE(LiftPayloads(model.SerializeAsString(), {}).ok());
}

TEST(WireTest, NestedBomb) {
  std::string bytes;
  for (int depth = 0; depth < 400; ++depth) {
    // AttributeProto.g, NodeProto.attribute, GraphProto.node
    for (const char tag : {'\x32', '\x2a', '\x0a'}) {
      std::string length;
      for (size_t n = bytes.size();; n >>= 7) {
        length.push_back(static_cast<char>(n < 0x80 ? n : n | 0x80));
        if (n < 0x80) break;
      }
      bytes = std::string(1, tag) + length + bytes;
    }
  }
  std::string length;
  for (size_t n = bytes.size();; n >>= 7) {
    length.push_back(static_cast<char>(n < 0x80 ? n : n | 0x80));
    if (n < 0x80) break;
  }
  const std::string error =
      LiftError("\x3a" + length + bytes, {}, absl::StatusCode::kResourceExhausted);
  EXPECT_NE(error.find("is nested deeper than 100 messages"), std::string::npos) << error;
}

TEST(WireTest, Limits) {
  const std::string bytes = Model().SerializeAsString();
  EXPECT_NE(LiftError(bytes, {.max_payloads = 7}, absl::StatusCode::kResourceExhausted)
                .find("more than 7 tensors of more than 1024 bytes"),
            std::string::npos);
  EXPECT_TRUE(LiftPayloads(bytes, {.max_payloads = 8}).ok());
  const int64_t left = static_cast<int64_t>(LiftPayloads(bytes, {})->message.size());
  EXPECT_TRUE(LiftPayloads(bytes, {.max_message_bytes = left + 10}).ok());
  EXPECT_NE(LiftError(bytes, {.max_message_bytes = left - 1}, absl::StatusCode::kResourceExhausted)
                .find("(--max_graph_bytes)"),
            std::string::npos);
}

TEST(WireTest, AnEmptyFileIsAnEmptyMessage) {
  const Lifted lifted = LiftPayloads("", {}).value();
  EXPECT_TRUE(lifted.message.empty());
  EXPECT_TRUE(lifted.payloads.empty());
}

}  // namespace
}  // namespace athanor::onnx
