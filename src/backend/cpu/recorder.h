// Turns the model's calls into bound ops of a program.
#pragma once

#include <string>

#include "backend/cpu/binder.h"

namespace skald::backend::cpu {

class Recorder final : public Ops {
 public:
  Recorder(CpuDevice& device, RecordedProgram& program) : device_(device), program_(program) {}

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
  /// Binds `Op(binder, call)` and appends it. `outputs` are the buffers it writes; absent ones are left out.
  template <class Op, class Call>
  void add(const char* kind, const Call& call, std::vector<Buffer> outputs) {
    Binder binder(device_, program_.name + ", op " + std::to_string(program_.calls.size()) + " " + kind +
                               (label_.empty() ? "" : " (" + label_ + ")"));
    if constexpr (requires { check(binder, call); }) check(binder, call);
    program_.calls.push_back(std::make_unique<Op>(binder, call));
    std::erase_if(outputs, [](const Buffer& b) { return !b; });
    program_.records.push_back({kind, label_, std::move(outputs)});
  }

  CpuDevice& device_;
  RecordedProgram& program_;
  std::string label_;
};

}  // namespace skald::backend::cpu
