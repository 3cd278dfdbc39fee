#include "server/openai/error.h"

#include <string>

#include "gtest/gtest.h"
#include "server/http/json_body.h"

namespace athanor {
namespace {

Json ErrorOf(const absl::Status& status) {
  return Json::parse(ErrorAnswerOf(status).body)["error"];
}

std::string HeaderOf(const ErrorAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(ErrorTest, ExactBody) {
  const ErrorAnswer answer = ErrorAnswerOf(absl::InvalidArgumentError("n is 0; it has to be 1"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body,
            R"({"error":{"message":"n is 0; it has to be 1","type":"invalid_request_error",)"
            R"("param":"n","code":null}})");
  EXPECT_EQ(ErrorEvent(absl::InternalError("x")),
            "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":null}}\n\n");
}

TEST(ErrorTest, CodesAndWhetherToTryAgain) {
  const struct {
    absl::Status status;
    int http;
    std::string retry_after, should_retry;
  } rows[] = {
      {absl::InvalidArgumentError("x"), 400, "", ""},
      {absl::OutOfRangeError("x"), 400, "", ""},
      {absl::FailedPreconditionError("x"), 400, "", ""},
      {absl::UnimplementedError("x"), 400, "", ""},
      {absl::UnauthenticatedError("x"), 401, "", ""},
      {absl::PermissionDeniedError("x"), 403, "", ""},
      {absl::NotFoundError("x"), 404, "", ""},
      {absl::ResourceExhaustedError("x"), 429, "1", ""},
      {absl::UnavailableError("x"), 503, "1", ""},
      {absl::DeadlineExceededError("x"), 504, "", "false"},
      {absl::InternalError("x"), 500, "", "false"},
      {absl::DataLossError("x"), 500, "", "false"},
      {absl::UnknownError("x"), 500, "", "false"},
  };
  for (const auto& row : rows) {
    const ErrorAnswer answer = ErrorAnswerOf(row.status);
    EXPECT_EQ(answer.status, row.http) << row.status;
    EXPECT_EQ(HeaderOf(answer, "Retry-After"), row.retry_after) << row.status;
    EXPECT_EQ(HeaderOf(answer, "x-should-retry"), row.should_retry) << row.status;
    EXPECT_EQ(OpenAiErrorBody(row.http, "x").first, "application/json");
  }
  EXPECT_EQ(ErrorOf(absl::NotFoundError("x"))["code"], "model_not_found");
  EXPECT_EQ(ErrorOf(absl::NotFoundError("x"))["param"], "model");
}

TEST(ErrorTest, FieldsHaveTheClientsNames) {
  const auto expect = [](const std::string& ours, const std::string& message,
                         const std::string& param) {
    const Json error = ErrorOf(absl::InvalidArgumentError(ours));
    EXPECT_EQ(error["message"], message);
    EXPECT_EQ(error["param"], param.empty() ? Json() : Json(param)) << message;
  };
  expect("sampling.bias names token 100", "logit_bias names token 100", "logit_bias");
  expect("sampling.top_p is 0", "top_p is 0", "top_p");
  expect("stop_tokens[2] is 9", "stop_token_ids[2] is 9", "stop_token_ids[2]");
  expect("stop: a stop string is empty", "stop: a stop string is empty", "stop");
  expect("tokens.ids[1] is 5", "prompt[1] is 5", "prompt[1]");
  expect("text is empty; a", "prompt is empty; a", "prompt");
  expect("chat.messages[0].role is \"u\"; with chat.continue_last the last",
         "messages[0].role is \"u\"; with continue_final_message the last", "messages[0].role");
  expect("chat.variables_json has 9 bytes", "chat_template_kwargs has 9 bytes",
         "chat_template_kwargs");
  expect("chat: not so", "messages: not so", "messages");
  expect("Unrecognized request argument supplied: x", "Unrecognized request argument supplied: x",
         "");
  expect("the body is no valid JSON", "the body is no valid JSON", "");
  expect("n", "n", "");
  expect("", "", "");
}

TEST(ErrorTest, LongPromptsHaveACode) {
  EXPECT_EQ(
      ErrorOf(absl::InvalidArgumentError(
          "the prompt has 9 tokens, and the model takes at most 7: --max_model_len is 8"))["code"],
      "context_length_exceeded");
}

TEST(ErrorTest, BodiesAreJsonWhateverTheMessage) {
  EXPECT_EQ(ErrorOf(absl::InvalidArgumentError("a\"\n\x01"))["message"], "a\"\n\x01");
  EXPECT_TRUE(Json::accept(ErrorAnswerOf(absl::InvalidArgumentError("\xff\xc3")).body));
  EXPECT_LE(ErrorAnswerOf(absl::InvalidArgumentError(std::string(1 << 20, 'a'))).body.size(),
            3000u);
  EXPECT_EQ(Json::parse(OpenAiErrorBody(401, "no key").second)["error"]["code"], "invalid_api_key");
}

}  // namespace
}  // namespace athanor
