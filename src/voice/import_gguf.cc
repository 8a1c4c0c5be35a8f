// CrispASR voice packs: the little of GGUF that they need.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "voice/byte_reader.h"
#include "voice/import.h"
#include "voice/voice_checks.h"

namespace skald::voice {
namespace {

constexpr uint64_t kMostEntries = 1 << 16;
constexpr uint32_t kF32 = 0, kI32 = 26;

/// The value types of a key.
enum Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct Tensor {
  std::vector<int64_t> shape;  ///< innermost last, as everywhere else
  uint32_t type = 0;
  uint64_t offset = 0;
};

class Reader final : ByteReader {
 public:
  Reader(std::string_view bytes, const std::string& file) : ByteReader(bytes), file_(file) {
    take(4);  // the magic
    const uint64_t version = number(4);
    if (version < 2 || version > 3)
      refuse(file, fmt::format("is GGUF of version {}, and 2 and 3 are known", version));
    const uint64_t tensors = number(8), keys = number(8);
    if (tensors > kMostEntries || keys > kMostEntries)
      refuse(file, "is GGUF with an impossible number of entries");
    for (uint64_t i = 0; i < keys; ++i) read_key();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    data_ = (at_ + alignment_ - 1) / alignment_ * alignment_;
  }

  std::vector<Voice> voices() {
    if (architecture_ != "qwen3tts.voicepack")
      refuse(file_, fmt::format("is GGUF of the architecture \"{}\", not a voice pack (qwen3tts.voicepack)",
                                architecture_));
    if (names_.empty() || (!texts_.empty() && texts_.size() != names_.size()))
      refuse(file_, "is a voice pack without names, or with another number of texts");
    if (std::set<std::string_view>(names_.begin(), names_.end()).size() != names_.size())
      refuse(file_, "is a voice pack that lists a voice twice");
    std::vector<Voice> out;
    for (size_t i = 0; i < names_.size(); ++i) out.push_back(voice_of(i));
    return out;
  }

 private:
  [[noreturn]] void cut_short() const override {
    refuse(file_, fmt::format("is GGUF that was cut short or damaged at byte {}", at_));
  }

  std::string text() {
    const uint64_t size = number(8);
    if (size > kMostTextBytes) refuse(file_, fmt::format("has a text of {} bytes", size));
    return std::string(take(size));
  }

  static int width_of(uint64_t type) {
    switch (type) {
      case u8:
      case i8:
      case boolean: return 1;
      case u16:
      case i16: return 2;
      case u32:
      case i32:
      case f32: return 4;
      case u64:
      case i64:
      case f64: return 8;
      default: return 0;
    }
  }
  void skip(uint64_t type) {
    if (type == string) return void(take(number(8)));
    const int width = width_of(type);
    if (width == 0) refuse(file_, fmt::format("has a key of the unknown type {}", type));
    take(static_cast<uint64_t>(width));
  }

  void read_key() {
    const std::string key = text();
    const uint64_t type = number(4);
    if (key == "general.architecture" && type == string) return void(architecture_ = text());
    if (key == "general.alignment" && type == u32) {
      alignment_ = number(4);
      if (alignment_ == 0 || alignment_ > 65536 || alignment_ % 8 != 0)
        refuse(file_, "has an impossible alignment");
      return;
    }
    if (type != array) return skip(type);
    const uint64_t item = number(4), count = number(8);
    if (item == array || count > bytes_.size()) cut_short();
    std::vector<std::string>* const kept = item != string                 ? nullptr
                                           : key == "voicepack.names"     ? &names_
                                           : key == "voicepack.ref_texts" ? &texts_
                                                                          : nullptr;
    if (kept && count > 4096) refuse(file_, "has too many voices");
    if (kept && !kept->empty()) refuse(file_, "lists its voices twice");
    for (uint64_t i = 0; i < count; ++i) {
      if (kept)
        kept->push_back(text());
      else
        skip(item);
    }
  }

  void read_tensor() {
    const std::string name = text();
    const uint64_t dimensions = number(4);
    if (dimensions < 1 || dimensions > 4) refuse(file_, "has a tensor of an impossible shape");
    Tensor tensor;
    for (uint64_t i = 0; i < dimensions; ++i) {
      const uint64_t n = number(8);
      if (n < 1 || n > static_cast<uint64_t>(INT32_MAX)) refuse(file_, "has a tensor of an impossible shape");
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(n));
    }
    tensor.type = static_cast<uint32_t>(number(4));
    tensor.offset = number(8);
    if (!tensors_.emplace(name, tensor).second) refuse(file_, "lists a tensor twice");
  }

  /// The elements of a tensor of 4-byte numbers.
  template <class T>
  std::vector<T> elements(const Tensor& t, uint32_t type, int64_t most) {
    int64_t count = 1;
    for (const int64_t n : t.shape) {
      if (count > most / n) refuse(file_, "has a tensor larger than any voice's");
      count *= n;
    }
    const uint64_t size = static_cast<uint64_t>(count) * sizeof(T);
    if (t.type != type || data_ > bytes_.size() || t.offset > bytes_.size() - data_ ||
        size > bytes_.size() - data_ - t.offset)
      refuse(file_, "has a tensor of another type, or outside of the file");
    if (static_cast<size_t>(count) > kMostNumbers - numbers_) refuse(file_, "has tensors that overlap");
    numbers_ += static_cast<size_t>(count);
    std::vector<T> out(static_cast<size_t>(count));
    std::memcpy(out.data(), bytes_.data() + data_ + t.offset, size);
    return out;
  }

  Voice voice_of(size_t index) {
    const std::string& name = names_[index];
    const auto vector = tensors_.find("voicepack.spk." + name + ".embd"),
               codes = tensors_.find("voicepack.code." + name + ".codes");
    if (vector == tensors_.end()) refuse(file_, fmt::format("has no speaker vector for its voice {}", index));
    Voice v;
    v.name = safe_name(name);
    v.source = "CrispASR voice pack";
    v.x_vector = elements<float>(vector->second, kF32, kMostWidth);
    int64_t groups = 0;
    if (codes != tensors_.end() && index < texts_.size() && !texts_[index].empty()) {
      if (codes->second.shape.size() != 2)
        refuse(file_, fmt::format("has codes of voice {} that are not [frames, 16]", index));
      groups = codes->second.shape[1];
      v.codes = elements<int32_t>(codes->second, kI32, kMostFrames * kMostGroups);
      v.ref_text = texts_[index];
    }
    check_voice(v, groups, file_);
    return v;
  }

  const std::string& file_;
  uint64_t alignment_ = 32, data_ = 0;
  size_t numbers_ = 0;  ///< taken from tensors so far
  std::string architecture_;
  std::vector<std::string> names_, texts_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

std::vector<Voice> import_gguf(std::string_view bytes, const std::string& file) {
  return Reader(bytes, file).voices();
}

}  // namespace skald::voice
