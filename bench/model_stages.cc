// Where a frame's time goes: runs a model for some frames and times every recorded op, stage by stage, with
// the weight bytes it reads and the arithmetic it does, beside what the machine reads in the same run.
//
//   bench_model_stages SNAPSHOT [frames] [codec chunk] [threads] [weights] [target] [ops]
//
// Times are medians over the frames. "GB/s" counts packed weights only; "GFLOP/s" two per weight and row.
#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "backend/cpu/cpu.h"
#include "backend/cpu/memory.h"
#include "base/pool.h"
#include "model/model.h"
#include "timed_device.h"

namespace skald::bench {
namespace {

/// Best of seven sums over 1 GB in large pages, every thread its own part in four streams.
double read_bandwidth(int threads) {
  constexpr int64_t kFloats = int64_t{256} << 20;
  const backend::cpu::Mapping memory("yardstick", kFloats * sizeof(float), true);
  std::fill_n(memory.as<float>(), kFloats, 1.0f);
  Pool pool(threads);
  double best = 0;
  volatile float sink = 0;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto start = Clock::now();
    pool.run(threads, [&](int task, int) {
      typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
      const int64_t n = kFloats / threads / 4;
      const float* from = memory.as<float>() + task * 4 * n;
      Vector sum[4] = {};
      for (int64_t i = 0; i + 16 <= n; i += 16)
        for (int s = 0; s < 4; ++s) sum[s] += *reinterpret_cast<const Vector*>(from + s * n + i);
      sum[0] += sum[1] + sum[2] + sum[3];
      sink = sum[0][0];
    });
    best = std::max(best, 4.0 * kFloats / seconds_since(start) / 1e9);
  }
  return best;
}

/// "codec.decoder.3" and "conv" -> "codec.decoder.3 conv"; layers of a stack are one stage.
std::string stage_of(const backend::OpRecord& op) {
  const size_t layers = op.label.find(".layers.");
  const size_t head = op.label.find("predictor.head.");
  const std::string label = layers != std::string::npos ? op.label.substr(0, layers + 7)
                            : head == 0                 ? "predictor.head"
                                                        : op.label;
  return label + " " + op.kind;
}

struct Stage {
  double ms = 0, bytes = 0, flops = 0;
};

void print_line(const std::string& name, const Stage& s, double bandwidth) {
  fmt::print("  {:42} {:8.3f} ms {:8.1f} MB {:7.1f} GB/s ({:3.0f} %) {:7.1f} GFLOP/s\n", name, s.ms,
             s.bytes / 1e6, s.bytes / s.ms / 1e6, s.bytes / s.ms / 1e4 / bandwidth, s.flops / s.ms / 1e6);
}

void print_programs(TimedDevice& device, double bandwidth, bool each_op) {
  const auto& programs = device.recorded();
  for (size_t i = 0; i < programs.size(); ++i) {
    const auto& program = programs[i];
    if (program.runs.empty()) continue;
    const auto records = device.ops({static_cast<int32_t>(i)});
    std::map<std::string, Stage> stages;
    Stage all;
    for (size_t j = 0; j < program.ops.size(); ++j) {
      const auto& op = program.ops[j];
      Stage& stage =
          stages[each_op ? fmt::format("{:03} {}", j, stage_of(records[j])) : stage_of(records[j])];
      for (Stage* s : {&stage, &all})
        s->ms += 1e3 * median(op.times), s->bytes += op.cost.bytes, s->flops += op.cost.flops;
    }
    all.ms = 1e3 * median(program.runs);
    print_line(fmt::format("{} ({} runs)", program.name, program.runs.size()), all, bandwidth);
    for (const auto& [name, stage] : stages) print_line("  " + name, stage, bandwidth);
  }
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(
        stderr,
        "usage: bench_model_stages SNAPSHOT [frames] [codec chunk] [threads] [weights] [target] [ops]\n");
    return 2;
  }
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const auto word = [&](int i) { return argc > i ? std::string(argv[i]) : std::string(); };
  const int frames = number(2, 20), chunk = number(3, 1), threads = number(4, 2);
  const double bandwidth = read_bandwidth(threads);
  TimedDevice device(backend::make_cpu_backend(
      {.threads = threads, .target = word(6), .weights = word(5).empty() ? "auto" : word(5)}));
  const auto start = Clock::now();
  const auto model =
      model::Model::load(argv[1], device, {.cache_capacity = 1024, .codec_chunk = std::max(chunk, 1)});
  fmt::print("{}, {:.1f} GB/s read, loaded in {:.2f} s, {:.0f} MB of weights\n", device.name(), bandwidth,
             seconds_since(start), static_cast<double>(device.weight_bytes()) / 1e6);
  const model::ModelConfig& config = model->config();
  const int groups = config.talker.num_code_groups;
  backend::SlotSettings settings;
  settings.max_frames = frames + 1;
  settings.talker.min_new_tokens = frames + 1;
  const int32_t slots[] = {0};
  model->begin(0, settings);
  const model::PromptInput input{.role_ids = {config.im_start_id, config.assistant_id, 198},
                                 .text_ids = std::vector<int32_t>(20, 100)};
  device.forget();
  model->prefill(0, model::build_prompt(config, input), {});
  std::vector<int32_t> codes;
  for (int f = 0; f < frames; ++f) {
    model->frame_codes(slots);
    codes.resize(static_cast<size_t>((f + 1) * groups));
    model->read_codes(0, f, std::span(codes).last(static_cast<size_t>(groups)));
    model->frame_step(slots);
  }
  model->codec_reset(0);
  std::vector<float> samples(static_cast<size_t>(chunk * config.codec.decode_upsample_rate));
  for (int f = 0; f + chunk <= frames; f += chunk)
    model->codec_decode(
        0, std::span(codes).subspan(static_cast<size_t>(f * groups), static_cast<size_t>(chunk * groups)),
        samples);
  print_programs(device, bandwidth, word(7) == "ops");
  return 0;
}

}  // namespace
}  // namespace skald::bench

int main(int argc, char** argv) { return skald::bench::run(argc, argv); }
