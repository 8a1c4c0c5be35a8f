// Prompt rows: a table of ids, no arithmetic. Specification section 4.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace skald::model {

enum class Layout { whole, stream, ahead };

/// One row: text side and codec side, each may be absent.
struct PromptRow {
  int32_t text_id = -1;
  std::vector<int32_t>
      codec_ids;  ///< empty; one id of the talker's table; or one code per group (reference frame)
  bool speaker_vector = false;  ///< the request's x-vector is added
  bool operator==(const PromptRow&) const = default;
};

/// Everything the builder needs, already tokenised and looked up.
struct PromptInput {
  std::vector<int32_t> instruct_ids;  ///< unsliced wrapped instruction; empty = none
  std::vector<int32_t> role_ids;      ///< ids[0:3] of the wrapped text
  std::vector<int32_t> text_ids;      ///< ids[3:-5]; what is known so far when !text_complete
  bool text_complete = true;
  int32_t language_id = -1;  ///< -1 = none (nothink prefix)
  int32_t speaker_id = -1;   ///< codec id of a CustomVoice speaker
  bool has_x_vector = false;
  bool in_context = false;            ///< ICL: reference text and codes given
  std::vector<int32_t> ref_text_ids;  ///< rids[3:-2]
  std::vector<int32_t> ref_codes;     ///< [frames * groups]
  Layout layout = Layout::whole;
  int32_t ahead_tokens = 8;
};

struct Prompt {
  std::vector<PromptRow> rows;
  int32_t prefix_rows = 0;  ///< leading rows without the text: the same whenever this voice speaks
  int32_t text_used = 0;    ///< text ids that stand in the rows; the others are fed one per frame
  bool end_used = false;    ///< the end-of-text row stands in the rows; else it follows the last text id
};

/// Text tokens that must be known before the prompt can be built while text still arrives.
size_t text_tokens_needed(const PromptInput& input, int32_t groups);

/// The rows. With incomplete text, `text_ids` must hold at least text_tokens_needed.
Prompt build_prompt(const ModelConfig& config, const PromptInput& input);

/// Text ids fed one per frame after the prompt, the end token included unless it stands in the rows.
std::vector<int32_t> trailing_ids(const ModelConfig& config, const PromptInput& input, const Prompt& prompt);

/// Effective language id (specification 1.10): -1 = none. `language` is "auto" or a name of the model's
/// table, which engine::find_language makes of what a caller wrote; `speaker` is a lower-case name or empty.
int32_t effective_language(const ModelConfig& config, const std::string& language,
                           const std::string& speaker);

}  // namespace skald::model
