// Which op belongs to which stage.
#include "diagnose/stages.h"

namespace skald::diagnose {

Stage stage_of(std::string_view program, std::string_view kind, std::string_view label) {
  if (program.starts_with("codec")) return Stage::codec;
  if (program.starts_with("frame.step")) return kind == "attention" ? Stage::talker_attention : Stage::talker;
  if (!program.starts_with("frame.codes")) return Stage::prefill;
  const bool draws = kind == "sample" || label == "talker.sample" || label == "frame.publish";
  return draws ? Stage::sampling : Stage::predictor;
}

StageTime& StageTime::operator+=(const StageTime& other) {
  ms += other.ms, ops += other.ops, launches += other.launches, work += other.work;
  return *this;
}

StageTimes& StageTimes::operator+=(const StageTimes& other) {
  for (size_t i = 0; i < kStages; ++i) stages[i] += other.stages[i];
  return *this;
}

}  // namespace skald::diagnose
