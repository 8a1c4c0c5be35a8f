// Takes the command line apart.
#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace skald::cli {
namespace {

/// Edit distance where a swap of neighbours counts as one.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d.back().back();
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

enum class Dashes { one, two };

const CLI::Option* find_option(const CLI::App& app, Dashes dashes, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    const auto& names = dashes == Dashes::two ? option->get_lnames() : option->get_snames();
    if (std::find(names.begin(), names.end(), name) != names.end()) return option;
  }
  return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

bool takes_text(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_name() == "TEXT") return true;
  }
  return false;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

class Scanner {
 public:
  Scanner(CLI::App& program, const std::vector<std::string>& words) : words_(words) {
    out_.command = &program;
  }

  Arguments scan() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "--") {
        out_.after_mark = at_ < words_.size();
        out_.operands.insert(out_.operands.end(), words_.begin() + static_cast<std::ptrdiff_t>(at_),
                             words_.end());
        break;
      }
      if (word.size() < 2 || word[0] != '-') {
        operand(word);
      } else if (word[1] == '-') {
        long_option(word);
      } else {
        short_option(word);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void unknown(const std::string& word) const {
    const std::string name = word.substr(0, word.find('='));
    std::string sentence = fmt::format("unknown option '{}'", word);
    // A word with blanks or a number is more likely text than a misspelt name.
    const size_t first = word.find_first_not_of('-');
    const bool text_like = word.find_first_of(" \t\n") != std::string::npos || first == std::string::npos ||
                           (word[first] >= '0' && word[first] <= '9');
    const std::string close = text_like ? "" : nearest(name, long_names(*out_.command));
    if (!close.empty()) sentence += fmt::format("; did you mean '{}'?", close);
    if (takes_text(*out_.command) && (close.empty() || word[1] != '-')) {
      sentence += fmt::format("; text that begins with a dash goes after '--': skald {} ... -- '{}'",
                              out_.command->get_name(), word);
    }
    throw UsageError(sentence);
  }

  void long_option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = find_option(*out_.command, Dashes::two, name.substr(2));
    if (option == nullptr) unknown(word);
    count(*option, name);
    out_.options.push_back(name);
    if (!takes_value(*option)) {
      if (equals != std::string::npos) throw UsageError(fmt::format("option '{}' takes no value", name));
    } else if (equals != std::string::npos) {
      out_.options.push_back(word.substr(equals + 1));
    } else {
      take_value(name);
    }
  }

  void short_option(const std::string& word) {
    const CLI::Option* option =
        word.size() == 2 ? find_option(*out_.command, Dashes::one, word.substr(1)) : nullptr;
    if (option == nullptr) unknown(word);
    count(*option, word);
    out_.options.push_back(word);
    if (takes_value(*option)) take_value(word);
  }

  /// Of two values one would be lost without a word. A flag may be said again.
  void count(const CLI::Option& option, const std::string& name) {
    if (!takes_value(option) || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) return;
    const auto [before, first] = seen_.emplace(&option, name);
    if (first) return;
    const std::string as = before->second == name ? "" : fmt::format(", first as '{}'", before->second);
    throw UsageError(fmt::format("option '{}' is given twice{}; leave one of the two out", name, as));
  }

  void take_value(const std::string& name) {
    if (at_ == words_.size()) throw UsageError(fmt::format("option '{}' needs a value", name));
    out_.options.push_back(words_[at_++]);
  }

  void operand(const std::string& word) {
    const std::vector<std::string> commands = command_names(*out_.command);
    if (commands.empty() || !out_.operands.empty()) {
      out_.operands.push_back(word);
      return;
    }
    if (std::find(commands.begin(), commands.end(), word) == commands.end()) {
      const std::string close = nearest(word, commands);
      throw UsageError(fmt::format("unknown command '{}'; {}", word,
                                   close.empty() ? fmt::format("there are: {}", fmt::join(commands, ", "))
                                                 : fmt::format("did you mean '{}'?", close)));
    }
    out_.command = out_.command->get_subcommand(word);
    out_.options.push_back(word);
  }

  const std::vector<std::string>& words_;
  Arguments out_;
  std::map<const CLI::Option*, std::string> seen_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> text_operand(const Arguments& arguments, const std::string& file) {
  if (arguments.operands.empty()) return std::nullopt;
  if (arguments.operands.size() > 1) {
    throw UsageError(fmt::format("the text must be one argument, but there are {}; put it in quotes",
                                 arguments.operands.size()));
  }
  if (!file.empty()) throw UsageError("the text was given twice: as an argument and with -f");
  const std::string& text = arguments.operands[0];
  return text == "-" && !arguments.after_mark ? std::nullopt : std::optional(text);
}

std::string with_option_names(const std::string& sentence, const CLI::App& command) {
  const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  std::string out;
  char quote = 0;
  for (size_t at = 0; at < sentence.size();) {
    size_t end = at;
    while (end < sentence.size() && in_name(sentence[end])) ++end;
    std::string word = sentence.substr(at, std::max<size_t>(end - at, 1));
    at += word.size();
    // An apostrophe between letters opens no quotation.
    const bool mark =
        word == "\"" || (word == "'" && (quote == '\'' || out.empty() ||
                                         !std::isalnum(static_cast<unsigned char>(out.back()))));
    if (mark && (quote == 0 || quote == word[0])) quote = quote == 0 ? word[0] : 0;
    if (quote == 0 && word.find('_') != std::string::npos) {
      std::string option = word;
      std::replace(option.begin(), option.end(), '_', '-');
      if (find_option(command, Dashes::two, option) != nullptr) word = "--" + option;
    }
    out += word;
  }
  return out;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) best = candidate, best_distance = d;
  }
  return best;
}

Arguments take_apart(CLI::App& program, const std::vector<std::string>& arguments) {
  return Scanner(program, arguments).scan();
}

}  // namespace skald::cli
