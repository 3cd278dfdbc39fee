#include "clients/cpp/syntax/completion.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace athanor::client {
namespace {

// Quotes for all three shells: within '...' only ' ends.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> Names(const std::vector<CommandRow>& commands) {
  std::vector<std::string> names;
  for (const CommandRow& command : commands) names.push_back(command.name);
  return names;
}

// Calls `visit` with each command below `row` and the words that name it: "cache gc".
template <typename Visit>
void ForEachCommand(const CommandRow& row, const std::string& path, const Visit& visit) {
  visit(row, path);
  for (const CommandRow& command : row.commands) {
    ForEachCommand(command, path.empty() ? command.name : absl::StrCat(path, " ", command.name),
                   visit);
  }
}

// ---- bash ----

// Says for _TOOL_offer what to offer for a value: words, or one of its names with "%".
std::string BashOffer(const OptionRow& row) {
  switch (row.offers) {
    case Offers::kFiles:
      return "%files";
    case Offers::kFolders:
      return "%folders";
    case Offers::kModels:
      return "%models";
    case Offers::kCommands:
      return "%commands";
    case Offers::kNothing:
      break;
  }
  return absl::StrJoin(row.values, " ");
}

std::string BashCase(const std::string& key, const std::string& offer) {
  return absl::StrCat("    ", Quoted(key), ") echo ", Quoted(offer), " ;;\n");
}

// The cases "COMMAND --option" and "COMMAND N" (its argument N): what to offer for that value.
std::string BashValues(const CommandRow& tool) {
  std::string cases;
  ForEachCommand(tool, "", [&](const CommandRow& row, const std::string& path) {
    for (const OptionRow& option : row.options) {
      if (!option.value.empty()) {
        absl::StrAppend(&cases, BashCase(absl::StrCat(path, " ", option.name), BashOffer(option)));
      }
    }
    for (size_t i = 0; i < row.arguments.size(); ++i) {
      absl::StrAppend(&cases, "    ", Quoted(absl::StrCat(path, " ")),
                      row.arguments[i].repeated ? "[0-9]*" : absl::StrCat(i), ") echo ",
                      Quoted(BashOffer(row.arguments[i])), " ;;\n");
    }
  });
  for (const OptionRow& option : tool.options) {
    if (!option.value.empty()) {
      absl::StrAppend(&cases, "    *", Quoted(" " + option.name), ") echo ",
                      Quoted(BashOffer(option)), " ;;\n");
    }
  }
  return cases;
}

std::string BashWords(const CommandRow& tool) {
  std::vector<std::string> shared = {"--help"};
  for (const OptionRow& option : tool.options) shared.push_back(option.name);
  std::string cases;
  ForEachCommand(tool, "", [&](const CommandRow& row, const std::string& path) {
    std::vector<std::string> words = Names(row.commands);
    if (!path.empty()) {
      for (const OptionRow& option : row.options) words.push_back(option.name);
    }
    words.insert(words.end(), shared.begin(), shared.end());
    absl::StrAppend(&cases, BashCase(path, absl::StrJoin(words, " ")));
  });
  return cases;
}

// TOOL stands for the tool's name. A word's place among the arguments is counted from the command
// on; a value follows its option as a word of its own. `connect` is how the line reaches a server.
constexpr char kBash[] =
    R"bash(# Completes command lines of TOOL in bash. Made by: TOOL completion bash
_TOOL_words() {
  case $1 in
WORDS  esac
}
_TOOL_value() {
  case "$1 $2" in
VALUES    *) return 1 ;;
  esac
}
_TOOL_offer() {
  case $1 in
    %files) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")) ;;
    %folders) compopt -o filenames; COMPREPLY=($(compgen -d -- "$current")) ;;
    %models) COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${connect[@]}" --timeout 1 models --names 2>/dev/null)" -- "$current")) ;;
    %commands) COMPREPLY=($(compgen -W "$(_TOOL_words '')" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$1" -- "$current")) ;;
  esac
}
_TOOL() {
  local IFS=$' \t\n' current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local path= count=0 i word offer
  local -a connect=()
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -* ]]; then
      if _TOOL_value "$path" "$word" >/dev/null; then
        ((++i))
        case $word in CONNECT) ((i < COMP_CWORD)) && connect+=("$word" "${COMP_WORDS[i]}") ;; esac
      fi
    elif [[ $count == 0 && " $(_TOOL_words "$path") " == *" $word "* ]]; then
      path=${path:+$path }$word
    else
      ((++count))
    fi
  done
  if [[ $previous == -* ]] && offer=$(_TOOL_value "$path" "$previous"); then
    _TOOL_offer "$offer"
  elif [[ $current != -* ]] && offer=$(_TOOL_value "$path" "$count"); then
    _TOOL_offer "$offer"
  elif [[ $count == 0 || $current == -* ]]; then
    _TOOL_offer "$(_TOOL_words "$path")"
  fi
}
complete -F _TOOL TOOL
)bash";

// Returns the options that say which server is meant, for a case of the shell.
std::string ConnectCase(const CommandRow& tool) {
  std::vector<std::string> names;
  for (const OptionRow& option : tool.options) {
    if (!option.value.empty() && option.name != "--timeout") names.push_back(option.name);
  }
  return names.empty() ? "''" : absl::StrJoin(names, " | ");
}

std::string Bash(const CommandRow& tool) {
  return absl::StrReplaceAll(kBash, {{"WORDS  ", BashWords(tool) + "  "},
                                     {"VALUES    ", BashValues(tool) + "    "},
                                     {"CONNECT", ConnectCase(tool)},
                                     {"TOOL", tool.name}});
}

// ---- zsh ----

std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshAction(const OptionRow& row, const CommandRow& tool) {
  switch (row.offers) {
    case Offers::kFiles:
      return "_files";
    case Offers::kFolders:
      return "_files -/";
    case Offers::kModels:
      return absl::StrCat("_", tool.name, "_models");
    case Offers::kCommands:
      return absl::StrCat("(", absl::StrJoin(Names(tool.commands), " "), ")");
    case Offers::kNothing:
      break;
  }
  return row.values.empty() ? " " : absl::StrCat("(", absl::StrJoin(row.values, " "), ")");
}

std::string ZshOption(const OptionRow& row, const CommandRow& tool) {
  const std::string head =
      absl::StrCat(row.repeated ? "*" : "", row.name, "[", ZshText(row.about), "]");
  return Quoted(row.value.empty() ? head
                                  : absl::StrCat(head, ":", row.value, ":", ZshAction(row, tool)));
}

std::string ZshFunction(const CommandRow& row, const std::string& name, const CommandRow& tool) {
  std::vector<std::string> specs;
  for (const OptionRow& option : tool.options) specs.push_back(ZshOption(option, tool));
  if (&row != &tool) {
    for (const OptionRow& option : row.options) specs.push_back(ZshOption(option, tool));
  }
  specs.push_back("'--help[show help]'");
  std::string text = absl::StrCat(name, "() {\n");
  if (row.commands.empty()) {
    for (size_t i = 0; i < row.arguments.size(); ++i) {
      const OptionRow& argument = row.arguments[i];
      specs.push_back(Quoted(absl::StrCat(argument.repeated ? "*" : absl::StrCat(i + 1), ":",
                                          argument.name, ":", ZshAction(argument, tool))));
    }
    return absl::StrCat(text, "  _arguments ", absl::StrJoin(specs, " \\\n    "), "\n}\n");
  }
  specs.push_back("'1:command:->command'");
  specs.push_back("'*::argument:->argument'");
  absl::StrAppend(&text, "  local line state\n  local -a commands\n  _arguments -C ",
                  absl::StrJoin(specs, " \\\n    "), "\n  case $state in\n    command)\n",
                  "      commands=(\n");
  for (const CommandRow& command : row.commands) {
    absl::StrAppend(
        &text, "        ",
        Quoted(absl::StrCat(command.name, ":", absl::StrReplaceAll(command.about, {{":", "\\:"}}))),
        "\n");
  }
  absl::StrAppend(&text, "      )\n      _describe command commands ;;\n    argument)\n",
                  "      case $line[1] in\n");
  for (const CommandRow& command : row.commands) {
    absl::StrAppend(&text, "        ", command.name, ") ", name, "_", command.name, " ;;\n");
  }
  return absl::StrCat(text, "      esac ;;\n  esac\n}\n");
}

std::string Zsh(const CommandRow& tool) {
  std::string text = absl::StrCat("#compdef ", tool.name, "\n# Completes command lines of ",
                                  tool.name, " in zsh. Made by: ", tool.name, " completion zsh\n");
  absl::StrAppend(&text, "_", tool.name, "_models() {\n  local -a models\n  models=(${(f)\"$(",
                  tool.name,
                  " --timeout 1 models --names 2>/dev/null)\"})\n  compadd -a models\n}\n");
  ForEachCommand(tool, "", [&](const CommandRow& row, const std::string& path) {
    const std::string name = absl::StrCat("_", tool.name, path.empty() ? "" : "_",
                                          absl::StrReplaceAll(path, {{" ", "_"}}));
    absl::StrAppend(&text, ZshFunction(row, name, tool));
  });
  // Works both as a file of $fpath and where it is read with `source`.
  return absl::StrCat(text, "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _", tool.name,
                      " \"$@\"\nelse\n  compdef _", tool.name, " ", tool.name, "\nfi\n");
}

// ---- fish ----

std::string FishText(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishOffer(const OptionRow& row, const CommandRow& tool) {
  switch (row.offers) {
    case Offers::kFiles:
      return " -F";
    case Offers::kFolders:
      return " -f -a '(__fish_complete_directories)'";
    case Offers::kModels:
      return absl::StrCat(" -f -a '(", tool.name, " --timeout 1 models --names 2>/dev/null)'");
    case Offers::kCommands:
      return absl::StrCat(" -f -a ", FishText(absl::StrJoin(Names(tool.commands), " ")));
    case Offers::kNothing:
      break;
  }
  return row.values.empty() ? " -f"
                            : absl::StrCat(" -f -a ", FishText(absl::StrJoin(row.values, " ")));
}

// Holds on lines of the command that `path` names. A name may also be one of a command's commands.
std::string FishCondition(const CommandRow& tool, const std::string& path) {
  if (path.empty()) return "__fish_use_subcommand";
  if (absl::StrContains(path, ' ')) {
    return absl::StrCat("__fish_seen_subcommand_from ",
                        absl::StrReplaceAll(path, {{" ", "; and __fish_seen_subcommand_from "}}));
  }
  std::string condition = absl::StrCat("__fish_seen_subcommand_from ", path);
  for (const CommandRow& command : tool.commands) {
    if (!absl::c_linear_search(Names(command.commands), path)) continue;
    absl::StrAppend(&condition, "; and not __fish_seen_subcommand_from ", command.name);
  }
  return condition;
}

std::string FishOption(const OptionRow& option, const std::string& start, const CommandRow& tool) {
  return absl::StrCat(start, " -l ", option.name.substr(2),
                      option.value.empty() ? "" : absl::StrCat(" -r", FishOffer(option, tool)),
                      " -d ", FishText(option.about), "\n");
}

std::string Fish(const CommandRow& tool) {
  std::string text = absl::StrCat("# Completes command lines of ", tool.name,
                                  " in fish. Made by: ", tool.name, " completion fish\n");
  absl::StrAppend(&text, "complete -c ", tool.name, " -f\n");
  ForEachCommand(tool, "", [&](const CommandRow& row, const std::string& path) {
    const std::string start =
        absl::StrCat("complete -c ", tool.name, " -n ", FishText(FishCondition(tool, path)));
    const std::string before =
        path.empty() || row.commands.empty()
            ? start
            : absl::StrCat("complete -c ", tool.name, " -n ",
                           FishText(absl::StrCat(FishCondition(tool, path),
                                                 "; and not __fish_seen_subcommand_from ",
                                                 absl::StrJoin(Names(row.commands), " "))));
    for (const CommandRow& command : row.commands) {
      absl::StrAppend(&text, before, " -a ", command.name, " -d ", FishText(command.about), "\n");
    }
    const std::string any = absl::StrCat("complete -c ", tool.name);
    for (const OptionRow& option : row.options) {
      absl::StrAppend(&text, FishOption(option, path.empty() ? any : start, tool));
    }
    for (const OptionRow& argument : row.arguments) {
      absl::StrAppend(&text, start, FishOffer(argument, tool), " -d ", FishText(argument.name),
                      "\n");
    }
  });
  return text;
}

}  // namespace

const std::vector<std::string>& CompletionShells() {
  static const auto* const shells = new std::vector<std::string>{"bash", "zsh", "fish"};
  return *shells;
}

absl::StatusOr<std::string> CompletionScript(const std::string& shell, const CommandRow& tool) {
  if (shell == "bash") return Bash(tool);
  if (shell == "zsh") return Zsh(tool);
  if (shell == "fish") return Fish(tool);
  return absl::InvalidArgumentError(absl::StrCat("no completions for \"", shell, "\"; there are ",
                                                 absl::StrJoin(CompletionShells(), ", ")));
}

}  // namespace athanor::client
