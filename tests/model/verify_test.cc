// `skald verify` on good, mixed-up and damaged snapshots.
#include "model/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/config.h"
#include "snapshot_files.h"

namespace skald::model {
namespace {

using test::edit_json;
using test::json;
using test::RawTensor;
using test::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string all_text(const VerifyReport& report) {
  std::string text;
  for (const Finding& f : report.findings) text += f.severity + ": " + f.what + " -> " + f.fix + "\n";
  return text;
}

size_t errors(const VerifyReport& report) {
  return static_cast<size_t>(std::count_if(report.findings.begin(), report.findings.end(),
                                           [](const Finding& f) { return f.severity == "error"; }));
}

class VerifyTest : public ::testing::Test {
 protected:
  void use(const std::string& name) { test::copy_model(name, dir.path()); }
  std::vector<RawTensor> tensors() { return test::read_tensors(dir / "model.safetensors"); }
  void write(const std::vector<RawTensor>& tensors) {
    test::write_file(dir / "model.safetensors", test::safetensors(tensors));
  }
  RawTensor& named(std::vector<RawTensor>& tensors, const std::string& name) {
    for (RawTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + name);
  }
  VerifyReport verify() { return verify_model(dir.path()); }
  TempDir dir;
};

TEST_F(VerifyTest, TinyModelsAreGood) {
  struct Known {
    const char *name, *type, *size;
  };
  for (const auto& [name, type, size] :
       {Known{"tiny-cv", "custom_voice", "0b6"}, Known{"tiny-cv-1b7", "custom_voice", "1b7"},
        Known{"tiny-base", "base", "0b6"}, Known{"tiny-vd", "voice_design", "1b7"}}) {
    const VerifyReport report = verify_model(fs::path(SKALD_FIXTURES) / "models" / name);
    EXPECT_TRUE(report.ok()) << all_text(report);
    EXPECT_EQ(report.type, type);
    EXPECT_EQ(report.size, size);
    EXPECT_EQ(report.found_size, "other");
    EXPECT_FALSE(report.fine_tuned);
    EXPECT_GT(report.tensors, 80u);
    EXPECT_GT(report.parameters, 100000u);
    EXPECT_GT(report.codec_tensors, 300u);
    EXPECT_GT(report.codec_parameters, 100000u);
  }
}

/// A folder with published configuration and all-zero weights of any width, which take no disk space.
void write_full_size(const fs::path& dir, bool large_config, bool large_weights) {
  test::copy_model_without_weights("tiny-cv", dir);
  const fs::path published = fs::path(SKALD_SOURCE_DIR) / "tests/model/published";
  fs::copy_file(published / "speech_tokenizer_config.json", dir / "speech_tokenizer/config.json",
                fs::copy_options::overwrite_existing);
  const auto configure = [&](bool large) {
    fs::copy_file(published / "config.json", dir / "config.json", fs::copy_options::overwrite_existing);
    if (!large) return;
    edit_json(dir / "config.json", [](json& document) {
      document["tts_model_size"] = "1b7";
      document["talker_config"]["hidden_size"] = 2048;
      document["talker_config"]["intermediate_size"] = 6144;
    });
  };
  const auto raw = [](const std::vector<ExpectedTensor>& expected, const char* type) {
    std::vector<RawTensor> out;
    for (const ExpectedTensor& tensor : expected) out.push_back({tensor.name, type, tensor.shape, ""});
    return out;
  };
  configure(large_weights);
  const ModelConfig config = load_config(dir);
  test::write_sparse(dir / "model.safetensors", raw(expected_tensors(config), "BF16"));
  test::write_sparse(dir / "speech_tokenizer/model.safetensors",
                     raw(expected_codec_tensors(config.codec), "F32"));
  configure(large_config);
}

TEST_F(VerifyTest, FullSizeModelsAreRecognised) {
  for (const bool large : {false, true}) {
    write_full_size(dir.path(), large, large);
    const VerifyReport report = verify_model(dir.path(), {.scan_values = false});
    EXPECT_TRUE(report.ok()) << all_text(report);
    EXPECT_EQ(report.size, large ? "1b7" : "0b6");
    EXPECT_EQ(report.found_size, report.size);
    EXPECT_EQ(report.tensors, large ? 404u : 402u);
    EXPECT_EQ(report.parameters, large ? 1'916'676'352u : 905'788'672u);
    EXPECT_EQ(report.codec_tensors, 496u);
    EXPECT_EQ(report.codec_parameters, 170'557'441u);
    fs::remove_all(dir.path());
  }
}

TEST_F(VerifyTest, LargeWeightsInASmallFolderAreCalledThat) {
  write_full_size(dir.path(), false, true);
  const VerifyReport report = verify_model(dir.path(), {.scan_values = false});
  EXPECT_EQ(report.size, "0b6");
  EXPECT_EQ(report.found_size, "1b7");
  ASSERT_EQ(errors(report), 1u) << all_text(report);
  EXPECT_THAT(report.findings[0].what,
              AllOf(HasSubstr("model.safetensors holds the weights of a 1.7B model (talker width 2048"),
                    HasSubstr("config.json beside it describes a 0.6B model (talker width 1024")));
  EXPECT_THAT(report.findings[0].fix, HasSubstr("download"));
  try {
    require_tensors(*Checkpoint::open(dir.path()), load_config(dir.path()));
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds the weights of a 1.7B model"));
  }
}

TEST_F(VerifyTest, SmallWeightsInALargeFolderAreCalledThat) {
  write_full_size(dir.path(), true, false);
  const VerifyReport report = verify_model(dir.path(), {.scan_values = false});
  EXPECT_EQ(report.found_size, "0b6");
  ASSERT_EQ(errors(report), 1u) << all_text(report);
  EXPECT_THAT(report.findings[0].what, HasSubstr("holds the weights of a 0.6B model"));
}

TEST_F(VerifyTest, WrongSizeTagIsAWarning) {
  write_full_size(dir.path(), false, false);
  edit_json(dir / "config.json", [](json& document) { document["tts_model_size"] = "1b7"; });
  const VerifyReport report = verify_model(dir.path(), {.scan_values = false});
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(all_text(report), HasSubstr("tts_model_size is '1b7', but the widths are those of '0b6'"));
}

TEST_F(VerifyTest, AllFaultsAreReportedAtOnce) {
  use("tiny-cv");
  auto all = tensors();
  named(all, "talker.model.norm.weight").name = "talker.norm.weight";
  RawTensor& projection = named(all, "talker.model.layers.1.mlp.down_proj.weight");
  std::reverse(projection.shape.begin(), projection.shape.end());
  named(all, "talker.codec_head.weight").type = "I16";
  write(all);
  fs::remove(dir / "vocab.json");
  edit_json(dir / "speech_tokenizer/config.json",
            [](json& document) { document["output_sample_rate"] = 16000; });
  edit_json(dir / "generation_config.json", [](json& document) { document["top_p"] = 2; });
  const VerifyReport report = verify();
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(errors(report), 6u);
  const std::string text = all_text(report);
  for (const char* part : {"error: ", "vocab.json is missing", "output_sample_rate is 16000", "top_p is 2",
                           "tensor 'talker.model.norm.weight' [", "(it is transposed)",
                           "tensor 'talker.codec_head.weight' has the type 'I16'",
                           "warning: ", "tensor 'talker.norm.weight' [", "is not part of this model"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(report.findings.front().severity, "error");
  EXPECT_EQ(report.findings.back().severity, "warning");
}

TEST_F(VerifyTest, NonFiniteValuesAreFoundWithTheirIndex) {
  use("tiny-cv");
  const auto original = tensors();
  for (const uint16_t bits : {0x7f80, 0xff80, 0x7fc0}) {
    auto all = original;
    RawTensor& weight = named(all, "talker.model.text_embedding.weight");
    std::memcpy(weight.bytes.data() + 2 * 4999, &bits, 2);
    std::memcpy(weight.bytes.data() + 2 * 5001, &bits, 2);
    write(all);
    const VerifyReport report = verify();
    ASSERT_EQ(errors(report), 1u) << all_text(report);
    EXPECT_THAT(report.findings[0].what,
                AllOf(HasSubstr("'talker.model.text_embedding.weight'"), HasSubstr("element 4999")));
    EXPECT_TRUE(verify_model(dir.path(), {.scan_values = false}).ok());
  }
  write(original);
  auto codec = test::read_tensors(dir / "speech_tokenizer/model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(named(codec, "decoder.pre_conv.conv.bias").bytes.data() + 4 * 3, &nan, 4);
  test::write_file(dir / "speech_tokenizer/model.safetensors", test::safetensors(codec));
  const VerifyReport report = verify();
  ASSERT_EQ(errors(report), 1u);
  EXPECT_THAT(report.findings[0].what,
              AllOf(HasSubstr("'decoder.pre_conv.conv.bias'"), HasSubstr("element 3")));
}

TEST_F(VerifyTest, OtherFloatTypesAreOneWarning) {
  use("tiny-cv");
  auto all = tensors();
  for (const char* name : {"talker.model.norm.weight", "talker.codec_head.weight"}) {
    RawTensor& tensor = named(all, name);
    tensor.type = "F32";
    tensor.bytes.assign(static_cast<size_t>(test::elements(tensor)) * 4, '\0');
  }
  write(all);
  const VerifyReport report = verify();
  EXPECT_TRUE(report.ok()) << all_text(report);
  EXPECT_THAT(all_text(report), HasSubstr("2 tensors have the type F32 where the published file has BF16"));
}

TEST_F(VerifyTest, FineTunedSnapshotIsRecognised) {
  use("tiny-base");
  auto all = tensors();
  std::erase_if(all, [](const RawTensor& tensor) { return tensor.name.starts_with("speaker_encoder."); });
  write(all);
  edit_json(dir / "config.json", [](json& document) {
    document["tts_model_type"] = "custom_voice";
    document["talker_config"]["spk_id"] = {{"narrator", 1000}};
    document["talker_config"]["spk_is_dialect"] = {{"narrator", false}};
  });
  const VerifyReport report = verify();
  EXPECT_TRUE(report.ok()) << all_text(report);
  EXPECT_TRUE(report.fine_tuned);
}

TEST_F(VerifyTest, WeightsOfAnotherTypeAreOneFinding) {
  use("tiny-base");
  const auto base = tensors();
  auto without = base;
  std::erase_if(without, [](const RawTensor& tensor) { return tensor.name.starts_with("speaker_encoder."); });
  write(without);
  VerifyReport report = verify();
  ASSERT_EQ(errors(report), 1u) << all_text(report);
  EXPECT_THAT(report.findings[0].what, HasSubstr("holds no speaker encoder"));

  use("tiny-cv");
  write(base);
  report = verify();
  EXPECT_THAT(all_text(report),
              HasSubstr("holds a speaker encoder, which a custom_voice model does not use"));
  EXPECT_EQ(
      std::count_if(report.findings.begin(), report.findings.end(),
                    [](const Finding& f) { return f.what.find("'speaker_encoder.") != std::string::npos; }),
      0);
}

TEST_F(VerifyTest, FolderOddities) {
  use("tiny-cv");
  fs::remove(dir / "speech_tokenizer/preprocessor_config.json");
  test::write_file(dir / "model.safetensors.index.json", "{}");
  const VerifyReport report = verify();
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(all_text(report),
              AllOf(HasSubstr("preprocessor_config.json is missing"), HasSubstr("an index of shards")));
}

TEST_F(VerifyTest, NothingThrows) {
  EXPECT_THAT(all_text(verify_model(dir / "nowhere")), HasSubstr("no model folder"));
  EXPECT_FALSE(verify_model(dir.path()).ok());
  use("tiny-cv");
  const std::string weights = test::read_file(dir / "model.safetensors");
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{8}, size_t{100}, weights.size() / 2, weights.size() - 1}) {
    test::write_file(dir / "model.safetensors", weights.substr(0, size));
    const VerifyReport report = verify();
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.tensors, 0u);
    EXPECT_THAT(all_text(report), HasSubstr("model.safetensors"));
    EXPECT_FALSE(report.findings[0].fix.empty());
  }
  test::write_file(dir / "config.json", "\xff\xfe{}");
  test::write_file(dir / "speech_tokenizer/config.json", "null");
  EXPECT_GE(errors(verify()), 3u);
}

}  // namespace
}  // namespace skald::model
