// The split expressions on PCRE2.
#include "text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <limits>
#include <string>

#include "skald/error.h"

namespace skald::text {
namespace {

// Unicode White_Space, spelled out: PCRE2's \s has U+180E besides.
constexpr std::string_view kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";

// The official tokenizer's engine knows Unicode 16; PCRE2 10.42 knows 14. These are the characters that came
// between, so that every PCRE2 since then gives the same pieces.
constexpr std::string_view kNewUpper = "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}";
constexpr std::string_view kNewLower =
    "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}";
constexpr std::string_view kNewUncased =  // Lm and Lo
    "\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4f}\\x{10d6f}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-"
    "\\x{11be0}"
    "\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}"
    "\\x{16100}-\\x{1611d}\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-"
    "\\x{1e4eb}"
    "\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";
constexpr std::string_view kNewNumber =
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{"
    "16139}"
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{"
    "1e5fa}";
constexpr std::string_view kNewMark =
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{113c0}\\x{"
    "113c2}"
    "\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}"
    "\\x{11f03}"
    "\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}"
    "\\x{1e08f}"
    "\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}";

/// The expression of model-spec 2.2 with its classes spelled out.
std::string expression(SplitRule rule) {
  const std::string letter = fmt::format("\\p{{L}}{}{}{}", kNewUpper, kNewLower, kNewUncased);
  const std::string number = fmt::format("\\p{{N}}{}", kNewNumber);
  const std::string lead = fmt::format("[^\\r\\n{}{}]?", letter, number);
  const std::string symbols = fmt::format(" ?[^{}{}{}]+", kSpace, letter, number);
  const std::string spaces = fmt::format("[{0}]*[\\r\\n]+|[{0}]+(?![^{0}])|[{0}]+", kSpace);
  if (rule == SplitRule::qwen) {
    return fmt::format("(?i:'s|'t|'re|'ve|'m|'ll|'d)|{}[{}]+|[{}]|{}[\\r\\n]*|{}", lead, letter, number,
                       symbols, spaces);
  }
  const std::string not_lower =
      fmt::format("[\\p{{Lu}}\\p{{Lt}}\\p{{Lm}}\\p{{Lo}}\\p{{M}}{}{}{}]", kNewUpper, kNewUncased, kNewMark);
  const std::string not_upper =
      fmt::format("[\\p{{Ll}}\\p{{Lm}}\\p{{Lo}}\\p{{M}}{}{}{}]", kNewLower, kNewUncased, kNewMark);
  return fmt::format("{0}{1}*{2}+|{0}{1}+{2}*|[{3}]|{4}[\\r\\n/]*|{5}", lead, not_lower, not_upper, number,
                     symbols, spaces);
}

pcre2_code* compile(SplitRule rule) {
  const std::string pattern = expression(rule);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_START_OPTIMIZE, &error,
                                   &offset, nullptr);
  if (code == nullptr) {
    throw Error(ErrorCode::internal,
                fmt::format("PCRE2 refuses the split expression (error {} at {}); it must be "
                            "built with Unicode support",
                            error, offset));
  }
  return code;
}

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

}  // namespace

struct Splitter::Impl {
  Code qwen{compile(SplitRule::qwen)};
  Code mistral{compile(SplitRule::mistral)};
};

struct Splitter::Scratch::Impl {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
};

Splitter::Splitter() : impl_(std::make_unique<Impl>()) {}
Splitter::~Splitter() = default;

Splitter::Scratch::Scratch(const Splitter&) : impl_(std::make_unique<Impl>()) {
  if (!impl_->match || !impl_->context) throw std::bad_alloc();
  // The expressions backtrack over at most one run of characters, so the steps of a match are linear in its
  // length and a bound on them would only refuse long texts.
  pcre2_set_match_limit(impl_->context.get(), std::numeric_limits<uint32_t>::max());
}
Splitter::Scratch::~Scratch() = default;

std::optional<size_t> Splitter::piece_length(SplitRule rule, std::string_view text, size_t start,
                                             bool more_may_follow, Scratch& scratch) const {
  const pcre2_code* code = rule == SplitRule::qwen ? impl_->qwen.get() : impl_->mistral.get();
  const uint32_t options = PCRE2_NO_UTF_CHECK | (more_may_follow ? PCRE2_PARTIAL_HARD : 0u);
  pcre2_match_data* match = scratch.impl_->match.get();
  const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                                 match, scratch.impl_->context.get());
  if (result == PCRE2_ERROR_PARTIAL) return std::nullopt;
  if (result < 0) {
    throw Error(ErrorCode::internal,
                fmt::format("the split expression failed at byte {} of a text of {} bytes (PCRE2 "
                            "error {}); cut the text into smaller parts",
                            start, text.size(), result));
  }
  return pcre2_get_ovector_pointer(match)[1] - start;
}

}  // namespace skald::text
