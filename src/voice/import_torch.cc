// Voice prompts of the official package, as torch.save writes them.
#include <fmt/format.h>

#include <cstring>

#include "base/half.h"
#include "voice/import.h"
#include "voice/pickle.h"
#include "voice/voice_checks.h"
#include "voice/zip.h"

namespace skald::voice {
namespace {

using Kind = PickleValue::Kind;

constexpr int64_t kGroups = 16;
constexpr size_t kMostVoices = 1024;

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// How an element of a storage becomes a number.
struct ElementType {
  std::string_view storage;
  size_t bytes;
  double (*read)(const char*);
};

constexpr ElementType kTypes[] = {
    {"torch FloatStorage", 4, [](const char* p) { return static_cast<double>(load<float>(p)); }},
    {"torch DoubleStorage", 8, [](const char* p) { return load<double>(p); }},
    {"torch HalfStorage", 2, [](const char* p) { return static_cast<double>(from_f16(load<uint16_t>(p))); }},
    {"torch BFloat16Storage", 2,
     [](const char* p) { return static_cast<double>(from_bf16(load<uint16_t>(p))); }},
    {"torch LongStorage", 8, [](const char* p) { return static_cast<double>(load<int64_t>(p)); }},
    {"torch IntStorage", 4, [](const char* p) { return static_cast<double>(load<int32_t>(p)); }},
    {"torch ShortStorage", 2, [](const char* p) { return static_cast<double>(load<int16_t>(p)); }},
    {"torch CharStorage", 1, [](const char* p) { return static_cast<double>(load<int8_t>(p)); }},
    {"torch ByteStorage", 1, [](const char* p) { return static_cast<double>(load<uint8_t>(p)); }},
};

/// One file being read.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : file_(file), members_(read_zip(bytes, file)) {
    const std::string_view kPickle = "/data.pkl";
    for (const auto& [name, contents] : members_) {
      if (!name.ends_with(kPickle)) continue;
      folder_ = name.substr(0, name.size() - kPickle.size() + 1);
      document_ = read_pickle(contents, file);
    }
    if (folder_.empty()) refuse(file, "is a ZIP without a data.pkl, so torch.save did not write it");
    const auto order = members_.find(folder_ + "byteorder");
    if (order != members_.end() && order->second != "little")
      refuse(file, "was written on a big-endian machine");
  }

  std::vector<Voice> voices() {
    const PickleValue* root = &document_.at(document_.root);
    if (const PickleValue* items = document_.find(*root, "items")) root = items;
    if (root->kind == Kind::tensor) return {vector_alone(*root)};
    if (root->kind == Kind::dictionary) return {voice_of(*root)};
    if (root->kind != Kind::list || root->items.empty())
      refuse(file_, "holds no voice prompt: neither items nor a speaker vector");
    if (root->items.size() > kMostVoices)
      refuse(file_,
             fmt::format("holds {} voice prompts, and at most {} are read", root->items.size(), kMostVoices));
    std::vector<Voice> out;
    for (const int32_t i : root->items) out.push_back(voice_of(document_.at(i)));
    return out;
  }

 private:
  Voice vector_alone(const PickleValue& tensor) {
    Voice v;
    v.source = "torch speaker vector";
    read_vector(tensor, v);
    check_voice(v, kGroups, file_);
    return v;
  }

  Voice voice_of(const PickleValue& item) {
    const auto field = [&](const char* key) { return document_.find(item, key); };
    const auto flag = [&](const char* key) {
      return field(key) && field(key)->kind == Kind::boolean && field(key)->integer != 0;
    };
    const PickleValue* vector = field("ref_spk_embedding");
    if (!vector || vector->kind != Kind::tensor)
      refuse(file_, "holds a voice prompt without a ref_spk_embedding");
    Voice v;
    v.source = "official prompt";
    read_vector(*vector, v);
    const PickleValue *codes = field("ref_code"), *text = field("ref_text");
    const bool usable =
        codes && codes->kind == Kind::tensor && text && text->kind == Kind::text && !text->text.empty();
    if (usable && !flag("x_vector_only_mode")) {
      v.ref_text = text->text;
      read_codes(*codes, v);
    }
    check_voice(v, kGroups, file_);
    return v;
  }

  void read_vector(const PickleValue& tensor, Voice& v) {
    const std::vector<int64_t> shape = squeezed(tensor.shape);
    if (shape.size() != 1) refuse(file_, "has a ref_spk_embedding that is no vector");
    for (const double x : numbers(tensor, kMostWidth)) v.x_vector.push_back(static_cast<float>(x));
  }

  void read_codes(const PickleValue& tensor, Voice& v) {
    const std::vector<int64_t> shape = squeezed(tensor.shape);
    const bool one_frame = shape.size() == 1 && shape[0] == kGroups;
    if (!one_frame && (shape.size() != 2 || shape[1] != kGroups))
      refuse(file_, "has a ref_code that is not [frames, 16]");
    for (const double x : numbers(tensor, kMostFrames * kGroups)) {
      if (!(x >= 0 && x < static_cast<double>(kMostCode)))
        refuse(file_, fmt::format("has the code {} in its ref_code", x));
      v.codes.push_back(static_cast<int32_t>(x));
    }
  }

  static std::vector<int64_t> squeezed(std::vector<int64_t> shape) {
    while (shape.size() > 1 && shape[0] == 1) shape.erase(shape.begin());
    return shape;
  }

  /// The elements of a tensor in order, through its strides.
  std::vector<double> numbers(const PickleValue& t, int64_t most) {
    const ElementType* type = nullptr;
    for (const ElementType& candidate : kTypes)
      if (candidate.storage == t.text) type = &candidate;
    const auto data = members_.find(folder_ + "data/" + t.key);
    if (!type || data == members_.end() || t.stride.size() != t.shape.size())
      refuse(file_, "has a tensor whose data are missing or of an unknown type");
    int64_t count = 1;
    for (const int64_t n : t.shape) {
      if (n < 1 || n > most || count > most / n) refuse(file_, "has a tensor of an impossible shape");
      count *= n;
    }
    if (static_cast<size_t>(count) > kMostNumbers - numbers_)
      refuse(file_, "holds voice prompts that use the same data over and over");
    numbers_ += static_cast<size_t>(count);
    const auto held = static_cast<int64_t>(data->second.size() / type->bytes);
    std::vector<double> out;
    std::vector<int64_t> index(t.shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = t.integer;
      for (size_t d = 0; d < index.size(); ++d) {
        int64_t step = 0;
        if (__builtin_mul_overflow(index[d], t.stride[d], &step) || __builtin_add_overflow(at, step, &at))
          at = -1;
      }
      if (at < 0 || at >= held) refuse(file_, "has a tensor that reaches outside of its data");
      out.push_back(type->read(data->second.data() + static_cast<size_t>(at) * type->bytes));
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < t.shape[d]) break;
        index[d] = 0;
      }
    }
    return out;
  }

  const std::string& file_;
  std::map<std::string, std::string_view> members_;
  std::string folder_;
  PickleDocument document_;
  size_t numbers_ = 0;  ///< taken from tensors so far
};

}  // namespace

std::vector<Voice> import_torch(std::string_view bytes, const std::string& file) {
  return Reader(bytes, file).voices();
}

}  // namespace skald::voice
