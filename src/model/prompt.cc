// Prompt rows: a table of ids, no arithmetic. Specification section 4.
#include "model/prompt.h"

#include <algorithm>

#include "skald/error.h"

namespace skald::model {

namespace {

size_t reference_frames(const PromptInput& in, int32_t groups) { return in.ref_codes.size() / groups; }

/// Appends rows; the tables of docs/prompt.md read top to bottom as these calls.
class RowWriter {
 public:
  explicit RowWriter(const ModelConfig& config) : config_(config) {}

  void text(int32_t id) { rows_.push_back({.text_id = id}); }
  void both(int32_t text_id, int32_t codec_id) {
    rows_.push_back({.text_id = text_id, .codec_ids = {codec_id}});
  }
  void frame(int32_t text_id, std::vector<int32_t> codes) {
    rows_.push_back({.text_id = text_id, .codec_ids = std::move(codes)});
  }
  void speaker_vector() { rows_.push_back({.text_id = config_.tts_pad_id, .speaker_vector = true}); }
  int32_t count() const { return static_cast<int32_t>(rows_.size()); }
  std::vector<PromptRow> take() { return std::move(rows_); }

 private:
  const ModelConfig& config_;
  std::vector<PromptRow> rows_;
};

/// Specification 4.1: instruction, role, tags, speaker, and the first of the two closing codec ids.
void write_common(RowWriter& w, const ModelConfig& config, const PromptInput& in) {
  const TalkerConfig& t = config.talker;
  for (int32_t id : in.instruct_ids) w.text(id);
  for (int32_t id : in.role_ids) w.text(id);
  const int32_t pad = config.tts_pad_id;
  if (in.language_id >= 0) {
    for (int32_t id : {t.codec_think_id, t.codec_think_bos_id, in.language_id, t.codec_think_eos_id})
      w.both(pad, id);
  } else {
    for (int32_t id : {t.codec_nothink_id, t.codec_think_bos_id, t.codec_think_eos_id}) w.both(pad, id);
  }
  if (in.has_x_vector) {
    w.speaker_vector();
  } else if (in.speaker_id >= 0) {
    w.both(pad, in.speaker_id);
  }
  w.both(config.tts_bos_id, t.codec_pad_id);
}

/// Reference text, text and end token as one sequence (specification B3, "X").
std::vector<int32_t> in_context_text(const ModelConfig& config, const PromptInput& in) {
  std::vector<int32_t> x = in.ref_text_ids;
  x.insert(x.end(), in.text_ids.begin(), in.text_ids.end());
  if (in.text_complete) x.push_back(config.tts_eos_id);
  return x;
}

/// Codec side of row j of the reference sequence ("Y"): begin-of-speech, then the reference frames.
std::vector<int32_t> reference_row(const ModelConfig& config, const PromptInput& in, size_t j) {
  if (j == 0) return {config.talker.codec_bos_id};
  const int32_t groups = config.talker.num_code_groups;
  const auto first = in.ref_codes.begin() + (j - 1) * groups;
  return {first, first + groups};
}

void write_in_context(RowWriter& w, const ModelConfig& config, const PromptInput& in, Prompt& prompt) {
  const std::vector<int32_t> x = in_context_text(config, in);
  const size_t codec_rows = 1 + reference_frames(in, config.talker.num_code_groups);
  size_t used = 0;
  if (in.layout == Layout::whole) {
    for (int32_t id : x) w.both(id, config.talker.codec_pad_id);
    for (size_t j = 0; j < codec_rows; ++j) w.frame(config.tts_pad_id, reference_row(config, in, j));
    used = x.size();
  } else {
    for (size_t j = 0; j < codec_rows; ++j)
      w.frame(j < x.size() ? x[j] : config.tts_pad_id, reference_row(config, in, j));
    used = std::min(codec_rows, x.size());
  }
  prompt.prefix_rows += static_cast<int32_t>(std::min(in.ref_text_ids.size(), used));
  prompt.end_used = in.text_complete && used == x.size();
  const size_t of_text = used - std::min(used, in.ref_text_ids.size());
  prompt.text_used = static_cast<int32_t>(std::min(of_text, in.text_ids.size()));
}

/// Specification B1, B2 and the look-ahead layout between them: `standing` text ids beside codec pads, then
/// one row with begin-of-speech.
void write_plain(RowWriter& w, const ModelConfig& config, const PromptInput& in, Prompt& prompt) {
  const TalkerConfig& t = config.talker;
  const auto known = static_cast<int32_t>(in.text_ids.size());
  const bool whole = in.layout == Layout::whole ||
                     (in.layout == Layout::ahead && in.text_complete && known <= in.ahead_tokens);
  const int32_t standing = whole ? known : in.layout == Layout::ahead ? in.ahead_tokens : 0;
  for (int32_t j = 0; j < standing; ++j) w.both(in.text_ids[j], t.codec_pad_id);
  if (whole) {
    w.both(config.tts_eos_id, t.codec_pad_id);
    w.both(config.tts_pad_id, t.codec_bos_id);
    prompt.text_used = known;
    prompt.end_used = true;
  } else {
    // Without any text the official slice ids[3:4] is the closing token of the template.
    w.both(standing < known ? in.text_ids[standing] : config.im_end_id, t.codec_bos_id);
    prompt.text_used = std::min(standing + 1, known);
  }
}

}  // namespace

size_t text_tokens_needed(const PromptInput& in, int32_t groups) {
  if (in.layout == Layout::whole) return SIZE_MAX;
  if (in.in_context) {
    const size_t codec_rows = 1 + reference_frames(in, groups);
    return codec_rows - std::min(codec_rows, in.ref_text_ids.size());
  }
  return in.layout == Layout::ahead ? size_t(in.ahead_tokens) + 1 : 1;
}

Prompt build_prompt(const ModelConfig& config, const PromptInput& in) {
  if (!in.text_complete && in.text_ids.size() < text_tokens_needed(in, config.talker.num_code_groups))
    throw Error(ErrorCode::internal, "build_prompt: too little text is known for this layout");
  RowWriter w(config);
  Prompt prompt;
  write_common(w, config, in);
  prompt.prefix_rows = w.count();
  if (in.in_context) {
    write_in_context(w, config, in, prompt);
  } else {
    write_plain(w, config, in, prompt);
  }
  prompt.rows = w.take();
  // The last row is always computed: the first frame starts from its hidden state.
  prompt.prefix_rows = std::min(prompt.prefix_rows, static_cast<int32_t>(prompt.rows.size()) - 1);
  return prompt;
}

std::vector<int32_t> trailing_ids(const ModelConfig& config, const PromptInput& in, const Prompt& prompt) {
  std::vector<int32_t> ids(in.text_ids.begin() + prompt.text_used, in.text_ids.end());
  if (in.in_context && prompt.text_used == 0) {
    // The reference text itself may be longer than the reference codes.
    size_t rows = 1 + reference_frames(in, config.talker.num_code_groups);
    if (in.layout != Layout::whole && rows < in.ref_text_ids.size())
      ids.insert(ids.begin(), in.ref_text_ids.begin() + rows, in.ref_text_ids.end());
  }
  if (in.text_complete && !prompt.end_used) ids.push_back(config.tts_eos_id);
  return ids;
}

int32_t effective_language(const ModelConfig& config, const std::string& language,
                           const std::string& speaker) {
  const auto& table = config.talker.language_ids;
  if ((language == "auto" || language == "chinese") && !speaker.empty()) {
    const auto dialect = config.talker.speaker_dialect.find(speaker);
    if (dialect != config.talker.speaker_dialect.end()) return table.at(dialect->second);
  }
  return language == "auto" ? -1 : table.at(language);
}

}  // namespace skald::model
