// Turns the model's calls into launches.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/binder.h"

namespace skald::backend::gpu {

/// Records into `ops`, which the caller owns. Ops are numbered from `first_number` on; fault words tell the
/// number. Wrong arguments are Error(internal), see backend/checks.h; sizes that no kernel serves are
/// Error(unsupported).
class Recorder final : public Ops {
 public:
  Recorder(LaunchTarget& target, std::string program, std::vector<RecordedOp>& ops, uint32_t first_number)
      : target_(target), program_(std::move(program)), ops_(ops), next_(first_number) {}

  void gather_sum(const GatherSum&) override;
  void linear(const Linear&) override;
  void gated_pair(const GatedPair&) override;
  void rope_angles(const RopeAngles&) override;
  void qkv_rope(const QkvRope&) override;
  void attention(const Attention&) override;
  void store_rows(const StoreRows&) override;
  void copy(const Copy&) override;
  void sample(const Sample&) override;
  void publish_frame(const PublishFrame&) override;
  void advance(const Advance&) override;
  void conv(const Conv&) override;
  void conv_transposed(const ConvTransposed&) override;
  void depthwise(const Depthwise&) override;
  void log_mel(const LogMel&) override;
  void padded_conv(const PaddedConv&) override;
  void statistics(const Statistics&) override;
  void scale_rows(const ScaleRows&) override;
  void nearest_code(const NearestCode&) override;
  void label(std::string_view where) override { label_ = where; }

 private:
  /// Checks a call and appends what `build(binder)` makes of it. `outputs` are the buffers it writes; absent
  /// ones are left out.
  template <class Call, class Build>
  void add(const char* kind, const Call& call, std::vector<Buffer> outputs, Build&& build) {
    const Binder binder(target_,
                        program_ + ", op " + std::to_string(ops_.size()) + " " + kind +
                            (label_.empty() ? "" : " (" + label_ + ")"),
                        next_);
    check(binder, call);
    std::vector<Launch> launches = build(binder);
    std::erase_if(outputs, [](const Buffer& b) { return !b; });
    ops_.push_back({{kind, label_, std::move(outputs)}, std::move(launches), next_++});
  }

  LaunchTarget& target_;
  std::string program_, label_;
  std::vector<RecordedOp>& ops_;
  uint32_t next_;
};

}  // namespace skald::backend::gpu
