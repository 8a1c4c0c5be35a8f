// One function for every operation: for recorders that pass calls on and look at them on the way.
#pragma once

#include <string_view>

#include "backend/ops.h"

namespace skald::diagnose {

/// Every call becomes `derived.each(kind, member, call)`, where `member` is the function of Ops that takes
/// the call; kinds are those of OpRecord.
template <class Derived>
class EachOp : public backend::Ops {
 public:
  void gather_sum(const backend::GatherSum& a) final { pass("gather_sum", &Ops::gather_sum, a); }
  void linear(const backend::Linear& a) final { pass("linear", &Ops::linear, a); }
  void gated_pair(const backend::GatedPair& a) final { pass("gated_pair", &Ops::gated_pair, a); }
  void rope_angles(const backend::RopeAngles& a) final { pass("rope_angles", &Ops::rope_angles, a); }
  void qkv_rope(const backend::QkvRope& a) final { pass("qkv_rope", &Ops::qkv_rope, a); }
  void attention(const backend::Attention& a) final { pass("attention", &Ops::attention, a); }
  void store_rows(const backend::StoreRows& a) final { pass("store_rows", &Ops::store_rows, a); }
  void copy(const backend::Copy& a) final { pass("copy", &Ops::copy, a); }
  void sample(const backend::Sample& a) final { pass("sample", &Ops::sample, a); }
  void publish_frame(const backend::PublishFrame& a) final { pass("publish_frame", &Ops::publish_frame, a); }
  void advance(const backend::Advance& a) final { pass("advance", &Ops::advance, a); }
  void conv(const backend::Conv& a) final { pass("conv", &Ops::conv, a); }
  void conv_transposed(const backend::ConvTransposed& a) final {
    pass("conv_transposed", &Ops::conv_transposed, a);
  }
  void depthwise(const backend::Depthwise& a) final { pass("depthwise", &Ops::depthwise, a); }
  void log_mel(const backend::LogMel& a) final { pass("log_mel", &Ops::log_mel, a); }
  void padded_conv(const backend::PaddedConv& a) final { pass("padded_conv", &Ops::padded_conv, a); }
  void statistics(const backend::Statistics& a) final { pass("statistics", &Ops::statistics, a); }
  void scale_rows(const backend::ScaleRows& a) final { pass("scale_rows", &Ops::scale_rows, a); }
  void nearest_code(const backend::NearestCode& a) final { pass("nearest_code", &Ops::nearest_code, a); }

 private:
  template <class Call>
  void pass(std::string_view kind, void (backend::Ops::*member)(const Call&), const Call& call) {
    static_cast<Derived*>(this)->each(kind, member, call);
  }
};

}  // namespace skald::diagnose
