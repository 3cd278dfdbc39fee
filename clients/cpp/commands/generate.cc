// athanor generate MODEL: shows what a language model answers, as it comes.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/commands/commands.h"
#include "clients/cpp/inputs/text_input.h"
#include "clients/cpp/terminal/interrupts.h"
#include "clients/cpp/text/generate_text.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::client {
namespace {

struct Options {
  std::string model, prompt, tokens, system, variables, stop_tokens, cache_salt;
  bool chat = false, ignore_eos = false, add_special = false, special_in_text = false;
  std::optional<int64_t> max_tokens, top_k;
  int64_t min_tokens = 0, priority = 0;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<int> logprobs;
  std::vector<std::string> stop;
};

// Parses "1,7,42"; an error names the option.
absl::Status ParseTokens(absl::string_view option, absl::string_view text,
                         google::protobuf::RepeatedField<int32_t>* ids) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int32_t id;
    if (!absl::SimpleAtoi(part, &id)) {
      return Usage(absl::InvalidArgumentError(absl::StrCat(
          option, " ", text, ": \"", part, "\" must be a token's number, as in 1,7,42")));
    }
    ids->Add(id);
  }
  return absl::OkStatus();
}

void SetSampling(const Options& options, v1::Sampling* sampling) {
  if (options.temperature) sampling->set_temperature(*options.temperature);
  if (options.top_k) sampling->set_top_k(*options.top_k);
  if (options.top_p) sampling->set_top_p(*options.top_p);
  if (options.min_p) sampling->set_min_p(*options.min_p);
  if (options.repetition_penalty) sampling->set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling->set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling->set_frequency_penalty(*options.frequency_penalty);
  if (options.seed) sampling->set_seed(*options.seed);
  if (options.logprobs) sampling->set_logprobs(*options.logprobs);
}

// Makes the request, all but its prompt.
absl::StatusOr<v1::GenerateRequest> MakeRequest(const Options& options) {
  v1::GenerateRequest request;
  const ModelName name = ParseModelName(options.model);
  request.set_model(name.name);
  request.set_version(name.version);
  if (options.max_tokens) request.set_max_tokens(*options.max_tokens);
  request.set_min_tokens(options.min_tokens);
  request.set_ignore_eos(options.ignore_eos);
  request.set_add_special(options.add_special);
  request.set_special_in_text(options.special_in_text);
  request.set_priority(options.priority);
  request.set_cache_salt(options.cache_salt);
  SetSampling(options, request.mutable_sampling());
  for (const std::string& text : options.stop) request.add_stop(text);
  if (!options.stop_tokens.empty()) {
    RETURN_IF_ERROR(
        ParseTokens("--stop_tokens", options.stop_tokens, request.mutable_stop_tokens()));
  }
  return request;
}

// Prints messages of an answer on stdout as they come: text, ids for a prompt of ids, or JSON.
class AnswerPrinter {
 public:
  AnswerPrinter(Context* context, bool ids)
      : context_(context), ids_(ids), terminal_(isatty(STDOUT_FILENO) != 0) {}

  void Show(const v1::GenerateResponse& message) {
    text_ += message.text();
    if (context_->json) {
      context_->out().Object(GenerateJson(message));
    } else if (ids_) {
      for (int32_t id : message.tokens()) Print(absl::StrCat(line_ended_ ? "" : " ", id));
    } else {
      Print(terminal_ ? TerminalText(message.text()) : message.text());
    }
  }
  // Ends the line, and sums up the answer if it has ended.
  void End(const v1::GenerateResponse& last) {
    if (context_->json) return;
    if (!line_ended_) Print("\n");
    if (last.finish() != v1::FINISH_UNSPECIFIED) {
      std::fprintf(stderr, "[%s]\n", SummaryText(last).c_str());
    }
  }
  const std::string& text() const { return text_; }

 private:
  void Print(absl::string_view text) {
    if (text.empty()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    line_ended_ = text.back() == '\n';
  }

  Context* context_;
  bool ids_, terminal_;
  bool line_ended_ = true;
  std::string text_;
};

absl::Status Answer(Context* context, const v1::GenerateRequest& request, const CallOptions& call,
                    AnswerPrinter* printer) {
  v1::GenerateResponse last;
  const absl::Status status = context->client()
                                  .Generate(
                                      request,
                                      [&](const v1::GenerateResponse& message) {
                                        printer->Show(message);
                                        last = message;
                                        return std::ferror(stdout) == 0;
                                      },
                                      call)
                                  .status();
  printer->End(last);
  RETURN_IF_ERROR(WrittenToStdout());
  return status;
}

void AddMessage(v1::Chat* chat, const char* role, const std::string& content) {
  v1::ChatMessage* message = chat->add_messages();
  message->set_role(role);
  message->set_content(content);
}

// Answers each line of stdin, the messages before it in mind, until stdin ends. On a terminal
// Ctrl-C stops an answer, and what came of it stays in mind; elsewhere it ends the program.
absl::Status Converse(Context* context, v1::GenerateRequest request) {
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0;
  std::optional<Interrupts> interrupts;
  if (terminal) interrupts.emplace();
  LineReader lines(STDIN_FILENO, terminal ? &*interrupts : nullptr);
  v1::Chat* chat = request.mutable_chat();
  for (bool again = false;;) {
    if (terminal) std::fputs("> ", stderr);
    const LineReader::Result said = lines.Next();
    if (said.kind == LineReader::kInterrupt && !again) {
      std::fputs("\nCtrl-D ends the conversation, and so does Ctrl-C again\n", stderr);
      again = true;
      continue;
    }
    again = false;
    if (said.kind != LineReader::kLine) {
      if (terminal) std::fputs("\n", stderr);
      return absl::OkStatus();
    }
    if (absl::StripAsciiWhitespace(said.line).empty()) continue;
    AddMessage(chat, "user", said.line);
    Cancellation cancellation;
    CallOptions call = context->call();
    call.cancellation = &cancellation;
    AnswerPrinter printer(context, /*ids=*/false);
    absl::Status status;
    const auto answer = [&] { status = Answer(context, request, call, &printer); };
    bool stopped = false;
    if (terminal) {
      stopped = interrupts->CancelDuring(&cancellation, answer);
    } else {
      answer();
    }
    if (!status.ok() && !stopped) return status;
    if (printer.text().empty() && !status.ok()) {
      if (terminal) std::fputs("\n", stderr);
      chat->mutable_messages()->RemoveLast();
    } else {
      AddMessage(chat, "assistant", printer.text());
    }
  }
}

absl::Status Generate(Context* context, Options options) {
  ASSIGN_OR_RETURN(v1::GenerateRequest request, MakeRequest(options));
  if (options.chat) {
    v1::Chat* chat = request.mutable_chat();
    chat->set_variables_json(options.variables);
    if (!options.system.empty()) AddMessage(chat, "system", options.system);
    if (options.prompt.empty()) return Converse(context, std::move(request));
  }
  if (options.prompt.empty() && options.tokens.empty()) {
    return Usage(absl::InvalidArgumentError(
        "there is no PROMPT: give a text, - (read it from standard input), --tokens or --chat"));
  }
  if (options.prompt == "-") {
    absl::StatusOr<std::string> read = ReadFile("/dev/stdin");
    if (!read.ok()) return Usage(read.status());
    options.prompt = *std::move(read);
  }
  if (options.chat) {
    AddMessage(request.mutable_chat(), "user", options.prompt);
  } else if (!options.tokens.empty()) {
    RETURN_IF_ERROR(
        ParseTokens("--tokens", options.tokens, request.mutable_tokens()->mutable_ids()));
  } else {
    request.set_text(options.prompt);
  }
  AnswerPrinter printer(context, /*ids=*/!options.tokens.empty());
  return Answer(context, request, context->call(), &printer);
}

void AddSampling(CommandSyntax command, Options* options) {
  command.Option("--temperature", &options->temperature,
                 "how far to flatten the choice; 0: the likeliest token each time");
  command.Option("--top_k", &options->top_k,
                 "choose among so many of the likeliest tokens; 0: among all");
  command.Option("--top_p", &options->top_p,
                 "choose among the likeliest tokens that together have this probability, (0, 1]");
  command.Option("--min_p", &options->min_p,
                 "leave out tokens with less than this share of the likeliest one's probability");
  command.Option("--repetition_penalty", &options->repetition_penalty,
                 "makes tokens that came before less likely if above 1");
  command.Option("--presence_penalty", &options->presence_penalty,
                 "subtracted from the logit of each generated token, [-2, 2]");
  command.Option("--frequency_penalty", &options->frequency_penalty,
                 "the same, as often as the token was generated");
  command.Option("--seed", &options->seed,
                 "repeats an answer; default: a random one, which the summary tells");
  command.Option("--logprobs", &options->logprobs,
                 "tell log probabilities of the chosen token and of so many likeliest ones, 0 to "
                 "20; shown with --json");
}

}  // namespace

void AddGenerate(CommandSyntax root, Context* context) {
  auto options = std::make_shared<Options>();
  CommandSyntax command = root.Add(
      "generate",
      "Shows what a language model answers, as it comes; options of sampling that are not given "
      "are the model's own");
  command.Option("MODEL", &options->model, "NAME or NAME/VERSION")
      .Required()
      .Offer(Offers::kModels);
  OptionSyntax prompt =
      command.Option("PROMPT", &options->prompt, "text to go on with; -: read from standard input");
  OptionSyntax tokens =
      command
          .Option("--tokens", &options->tokens,
                  "ids of tokens to go on with (1,7,42); the answer is printed as ids")
          .Excludes(prompt);
  OptionSyntax chat = command
                          .Flag("--chat", &options->chat,
                                "answer PROMPT as a message, by the model's chat template; without "
                                "PROMPT, a conversation: each line of standard input is a message, "
                                "and Ctrl-C on a terminal stops an answer")
                          .Excludes(tokens);
  command.Option("--system", &options->system, "the system's message before the chat").Needs(chat);
  command
      .Option("--variables", &options->variables,
              "variables of the chat template, as a JSON object: '{\"enable_thinking\": false}'")
      .Needs(chat);
  command.Option("--max_tokens", &options->max_tokens,
                 "most tokens to generate, less where the model's context ends; default: 512");
  command.Option("--min_tokens", &options->min_tokens,
                 "no token that ends the answer is chosen before so many others; default: 0");
  AddSampling(command, options.get());
  command
      .Option("--stop", &options->stop,
              "a text that ends the answer and is not printed; repeatable")
      .OneAtATime();
  command.Option("--stop_tokens", &options->stop_tokens,
                 "ids of tokens that end the answer, beside the model's own: 1,7");
  command.Flag("--ignore_eos", &options->ignore_eos, "go on when the model would end its answer");
  command.Flag("--add_special", &options->add_special,
               "special tokens written in PROMPT are special; otherwise they are text");
  command.Flag("--special_in_text", &options->special_in_text, "print special tokens as text");
  command.Option("--priority", &options->priority,
                 "order among requests that wait: lower ones go first; default: 100");
  command.Option("--cache_salt", &options->cache_salt,
                 "share computed beginnings of prompts with requests of equal salt only");
  command.Then([=] { context->run = [=] { return Generate(context, *options); }; });
}

}  // namespace athanor::client
