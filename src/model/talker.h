// Talker and code predictor: prompt rows to codes, one frame at a time. Specification sections 3, 5, 6.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/model.h"
#include "model/prefix_cache.h"
#include "model/prompt.h"
#include "model/transformer.h"

namespace skald::model {

/// Owns the language model's weights, the slot arrays and the programs. One frame is two programs of a width
/// class.
class Talker {
 public:
  Talker(backend::Backend& device, const WeightLoader& talker, const ModelConfig& config,
         const ModelOptions& options);

  void begin(int32_t slot, const backend::SlotSettings& settings);
  /// Returns the rows that came from the prefix cache.
  int32_t prefill(int32_t slot, const Prompt& prompt, std::span<const float> x_vector);
  void append_text(int32_t slot, std::span<const int32_t> text_ids);
  void frame_codes(std::span<const int32_t> slots);
  void frame_step(std::span<const int32_t> slots);
  void release(int32_t slot);

  int32_t runs(int32_t slot) const { return runs_[static_cast<size_t>(slot)]; }  ///< of frame_codes
  int32_t word(const backend::Buffer& array, int32_t slot) const;                ///< one i32 of a slot array
  const backend::SlotArrays& slots() const { return slots_; }

  /// Prompt rows [rows * hidden] without running the talker.
  std::vector<float> prompt_rows(const Prompt& prompt, std::span<const float> x_vector);
  const backend::Buffer& hidden() const { return hidden_; }  ///< [slots, hidden]
  const backend::Buffer& logits() const { return logits_; }  ///< [slots, vocabulary]
  const backend::Buffer& probs() const { return widths_.at(1).probs; }
  const backend::Buffer& predictor_logits() const { return widths_.at(1).predictor_logits; }
  const backend::Buffer& predictor_probs() const { return widths_.at(1).predictor_probs; }

 private:
  /// Buffers and programs for up to `lanes` slots at once.
  struct Width {
    int32_t lanes = 0;
    backend::Buffer lane_slot;
    std::vector<int32_t> lane_slots;  ///< what lane_slot holds
    StackBuffers talker;
    backend::Buffer hidden, logits, probs;
    backend::Buffer pair;                ///< [lanes, 2 * predictor hidden]: the predictor's first two rows
    StackBuffers predictor;              ///< 2 * lanes rows
    std::vector<backend::Buffer> ropes;  ///< angles of positions {0, 1}, 2, 3, ...; constant
    backend::Buffer predictor_logits, predictor_probs;  ///< [lanes, (groups - 1) * codes]
    backend::Program codes, step;
  };
  struct Prefill {
    backend::Buffer lane_slot, lane_count;
    backend::Buffer text_ids;    ///< i32 [kPromptRows, 1]
    backend::Buffer codec_ids;   ///< i32 [kPromptRows, groups]
    backend::Buffer extra;       ///< [kPromptRows, hidden]: x-vector rows, zero elsewhere
    backend::Buffer text_rows;   ///< [kPromptRows, text_hidden]
    backend::Buffer text_inner;  ///< [kPromptRows, text_hidden]
    backend::Buffer projected;   ///< [kPromptRows, hidden]
    backend::Buffer folded;  ///< [kPromptRows, predictor hidden]: rows of a projected table, while loading
    StackBuffers stack;
    backend::Buffer last, hidden, logits;  ///< [1, hidden] twice, [1, vocabulary]
    backend::Program project, embed, layers, head, store;
  };

  void load_tables(const WeightLoader& talker);
  void allocate_slots(const ModelOptions& options);
  void record_prefill();
  void record_pad();
  void fold_projection(const WeightLoader& talker);
  std::vector<float> projected_table(backend::Weight table, int32_t entries);
  Width make_width(int32_t lanes);
  void record_predictor(backend::Ops& ops, const Width& w) const;
  void record_predictor_pass(backend::Ops& ops, const Width& w, int32_t group) const;
  void record_step(backend::Ops& ops, const Width& w) const;
  void record_head(backend::Ops& ops, const backend::Buffer& x, const backend::Buffer& hidden,
                   const backend::Buffer& logits, const backend::Lanes& lanes) const;
  Width& width_for(std::span<const int32_t> slots);
  void project_text(std::span<const int32_t> ids, std::span<const float> extra);
  void embed_rows(std::span<const PromptRow> rows, std::span<const float> x_vector);

  backend::Lanes lanes_of(const Width& w, int32_t rows = 1) const;
  backend::Lanes prefill_lanes() const;

  backend::Backend& device_;
  const ModelConfig& config_;
  int32_t slot_count_, text_capacity_, groups_, codes_;

  backend::Weight text_table_, fc1_, fc1_bias_, fc2_, fc2_bias_, codec_table_, final_norm_, head_;
  std::vector<backend::Weight> frame_tables_;  ///< the talker's table, then the predictor's: one per group
  backend::Weight input_projection_, input_bias_, predictor_norm_;
  std::vector<backend::Weight>
      predictor_tables_;                       ///< the predictor's input per group, projected where needed
  std::vector<std::vector<float>> projected_;  ///< what those tables hold
  std::vector<backend::Weight> predictor_heads_;
  std::unique_ptr<DecoderStack> talker_, predictor_;

  backend::SlotArrays slots_;
  backend::Buffer hidden_, logits_;  ///< of every slot's last row
  backend::Buffer text_store_;       ///< [slots * text_capacity, hidden]
  backend::Buffer text_count_;       ///< i32 [slots, 1]
  backend::Buffer pad_;              ///< [1, hidden]
  Prefill prefill_;
  std::unique_ptr<PrefixCache> prefixes_;
  std::map<int32_t, Width> widths_;
  std::vector<int32_t> runs_;      ///< of frame_codes, by slot
  std::vector<size_t> text_rows_;  ///< text rows handed over, by slot
};

}  // namespace skald::model
