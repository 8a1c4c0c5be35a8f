// `skald verify`: every fault of a snapshot in one report.
#include "model/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/file_fault.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/fault.h"

namespace skald::model {
namespace {

namespace fs = std::filesystem;

const char* size_name(ModelSize size) {
  return size == ModelSize::size_0b6 ? "0b6" : size == ModelSize::size_1b7 ? "1b7" : "other";
}

void warn(Faults& faults, std::string what, std::string fix) {
  faults.push_back({ErrorCode::model_invalid, std::move(what), std::move(fix), true});
}

/// Opens a checkpoint; a fault instead of an exception.
std::shared_ptr<const Checkpoint> open(const fs::path& dir, Faults& faults) {
  try {
    return Checkpoint::open(dir);
  } catch (const Error& error) {
    // The sentence carries its own advice behind the last semicolon.
    const std::string text = error.what();
    const size_t cut = text.rfind("; ");
    faults.push_back({error.code(), text.substr(0, cut),
                      cut == std::string::npos ? "download the file again" : text.substr(cut + 2)});
    return nullptr;
  }
}

/// Elements of all tensors. A hostile shape of an unknown type may overflow; it counts as nothing.
size_t count_parameters(const Checkpoint& checkpoint) {
  size_t total = 0;
  for (const std::string& name : checkpoint.names()) {
    uint64_t elements = 1;
    bool overflow = false;
    for (const int64_t dimension : checkpoint.shape(name)) {
      overflow |= __builtin_mul_overflow(elements, static_cast<uint64_t>(dimension), &elements);
    }
    if (!overflow && !__builtin_add_overflow(elements, total, &elements)) total = elements;
  }
  return total;
}

/// One warning for each type of number that the published file does not have.
void check_types(const Checkpoint& checkpoint, std::string_view published, Faults& faults) {
  std::map<std::string, std::vector<std::string>> by_type;
  for (const std::string& name : checkpoint.names()) by_type[checkpoint.type_name(name)].push_back(name);
  for (const auto& [type, names] : by_type) {
    if (type == published || (type != "BF16" && type != "F16" && type != "F32"))
      continue;  // others are errors
    warn(faults,
         fmt::format("{}: {} tensors have the type {} where the published file has {}, the first is {}",
                     checkpoint.file(names.front()), names.size(), type, published, quote(names.front())),
         "nothing has to be done: it works, though codes may differ from those of a published file");
  }
}

/// Index of the first element whose exponent bits are all set (NaN or infinity).
template <class Bits>
std::optional<size_t> first_non_finite(std::span<const std::byte> data, Bits exponent) {
  constexpr size_t kBlock = 4096;
  const size_t count = data.size() / sizeof(Bits);
  Bits block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    std::memcpy(block, data.data() + start * sizeof(Bits), n * sizeof(Bits));
    unsigned bad = 0;
    for (size_t i = 0; i < n; ++i) bad |= (block[i] & exponent) == exponent;
    if (bad == 0) continue;
    for (size_t i = 0; i < n; ++i) {
      if ((block[i] & exponent) == exponent) return start + i;
    }
  }
  return std::nullopt;
}

void scan_values(const Checkpoint& checkpoint, Faults& faults) {
  for (const std::string& name : checkpoint.names()) {
    const std::string type = checkpoint.type_name(name);
    if (type != "BF16" && type != "F16" && type != "F32") continue;
    const backend::TensorSource source = checkpoint.get(name, checkpoint.shape(name));
    const auto bad = type == "F32"    ? first_non_finite<uint32_t>(source.data, 0x7f800000u)
                     : type == "BF16" ? first_non_finite<uint16_t>(source.data, 0x7f80u)
                                      : first_non_finite<uint16_t>(source.data, 0x7c00u);
    if (!bad) continue;
    faults.push_back({ErrorCode::model_invalid,
                      fmt::format("{}: tensor {} has a value that is not finite, first at element {}",
                                  checkpoint.file(name), quote(name), *bad),
                      "the file is damaged or the training diverged: download it again"});
  }
}

/// Files that loading does not need but that tell of an incomplete or mixed-up folder.
void check_folder(const fs::path& dir, Faults& faults) {
  const auto exists = [](const fs::path& path) {
    std::error_code failure;
    return fs::exists(path, failure);
  };
  const fs::path preprocessor = dir / "speech_tokenizer" / "preprocessor_config.json";
  if (const auto fault = file_fault(preprocessor)) {
    warn(faults, fault->what + "; the official implementation needs it, skald does not",
         "put it right if you use this folder with the official implementation: " + fault->fix);
  }
  for (const fs::path& part : {dir, dir / "speech_tokenizer"}) {
    if (!exists(part / "model.safetensors") || !exists(part / "model.safetensors.index.json")) continue;
    warn(faults,
         fmt::format("{} has both model.safetensors and an index of shards; the single file is used",
                     part.string()),
         "remove the one that is out of date");
  }
}

void check_size_tag(const fs::path& dir, const ModelConfig& config, Faults& faults) {
  const FoundModel written{config.talker.hidden_size, config.talker.intermediate_size, false};
  const ModelSize size = written.size();
  if (size == ModelSize::other || size == config.size) return;
  warn(faults,
       fmt::format("{}: tts_model_size is {}, but the widths are those of {}", (dir / "config.json").string(),
                   quote(config.size_tag), quote(size_name(size))),
       "instructions are taken or ignored by this tag: take config.json from the model's repository again");
}

void verify_main(const fs::path& dir, const ConfigReading& reading, const VerifyOptions& options,
                 VerifyReport& report, Faults& faults) {
  const auto checkpoint = open(dir, faults);
  if (!checkpoint) return;
  report.found_size = size_name(find_model(*checkpoint).size());
  report.tensors = checkpoint->names().size();
  report.parameters = count_parameters(*checkpoint);
  if (reading.model_sound) compare_tensors(*checkpoint, reading.config, faults);
  check_types(*checkpoint, "BF16", faults);
  if (options.scan_values) scan_values(*checkpoint, faults);
}

void verify_codec(const fs::path& dir, const ConfigReading& reading, const VerifyOptions& options,
                  VerifyReport& report, Faults& faults) {
  const auto checkpoint = open(dir, faults);
  if (!checkpoint) return;
  report.codec_tensors = checkpoint->names().size();
  report.codec_parameters = count_parameters(*checkpoint);
  if (reading.codec_sound) compare_codec_tensors(*checkpoint, reading.config.codec, faults);
  check_types(*checkpoint, "F32", faults);
  if (options.scan_values) scan_values(*checkpoint, faults);
}

void verify(const fs::path& dir, const VerifyOptions& options, VerifyReport& report, Faults& faults) {
  const ConfigReading reading = read_config(dir, faults);
  std::error_code failure;
  if (!fs::is_directory(dir, failure)) return;  // already reported
  if (reading.model_sound) {
    report.type = model_type_name(reading.config.type);
    report.size = reading.config.size_tag;
    report.fine_tuned =
        reading.config.type == ModelType::custom_voice && reading.config.speaker_encoder.has_value();
    check_size_tag(dir, reading.config, faults);
  }
  check_folder(dir, faults);
  verify_main(dir, reading, options, report, faults);
  verify_codec(dir / "speech_tokenizer", reading, options, report, faults);
}

}  // namespace

bool VerifyReport::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.severity == "error"; });
}

VerifyReport verify_model(const fs::path& model_dir, const VerifyOptions& options) {
  VerifyReport report;
  Faults faults;
  try {
    verify(model_dir, options, report, faults);
  } catch (const std::exception& error) {
    faults.push_back({ErrorCode::internal,
                      fmt::format("checking {} stopped: {}", model_dir.string(), error.what()),
                      "report this together with the files"});
  }
  std::stable_partition(faults.begin(), faults.end(), [](const Fault& fault) { return !fault.warning; });
  for (Fault& fault : faults) {
    report.findings.push_back(
        {fault.warning ? "warning" : "error", std::move(fault.what), std::move(fault.fix)});
  }
  return report;
}

}  // namespace skald::model
