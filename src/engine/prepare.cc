// Request checks: text, voice, language, instruction, reference, layout.
#include "engine/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "engine/settings.h"
#include "engine/voices.h"
#include "text/inspect.h"
#include "text/languages.h"
#include "text/utf8.h"

namespace skald::engine {
namespace {

using model::ModelConfig;
using model::ModelType;

/// What decides whether two spellings are the same voice: ASCII case, blanks, '_' and '-' do not.
std::string voice_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ' || c == '\t') continue;
    key += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return key;
}

std::string lower_ascii(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string voice_list(const ModelConfig& config) {
  std::vector<std::string_view> names;
  for (const auto& [name, id] : config.talker.speaker_ids) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string language_list(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const std::string& name : model::language_names(config)) {
    const std::string_view code = text::language_code(name);
    names.push_back(code.empty() ? name : fmt::format("{} ({})", name, code));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

model::Layout layout_of(TextLayout layout, ModelType type, bool text_follows) {
  switch (layout) {
    case TextLayout::whole: return model::Layout::whole;
    case TextLayout::stream: return model::Layout::stream;
    case TextLayout::ahead: return model::Layout::ahead;
    case TextLayout::automatic: break;
  }
  if (text_follows) return model::Layout::ahead;
  return type == ModelType::base ? model::Layout::stream : model::Layout::whole;
}

void check_printable_id(const std::string& id) {
  const bool ok =
      id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 127; });
  if (!ok)
    throw Error(ErrorCode::invalid_argument,
                "request_id must be at most 128 visible ASCII characters without blanks");
}

void check_scalars(const SpeechRequest& r) {
  check_printable_id(r.request_id);
  if (r.stall_frames < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("stall_frames is {}, but must be at least 0 (0 = off)", r.stall_frames));
  if (r.ahead_tokens < 1 || r.ahead_tokens > 1024)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ahead_tokens is {}, but must be within 1..1024", r.ahead_tokens));
}

/// The style instruction, after the rules of specification 4.4.
void add_instruct(const ModelConfig& config, const text::Tokenizer& tokenizer, const SpeechRequest& r,
                  Prepared& out) {
  if (r.instruct.empty()) {
    if (config.type == ModelType::voice_design)
      out.warnings.push_back(
          "no instruct was given: a VoiceDesign model then speaks with a voice of its own choice");
    return;
  }
  text::require_utf8(r.instruct);
  if (model::takes_instruct(config)) {
    out.input.instruct_ids = tokenizer.encode_instruction(r.instruct, split_rule(r.split), r.raw_tokens);
    return;
  }
  const char* reason = config.type == ModelType::base
                           ? "a Base model takes no style instruction"
                           : "the 0.6B CustomVoice model takes no style instruction";
  if (r.strict)
    throw Error(ErrorCode::unsupported,
                fmt::format("instruct cannot be followed: {}; leave it out or use a 1.7B "
                            "CustomVoice or VoiceDesign model",
                            reason));
  out.instruct_ignored = true;
  out.warnings.push_back(fmt::format("instruct is ignored: {}", reason));
}

void refuse_reference(const SpeechRequest& r, ModelType type) {
  const char* field = r.clone                ? "a cloned voice"
                      : !r.x_vector.empty()  ? "x_vector"
                      : !r.ref_codes.empty() ? "ref_codes"
                      : !r.ref_text.empty()  ? "ref_text"
                      : r.x_vector_only      ? "x_vector_only"
                                             : nullptr;
  if (field)
    throw Error(ErrorCode::unsupported, fmt::format("{} needs a Base model, and this is a {} model", field,
                                                    model::model_type_name(type)));
}

void check_x_vector(const ModelConfig& config, const std::vector<float>& x) {
  const auto width = static_cast<size_t>(config.talker.hidden_size);
  if (x.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a Base model speaks with the voices of clips, and none was named: give a voice "
                            "(`skald voice add` makes one), or an x_vector of {} numbers",
                            width));
  if (x.size() != width)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "x_vector has {} numbers, but this model's speaker vectors have {}; it was made for a model "
            "of another size",
            x.size(), width));
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::isfinite(x[i]))
      throw Error(ErrorCode::invalid_argument, fmt::format("x_vector[{}] is not a finite number", i));
}

/// Speaker vector and reference of a Base model: those of the voice, or given ones.
struct Reference {
  const std::vector<float>* x_vector;
  const std::vector<int32_t>* codes;
  const std::string* text;
};

Reference reference_of(const ModelConfig& config, const SpeechRequest& r) {
  if (!r.clone) {
    check_x_vector(config, r.x_vector);
    check_length(r.ref_text, "ref_text"), check_length(r.consent, "consent");
    if (r.ref_codes.empty() != r.ref_text.empty())
      throw Error(ErrorCode::invalid_argument, r.ref_text.empty()
                                                   ? "ref_codes need ref_text, the words of the reference"
                                                   : "ref_text has no meaning without ref_codes");
    if (!r.ref_codes.empty()) check_codes(config, r.ref_codes, "ref_codes");
    // Whoever gives numbers instead of a voice clones all the same.
    if (!states_consent(r.consent))
      throw Error(
          ErrorCode::consent_required,
          "an x_vector is a clone of somebody; state that you have the rights to that voice (consent)");
    return {&r.x_vector, &r.ref_codes, &r.ref_text};
  }
  if (!r.x_vector.empty() || !r.ref_codes.empty() || !r.ref_text.empty())
    throw Error(ErrorCode::invalid_argument,
                "a voice and x_vector, ref_codes or ref_text cannot be given together");
  require_fit(config, *r.clone);
  return {&r.clone->x_vector, &r.clone->codes, &r.clone->ref_text};
}

void add_reference(const ModelConfig& config, const text::Tokenizer& tokenizer, const SpeechRequest& r,
                   Prepared& out) {
  if (config.type != ModelType::base) return refuse_reference(r, config.type);
  const Reference reference = reference_of(config, r);
  out.x_vector = *reference.x_vector;
  out.input.has_x_vector = true;
  if (reference.codes->empty() || r.x_vector_only) return;
  text::require_utf8(*reference.text);
  const std::vector<int32_t> ids =
      tokenizer.encode_reference(*reference.text, split_rule(r.split), r.raw_tokens);
  out.input.ref_text_ids.assign(ids.begin() + text::kTextHead, ids.end() - text::kReferenceTail);
  out.input.ref_codes = *reference.codes;
  out.input.in_context = true;
}

/// Tokens of a text that is complete.
void add_text(const text::Tokenizer& tokenizer, const SpeechRequest& r, Prepared& out) {
  text::require_utf8(r.text);
  TextWatch watch;
  watch.push(r.text);
  watch.require_spoken();
  if (auto warning = watch.warning()) out.warnings.push_back(*std::move(warning));
  out.ids = tokenizer.encode_text(r.text, split_rule(r.split), r.raw_tokens);
  out.input.role_ids.assign(out.ids.begin(), out.ids.begin() + text::kTextHead);
  out.input.text_ids.assign(out.ids.begin() + text::kTextHead, out.ids.end() - text::kTextTail);
  out.code_points = text::count_code_points(r.text);
}

std::string language_of(const ModelConfig& config, int32_t id) {
  for (const auto& [name, value] : config.talker.language_ids)
    if (value == id) return name;
  return "auto";
}

}  // namespace

text::SplitRule split_rule(TextSplit split) {
  return split == TextSplit::mistral ? text::SplitRule::mistral : text::SplitRule::qwen;
}

std::string find_voice(const ModelConfig& config, const std::string& spelling) {
  const auto& table = config.talker.speaker_ids;
  if (config.type != ModelType::custom_voice) {
    if (spelling.empty()) return {};
    throw Error(
        ErrorCode::unknown_voice,
        config.type == ModelType::base
            ? fmt::format(
                  "unknown voice \"{}\": a Base model has no voices of its own, it speaks with those that "
                  "were added",
                  spelling)
            : fmt::format(
                  "voice \"{}\" cannot be used: a VoiceDesign model has no named voices, describe the "
                  "voice with instruct",
                  spelling));
  }
  if (table.empty())
    throw Error(ErrorCode::unknown_voice,
                "this model's speaker table (spk_id in config.json) is empty, so it has no voices");
  const std::string exact = lower_ascii(spelling), key = voice_key(spelling);
  if (key.empty())
    throw Error(ErrorCode::unknown_voice,
                fmt::format("a voice is needed; this model has: {}", voice_list(config)));
  const std::string* found = nullptr;
  for (const auto& [name, id] : table) {
    if (lower_ascii(name) == exact) return name;
    if (!found && voice_key(name) == key) found = &name;
  }
  if (found) return *found;
  throw Error(ErrorCode::unknown_voice,
              fmt::format("unknown voice \"{}\"; this model has: {}", spelling, voice_list(config)));
}

std::string find_language(const ModelConfig& config, const std::string& spelling, bool strict,
                          std::vector<std::string>& warnings) {
  const std::string name = text::canonical_language(spelling);
  if (name == "auto") return name;
  if (config.talker.language_ids.empty()) {
    const std::string what =
        fmt::format("language \"{}\" has no effect: this model's language table is empty", spelling);
    if (strict) throw Error(ErrorCode::unsupported, what);
    warnings.push_back(what);
    return "auto";
  }
  const std::vector<std::string> names = model::language_names(config);
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const bool dialect = config.talker.language_ids.contains(name);
  throw Error(
      ErrorCode::unknown_language,
      fmt::format("{} \"{}\"; valid are: {}",
                  dialect ? "a dialect follows from the voice and cannot be asked for:" : "unknown language",
                  spelling, language_list(config)));
}

void check_codes(const ModelConfig& config, std::span<const int32_t> codes, const char* name) {
  const auto groups = static_cast<size_t>(config.talker.num_code_groups);
  if (codes.empty() || codes.size() % groups != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has {} numbers, but must have {} for each of one or more "
                            "frames",
                            name, codes.size(), groups));
  for (size_t i = 0; i < codes.size(); ++i) {
    const int32_t most = (i % groups == 0 ? config.talker.codes() : config.predictor.vocab_size) - 1;
    if (codes[i] < 0 || codes[i] > most)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: frame {}, group {} is {}, but must be within 0..{}", name, i / groups,
                              i % groups, codes[i], most));
  }
}

int32_t check_room(int32_t capacity, size_t rows, size_t trailing, int32_t bound, bool caller_limit) {
  size_t frames = static_cast<size_t>(std::min(kLeastFrameBound, bound));
  if (!caller_limit) frames = std::max(frames, trailing);
  if (rows + frames <= static_cast<size_t>(capacity)) return capacity - static_cast<int32_t>(rows);
  throw Error(
      ErrorCode::text_too_long,
      fmt::format(
          "the prompt takes {} rows and the speech at least {} frames, but the cache holds {}; split the "
          "text into shorter pieces or raise cache_capacity",
          rows, frames, capacity));
}

Prepared prepare(const ModelConfig& config, const text::Tokenizer& tokenizer, const SpeechRequest& r,
                 bool text_follows) {
  check_scalars(r);
  Prepared out;
  out.settings = resolve_sampling(r.sampling, config.generation);
  out.frame_limit = caller_frame_limit(r);
  // A clone is no speaker of the model's table.
  const std::string voice = r.clone ? std::string() : find_voice(config, r.voice);
  if (!voice.empty()) out.input.speaker_id = config.talker.speaker_ids.at(voice);
  const std::string& wanted = r.language.empty() && r.clone ? r.clone->language : r.language;
  const std::string language = find_language(config, wanted, r.strict, out.warnings);
  out.input.language_id = model::effective_language(config, language, voice);
  out.language = language_of(config, out.input.language_id);
  add_instruct(config, tokenizer, r, out);
  add_reference(config, tokenizer, r, out);
  out.input.layout = layout_of(r.layout, config.type, text_follows);
  out.input.ahead_tokens = r.ahead_tokens;
  out.input.text_complete = !text_follows;
  if (!text_follows) add_text(tokenizer, r, out);
  return out;
}

void TextWatch::push(std::string_view bytes) {
  held_ += bytes;
  const text::Utf8Scan scan = text::scan_utf8(held_);
  const std::string_view whole = std::string_view(held_).substr(0, scan.valid);
  spoken_ = spoken_ || text::anything_to_speak(whole);
  for (const text::InvisibleCount& found : text::invisible_code_points(whole)) {
    Seen& seen = invisible_[found.code_point];
    seen.name = found.name;
    seen.count += found.count;
  }
  held_.erase(0, scan.valid);
  if (!scan.incomplete) held_.clear();
}

void TextWatch::require_spoken() const {
  if (!spoken_)
    throw Error(ErrorCode::nothing_to_speak,
                "the text holds no letter and no digit, so there is nothing to speak");
}

std::optional<std::string> TextWatch::warning() const {
  if (invisible_.empty()) return std::nullopt;
  std::vector<std::string> parts;
  for (const auto& [code_point, seen] : invisible_)
    parts.push_back(
        fmt::format("U+{:04X} {} ({})", static_cast<uint32_t>(code_point), seen.name, seen.count));
  return fmt::format("the text holds invisible characters, which are spoken as they stand: {}",
                     fmt::join(parts, ", "));
}

}  // namespace skald::engine
