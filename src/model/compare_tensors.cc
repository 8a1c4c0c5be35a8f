// Compares the tensors of a checkpoint with those that a configuration implies.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/checkpoint.h"

namespace skald::model {
namespace {

constexpr std::string_view kNorm = "talker.model.norm.weight";
constexpr std::string_view kGate = "talker.model.layers.0.mlp.gate_proj.weight";
constexpr std::string_view kUp = "talker.model.layers.0.mlp.up_proj.weight";
constexpr std::string_view kDown = "talker.model.layers.0.mlp.down_proj.weight";
constexpr std::string_view kSpeakerEncoder = "speaker_encoder.";

struct PublishedSize {
  ModelSize size;
  const char* name;
  int64_t hidden_size, intermediate_size;
};
constexpr PublishedSize kPublished[] = {{ModelSize::size_0b6, "0.6B", 1024, 3072},
                                        {ModelSize::size_1b7, "1.7B", 2048, 6144}};

const PublishedSize* published(int64_t hidden_size, int64_t intermediate_size) {
  for (const PublishedSize& size : kPublished) {
    if (size.hidden_size == hidden_size && size.intermediate_size == intermediate_size) return &size;
  }
  return nullptr;
}

std::string size_text(int64_t hidden_size, int64_t intermediate_size) {
  const PublishedSize* known = published(hidden_size, intermediate_size);
  return fmt::format("a {} model (talker width {}, inner width {})", known ? known->name : "shrunken",
                     hidden_size, intermediate_size);
}

bool is_float(std::string_view type) { return type == "BF16" || type == "F32" || type == "F16"; }

void add(Faults& faults, std::string what, std::string fix, bool warning = false) {
  faults.push_back({ErrorCode::model_invalid, std::move(what), std::move(fix), warning});
}

std::string shape_fault(const std::vector<int64_t>& found, const std::vector<int64_t>& expected) {
  const bool transposed =
      found.size() > 1 && std::equal(found.rbegin(), found.rend(), expected.begin(), expected.end());
  return fmt::format("has the shape {}, expected {}{}", shape_text(found), shape_text(expected),
                     transposed ? " (it is transposed)" : "");
}

/// Names, shapes and types; `ignored` is a prefix whose surplus was already reported.
void compare(const Checkpoint& checkpoint, const std::vector<ExpectedTensor>& expected,
             std::string_view ignored, Faults& faults) {
  constexpr const char* kFix =
      "use the weights of the model's repository; a converted file needs the official names";
  const std::vector<std::string> names = checkpoint.names();
  const std::string file = names.empty() ? "the checkpoint" : checkpoint.file(names.front());
  std::set<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    known.insert(tensor.name);
    if (!checkpoint.has(tensor.name)) {
      add(faults,
          fmt::format("{}: tensor {} {} is missing", file, quote(tensor.name), shape_text(tensor.shape)),
          kFix);
      continue;
    }
    const auto shape = checkpoint.shape(tensor.name);
    const std::string type = checkpoint.type_name(tensor.name), where = checkpoint.file(tensor.name);
    if (shape != tensor.shape) {
      add(faults,
          fmt::format("{}: tensor {} {}", where, quote(tensor.name), shape_fault(shape, tensor.shape)), kFix);
    }
    if (!is_float(type)) {
      add(faults,
          fmt::format("{}: tensor {} has the type {}, expected BF16, F32 or F16", where, quote(tensor.name),
                      quote(type)),
          kFix);
    }
  }
  for (const std::string& name : names) {
    if (known.contains(name) || (!ignored.empty() && name.starts_with(ignored))) continue;
    add(faults,
        fmt::format("{}: tensor {} {} is not part of this model", checkpoint.file(name), quote(name),
                    shape_text(checkpoint.shape(name))),
        "nothing: it is not used", true);
  }
}

/// Reports weights of another size and makes `config` fit them, so that what remains is the real difference.
void compare_size(const FoundModel& found, const std::string& file, ModelConfig& config, Faults& faults) {
  TalkerConfig& talker = config.talker;
  const bool known = found.hidden_size > 0 && found.intermediate_size > 0;
  const bool equal =
      found.hidden_size == talker.hidden_size && found.intermediate_size == talker.intermediate_size;
  // A single odd tensor is reported as such; only a consistent other size is another model.
  if (!known || equal || found.hidden_size > INT32_MAX / 4 || found.intermediate_size > INT32_MAX / 4) return;
  add(faults,
      fmt::format("{} holds the weights of {}, but config.json beside it describes {}", file,
                  size_text(found.hidden_size, found.intermediate_size),
                  size_text(talker.hidden_size, talker.intermediate_size)),
      "download the weights that belong to this config.json, or the whole folder of the model that you want");
  talker.hidden_size = static_cast<int32_t>(found.hidden_size);
  talker.intermediate_size = static_cast<int32_t>(found.intermediate_size);
  if (config.speaker_encoder) config.speaker_encoder->enc_dim = talker.hidden_size;
}

/// The same for the one part that tells types of models apart.
void compare_type(const FoundModel& found, const std::string& file, ModelConfig& config, Faults& faults) {
  const bool base = config.type == ModelType::base;
  if (base && !found.speaker_encoder) {
    add(faults,
        fmt::format("{} holds no speaker encoder, so it belongs to a custom_voice, voice_design or "
                    "fine-tuned model, but "
                    "config.json beside it describes a base model",
                    file),
        "download the weights and config.json of the same model");
    config.type = ModelType::custom_voice;
  }
  if (!base && found.speaker_encoder) {
    add(faults,
        fmt::format("{} holds a speaker encoder, which a {} model does not use", file,
                    model_type_name(config.type)),
        "if its voices sound wrong, the weights are those of a base model: download them again", true);
  }
}

}  // namespace

ModelSize FoundModel::size() const {
  const PublishedSize* known = published(hidden_size, intermediate_size);
  return known ? known->size : ModelSize::other;
}

FoundModel find_model(const Checkpoint& checkpoint) {
  FoundModel found;
  // Four tensors must agree, so that one that is misshapen does not pass for another model.
  const auto shape = [&](std::string_view name) {
    return checkpoint.has(name) ? checkpoint.shape(name) : std::vector<int64_t>{};
  };
  const auto norm = shape(kNorm), gate = shape(kGate);
  if (norm.size() == 1 && gate.size() == 2) {
    const int64_t width = norm[0], inner = gate[0];
    const bool agree = gate[1] == width && shape(kUp) == gate && shape(kDown) == std::vector{width, inner};
    if (agree) found.hidden_size = width, found.intermediate_size = inner;
  }
  const std::vector<std::string> names = checkpoint.names();
  found.speaker_encoder = std::any_of(
      names.begin(), names.end(), [](const std::string& name) { return name.starts_with(kSpeakerEncoder); });
  return found;
}

void compare_tensors(const Checkpoint& checkpoint, const ModelConfig& config, Faults& faults) {
  const FoundModel found = find_model(checkpoint);
  const std::string file = checkpoint.has(kNorm) ? checkpoint.file(kNorm) : "the checkpoint";
  ModelConfig fitting = config;
  compare_size(found, file, fitting, faults);
  compare_type(found, file, fitting, faults);
  compare(checkpoint, expected_tensors(fitting), config.type == ModelType::base ? "" : kSpeakerEncoder,
          faults);
}

void compare_codec_tensors(const Checkpoint& checkpoint, const CodecConfig& config, Faults& faults) {
  compare(checkpoint, expected_codec_tensors(config), "", faults);
}

void require_tensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  Faults faults;
  compare_tensors(checkpoint, config, faults);
  throw_first(faults);
}

void require_codec_tensors(const Checkpoint& checkpoint, const CodecConfig& config) {
  Faults faults;
  compare_codec_tensors(checkpoint, config, faults);
  throw_first(faults);
}

}  // namespace skald::model
