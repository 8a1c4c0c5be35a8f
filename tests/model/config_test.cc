// Configuration files: published values, missing and wrong keys, contradictions, damaged JSON, missing files.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/checkpoint.h"
#include "snapshot_files.h"

namespace skald::model {
namespace {

using test::edit_json;
using test::json;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// The error that loading gives, or nothing.
std::optional<Error> load_error(const fs::path& dir) {
  try {
    load_config(dir);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

void expect_error(const fs::path& dir, ErrorCode code, const ::testing::Matcher<std::string>& message) {
  const auto error = load_error(dir);
  ASSERT_TRUE(error.has_value()) << "loaded, although an error was expected";
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_THAT(error->what(), message);
}

/// A tiny model's files without weights; the published values where a test asks for them.
class ConfigTest : public ::testing::Test {
 protected:
  void use(const std::string& name) { test::copy_model_without_weights(name, dir.path()); }
  void use_published() {
    use("tiny-cv");
    const fs::path published = fs::path(SKALD_SOURCE_DIR) / "tests/model/published";
    fs::copy_file(published / "config.json", dir / "config.json", fs::copy_options::overwrite_existing);
    fs::copy_file(published / "speech_tokenizer_config.json", dir / "speech_tokenizer/config.json",
                  fs::copy_options::overwrite_existing);
  }
  /// Edits one of the two large files by JSON pointer.
  void edit(const std::string& file, const std::function<void(json&)>& change) {
    edit_json(dir / file, change);
  }

  TempDir dir;
};

const char* const kMain = "config.json";
const char* const kCodec = "speech_tokenizer/config.json";

TEST_F(ConfigTest, ReadsEveryPublishedValue) {
  use_published();
  const ModelConfig c = load_config(dir.path());
  EXPECT_EQ(c.type, ModelType::custom_voice);
  EXPECT_EQ(c.size, ModelSize::size_0b6);
  EXPECT_EQ(c.size_tag, "0b6");
  EXPECT_THAT(
      (std::vector{c.im_start_id, c.im_end_id, c.assistant_id, c.tts_pad_id, c.tts_bos_id, c.tts_eos_id}),
      ElementsAre(151644, 151645, 77091, 151671, 151672, 151673));
  const TalkerConfig& t = c.talker;
  EXPECT_THAT((std::vector{t.hidden_size, t.intermediate_size, t.layers, t.heads, t.kv_heads, t.head_dim,
                           t.vocab_size, t.text_vocab_size, t.text_hidden_size, t.num_code_groups,
                           t.max_position_embeddings}),
              ElementsAre(1024, 3072, 28, 16, 8, 128, 3072, 151936, 2048, 16, 32768));
  EXPECT_THAT((std::vector{t.codec_pad_id, t.codec_bos_id, t.codec_eos_id, t.codec_think_id,
                           t.codec_nothink_id, t.codec_think_bos_id, t.codec_think_eos_id}),
              ElementsAre(2148, 2149, 2150, 2154, 2155, 2156, 2157));
  EXPECT_EQ(t.rms_norm_eps, 1e-6f);
  EXPECT_EQ(t.rope_theta, 1e6f);
  EXPECT_EQ(t.codes(), 2048);
  EXPECT_EQ(t.language_ids.size(), 12u);
  EXPECT_EQ(t.language_ids.at("sichuan_dialect"), 2062);
  EXPECT_EQ(t.speaker_ids.size(), 9u);
  EXPECT_EQ(t.speaker_ids.at("vivian"), 3065);
  EXPECT_THAT(t.speaker_dialect,
              ElementsAre(std::pair("dylan", "beijing_dialect"), std::pair("eric", "sichuan_dialect")));
  const DecoderConfig& p = c.predictor;
  EXPECT_THAT((std::vector{p.hidden_size, p.intermediate_size, p.layers, p.heads, p.kv_heads, p.head_dim,
                           p.vocab_size, p.max_position_embeddings}),
              ElementsAre(1024, 3072, 5, 16, 8, 128, 2048, 65536));
  EXPECT_FALSE(c.has_input_projection());
  EXPECT_FALSE(c.speaker_encoder.has_value());
}

TEST_F(ConfigTest, ReadsEveryPublishedCodecValue) {
  use_published();
  const CodecConfig c = load_config(dir.path()).codec;
  EXPECT_THAT((std::vector{c.input_sample_rate, c.output_sample_rate, c.decode_upsample_rate,
                           c.encode_downsample_rate, c.encoder_valid_num_quantizers}),
              ElementsAre(24000, 24000, 1920, 1920, 16));
  const CodecDecoderConfig& d = c.decoder;
  EXPECT_THAT((std::vector{d.latent_dim, d.codebook_dim, d.codebook_size, d.decoder_dim, d.hidden_size,
                           d.intermediate_size, d.layers, d.heads, d.kv_heads, d.head_dim, d.num_quantizers,
                           d.num_semantic_quantizers, d.sliding_window}),
              ElementsAre(1024, 512, 2048, 1536, 512, 1024, 8, 16, 16, 64, 16, 1, 72));
  EXPECT_EQ(d.rms_norm_eps, 1e-5f);
  EXPECT_EQ(d.rope_theta, 10000.0f);
  EXPECT_THAT(d.upsample_rates, ElementsAre(8, 5, 4, 3));
  EXPECT_THAT(d.upsampling_ratios, ElementsAre(2, 2));
  const CodecEncoderConfig& e = c.encoder;
  EXPECT_THAT((std::vector{e.num_filters, e.kernel_size, e.last_kernel_size, e.residual_kernel_size,
                           e.hidden_size, e.intermediate_size, e.layers, e.heads, e.kv_heads, e.head_dim,
                           e.codebook_size, e.codebook_dim, e.vq_hidden_dim, e.num_quantizers}),
              ElementsAre(64, 7, 3, 3, 512, 2048, 8, 8, 8, 64, 2048, 256, 256, 32));
  EXPECT_EQ(e.norm_eps, 1e-5f);
  EXPECT_THAT(e.upsampling_ratios, ElementsAre(8, 6, 5, 4));
}

TEST_F(ConfigTest, LoadsEveryTinyModel) {
  for (const char* name : {"tiny-cv", "tiny-cv-1b7", "tiny-base", "tiny-base-1b7", "tiny-vd"}) {
    EXPECT_NO_THROW(load_config(fs::path(SKALD_FIXTURES) / "models" / name)) << name;
  }
}

TEST_F(ConfigTest, CodecAloneLoadsFromAnyFolder) {
  use_published();
  fs::create_directory(dir / "codec");
  fs::copy_file(dir / kCodec, dir / "codec/config.json");
  EXPECT_EQ(load_codec_config(dir / "codec").decode_upsample_rate, 1920);
  EXPECT_THROW(load_codec_config(dir / "nowhere"), Error);
}

/// Every key that has no default: path inside the file, as a JSON pointer.
std::vector<std::string> required_keys(const std::string& file) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& prefix, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) out.push_back(prefix + "/" + key);
  };
  const std::vector<std::string> stack = {"hidden_size",         "intermediate_size",   "num_hidden_layers",
                                          "num_attention_heads", "num_key_value_heads", "head_dim",
                                          "rope_theta"};
  const std::vector<std::string> decoder = {"rms_norm_eps", "hidden_act", "max_position_embeddings",
                                            "vocab_size", "num_code_groups"};
  if (file == kMain) {
    add("", {"model_type", "tokenizer_type", "tts_model_size", "tts_model_type", "im_start_token_id",
             "im_end_token_id", "assistant_token_id", "tts_pad_token_id", "tts_bos_token_id",
             "tts_eos_token_id", "talker_config"});
    add("/talker_config", stack);
    add("/talker_config", decoder);
    add("/talker_config",
        {"text_vocab_size", "text_hidden_size", "codec_pad_id", "codec_bos_id", "codec_eos_token_id",
         "codec_think_id", "codec_nothink_id", "codec_think_bos_id", "codec_think_eos_id",
         "codec_language_id", "spk_id", "spk_is_dialect", "code_predictor_config"});
    add("/talker_config/code_predictor_config", stack);
    add("/talker_config/code_predictor_config", decoder);
    return out;
  }
  add("", {"model_type", "encoder_valid_num_quantizers", "input_sample_rate", "output_sample_rate",
           "decode_upsample_rate", "encode_downsample_rate", "decoder_config", "encoder_config"});
  add("/decoder_config", stack);
  add("/decoder_config",
      {"rms_norm_eps", "hidden_act", "latent_dim", "codebook_dim", "codebook_size", "decoder_dim",
       "num_quantizers", "sliding_window", "upsample_rates", "upsampling_ratios"});
  add("/encoder_config", stack);
  add("/encoder_config", {"norm_eps", "num_filters", "kernel_size", "last_kernel_size",
                          "residual_kernel_size", "upsampling_ratios", "codebook_size", "codebook_dim",
                          "vector_quantization_hidden_dimension", "num_quantizers"});
  return out;
}

/// "/talker_config/head_dim" as messages write it: "talker_config.head_dim".
std::string dotted(std::string pointer) {
  pointer.erase(0, 1);
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer;
}

TEST_F(ConfigTest, EveryMissingKeyIsAnErrorWithItsName) {
  use_published();
  for (const std::string file : {kMain, kCodec}) {
    const std::string original = test::read_file(dir / file);
    for (const std::string& key : required_keys(file)) {
      const json::json_pointer pointer(key);
      edit(file, [&](json& document) { document.at(pointer.parent_pointer()).erase(pointer.back()); });
      SCOPED_TRACE(file + " " + key);
      expect_error(dir.path(), ErrorCode::model_invalid,
                   HasSubstr((dir / file).string() + ": " + dotted(key) + " is missing"));
      test::write_file(dir / file, original);
    }
  }
}

TEST_F(ConfigTest, EveryWrongTypeIsAnErrorWithItsName) {
  use_published();
  for (const std::string file : {kMain, kCodec}) {
    const std::string original = test::read_file(dir / file);
    for (const std::string& key : required_keys(file)) {
      for (const json& wrong : {json(nullptr), json(true), json::parse("[{}]"), json("16")}) {
        const json::json_pointer pointer(key);
        edit(file, [&](json& document) { document.at(pointer) = wrong; });
        SCOPED_TRACE(file + " " + key + " = " + wrong.dump());
        const auto error = load_error(dir.path());
        ASSERT_TRUE(error.has_value() || (key == "/tts_model_size" && wrong == "16")) << "loaded";
        if (error && wrong != "16") {
          EXPECT_THAT(error->what(), HasSubstr(dotted(key)));
        }
        test::write_file(dir / file, original);
      }
    }
  }
}

struct Contradiction {
  const char *file, *key;  ///< JSON pointer
  json value;
  const char* message;
};

TEST_F(ConfigTest, ContradictionsNameBothSides) {
  const std::string predictor = "/talker_config/code_predictor_config";
  const std::vector<Contradiction> cases = {
      {kMain, "/talker_config/num_key_value_heads", 3, "num_attention_heads is 16, not a multiple"},
      {kMain, "/talker_config/code_predictor_config/head_dim", 127, "head_dim is 127, which is odd"},
      {kMain, "/talker_config/head_dim", 64, "mrope_section sums to 64, expected half of head_dim, 32"},
      {kMain, "/talker_config/rope_scaling/mrope_section", json{24, 20, 21}, "sums to 65"},
      {kMain, "/talker_config/rope_scaling/rope_type", "yarn", "rope_type is \"yarn\""},
      {kMain, "/talker_config/hidden_act", "gelu", "hidden_act is \"gelu\", expected \"silu\""},
      {kMain, "/talker_config/attention_bias", true, "attention_bias is true, expected false"},
      {kMain, "/talker_config/use_sliding_window", true, "use_sliding_window is true"},
      {kMain, "/talker_config/sliding_window", 128, "sliding_window is 128, expected null"},
      {kMain, "/talker_config/code_predictor_config/layer_types/2", "sliding_attention",
       "'sliding_attention'"},
      {kMain, "/talker_config/code_predictor_config/num_hidden_layers", 4, "layer_types has 5 entries"},
      {kMain, "/talker_config/code_predictor_config/num_code_groups", 15,
       "is 15, but talker_config.num_code_groups is 16"},
      {kMain, "/talker_config/code_predictor_config/vocab_size", 1024, "expected 1024 more than"},
      {kMain, "/talker_config/codec_eos_token_id", 2047, "codec_eos_token_id is 2047, expected 2048 to 3071"},
      {kMain, "/talker_config/codec_bos_id", 2148, "codec_pad_id and codec_bos_id are both 2148"},
      {kMain, "/talker_config/codec_language_id/german", 3072,
       "'german' is 3072, expected an integer from 2048 to 3071"},
      {kMain, "/talker_config/codec_language_id/german", 2150,
       "'german' the id 2150, which is codec_eos_token_id"},
      {kMain, "/talker_config/spk_id/ryan", 2050, "'ryan' the id 2050, which is the language 'english'"},
      {kMain, "/talker_config/spk_id/ryan", -1, "'ryan' is -1"},
      {kMain, "/talker_config/spk_id/Vivian", 3001, "'vivian' twice, apart from upper and lower case"},
      {kMain, "/talker_config/spk_is_dialect/eric", "klingon_dialect",
       "dialect 'klingon_dialect', which codec_language_id does not have"},
      {kMain, "/talker_config/spk_is_dialect/eric", true, "'eric' is true, expected false or a string"},
      {kMain, "/tts_pad_token_id", 151936,
       "tts_pad_token_id is 151936, beyond talker_config.text_vocab_size 151936"},
      {kMain, "/tts_pad_token_id", 151673, "tts_pad_token_id and tts_eos_token_id are both 151673"},
      {kMain, "/tts_model_type", "karaoke",
       "tts_model_type is 'karaoke', expected 'base', 'custom_voice' or 'voice_design'"},
      {kMain, "/tts_model_type", "base", "speaker_encoder_config is missing"},
      {kCodec, "/decode_upsample_rate", 1921, "decode_upsample_rate is 1921, but the products"},
      {kCodec, "/output_sample_rate", 12000,
       "output_sample_rate is 12000, but the rate of these models is 24000"},
      {kCodec, "/decoder_config/num_quantizers", 8, "decoder_config.num_quantizers is 8"},
      {kCodec, "/decoder_config/codebook_dim", 511, "codebook_dim is 511, which is odd"},
      {kCodec, "/decoder_config/decoder_dim", 1544, "cannot be halved 4 times"},
      {kCodec, "/decoder_config/codebook_size", 1024, "decoder_config.codebook_size is 1024"},
      {kCodec, "/decoder_config/num_semantic_quantizers", 2, "num_semantic_quantizers is 2"},
      {kCodec, "/encoder_config/codebook_dim", 128,
       "vector_quantization_hidden_dimension is 256, but encoder_config.codebook_dim is 128"},
      {kCodec, "/encoder_config/num_quantizers", 15, "encoder_config.num_quantizers is 15, less than"},
      {kCodec, "/encoder_config/upsampling_ratios/0", 7,
       "encode_downsample_rate is 1920, but twice the product"},
      {kCodec, "/encoder_config/use_causal_conv", false, "use_causal_conv is false"},
      {kCodec, "/encoder_config/pad_mode", "reflect", "pad_mode is \"reflect\""},
  };
  for (const Contradiction& c : cases) {
    use_published();
    edit(c.file, [&](json& document) { document[json::json_pointer(c.key)] = c.value; });
    SCOPED_TRACE(std::string(c.key) + " = " + c.value.dump());
    expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr(c.message));
    fs::remove_all(dir.path());
  }
}

TEST_F(ConfigTest, B031_AudioRateIsCheckedAgainstTheCodec) {
  use_published();
  edit(kCodec, [](json& document) { document["output_sample_rate"] = 12; });
  expect_error(
      dir.path(), ErrorCode::model_invalid,
      HasSubstr(
          "speech_tokenizer/config.json: output_sample_rate is 12, but the rate of these models is 24000"));
}

TEST_F(ConfigTest, CodeGroupsOfModelAndCodecMustAgree) {
  use_published();
  edit(kMain, [](json& document) {
    document["talker_config"]["num_code_groups"] = 8;
    document["talker_config"]["code_predictor_config"]["num_code_groups"] = 8;
  });
  expect_error(dir.path(), ErrorCode::model_invalid,
               AllOf(HasSubstr("num_code_groups is 8"), HasSubstr("decoder_config.num_quantizers"),
                     HasSubstr("is 16")));
  edit(kCodec, [](json& document) {
    document["decoder_config"]["num_quantizers"] = 8;
    document["encoder_valid_num_quantizers"] = 8;
  });
  EXPECT_EQ(load_config(dir.path()).talker.num_code_groups, 8);
}

TEST_F(ConfigTest, HugeNumbersAreErrors) {
  const std::vector<json> huge = {0,          -1,   65537,      INT32_MAX,   INT64_MAX,
                                  UINT64_MAX, 1e30, json(16.5), json(1024.0)};
  for (const json& value : huge) {
    for (const char* key : {"/talker_config/hidden_size", "/talker_config/num_hidden_layers",
                            "/talker_config/num_attention_heads", "/talker_config/head_dim"}) {
      use_published();
      edit(kMain, [&](json& document) { document[json::json_pointer(key)] = value; });
      SCOPED_TRACE(std::string(key) + " = " + value.dump());
      expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr(dotted(key)));
      fs::remove_all(dir.path());
    }
  }
  use_published();
  edit(kCodec,
       [](json& document) { document["decoder_config"]["upsample_rates"] = std::vector<int>(9, 64); });
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("decoder_config.upsample_rates"));
  edit(kCodec,
       [](json& document) { document["decoder_config"]["upsample_rates"] = std::vector<int>(8, 64); });
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("decode_upsample_rate is 1920"));
}

TEST_F(ConfigTest, B013_CustomVoiceWithoutSpeakersFailsWithThatReason) {
  use_published();
  edit(kMain, [](json& document) {
    document["talker_config"]["spk_id"] = json::object();
    document["talker_config"]["spk_is_dialect"] = json::object();
  });
  expect_error(dir.path(), ErrorCode::model_invalid,
               AllOf(HasSubstr("talker_config.spk_id is empty"), HasSubstr("no voice")));
}

TEST_F(ConfigTest, FineTunedSnapshotLoads) {
  use("tiny-base");
  edit(kMain, [](json& document) {
    document["tts_model_type"] = "custom_voice";
    document["talker_config"]["spk_id"] = {{"My_Voice", 1000}};
    document["talker_config"]["spk_is_dialect"] = {{"My_Voice", false}};
  });
  const ModelConfig config = load_config(dir.path());
  EXPECT_EQ(config.type, ModelType::custom_voice);
  EXPECT_TRUE(config.speaker_encoder.has_value());
  EXPECT_EQ(config.talker.speaker_ids.at("my_voice"), 1000);
  EXPECT_TRUE(config.talker.speaker_dialect.empty());
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    EXPECT_FALSE(tensor.name.starts_with("speaker_encoder.")) << tensor.name;
  }
}

TEST_F(ConfigTest, SpeakerWithoutDialectEntryIsAWarningOnly) {
  use_published();
  edit(kMain, [](json& document) { document["talker_config"]["spk_is_dialect"].erase("ryan"); });
  Faults faults;
  EXPECT_TRUE(read_config(dir.path(), faults).model_sound);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_TRUE(faults[0].warning);
  EXPECT_THAT(faults[0].what, HasSubstr("'ryan'"));
  EXPECT_NO_THROW(load_config(dir.path()));
}

TEST_F(ConfigTest, SpeakerEncoderTakesPublishedDefaults) {
  use("tiny-base");
  const int32_t width = load_config(dir.path()).talker.hidden_size;
  edit(kMain, [&](json& document) { document["speaker_encoder_config"] = {{"enc_dim", width}}; });
  const auto encoder = load_config(dir.path()).speaker_encoder;
  ASSERT_TRUE(encoder.has_value());
  EXPECT_EQ(encoder->sample_rate, 24000);
  EXPECT_EQ(encoder->mel_dim, 128);
  EXPECT_THAT(encoder->enc_channels, ElementsAre(512, 512, 512, 512, 1536));
  EXPECT_THAT(encoder->enc_kernel_sizes, ElementsAre(5, 3, 3, 3, 1));
  EXPECT_THAT(encoder->enc_dilations, ElementsAre(1, 2, 3, 4, 1));
  EXPECT_EQ(encoder->enc_attention_channels, 128);
  EXPECT_EQ(encoder->enc_res2net_scale, 8);
  EXPECT_EQ(encoder->enc_se_channels, 128);
  edit(kMain, [&](json& document) { document["speaker_encoder_config"]["enc_dim"] = width * 2; });
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("speaker_encoder_config.enc_dim"));
  edit(kMain, [&](json& document) {
    document["speaker_encoder_config"] = {{"enc_dim", width}, {"enc_channels", {512, 512, 512, 512, 1024}}};
  });
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("ends with 1024, expected 1536"));
}

TEST_F(ConfigTest, OtherSizeTagsAreKept) {
  use_published();
  edit(kMain, [](json& document) { document["tts_model_size"] = "0b1"; });
  const ModelConfig config = load_config(dir.path());
  EXPECT_EQ(config.size, ModelSize::other);
  EXPECT_EQ(config.size_tag, "0b1");
}

TEST_F(ConfigTest, GenerationKeysThatAreMissingTakeTheHardDefaults) {
  use_published();
  EXPECT_EQ(load_config(dir.path()).generation.max_new_tokens, 8192);
  test::write_file(dir / "generation_config.json", R"({"top_k": 7, "temperature": null, "other": [1]})");
  const GenerationConfig g = load_config(dir.path()).generation;
  EXPECT_EQ(g.top_k, 7);
  EXPECT_EQ(g.subtalker_top_k, 50);
  EXPECT_EQ(g.temperature, 0.9f);
  EXPECT_EQ(g.subtalker_temperature, 0.9f);
  EXPECT_EQ(g.top_p, 1.0f);
  EXPECT_EQ(g.subtalker_top_p, 1.0f);
  EXPECT_EQ(g.repetition_penalty, 1.05f);
  EXPECT_TRUE(g.do_sample);
  EXPECT_TRUE(g.subtalker_dosample);
  EXPECT_EQ(g.max_new_tokens, 2048);
  for (const char* wrong :
       {R"({"top_p": 1.5})", R"({"top_p": 0})", R"({"temperature": -1})", R"({"top_k": -1})",
        R"({"do_sample": "yes"})", R"({"max_new_tokens": 1})", R"({"repetition_penalty": 0})"}) {
    test::write_file(dir / "generation_config.json", wrong);
    expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("generation_config.json"));
  }
}

TEST_F(ConfigTest, MissingFilesSayWhatGoesWrong) {
  for (const char* name : {"config.json", "generation_config.json", "vocab.json", "merges.txt",
                           "tokenizer_config.json", "speech_tokenizer/config.json"}) {
    use("tiny-cv");
    fs::remove(dir / name);
    expect_error(dir.path(), ErrorCode::model_not_found,
                 AllOf(HasSubstr((dir / name).string() + " is missing"), HasSubstr("without")));
    fs::remove_all(dir.path());
  }
  expect_error(dir / "nowhere", ErrorCode::model_not_found, HasSubstr("no model folder"));
  use("tiny-cv");
  fs::remove(dir / "config.json");
  fs::create_directory(dir / "config.json");
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("not a plain file"));
}

TEST_F(ConfigTest, WhatStandsForAFileIsNamed) {
  for (const char* name : {"config.json", "generation_config.json", "vocab.json", "merges.txt",
                           "tokenizer_config.json", "speech_tokenizer/config.json"}) {
    use("tiny-cv");
    const std::string file = (dir / name).string();
    fs::remove(file);
    fs::create_directory(file);
    expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr(file + " is a folder, not a plain file"));
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_error(dir.path(), ErrorCode::model_invalid,
                 HasSubstr(file + " is a pipe (FIFO), not a plain file"));
    fs::remove(file);
    fs::create_symlink(file, file);
    expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr(file + " cannot be opened: its links lead"));
    fs::remove_all(dir.path());
  }
  use("tiny-cv");
  expect_error(dir / "vocab.json", ErrorCode::model_not_found, HasSubstr("is a plain file, not a folder"));
}

TEST_F(ConfigTest, B005_CarriageReturnsAndByteOrderMarkAreTolerated) {
  use("tiny-cv");
  for (const char* name : {"config.json", "generation_config.json", "speech_tokenizer/config.json"}) {
    std::string text = "\xEF\xBB\xBF";
    for (const char c : test::read_file(dir / name))
      text += c == '\n' ? std::string("\r\n") : std::string(1, c);
    test::write_file(dir / name, text + "\r\n\r\n");
  }
  EXPECT_EQ(load_config(dir.path()).talker.hidden_size,
            load_config(fs::path(SKALD_FIXTURES) / "models/tiny-cv").talker.hidden_size);
}

TEST_F(ConfigTest, DamagedJsonIsAnErrorWithTheByteOffset) {
  use("tiny-cv");
  const std::string good = test::read_file(dir / "generation_config.json");
  test::write_file(dir / "generation_config.json", good.substr(0, good.size() / 2));
  expect_error(dir.path(), ErrorCode::model_invalid,
               HasSubstr("not valid JSON at byte " + std::to_string(good.size() / 2)));
  struct Case {
    std::string text;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"", "not valid JSON at byte 0"},
      {"[]", "does not hold a JSON object"},
      {"{} x", "not valid JSON at byte 3"},
      {R"({"top_k": 1, "top_k": 2})", "the key 'top_k' twice"},
      {R"({"a": {"b": 1, "c": [{"b": 1, "b": 2}]}})", "the key 'b' twice"},
      {"{\"a\": " + std::string(100000, '['), "nested deeper than 32"},
      {std::string("{}\0 {}", 6), "not valid JSON at byte 2"},
      {R"({"top_k": 1e999})", "number"},
      {R"({"top_k": NaN})", "not valid JSON at byte"},
      {"{\"\xff\": 1}", "not valid JSON at byte"},
  };
  for (const Case& c : cases) {
    test::write_file(dir / "generation_config.json", c.text);
    expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr(c.message));
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  test::write_file(dir / "generation_config.json", deep);
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("nested deeper than 32"));
}

TEST_F(ConfigTest, EveryTruncationOfAFileIsAnError) {
  use("tiny-cv");
  const std::string good = test::read_file(dir / kMain);
  const size_t end = good.find_last_of('}');
  for (size_t size = 0; size <= end; size += 7) {
    test::write_file(dir / kMain, good.substr(0, size));
    EXPECT_TRUE(load_error(dir.path()).has_value()) << size;
  }
}

TEST_F(ConfigTest, OtherArchitecturesAreNamed) {
  use("tiny-cv");
  fs::copy_file(dir / kCodec, dir / kMain, fs::copy_options::overwrite_existing);
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("the codec alone"));
  test::write_file(dir / kMain, R"({"model_type": "llama"})");
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("'llama'"));
  test::write_file(dir / kMain,
                   R"({"model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_25hz"})");
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("'qwen3_tts_tokenizer_25hz'"));
}

TEST_F(ConfigTest, AllFaultsAreCollected) {
  use("tiny-cv");
  edit(kMain, [](json& document) {
    document["talker_config"].erase("head_dim");
    document["talker_config"]["hidden_size"] = "wide";
  });
  edit(kCodec, [](json& document) { document["decoder_config"].erase("latent_dim"); });
  fs::remove(dir / "merges.txt");
  Faults faults;
  const ConfigReading reading = read_config(dir.path(), faults);
  EXPECT_FALSE(reading.model_sound);
  EXPECT_FALSE(reading.codec_sound);
  std::string all;
  for (const Fault& fault : faults) all += fault.what + "\n";
  for (const char* part : {"talker_config.head_dim is missing", "talker_config.hidden_size is \"wide\"",
                           "decoder_config.latent_dim is missing", "merges.txt is missing"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  expect_error(dir.path(), ErrorCode::model_invalid, HasSubstr("more faults: `skald verify` lists them all"));
}

TEST_F(ConfigTest, LanguageNamesLeaveDialectsOut) {
  use_published();
  const auto names = language_names(load_config(dir.path()));
  EXPECT_EQ(names.size(), 11u);
  EXPECT_EQ(names.front(), "auto");
  EXPECT_EQ(std::count(names.begin(), names.end(), "beijing_dialect"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "portuguese"), 1);
}

}  // namespace
}  // namespace skald::model
