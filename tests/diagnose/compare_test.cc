// Comparing devices: equal ones are equal, and every planted fault is named where it is.
#include "diagnose/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/cpu/cpu.h"
#include "diagnose/faulty_device.h"

namespace skald::diagnose {
namespace {

using test::change_rows;
using test::Fault;

CompareOptions options_for(const std::string& model) {
  CompareOptions o;
  o.model = std::string(SKALD_FIXTURES "/models/") + model;
  o.a.threads = o.b.threads = 1;
  o.a.weights = o.b.weights = "f32";
  o.lengths = {1, 8, 33, 255, 256, 257, 300, 301, 302};
  o.frames = 12, o.codec_frames = 40;
  return o;
}

/// Opens a CPU for `a` and one with a fault for `b`.
CompareReport compare_with(Fault fault, CompareOptions o = options_for("tiny-cv")) {
  o.b.device = "faulty";
  o.open = [&](const EngineOptions& e) -> std::unique_ptr<backend::Backend> {
    auto cpu = backend::make_cpu_backend({.threads = 1, .weights = e.weights});
    if (e.device != "faulty") return cpu;
    return std::make_unique<test::FaultyDevice>(std::move(cpu), fault);
  };
  return run_compare(o);
}

const OpDifference& first(const CompareReport& r) {
  static const OpDifference none;
  EXPECT_FALSE(r.differences.empty());
  return r.differences.empty() ? none : r.differences.front();
}

class EqualDevices : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(EqualDevices, AreEqual) {
  const auto [model, weights] = GetParam();
  CompareOptions o = options_for(model);
  o.a.weights = o.b.weights = weights;
  const CompareReport r = run_compare(o);
  EXPECT_TRUE(r.equal()) << to_text(r);
  EXPECT_TRUE(r.differences.empty());
  EXPECT_GT(r.ops_compared, 5000u);
  for (const CompareReport::OpLine& line : r.ops) {
    EXPECT_EQ(line.statistics.equal_rows, line.statistics.rows) << line.program << " " << line.kind;
    EXPECT_EQ(line.statistics.norm_ratio(), 1) << line.program << " " << line.kind;
  }
  EXPECT_EQ(r.worst_cosine(), r.mean_cosine());
  EXPECT_NEAR(r.worst_cosine(), 1, 1e-12);
  EXPECT_EQ(r.waveform_difference, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EqualDevices,
                         testing::Values(std::tuple("tiny-cv", "f32"), std::tuple("tiny-cv-1b7", "bf16"),
                                         std::tuple("tiny-base", "int8")));

TEST(Compare, SeesEveryProgramAndKindOfOp) {
  const CompareReport r = run_compare(options_for("tiny-cv-1b7"));
  std::set<std::string> programs, kinds;
  for (const CompareReport::OpLine& line : r.ops)
    if (line.statistics.rows > 0) programs.insert(line.program), kinds.insert(line.kind);
  for (const char* program :
       {"predictor.fold", "predictor.rope x4", "talker.text", "talker.embed", "talker.prefill",
        "talker.prefill_head", "talker.store_text", "prefix.save 0", "prefix.restore 0", "frame.codes x1",
        "frame.codes x2", "frame.codes x4", "frame.step x1", "frame.step x2", "frame.step x4"})
    EXPECT_TRUE(programs.contains(program)) << program;
  size_t codec = 0;
  for (const std::string& program : programs) codec += program.starts_with("codec");
  EXPECT_EQ(codec, 3u);  // 1, 4 and 16 frames
  EXPECT_EQ(kinds, (std::set<std::string>{"advance", "attention", "conv", "conv_transposed", "copy",
                                          "depthwise", "gated_pair", "gather_sum", "linear", "publish_frame",
                                          "qkv_rope", "rope_angles", "sample", "store_rows"}));
}

TEST(Compare, TargetsOfTheCpuAreEqualWithinTolerance) {
  const std::vector<std::string> targets = backend::cpu_targets();
  for (const std::string& target : targets) {
    CompareOptions o = options_for("tiny-cv");
    o.a.device = "cpu:" + targets.front(), o.b.device = "cpu:" + target;
    const CompareReport r = run_compare(o);
    EXPECT_TRUE(r.equal()) << target << "\n" << to_text(r);
  }
}

// ---- planted faults

TEST(Faults, AKernelOffByATenthOfAPercentAboveALength) {
  const CompareReport r = compare_with({.kind = "attention",
                                        .label = "talker.layers.1",
                                        .spoil = [](auto& device, const auto& view, const auto& rows) {
                                          change_rows(device, view, rows.first, rows.count,
                                                      [&](int32_t row, std::span<float> values) {
                                                        if (rows.position + row < 300) return;
                                                        for (float& v : values) v *= 1.001f;
                                                      });
                                        }});
  // A frame is the first to get there, then a prompt. These two alone: the ops behind them started from what
  // was right.
  ASSERT_EQ(r.differences.size(), 2u) << to_text(r);
  for (const OpDifference& d : r.differences) {
    EXPECT_EQ(d.kind, "attention");
    EXPECT_EQ(d.label, "talker.layers.1");
    EXPECT_EQ(d.output, "out");
    EXPECT_EQ(d.position, 300);
    EXPECT_EQ(d.measure, Measure::norm_ratio);
    EXPECT_NEAR(d.value, 0.001, 1e-5);
    EXPECT_EQ(d.limit, 2e-4);
    EXPECT_NEAR(d.norm_ratio, 1.001, 1e-5);
    EXPECT_NEAR(d.signed_error, 0.001, 1e-5);
    EXPECT_NEAR(d.got / d.expected, 1.001, 1e-6);
  }
  const OpDifference &frame = r.differences[0], &prompt = r.differences[1];
  EXPECT_EQ(frame.program, "frame.step x1");
  EXPECT_EQ(frame.op, 8u);  // the input, angles, five ops of layer 0, q k v of layer 1
  EXPECT_EQ(frame.context, "frame 0 after a prompt of 300 rows");
  EXPECT_EQ(prompt.program, "talker.prefill");
  EXPECT_EQ(prompt.op, 7u);
  EXPECT_EQ(prompt.row, 12);  // of the block that begins at 288
  EXPECT_EQ(prompt.context, "prompt of 301 rows");
  EXPECT_FALSE(r.equal());
}

TEST(Faults, TheSameInAFrameAlone) {
  CompareOptions o = options_for("tiny-cv");
  o.lengths = {1}, o.frames = 60;
  const CompareReport r = compare_with({.kind = "attention",
                                        .label = "talker.layers.0",
                                        .spoil =
                                            [](auto& device, const auto& view, const auto& rows) {
                                              if (rows.position < 300) return;
                                              change_rows(device, view, rows.first, rows.count,
                                                          [](int32_t, std::span<float> values) {
                                                            for (float& v : values) v *= 0.999f;
                                                          });
                                            }},
                                       o);
  const OpDifference& d = first(r);
  EXPECT_EQ(d.program, "frame.step x1");
  EXPECT_EQ(d.position, 300);
  EXPECT_EQ(d.context, "frame 50, position 300");
  EXPECT_NEAR(d.signed_error, -0.001, 1e-5);
  EXPECT_EQ(d.times, 10u);
}

TEST(Faults, TwoRowsExchanged) {
  const CompareReport r =
      compare_with({.kind = "gated_pair",
                    .label = "talker.layers.0",
                    .spoil = [](auto& device, const auto& view, const auto& rows) {
                      if (rows.count < 6) return;
                      std::vector<float> kept;
                      change_rows(device, view, rows.first + 2, 1,
                                  [&](int32_t, auto v) { kept.assign(v.begin(), v.end()); });
                      change_rows(device, view, rows.first + 5, 1, [&](int32_t, auto v) {
                        std::swap_ranges(kept.begin(), kept.end(), v.begin());
                      });
                      change_rows(device, view, rows.first + 2, 1,
                                  [&](int32_t, auto v) { std::copy(kept.begin(), kept.end(), v.begin()); });
                    }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.program, "talker.prefill");
  EXPECT_EQ(d.kind, "gated_pair");
  EXPECT_EQ(d.label, "talker.layers.0");
  EXPECT_EQ(d.row, 2);
  EXPECT_EQ(d.holds_row, 5);
  EXPECT_EQ(d.position, 2);
  EXPECT_EQ(d.context, "prompt of 8 rows");
}

TEST(Faults, ANumberThatIsNone) {
  const CompareReport r = compare_with(
      {.kind = "linear",
       .label = "predictor.layers.1",
       .spoil = [](auto& device, const auto& view, const auto& rows) {
         change_rows(device, view, rows.first, 1, [](int32_t, auto v) { v[v.size() - 1] = std::nanf(""); });
       }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.program, "frame.codes x1");
  EXPECT_EQ(d.label, "predictor.layers.1");
  EXPECT_EQ(d.measure, Measure::non_finite);
  EXPECT_EQ(d.column, 31);
  EXPECT_TRUE(std::isnan(d.got));
  EXPECT_TRUE(std::isfinite(d.expected));
  // Alone, the device cannot go on: logits that are no numbers end the slot, and no head agrees.
  EXPECT_TRUE(std::isnan(r.worst_cosine()));
  EXPECT_TRUE(std::isnan(r.mean_cosine()));
  EXPECT_TRUE(std::any_of(r.failures.begin(), r.failures.end(), [](const Failure& f) {
    return f.where == "forced frames" && f.what.find("logits that are no numbers") != std::string::npos;
  })) << to_text(r);
  // JSON has no infinity and no NaN.
  const auto forced = nlohmann::json::parse(to_json(r).dump())["forced"];
  EXPECT_EQ(forced["worst_cosine"], "nan");
  EXPECT_EQ(forced["mean_cosine"], "nan");
  EXPECT_TRUE(std::any_of(forced["heads"].begin(), forced["heads"].end(),
                          [](const auto& head) { return head["worst_cosine"] == "nan"; }));
}

TEST(Faults, OneLaneOfSeveral) {
  const CompareReport r = compare_with(
      {.kind = "linear",
       .label = "predictor.head.6",
       .spoil = [](auto& device, const auto& view, const auto& rows) {
         if (rows.first == 2)
           change_rows(device, view, 2, 1, [](int32_t, auto v) { v[17] += 0.01f * std::abs(v[17]) + 0.01f; });
       }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.program, "frame.codes x4");
  EXPECT_EQ(d.label, "predictor.head.6");
  EXPECT_EQ(d.row, 2);
  EXPECT_EQ(d.slot, 2);
  EXPECT_EQ(d.column, 17);
  EXPECT_EQ(d.measure, Measure::element);
  EXPECT_EQ(d.context, "frame 0 of 3 requests at once");
  EXPECT_GT(r.worst_cosine(), 0.999999);  // frames one by one are right
}

TEST(Faults, AColumnOfTheCacheNotWritten) {
  const CompareReport r = compare_with(
      {.kind = "qkv_rope",
       .label = "talker.layers.1",
       .output = 2,
       .spoil = [](auto& device, const auto& view, const auto& rows) {
         if (rows.position + rows.count <= 256) return;
         const int32_t late = static_cast<int32_t>(std::max<int64_t>(0, 256 - rows.position));
         change_rows(device, view, rows.first + late, rows.count - late, [](int32_t, auto v) { v[3] = 0; });
       }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.output, "cache.v");
  EXPECT_EQ(d.position, 256);
  EXPECT_EQ(d.row, 256);  // of slot 0
  EXPECT_EQ(d.column, 3);
  EXPECT_EQ(d.got, 0);
  EXPECT_EQ(d.context, "frame 0 after a prompt of 256 rows");
}

TEST(Faults, AnotherDraw) {
  const CompareReport r = compare_with({.kind = "sample",
                                        .label = "predictor.head.2",
                                        .output = 1,
                                        .spoil = [](auto& device, const auto& view, const auto& rows) {
                                          const backend::Buffer code =
                                              view.row_range(rows.first, 1).columns(3, 1);
                                          int32_t value = 0;
                                          device.read(code, std::as_writable_bytes(std::span(&value, 1)));
                                          value ^= 1;
                                          device.write(code, std::as_bytes(std::span(&value, 1)));
                                        }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.kind, "sample");
  EXPECT_EQ(d.label, "predictor.head.2");
  EXPECT_EQ(d.output, "codes");
  EXPECT_EQ(d.measure, Measure::integer);
  EXPECT_EQ(d.column, 3);
  // Codes are not for publishing, not even these.
  const nlohmann::json bundle = nlohmann::json::parse(to_json(r).dump());
  EXPECT_TRUE(bundle["first_difference"]["expected"].is_null());
  EXPECT_TRUE(bundle["first_difference"]["got"].is_null());
  EXPECT_EQ(to_text(r).find("expected"), std::string::npos);
}

TEST(Faults, ARowThatDoesNotCountIsWritten) {
  // The fourth lane of three requests is idle.
  const CompareReport r =
      compare_with({.kind = "gated_pair",
                    .label = "talker.layers.1",
                    .spoil = [](auto& device, const auto& view, const auto& rows) {
                      if (view.rows == 4 && rows.first == 0)
                        change_rows(device, view, 3, 1, [](int32_t, auto v) { v[5] = 42; });
                    }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.program, "frame.step x4");
  EXPECT_EQ(d.measure, Measure::stray);
  EXPECT_EQ(d.row, 3);
  EXPECT_EQ(d.column, 5);
  EXPECT_EQ(d.got, 42);
}

TEST(Faults, MemoryOfAnotherBufferIsWritten) {
  CompareOptions o = options_for("tiny-cv");
  const CompareReport r =
      compare_with({.kind = "qkv_rope",
                    .label = "talker.layers.0",
                    .output = 1,
                    .spoil =
                        [](auto& device, const auto& view, const auto&) {
                          // Keys of slot 2, while slot 0 is in work.
                          change_rows(device, view, view.rows - 1, 1, [](int32_t, auto v) { v[0] = 7; });
                        }},
                   o);
  const OpDifference& d = first(r);
  EXPECT_EQ(d.measure, Measure::stray);
  EXPECT_EQ(d.label, "talker.layers.0.k");
  EXPECT_EQ(d.output, "memory");
  EXPECT_EQ(d.column, 0);
  EXPECT_EQ(d.got, 7);
  EXPECT_EQ(d.context, "after the prompts");
}

TEST(Faults, AConvolutionOfTheCodec) {
  const CompareReport r = compare_with({.kind = "conv",
                                        .label = "codec.decoder.exit",
                                        .spoil = [](auto& device, const auto& view, const auto& rows) {
                                          if (rows.count < 5000) return;
                                          change_rows(device, view, rows.first, rows.count,
                                                      [](int32_t, auto v) { v[0] *= 1.001f; });
                                        }});
  const OpDifference& d = first(r);
  EXPECT_EQ(d.kind, "conv");
  EXPECT_EQ(d.label, "codec.decoder.exit");
  EXPECT_EQ(d.measure, Measure::norm_ratio);
  EXPECT_TRUE(d.context.starts_with("codec frames")) << d.context;
}

TEST(HeadReport, TheWorstIsTheFirstThatIsNoNumber) {
  HeadReport head;
  head.add(0.9, "one"), head.add(0.5, "two"), head.add(std::nan(""), "three"), head.add(-1, "four");
  head.add(std::nan(""), "five");
  EXPECT_TRUE(std::isnan(head.worst_cosine));
  EXPECT_EQ(head.worst_at, "three");
  HeadReport finite;
  finite.add(0.5, "one"), finite.add(0.75, "two");
  EXPECT_EQ(finite.worst_cosine, 0.5);
  EXPECT_EQ(finite.mean_cosine, 1.25);
}

TEST(Faults, SamplesThatAreNoNumbers) {
  const CompareReport r =
      compare_with({.kind = "conv",
                    .label = "codec.decoder.exit",
                    .spoil = [](auto& device, const auto& view, const auto& rows) {
                      change_rows(device, view, rows.first, 1, [](int32_t, auto v) { v[0] = std::nanf(""); });
                    }});
  EXPECT_TRUE(std::isnan(r.waveform_difference));
  EXPECT_EQ(r.failures.back().where, "codec");
  EXPECT_NE(r.failures.back().what.find("no numbers"), std::string::npos) << r.failures.back().what;
  EXPECT_EQ(nlohmann::json::parse(to_json(r).dump())["forced"]["waveform_difference"], "nan");
  EXPECT_NE(to_text(r).find("samples hold NaN or infinity"), std::string::npos) << to_text(r);
}

TEST(Faults, AStateOfTheCodecThatIsLost) {
  const CompareReport r =
      compare_with({.kind = "conv",
                    .label = "codec.decoder.2",
                    .output = 1,
                    .spoil = [](auto& device, const auto& view, const auto& rows) {
                      change_rows(device, view, rows.first, rows.count,
                                  [](int32_t, auto v) { std::fill(v.begin(), v.end(), 0.0f); });
                    }});
  EXPECT_EQ(first(r).output, "state");
  EXPECT_GT(r.waveform_difference, 1e-4);
  EXPECT_EQ(r.failures.back().where, "codec");
}

TEST(Faults, AnErrorOfTheDeviceNamesTheOp) {
  const CompareReport r = compare_with(
      {.kind = "attention", .label = "talker.layers.0", .spoil = [](auto&, const auto&, const auto& rows) {
         if (rows.position > 64) throw Error(ErrorCode::device_wedged, "no progress");
       }});
  ASSERT_TRUE(r.error.has_value());
  EXPECT_EQ(r.error->code(), ErrorCode::device_wedged);
  const std::string words = r.error->what();
  for (const char* part : {"device b (faulty)", "prompt of 255 rows", "talker.prefill", "op 2 attention",
                           "talker.layers.0", "no progress"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
  EXPECT_GT(r.ops_compared, 100u);  // what came before is there
  EXPECT_FALSE(r.equal());
}

/// A small error everywhere, each op within tolerance: seen where it adds up.
TEST(Faults, WhatAddsUpIsSeenInWholeRequests) {
  CompareOptions o = options_for("tiny-cv");
  o.lockstep = false;
  const CompareReport r =
      compare_with({.kind = "gated_pair",
                    .spoil =
                        [](auto& device, const auto& view, const auto& rows) {
                          change_rows(device, view, rows.first, rows.count, [](int32_t, auto v) {
                            for (size_t i = 0; i < v.size(); i += 2) v[i] *= 1.05f;
                          });
                        }},
                   o);
  EXPECT_FALSE(r.equal());
  EXPECT_LT(r.worst_cosine(), 0.99999);
  EXPECT_EQ(r.failures.front().where, "forced frames");
}

// ---- the bundle

TEST(Bundle, HoldsWhatMayBePublishedOnly) {
  CompareOptions o = options_for("tiny-cv");
  o.lengths = {1, 8}, o.frames = 3, o.codec_frames = 5;
  const CompareReport r = run_compare(o);
  const nlohmann::json bundle = nlohmann::json::parse(to_json(r).dump());
  std::set<std::string> names;
  for (const auto& [name, value] : bundle.items()) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"verdict", "failures", "first_difference", "a", "b", "model",
                                          "weights", "compute", "b_weights", "b_compute", "seed", "tolerance",
                                          "lock_step", "forced"}));
  EXPECT_EQ(bundle["verdict"], "equal");
  EXPECT_EQ(bundle["forced"]["heads"].size(), 16u);
  EXPECT_EQ(bundle["forced"]["heads"][3]["compared"], 2 * 2 + 3);
  EXPECT_EQ(bundle.dump().find(SKALD_FIXTURES), std::string::npos);
  // No list of numbers but the lengths.
  std::function<void(const nlohmann::json&, const std::string&)> look = [&](const auto& node,
                                                                            const std::string& at) {
    if (node.is_array() && !node.empty() && at != "lengths") {
      EXPECT_TRUE(node.front().is_object()) << at;
    }
    for (const auto& [name, value] : node.items())
      if (value.is_structured()) look(value, name);
  };
  look(bundle, "");
}

TEST(Options, AreChecked) {
  const auto error = [](auto change) {
    CompareOptions o = options_for("tiny-cv");
    change(o);
    try {
      run_compare(o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error([](CompareOptions& o) { o.frames = -1; }), "frames is -1, but must be within 0..4000");
  EXPECT_EQ(error([](CompareOptions& o) { o.lengths = {0}; }), "lengths is 0, but must be within 1..4000");
  EXPECT_NE(error([](CompareOptions& o) { o.b.weights = "int4"; }).find("\"int4\""), std::string::npos);
  EXPECT_NE(error([](CompareOptions& o) { o.b.compute = "vague"; }).find("\"vague\""), std::string::npos);
  EXPECT_NE(error([](CompareOptions& o) { o.b.device = "cpu:MMX"; }).find("'MMX' is not available"),
            std::string::npos);
  EXPECT_NE(error([](CompareOptions& o) { o.model = "/none"; }).find("/none"), std::string::npos);
}

TEST(Options, LengthsAreDenseWhereFaultsWereFound) {
  const std::vector<int32_t> lengths = default_lengths();
  EXPECT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
  EXPECT_EQ(lengths.front(), 1);
  EXPECT_EQ(lengths.back(), 640);
  for (int32_t length = 255; length <= 260; ++length)
    EXPECT_TRUE(std::binary_search(lengths.begin(), lengths.end(), length));
  for (int32_t length = 290; length <= 310; ++length)
    EXPECT_TRUE(std::binary_search(lengths.begin(), lengths.end(), length));
}

}  // namespace
}  // namespace skald::diagnose
