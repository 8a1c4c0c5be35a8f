// Safetensors header: 8 bytes of length, a JSON object of tensors, then their data without gaps.
#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "model/fault.h"

namespace skald::model {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the bound of the official reader
constexpr size_t kMostDimensions = 16;
constexpr size_t kMostTensors = 1 << 20;

[[noreturn]] void refuse(const std::string& file, const std::string& what,
                         std::string_view fix = "the file is damaged, download it again") {
  throw Error(ErrorCode::model_invalid, fmt::format("{}: {}; {}", file, what, fix));
}

/// Bits of one element, 0 for an unknown type.
uint64_t type_bits(std::string_view type) {
  struct Size {
    std::string_view name;
    uint64_t bits;
  };
  static constexpr Size kSizes[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8},
                                    {"F8_E4M3", 8}, {"U16", 16}, {"I16", 16}, {"F16", 16},
                                    {"BF16", 16},   {"U32", 32}, {"I32", 32}, {"F32", 32},
                                    {"U64", 64},    {"I64", 64}, {"F64", 64}, {"C64", 64}};
  for (const auto& [name, bits] : kSizes) {
    if (name == type) return bits;
  }
  return 0;
}

/// Receives the header as events, so that nothing but a well-formed list of tensors ever takes memory.
class HeaderReader final : public json::json_sax_t {
 public:
  std::vector<TensorEntry> tensors;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  ///< data_offsets of each tensor, relative to the data
  std::map<std::string, std::string> metadata;
  std::string complaint;  ///< set when parsing stopped

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::before: state_ = State::top; return true;
      case State::entry_value: return begin_entry();
      case State::metadata_value: state_ = State::metadata; return true;
      default: return unexpected("an object");
    }
  }
  bool end_object() override {
    switch (state_) {
      case State::top: state_ = State::after; return true;
      case State::metadata: state_ = State::top; return true;
      case State::entry: return end_entry();
      default: return unexpected("the end of an object");
    }
  }
  bool key(string_t& name) override {
    switch (state_) {
      case State::top: return top_key(name);
      case State::metadata:
        metadata_key_ = name;
        if (!metadata.emplace(name, "").second) return fail("__metadata__ has " + quote(name) + " twice");
        return true;
      case State::entry: return entry_key(name);
      default: return unexpected("a key");
    }
  }
  bool string(string_t& value) override {
    if (state_ == State::metadata) return metadata[metadata_key_] = value, true;
    if (state_ != State::type) return unexpected("a string");
    tensors.back().type = value;
    state_ = State::entry;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ == State::shape) return state_ = State::in_shape, true;
    if (state_ == State::offsets) return state_ = State::in_offsets, true;
    return unexpected("a list");
  }
  bool end_array() override {
    if (state_ == State::in_offsets && offset_count_ != 2) {
      return fail(fmt::format("{} has {} data_offsets, expected 2", tensor(), offset_count_));
    }
    state_ = State::entry;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::in_shape) {
      if (value > static_cast<uint64_t>(INT64_MAX)) return unexpected("a number beyond 63 bits");
      if (tensors.back().shape.size() == kMostDimensions) {
        return fail(fmt::format("{} has more than {} dimensions", tensor(), kMostDimensions));
      }
      tensors.back().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ != State::in_offsets) return unexpected("a number");
    if (offset_count_ == 0) ranges.back().first = value;
    if (offset_count_ == 1) ranges.back().second = value;
    ++offset_count_;
    return true;
  }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no integer");
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("the header is not valid JSON at byte {}",
                            kLengthBytes + (position > 0 ? position - 1 : 0)));
  }

 private:
  enum class State {
    before,
    top,
    metadata_value,
    metadata,
    entry_value,
    entry,
    type,
    shape,
    in_shape,
    offsets,
    in_offsets,
    after
  };
  static constexpr unsigned kType = 1, kShape = 2, kOffsets = 4, kAll = 7;  // bits of seen_

  std::string tensor() const { return "tensor " + quote(name_); }
  bool fail(std::string what) {
    complaint = std::move(what);
    return false;
  }
  bool unexpected(std::string_view what) {
    if (name_.empty()) return fail(fmt::format("the header has {} where it must not be", what));
    return fail(fmt::format("the header has {} where it must not be, in or after {}", what, tensor()));
  }

  bool top_key(const std::string& name) {
    if (name == "__metadata__") {
      if (std::exchange(have_metadata_, true)) return fail("the header has '__metadata__' twice");
      state_ = State::metadata_value;
      return true;
    }
    name_ = name;
    if (!names_.insert(name).second) return fail(tensor() + " is listed twice");
    if (names_.size() > kMostTensors) return fail(fmt::format("more than {} tensors", kMostTensors));
    state_ = State::entry_value;
    return true;
  }
  bool begin_entry() {
    tensors.push_back({name_, {}, {}, 0, 0});
    ranges.emplace_back(0, 0);
    seen_ = 0, offset_count_ = 0;
    state_ = State::entry;
    return true;
  }
  bool entry_key(const std::string& key) {
    const unsigned bit = key == "dtype"          ? kType
                         : key == "shape"        ? kShape
                         : key == "data_offsets" ? kOffsets
                                                 : 0;
    if (bit == 0) return fail(tensor() + " has the unknown key " + quote(key));
    if ((seen_ & bit) != 0) return fail(tensor() + " has " + quote(key) + " twice");
    seen_ |= bit;
    state_ = bit == kType ? State::type : bit == kShape ? State::shape : State::offsets;
    return true;
  }
  bool end_entry() {
    if (seen_ != kAll) {
      return fail(fmt::format("{} has no {}", tensor(),
                              (seen_ & kType) == 0    ? "dtype"
                              : (seen_ & kShape) == 0 ? "shape"
                                                      : "data_offsets"));
    }
    state_ = State::top;
    return true;
  }

  State state_ = State::before;
  std::string name_;
  unsigned seen_ = 0;
  int offset_count_ = 0;
  bool have_metadata_ = false;
  std::unordered_set<std::string> names_;
  std::string metadata_key_;
};

/// Length of the JSON header, checked against the file.
uint64_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (bytes.size() >= kPointer.size() && std::memcmp(bytes.data(), kPointer.data(), kPointer.size()) == 0) {
    refuse(file, "is a Git LFS pointer, not the weights", "fetch the weights with `git lfs pull`");
  }
  if (bytes.size() < kLengthBytes) {
    refuse(file, fmt::format("has {} bytes, expected at least 8 of header length", bytes.size()));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > kLongestHeader) {
    refuse(file,
           fmt::format("the header length at byte 0 is {}, expected at most {}", length, kLongestHeader),
           "it is not a safetensors file or damaged, download it again");
  }
  if (length > bytes.size() - kLengthBytes) {
    refuse(file,
           fmt::format("the header ends at byte {}, but the file has only {} bytes", kLengthBytes + length,
                       bytes.size()),
           "the download is incomplete, fetch the file again");
  }
  return length;
}

/// Shape times type in bytes; nothing for an unknown type. Throws when the product does not fit 64 bits.
std::optional<uint64_t> expected_bytes(const TensorEntry& tensor, const std::string& file) {
  const uint64_t bits = type_bits(tensor.type);
  if (bits == 0) return std::nullopt;
  uint64_t total = bits / 8;
  bool overflow = false;
  for (const int64_t dimension : tensor.shape) {
    overflow |= __builtin_mul_overflow(total, static_cast<uint64_t>(dimension), &total);
  }
  if (overflow)
    refuse(file, fmt::format("tensor {} has the impossible shape {}", quote(tensor.name),
                             shape_text(tensor.shape)));
  return total;
}

/// One tensor's range against the file and its shape; sets offset and bytes.
void place(TensorEntry& tensor, std::pair<uint64_t, uint64_t> range, uint64_t data_offset,
           uint64_t file_bytes, const std::string& file) {
  const auto [begin, end] = range;
  const uint64_t data_bytes = file_bytes - data_offset;
  if (begin > end) {
    refuse(file, fmt::format("tensor {} has data_offsets [{}, {}], which run backwards", quote(tensor.name),
                             begin, end));
  }
  if (end > data_bytes) {
    refuse(file,
           fmt::format(
               "tensor {} has data_offsets [{}, {}], but only {} bytes follow the header (the file has {})",
               quote(tensor.name), begin, end, data_bytes, file_bytes),
           "the download is incomplete, fetch the file again");
  }
  const std::optional<uint64_t> expected = expected_bytes(tensor, file);
  if (expected && *expected != end - begin) {
    refuse(file,
           fmt::format("tensor {} at byte {} has {} bytes, expected {} for {} {}", quote(tensor.name),
                       data_offset + begin, end - begin, *expected, tensor.type, shape_text(tensor.shape)));
  }
  tensor.offset = data_offset + begin;
  tensor.bytes = end - begin;
}

/// In file order each tensor must begin where the one before ends, and the last must end the file.
void check_cover(const std::vector<TensorEntry>& tensors, uint64_t data_offset, uint64_t file_bytes,
                 const std::string& file) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto key = [&](size_t i) { return std::pair(tensors[i].offset, tensors[i].bytes); };
    return key(a) < key(b);
  });
  uint64_t end = data_offset;
  std::string before = "the header";
  for (const size_t i : order) {
    const TensorEntry& tensor = tensors[i];
    if (tensor.offset < end) {
      refuse(file, fmt::format("tensor {} begins at byte {} and overlaps {}, which ends at {}",
                               quote(tensor.name), tensor.offset, before, end));
    }
    if (tensor.offset > end) {
      refuse(file, fmt::format("bytes {} to {} between {} and tensor {} belong to no tensor", end,
                               tensor.offset - 1, before, quote(tensor.name)));
    }
    end = tensor.offset + tensor.bytes;
    before = "tensor " + quote(tensor.name);
  }
  if (end != file_bytes) {
    refuse(file,
           fmt::format("{} bytes follow the last tensor, which ends at byte {}", file_bytes - end, end));
  }
}

}  // namespace

std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> bytes, const std::string& file,
                                           std::map<std::string, std::string>* metadata) {
  const uint64_t length = header_length(bytes, file);
  const char* const header = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  if (length == 0 || header[0] != '{') refuse(file, "the header at byte 8 does not begin with '{'");
  // The JSON reader takes a zero byte for the end of its input.
  if (const void* zero = std::memchr(header, 0, length)) {
    refuse(file, fmt::format("the header is not valid JSON at byte {}",
                             kLengthBytes + static_cast<size_t>(static_cast<const char*>(zero) - header)));
  }
  HeaderReader reader;
  if (!json::sax_parse(header, header + length, &reader)) refuse(file, reader.complaint);
  const uint64_t data_offset = kLengthBytes + length;
  for (size_t i = 0; i < reader.tensors.size(); ++i) {
    place(reader.tensors[i], reader.ranges[i], data_offset, bytes.size(), file);
  }
  check_cover(reader.tensors, data_offset, bytes.size(), file);
  if (metadata) *metadata = std::move(reader.metadata);
  return std::move(reader.tensors);
}

}  // namespace skald::model
