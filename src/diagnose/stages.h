// The parts of a frame that are measured apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "diagnose/op_cost.h"

namespace skald::diagnose {

enum class Stage : uint8_t {
  prefill,           ///< prompt rows: embeddings, layers, head, the kept prefix
  talker,            ///< a frame through the talker, without its attention
  talker_attention,  ///< the part of the talker that grows with the context
  predictor,         ///< the codes after the first, without their draws
  sampling,          ///< draws of all codes, and publishing the frame
  codec,             ///< codes to samples
};
inline constexpr size_t kStages = 6;

/// The stage of an op: program names and labels are those the model records under.
Stage stage_of(std::string_view program, std::string_view kind, std::string_view label);

/// Time and work of a stage in some span.
struct StageTime {
  double ms = 0;
  double ops = 0;
  double launches = 0;  ///< of kernels, on a device that works behind the host
  Work work;
  StageTime& operator+=(const StageTime& other);
};

/// The ops of one kind under one label.
struct OpTime {
  std::string label, kind;
  int32_t ops = 0;
  double ms = 0;
};

struct StageTimes {
  std::array<StageTime, kStages> stages;
  StageTime& operator[](Stage stage) { return stages[static_cast<size_t>(stage)]; }
  const StageTime& operator[](Stage stage) const { return stages[static_cast<size_t>(stage)]; }
  StageTimes& operator+=(const StageTimes& other);
};

}  // namespace skald::diagnose
