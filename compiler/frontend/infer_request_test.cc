#include "compiler/frontend/infer_request.h"

#include <cstring>
#include <string>
#include <vector>

#include "compiler/frontend/testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// x f32 [b, 2] and ids i32 [b] → y = rows of x chosen by ids, z = ids.
Graph ModelGraph() {
  Graph graph;
  graph.dims = {{"b", 1, 8}};
  GraphBuilder builder(&graph);
  const Expr b = Expr::Symbol("b");
  const NodeId x = builder.Input("x", {DType::kF32, {b, 2}}).value();
  const NodeId ids = builder.Input("ids", {DType::kI32, {b}}).value();
  const NodeId rows =
      builder.Add(Op::kGather, {x, ids}, {{"axis", AttrValue(int64_t{0})}}, "rows").value();
  builder.Output("y", rows);
  builder.Output("z", ids);
  return graph;
}

RequestBinder Binder(const Graph& graph) { return RequestBinder::Create(graph).value(); }

// A graph that returns its only input.
Graph Identity(DType dtype, Shape shape) {
  Graph graph;
  GraphBuilder builder(&graph);
  builder.Output("y", builder.Input("x", {dtype, std::move(shape)}).value());
  return graph;
}

RequestMessage Good() {
  RequestMessage m;
  m.Tensor("ids", "INT32", {2}).Raw(Bytes<int32_t>({1, 0}));
  m.Tensor("x", "FP32", {2, 2}).Raw(Bytes<float>({1, 2, 3, 4}));
  return m;
}

std::string ErrorOf(const Graph& graph, const inference::ModelInferRequest& request) {
  absl::StatusOr<BoundRequest> bound = Binder(graph).Bind(request);
  if (bound.ok()) return "no error";
  EXPECT_EQ(bound.status().code(), absl::StatusCode::kInvalidArgument) << bound.status();
  return std::string(bound.status().message());
}

std::string ErrorOf(const RequestMessage& m) { return ErrorOf(ModelGraph(), m.request); }

TEST(InferRequestTest, BindsInputsInTheModelsOrderWithoutCopying) {
  const RequestMessage m = Good();
  const RequestBinder binder = Binder(ModelGraph());
  const BoundRequest bound = binder.Bind(m.request).value();
  EXPECT_EQ(bound.dims, std::vector<int64_t>{2});
  ASSERT_EQ(bound.inputs.size(), 2u);
  EXPECT_EQ(bound.inputs[0].data(), m.request.raw_input_contents(1).data());
  EXPECT_EQ(bound.inputs[1].data(), m.request.raw_input_contents(0).data());
  EXPECT_EQ(bound.inputs[0].size(), 16u);
  EXPECT_EQ(bound.outputs, (std::vector<int>{0, 1}));
  EXPECT_TRUE(bound.converted.empty());
}

TEST(InferRequestTest, OutputsComeInTheOrderAskedFor) {
  RequestMessage m = Good();
  m.Want("z").Want("y");
  EXPECT_EQ(Binder(ModelGraph()).Bind(m.request).value().outputs, (std::vector<int>{1, 0}));
  m.Want("z");
  EXPECT_EQ(ErrorOf(m), "output \"z\" is asked for twice; ask for it once");
  RequestMessage unknown = Good();
  unknown.Want("rows");
  EXPECT_NE(ErrorOf(unknown).find("the model has no output \"rows\"; it has y, z"),
            std::string::npos);
}

TEST(InferRequestTest, WrongDatatypeNamesBothAndTheCast) {
  RequestMessage m = Good();
  m.request.mutable_inputs(1)->set_datatype("FP64");
  EXPECT_EQ(ErrorOf(m),
            "input \"x\": datatype is FP64 (f64); the model takes FP32 (f32): cast the "
            "array to float32 before sending it");
  m.request.mutable_inputs(1)->set_datatype("BYTES");
  EXPECT_NE(
      ErrorOf(m).find("BYTES (texts), which no tensor of a model here holds; the model takes FP32"),
      std::string::npos);
  m.request.mutable_inputs(1)->set_datatype("");
  EXPECT_NE(ErrorOf(m).find("the model takes FP32"), std::string::npos);
}

TEST(InferRequestTest, WrongByteCounts) {
  for (size_t size : {0, 15, 17}) {
    RequestMessage m = Good();
    m.request.mutable_raw_input_contents(1)->assign(size, '\0');
    EXPECT_EQ(ErrorOf(m), "input \"x\": raw contents have " + std::to_string(size) +
                              " bytes; FP32 of its shape needs 16");
  }
}

TEST(InferRequestTest, WrongShapes) {
  RequestMessage m = Good();
  m.request.mutable_inputs(1)->set_shape(1, 3);
  EXPECT_NE(ErrorOf(m).find("input \"x\": axis 1 is 3; it must be 2"), std::string::npos);
  m = Good();
  m.request.mutable_inputs(0)->set_shape(0, 3);
  EXPECT_NE(ErrorOf(m).find("input \"ids\": axis 0 is 3; it must be b, which is 2"),
            std::string::npos);
  m = Good();
  m.request.mutable_inputs(1)->set_shape(0, 0);
  EXPECT_NE(ErrorOf(m).find("dim \"b\" 0; it must be in [1, 8]"), std::string::npos);
  m = Good();
  m.request.mutable_inputs(1)->set_shape(0, -1);
  EXPECT_NE(ErrorOf(m).find("sizes must not be negative"), std::string::npos);
  m = Good();
  m.request.mutable_inputs(1)->set_shape(0, int64_t{1} << 62);
  EXPECT_NE(ErrorOf(m).find("it must be in [1, 8]"), std::string::npos);
}

// A graph that returns its only input, which accepts one value only.
Graph Pinned(Tensor value) {
  Graph graph;
  GraphBuilder builder(&graph);
  const TensorType type{value.dtype, Shape(value.shape.begin(), value.shape.end())};
  builder.Output("y", builder.Input("axes", type, std::move(value)).value());
  return graph;
}

TEST(InferRequestTest, AnInputWithAValueTakesNoOtherContents) {
  const Graph graph = Pinned(Tensor::Of<int64_t>(DType::kI64, {1}, {1}));
  RequestMessage m;
  m.Tensor("axes", "INT64", {1}).Raw(Bytes<int64_t>({1}));
  EXPECT_TRUE(Binder(graph).Bind(m.request).ok());
  m.request.set_raw_input_contents(0, Bytes<int64_t>({0}));
  EXPECT_EQ(ErrorOf(graph, m.request),
            "input \"axes\": is [0]; this version was uploaded with values that make it [1]");
  // Applies to typed contents too, after their conversion; messages show a scalar without brackets.
  const Graph scalar = Pinned(Tensor::Of<uint8_t>(DType::kBool, {}, {1}));
  RequestMessage typed;
  typed.Tensor("axes", "BOOL", {});
  typed.tensor().mutable_contents()->add_bool_contents(true);
  EXPECT_TRUE(Binder(scalar).Bind(typed.request).ok());
  typed.tensor().mutable_contents()->set_bool_contents(0, false);
  EXPECT_EQ(ErrorOf(scalar, typed.request),
            "input \"axes\": is false; this version was uploaded with values that make it true");
  // Names the first of many elements that differs; a wrong shape is still refused.
  std::vector<int64_t> many(40, 3);
  const Graph large = Pinned(Tensor::Of<int64_t>(DType::kI64, {40}, many));
  many[33] = 4;
  RequestMessage l;
  l.Tensor("axes", "INT64", {40}).Raw(Bytes<int64_t>(many));
  EXPECT_EQ(
      ErrorOf(large, l.request),
      "input \"axes\": element 33 is 4; this version was uploaded with values that make it 3");
  l.request.mutable_inputs(0)->set_shape(0, 39);
  EXPECT_NE(ErrorOf(large, l.request).find("axis 0 is 39; it must be 40"), std::string::npos);
  // An empty tensor is a value too.
  RequestMessage none;
  none.Tensor("axes", "INT64", {0}).Raw("");
  EXPECT_TRUE(Binder(Pinned(Tensor::Zeros(DType::kI64, {0}))).Bind(none.request).ok());
}

TEST(InferRequestTest, UnknownMissingAndDuplicateInputs) {
  RequestMessage m = Good();
  m.request.mutable_inputs(1)->set_name("q");
  EXPECT_EQ(ErrorOf(m), "the model has no input \"q\"; it has x, ids");
  m.request.mutable_inputs(1)->set_name("ids");
  m.request.mutable_inputs(1)->set_datatype("INT32");
  EXPECT_EQ(ErrorOf(m), "input \"ids\" is there twice; send it once");
  m = Good();
  m.request.mutable_inputs()->RemoveLast();
  m.request.mutable_raw_input_contents()->RemoveLast();
  EXPECT_EQ(ErrorOf(m), "input \"x\" (FP32) is missing");
}

TEST(InferRequestTest, RawAndContentsExcludeEachOther) {
  RequestMessage m = Good();
  m.tensor().mutable_contents()->add_fp32_contents(1);
  EXPECT_NE(ErrorOf(m).find("input \"x\" has contents, and the request has raw_input_contents too"),
            std::string::npos);
  m = Good();
  m.request.mutable_raw_input_contents()->RemoveLast();
  EXPECT_EQ(ErrorOf(m), "raw_input_contents has 1 entries for 2 inputs; it must have one for each");
  m.request.clear_raw_input_contents();
  EXPECT_NE(ErrorOf(m).find("input \"x\" has neither contents nor raw_input_contents"),
            std::string::npos);
}

TEST(InferRequestTest, UnknownParameters) {
  RequestMessage m = Good();
  m.parameter("timeouts").set_int64_param(5);
  EXPECT_NE(ErrorOf(m).find("parameter \"timeouts\" is unknown; the parameters are wait, "
                            "timeout_us, priority, taps"),
            std::string::npos);
  m = Good();
  (*m.tensor().mutable_parameters())["shared_memory_region"].set_string_param("r");
  EXPECT_NE(ErrorOf(m).find("input \"x\" does not take parameter \"shared_memory_region\""),
            std::string::npos);
  m = Good();
  m.Want("y");
  (*m.request.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(1);
  const absl::Status refused = Binder(ModelGraph()).Bind(m.request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("output \"y\": classification is not supported"),
            absl::string_view::npos);
}

// As tritonclient sends them.
TEST(InferRequestTest, TritonsParameters) {
  RequestMessage m = Good();
  m.parameter("timeout").set_int64_param(2500);
  m.parameter("priority").set_uint64_param(1);
  EXPECT_EQ(Binder(ModelGraph()).Bind(m.request)->options.timeout_us, 2500);
  m.parameter("timeout").set_int64_param(0);
  EXPECT_EQ(Binder(ModelGraph()).Bind(m.request)->options.timeout_us, 0);
  m.parameter("timeout").set_int64_param(-1);
  EXPECT_NE(ErrorOf(m).find("parameter timeout is -1"), std::string::npos);
  m.parameter("timeout").set_int64_param(1);
  m.parameter("timeout_us").set_int64_param(1);
  EXPECT_EQ(ErrorOf(m), "parameters timeout and timeout_us mean the same; set one");
  m = Good();
  m.parameter("sequence_start").set_bool_param(true);
  EXPECT_NE(ErrorOf(m).find("parameter \"sequence_start\" is not supported"), std::string::npos);
}

TEST(InferRequestTest, ReadsParameters) {
  RequestMessage m = Good();
  m.parameter("wait").set_string_param("none");
  m.parameter("timeout_us").set_int64_param(2500);
  m.parameter("priority").set_uint64_param(UINT64_MAX);
  m.parameter("taps").set_string_param("rows,x");
  const RequestOptions options = Binder(ModelGraph()).Bind(m.request).value().options;
  EXPECT_EQ(options.wait, RequestOptions::Wait::kNone);
  EXPECT_EQ(options.timeout_us, 2500);
  EXPECT_EQ(options.priority, INT64_MAX);
  EXPECT_EQ(options.taps, (std::vector<NodeId>{2, 0}));
}

TEST(InferRequestTest, WrongParameters) {
  const auto error = [](const std::string& name, auto set) {
    RequestMessage m = Good();
    set(m.parameter(name));
    return ErrorOf(m);
  };
  using P = inference::InferParameter;
  EXPECT_EQ(error("wait", [](P& p) { p.set_string_param("forever"); }),
            "parameter wait is \"forever\"; it must be \"baseline\" or \"none\"");
  EXPECT_EQ(error("wait", [](P& p) { p.set_bool_param(true); }),
            "parameter wait is a bool; it must be a string");
  EXPECT_EQ(error("timeout_us", [](P& p) { p.set_string_param("1s"); }),
            "parameter timeout_us is a string; it must be an int64 or a uint64");
  EXPECT_EQ(error("timeout_us", [](P& p) { p.set_int64_param(0); }),
            "parameter timeout_us is 0; it must be at least 1");
  EXPECT_EQ(error("timeout_us", [](P&) {}),
            "parameter timeout_us is nothing; it must be an int64 or a uint64");
  EXPECT_EQ(error("priority", [](P& p) { p.set_double_param(1); }),
            "parameter priority is a double; it must be an int64 or a uint64");
  EXPECT_EQ(error("priority", [](P& p) { p.set_int64_param(-1); }),
            "parameter priority is -1; it must be at least 0");
  EXPECT_EQ(error("taps", [](P& p) { p.set_string_param("rows,nope"); }),
            "parameter taps names \"nope\", which is not a node of the model; it must be names of "
            "nodes, separated by commas");
  EXPECT_NE(error("taps", [](P& p) { p.set_string_param("x,row"); }).find("did you mean \"rows\"?"),
            std::string::npos);
  EXPECT_NE(error("taps", [](P& p) { p.set_string_param(""); }).find("names \"\""),
            std::string::npos);
  EXPECT_NE(error("taps", [](P& p) { p.set_string_param("x,x"); }).find("\"x\" twice"),
            std::string::npos);
}

TEST(InferRequestTest, NamesOfTapsMayHoldCommasAndBackslashes) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {2}}).value();
  const NodeId comma = builder.Add(Op::kExp, {x}, {}, "a,b").value();
  const NodeId backslash = builder.Add(Op::kSin, {comma}, {}, "c\\").value();
  builder.Output("y", backslash);
  RequestMessage m;
  m.Tensor("x", "FP32", {2}).Raw(Bytes<float>({1, 2}));
  m.parameter("taps").set_string_param("c\\\\,a\\,b");
  EXPECT_EQ(Binder(graph).Bind(m.request).value().options.taps,
            (std::vector<NodeId>{backslash, comma}));
  m.parameter("taps").set_string_param("c\\");
  EXPECT_EQ(Binder(graph).Bind(m.request).value().options.taps, std::vector<NodeId>{backslash});
}

TEST(InferRequestTest, NumberOfTapsIsBounded) {
  RequestMessage m = Good();
  m.parameter("taps").set_string_param("rows,x");
  const RequestBinder binder = Binder(ModelGraph());
  EXPECT_TRUE(binder.Bind(m.request, {.max_taps = 2}).ok());
  EXPECT_EQ(binder.Bind(m.request, {.max_taps = 1}).status().message(),
            "parameter taps names more than 1 nodes, the most allowed (--max_taps)");
}

TEST(InferRequestTest, TapsOfDtypesThatCannotTravel) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {2}}).value();
  const NodeId small =
      builder.Add(Op::kCast, {x}, {{"dtype", AttrValue(DType::kF8E4M3)}}, "small").value();
  builder.Output("y", builder.Add(Op::kCast, {small}, {{"dtype", AttrValue(DType::kF32)}}).value());
  RequestMessage m;
  m.Tensor("x", "FP32", {2}).Raw(Bytes<float>({1, 2}));
  m.parameter("taps").set_string_param("small");
  const absl::Status status = Binder(graph).Bind(m.request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("\"small\" of dtype f8e4m3"), std::string::npos) << status;
}

TEST(InferRequestTest, IndicesOutsideTheirAxis) {
  RequestMessage m = Good();
  *m.request.mutable_raw_input_contents(0) = Bytes<int32_t>({1, 2});
  EXPECT_EQ(ErrorOf(m),
            "input \"ids\": element 1 is 2; it must be in [0, 2): node \"rows\" (Gather) "
            "selects with it");
  *m.request.mutable_raw_input_contents(0) = Bytes<int32_t>({-1, 0});
  EXPECT_NE(ErrorOf(m).find("element 0 is -1; it must be in [0, 2)"), std::string::npos);
}

TEST(InferRequestTest, UnsignedIndicesBeyondInt64) {
  Graph graph;
  GraphBuilder builder(&graph);
  const NodeId x = builder.Input("x", {DType::kF32, {4}}).value();
  const NodeId ids = builder.Input("ids", {DType::kU64, {1}}).value();
  builder.Output("y",
                 builder.Add(Op::kGather, {x, ids}, {{"axis", AttrValue(int64_t{0})}}).value());
  RequestMessage m;
  m.Tensor("x", "FP32", {4}).Raw(std::string(16, '\0'));
  m.Tensor("ids", "UINT64", {1}).Raw(Bytes<uint64_t>({UINT64_MAX}));
  EXPECT_NE(
      ErrorOf(graph, m.request).find("element 0 is 18446744073709551615; it must be in [0, 4)"),
      std::string::npos);
}

TEST(InferRequestTest, BagOffsets) {
  Graph graph;
  graph.dims = {{"n", 0, 100}, {"b", 0, 10}};
  GraphBuilder builder(&graph);
  const NodeId table = builder.Parameter("table", {DType::kF32, {30, 4}}).value();
  const NodeId ids = builder.Input("ids", {DType::kI64, {Expr::Symbol("n")}}).value();
  const NodeId offsets = builder.Input("offsets", {DType::kI64, {Expr::Symbol("b")}}).value();
  builder.Output("y", builder
                          .Add(Op::kEmbeddingBag, {table, ids, offsets},
                               {{"mode", AttrValue(std::string("sum"))}}, "bag")
                          .value());
  const auto error = [&](const std::vector<int64_t>& ids, const std::vector<int64_t>& offsets) {
    RequestMessage m;
    m.Tensor("ids", "INT64", {static_cast<int64_t>(ids.size())}).Raw(Bytes(ids));
    m.Tensor("offsets", "INT64", {static_cast<int64_t>(offsets.size())}).Raw(Bytes(offsets));
    return ErrorOf(graph, m.request);
  };
  EXPECT_EQ(error({0, 29, 3}, {0, 0, 2, 3}), "no error");
  EXPECT_EQ(error({}, {}), "no error");
  EXPECT_NE(error({0, 30}, {0}).find("\"ids\": element 1 is 30; it must be in [0, 30)"),
            std::string::npos);
  EXPECT_NE(error({0, 1}, {1}).find("the first offset must be 0"), std::string::npos);
  EXPECT_NE(error({0, 1}, {0, 2, 1}).find("element 2 is 1; it must be in [2, 2]"),
            std::string::npos);
  EXPECT_NE(error({0, 1}, {0, 3}).find("element 1 is 3; it must be in [0, 2]"), std::string::npos);
  EXPECT_NE(error({0, 1}, {}).find("\"offsets\": is empty, but there are 2 ids"),
            std::string::npos);
}

TEST(InferRequestTest, RawBoolsAreZeroOrOne) {
  const Graph graph = Identity(DType::kBool, {3});
  RequestMessage m;
  m.Tensor("x", "BOOL", {3}).Raw(std::string("\0\1\0", 3));
  EXPECT_EQ(ErrorOf(graph, m.request), "no error");
  *m.request.mutable_raw_input_contents(0) = std::string("\0\1\2", 3);
  EXPECT_EQ(ErrorOf(graph, m.request),
            "input \"x\": element 2 is byte 2; BOOL bytes must be 0 or 1");
}

TEST(InferRequestTest, ElementsBelowAByteHaveTheirRange) {
  const auto error = [](DType dtype, const std::string& element, const std::string& bytes) {
    const Graph graph = Identity(dtype, {static_cast<int64_t>(bytes.size())});
    const RequestBinder binder = RequestBinder::Create(graph, {element}).value();
    RequestMessage m;
    m.Tensor("x", dtype == DType::kI8 ? "INT8" : "UINT8", {static_cast<int64_t>(bytes.size())});
    m.Raw(bytes);
    return std::string(binder.Bind(m.request).status().message());
  };
  EXPECT_EQ(error(DType::kI8, "int4", "\xf8\x07"), "");
  EXPECT_EQ(error(DType::kI8, "int4", "\x01\x08"), "input \"x\": element 1 is 8; int4 has -8 to 7");
  EXPECT_EQ(error(DType::kI8, "int2", "\xfd"), "input \"x\": element 0 is -3; int2 has -2 to 1");
  EXPECT_EQ(error(DType::kU8, "uint2", "\x04"), "input \"x\": element 0 is 4; uint2 has 0 to 3");
  EXPECT_EQ(error(DType::kU8, "float6e2m3", "\x40"),
            "input \"x\": element 0 is 64; float6e2m3 has 0 to 63");
  EXPECT_EQ(error(DType::kU8, "float8e4m3fnuz", "\xff"), "");
}

TEST(InferRequestTest, AFixedInputTakesItsOneValue) {
  Graph graph = Identity(DType::kI64, {2});
  graph.nodes[0].attrs["value"] = Tensor::Of<int64_t>(DType::kI64, {2}, {1, -2});
  const auto error = [&](const std::vector<int64_t>& values) {
    RequestMessage m;
    m.Tensor("x", "INT64", {static_cast<int64_t>(values.size())}).Raw(Bytes(values));
    return ErrorOf(graph, m.request);
  };
  EXPECT_EQ(error({1, -2}), "no error");
  EXPECT_EQ(error({1, 2}),
            "input \"x\": is [1, 2]; this version was uploaded with values that make it [1, -2]");
  EXPECT_NE(error({1}), "no error");
  // Typed contents are checked against it too.
  RequestMessage m;
  m.Tensor("x", "INT64", {2}).tensor().mutable_contents()->add_int64_contents(1);
  m.tensor().mutable_contents()->add_int64_contents(-2);
  EXPECT_EQ(ErrorOf(graph, m.request), "no error");
}

// Adds `values` to the contents field of `row`.
template <typename T>
void Fill(inference::InferTensorContents* c, const DatatypeRow& row, const std::vector<T>& values) {
  for (T v : values) {
    switch (row.contents) {
      case Contents::kBool:
        c->add_bool_contents(v);
        break;
      case Contents::kInt:
        c->add_int_contents(v);
        break;
      case Contents::kInt64:
        c->add_int64_contents(v);
        break;
      case Contents::kUint:
        c->add_uint_contents(v);
        break;
      case Contents::kUint64:
        c->add_uint64_contents(v);
        break;
      case Contents::kFp32:
        c->add_fp32_contents(v);
        break;
      case Contents::kFp64:
        c->add_fp64_contents(v);
        break;
      case Contents::kRawOnly:
        break;
    }
  }
}

// Checks that typed contents of `values` give exactly the bytes of a dense array of T.
template <typename T>
void ExpectContents(DType dtype, const std::vector<T>& values) {
  const DatatypeRow& row = *DatatypeOf(dtype);
  const RequestBinder binder = Binder(Identity(dtype, {static_cast<int64_t>(values.size())}));
  RequestMessage m;
  m.Tensor("x", std::string(row.name), {static_cast<int64_t>(values.size())});
  Fill(m.tensor().mutable_contents(), row, values);
  absl::StatusOr<BoundRequest> bound = binder.Bind(m.request);
  ASSERT_TRUE(bound.ok()) << row.name << ": " << bound.status();
  ASSERT_EQ(bound->inputs[0].size(), values.size() * sizeof(T)) << row.name;
  EXPECT_EQ(std::memcmp(bound->inputs[0].data(), values.data(), bound->inputs[0].size()), 0)
      << row.name;
}

TEST(InferRequestTest, TypedContentsOfEveryDatatype) {
  ExpectContents<int8_t>(DType::kI8, {-128, 0, 127});
  ExpectContents<int16_t>(DType::kI16, {-32768, 32767});
  ExpectContents<int32_t>(DType::kI32, {INT32_MIN, INT32_MAX});
  ExpectContents<int64_t>(DType::kI64, {INT64_MIN, int64_t{1} << 40});
  ExpectContents<uint8_t>(DType::kU8, {0, 255});
  ExpectContents<uint16_t>(DType::kU16, {0, 65535});
  ExpectContents<uint32_t>(DType::kU32, {0, UINT32_MAX});
  ExpectContents<uint64_t>(DType::kU64, {0, UINT64_MAX});
  ExpectContents<uint8_t>(DType::kBool, {0, 1, 1});
  ExpectContents<float>(DType::kF32, {-0.0f, 1e-45f, 3.4e38f});
  ExpectContents<double>(DType::kF64, {1.0000000000000002, -5e-324});
}

std::string ContentsErrorOf(const char* datatype, auto fill) {
  RequestMessage m;
  m.Tensor("x", datatype, {2});
  fill(*m.tensor().mutable_contents());
  return ErrorOf(Identity(FindDatatype(datatype)->dtype, {2}), m.request);
}

TEST(InferRequestTest, WrongTypedContents) {
  using C = inference::InferTensorContents;
  EXPECT_EQ(ContentsErrorOf("INT8", [](C& c) { c.add_int_contents(0), c.add_int_contents(128); }),
            "input \"x\": element 1 is 128, which INT8 cannot hold; it must be in [-128, 127]");
  EXPECT_EQ(
      ContentsErrorOf("UINT16", [](C& c) { c.add_uint_contents(65536), c.add_uint_contents(0); }),
      "input \"x\": element 0 is 65536, which UINT16 cannot hold; it must be in [0, 65535]");
  EXPECT_EQ(ContentsErrorOf("FP32", [](C& c) { c.add_fp32_contents(1); }),
            "input \"x\": fp32_contents has 1 elements; the shape needs 2");
  EXPECT_EQ(ContentsErrorOf("FP32", [](C& c) { c.add_fp64_contents(1), c.add_fp64_contents(1); }),
            "input \"x\": contents are in fp64_contents; FP32 is sent in fp32_contents");
  EXPECT_EQ(ContentsErrorOf("FP16", [](C& c) { c.add_fp32_contents(1), c.add_fp32_contents(1); }),
            "input \"x\": FP16 is sent in raw_input_contents only");
}

TEST(InferRequestTest, EmptyTensorsNeedNoContents) {
  for (const char* datatype : {"FP32", "BF16", "INT8"}) {
    RequestMessage m;
    m.Tensor("x", datatype, {0, 3});
    EXPECT_EQ(ErrorOf(Identity(FindDatatype(datatype)->dtype, {0, 3}), m.request), "no error");
  }
}

TEST(InferRequestTest, RankZero) {
  RequestMessage m;
  m.Tensor("x", "FP64", {}).Raw(Bytes<double>({2.5}));
  EXPECT_EQ(ErrorOf(Identity(DType::kF64, {}), m.request), "no error");
}

}  // namespace
}  // namespace athanor
