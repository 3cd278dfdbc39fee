// athanor-bench llm: measures how a language model generates tokens, on one server, or on two
// servers in alternation.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/bench/commands.h"
#include "clients/bench/llm_flags.h"
#include "clients/bench/measuring.h"
#include "clients/bench/run_options.h"
#include "clients/bench/tokens/generate_backend.h"
#include "clients/bench/tokens/openai_backend.h"
#include "clients/cpp/inputs/text_input.h"
#include "clients/cpp/inputs/token.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

using nlohmann::json;

constexpr char kAbout[] =
    "Measures how a language model generates tokens, on one server, or on two in alternation";

struct Options {
  RunOptions run;
  LlmFlags llm;
};

// A server as it describes itself, before calls are sent.
struct Known {
  ModelFacts facts;
  std::string server;  // its name and version; empty: not told
  std::string family;  // of the model
};

GrpcTarget GrpcOf(const LlmServer& server, const LoadOptions& load) {
  return {server.address, load.client, load.connections};
}

// A server's token and OpenAI's key are sent alike.
OpenAiTarget OpenAiOf(const Options& options, const LlmServer& server) {
  std::string key = options.llm.api_key;
  if (key.empty()) key = client::ReadToken(options.run.token_file).value_or("");
  const client::TlsFiles& tls = options.run.tls;
  return {server.address, tls.ca, tls.cert, tls.key, std::move(key)};
}

absl::Status At(const LlmServer& server, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(server.address, ": ", status.message()));
}

absl::StatusOr<Known> AskGrpc(const LlmServer& server, const LoadOptions& load) {
  const client::ModelName model = client::ParseModelName(server.model);
  const absl::StatusOr<v1::EngineStatus> engine =
      GetEngine(GrpcOf(server, load), model.name, model.version, load.timeout);
  if (!engine.ok()) return At(server, engine.status());
  Known known{{engine->vocabulary(), engine->max_model_len(), {}}, "", engine->family()};
  known.facts.end_tokens.assign(engine->end_tokens().begin(), engine->end_tokens().end());
  client::CallOptions call;
  call.timeout = load.timeout;
  const auto metadata = client::Client(server.address, load.client).Metadata(call);
  if (metadata.ok()) known.server = absl::StrCat(metadata->name(), " ", metadata->version());
  return known;
}

absl::StatusOr<Known> AskOpenAi(const Options& options, const LlmServer& server,
                                const LoadOptions& load) {
  const absl::StatusOr<OpenAiModel> model =
      FindModel(OpenAiOf(options, server), server.model, load.timeout);
  if (!model.ok()) return At(server, model.status());
  return Known{{model->vocabulary, model->max_model_len, {}}, model->owner, ""};
}

absl::StatusOr<Known> Ask(const Options& options, const LlmServer& server,
                          const LoadOptions& load) {
  if (server.protocol == Protocol::kGrpc) return AskGrpc(server, load);
  return AskOpenAi(options, server, load);
}

std::unique_ptr<Backend> MakeBackend(const Options& options, const LlmServer& server,
                                     const LoadOptions& load, const PromptOptions& prompts) {
  GenerateOptions generate{server.model, "", !options.llm.allow_eos, options.llm.temperature};
  if (server.protocol == Protocol::kOpenAi) {
    return MakeOpenAiBackend(OpenAiOf(options, server), generate, prompts);
  }
  const client::ModelName model = client::ParseModelName(server.model);
  generate.model = model.name;
  generate.version = model.version;
  return MakeGenerateBackend(GrpcOf(server, load), generate, prompts);
}

// Sends the warm-up calls.
absl::StatusOr<Side> Connect(const Options& options, const LlmServer& server, const Known& known,
                             const PromptOptions& prompts, LoadOptions load) {
  load.address = server.address;
  load.model = server.model;
  const auto length = [](const std::string& text) { return text.empty() ? "128" : text; };
  const bool own_lengths = !prompts.texts.empty() || prompts.trace != nullptr;
  Side side;
  side.about = {{"backend", server.protocol == Protocol::kGrpc ? "athanor-grpc" : "openai"},
                {"server", known.server},
                {"options",
                 {{"input_tokens", own_lengths ? json() : json(length(options.llm.input_tokens))},
                  {"output_tokens",
                   prompts.trace == nullptr ? json(length(options.llm.output_tokens)) : json()},
                  {"prompts", options.llm.prompts},
                  {"shared_prefix", options.llm.shared_prefix},
                  {"turns", prompts.turns},
                  {"trace", options.llm.trace},
                  {"chat", prompts.chat},
                  {"ignore_eos", !options.llm.allow_eos},
                  {"temperature", options.llm.temperature},
                  {"vocabulary", prompts.vocabulary},
                  {"max_model_len", prompts.max_model_len},
                  {"family", known.family}}}};
  std::unique_ptr<Backend> backend = MakeBackend(options, server, load, prompts);
  ASSIGN_OR_RETURN(side.load, Load::Create(std::move(load), std::move(backend)));
  return side;
}

absl::StatusOr<ExitCode> Run(Options options) {
  LlmPlan llm;
  absl::Status prepared = PrepareRunFlags(options.llm, &options.run.flags, &llm);
  if (!prepared.ok()) return Usage(prepared);
  ASSIGN_OR_RETURN(RunPlan plan, PlanRun(options.run));
  if (absl::Status s = ParseLlmFlags(options.llm, &plan, &llm); !s.ok()) return Usage(s);
  std::vector<Known> known;
  std::vector<ModelFacts> facts;
  for (const LlmServer& server : llm.servers) {
    ASSIGN_OR_RETURN(Known one, Ask(options, server, plan.load));
    facts.push_back(one.facts);
    known.push_back(std::move(one));
  }
  if (absl::Status s = FitPrompts(facts, &llm.prompts); !s.ok()) return Usage(s);
  std::vector<Side> sides;
  for (size_t i = 0; i < known.size(); ++i) {
    ASSIGN_OR_RETURN(Side side, Connect(options, llm.servers[i], known[i], llm.prompts, plan.load));
    sides.push_back(std::move(side));
  }
  return Measure(options.run, plan, sides);
}

void AddPromptFlags(client::CommandSyntax sub, LlmFlags* flags) {
  sub.Option("--input_tokens", &flags->input_tokens,
             "tokens of a prompt, which are random: a number, uniform:LOW:HIGH, "
             "lognormal:MEAN:SIGMA, chat (lognormal:161:1), or file:PATH of JSON lines with "
             "\"input_tokens\"; default 128");
  sub.Option("--output_tokens", &flags->output_tokens,
             "tokens to ask for, in the same forms; chat is lognormal:338:1; default 128");
  sub.Option("--prompts", &flags->prompts,
             "file of JSON lines with texts to send instead of random tokens: strings, or objects "
             "with \"prompt\"");
  sub.Option(
      "--shared_prefix", &flags->shared_prefix,
      "tokens that random prompts begin with, before their own: TOKENS, or TOKENS:GROUPS for "
      "as many different ones, in rotation; warm-up calls and later runs have the same");
  sub.Option("--turns", &flags->turns,
             "closed loop: calls of a conversation, each of which begins with the prompt and the "
             "answer of the one before it; default 1");
  sub.Option("--trace", &flags->trace,
             "file of JSON lines that say when calls are due, how long they are and what they "
             "share, as Mooncake's: {\"timestamp\": MS, \"input_length\": N, "
             "\"output_length\": N, \"hash_ids\": [an id for each 512 tokens]}");
  sub.Flag("--chat", &flags->chat,
           "with --prompts: send each text as the message of a chat's user");
  sub.Flag("--allow_eos", &flags->allow_eos,
           "let the model end a sequence; default: it goes on to the number of tokens asked for");
  sub.Option("--temperature", &flags->temperature, "0: the most likely token").ShowDefault();
  sub.Option("--vocabulary", &flags->vocabulary,
             "random tokens are below it, or below what the server tells if that is less; default: "
             "what the server tells");
  sub.Option("--max_model_len", &flags->max_model_len,
             "most tokens of prompt and output together: longer ones are cut; default: what the "
             "server tells, else no limit");
}

}  // namespace

void AddLlm(client::CommandSyntax root, Command* command) {
  auto options = std::make_shared<Options>();
  RunFlags* flags = &options->run.flags;
  flags->answers = Answers::kTokens;
  flags->warmups = 2;
  client::CommandSyntax sub = root.Add("llm", kAbout);
  AddAddress(sub, "address of a server, as HOST:PORT (openai: or a URL); ", flags);
  sub.Option("--model", &options->llm.models,
             "NAME or NAME/VERSION (openai: any name that the server takes); give a second one for "
             "the second server")
      .Required();
  sub.Option("--backend", &options->llm.backends,
             "protocol: grpc (GenerateService) or openai (POST /v1/completions, with --chat "
             "/v1/chat/completions); give a second one for the second server; default grpc");
  sub.Option("--api_key", &options->llm.api_key, "openai: bearer token to send")
      .FromEnvironment("OPENAI_API_KEY");
  AddPromptFlags(sub, &options->llm);
  AddLoadFlags(sub, &options->run);
  sub.Option("--num_prompts", &flags->num_prompts,
             "end after so many calls; default: --duration alone ends a run");
  AddResultFlags(sub, &options->run);
  sub.Then([=] {
    UseDefaultAddress(flags);
    *command = [=] { return Run(*options); };
  });
}

}  // namespace athanor::bench
