// The .npy parser and writer.
#include "audio/npy.h"

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skald/error.h"

namespace skald::audio {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in memory");

struct TypeEntry {
  NpyType type;
  const char* name;
  size_t bytes;
};
constexpr std::array<TypeEntry, 10> kTypes{{{NpyType::f4, "f4", 4},
                                            {NpyType::f8, "f8", 8},
                                            {NpyType::i1, "i1", 1},
                                            {NpyType::i2, "i2", 2},
                                            {NpyType::i4, "i4", 4},
                                            {NpyType::i8, "i8", 8},
                                            {NpyType::u1, "u1", 1},
                                            {NpyType::u2, "u2", 2},
                                            {NpyType::u4, "u4", 4},
                                            {NpyType::u8, "u8", 8}}};
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 32;   // NumPy's own limit
constexpr size_t kMaxHeader = 1 << 16;  // far above any array of plain numbers
constexpr size_t kWrittenHeader = 128;  // fixed, so that the row count can be put in later

/// Reads the header's Python dictionary: exactly the three keys, in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, size_t offset, NpyArray& out)
      : text_(text), offset_(offset), out_(out) {}

  void parse() {
    expect('{');
    while (peek() != '}') {
      parse_entry();
      if (peek() != ',') break;
      ++at_;
    }
    expect('}');
    if (peek() != '\0' || at_ != text_.size()) fail("something follows the dictionary");
    if (!has_descr_ || !has_order_ || !has_shape_) fail("'descr', 'fortran_order' or 'shape' is missing");
    if (fortran_ && out_.shape.size() > 1)
      fail("Fortran order is not supported; save numpy.ascontiguousarray(a)");
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' is not a usable .npy file: {} (byte {} of the header)", out_.name, what,
                            offset_ + at_));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(char c) {
    if (peek() != c) fail(fmt::format("expected '{}'", c));
    ++at_;
  }
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("expected a quoted name");
    const size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) fail("a quoted name does not end");
    const std::string_view value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) return at_ += word.size(), value;
    }
    fail("expected True or False");
  }
  void claim(bool& seen) {
    if (seen) fail("a key stands twice");
    seen = true;
  }
  void parse_entry() {
    const std::string_view key = quoted();
    expect(':');
    if (key == "descr") {
      claim(has_descr_);
      parse_type(quoted());
    } else if (key == "fortran_order") {
      claim(has_order_);
      fortran_ = boolean();
    } else if (key == "shape") {
      claim(has_shape_);
      parse_shape();
    } else {
      fail(fmt::format("unknown key of {} characters", key.size()));
    }
  }
  void parse_type(std::string_view descr) {
    if (descr.size() == 3 && descr[0] == '>')
      fail("big-endian numbers are not supported; save a.astype(a.dtype.newbyteorder('<'))");
    const bool order_ok = descr.size() == 3 && (descr[0] == '<' || (descr[0] == '|' && descr[2] == '1'));
    for (const TypeEntry& entry : kTypes) {
      if (order_ok && descr.substr(1) == entry.name) {
        out_.type = entry.type;
        return;
      }
    }
    fail("the element type is none of f4, f8, i1, i2, i4, i8, u1, u2, u4, u8");
  }
  void parse_shape() {
    expect('(');
    while (peek() != ')') {
      uint64_t value = 0;
      peek();
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) fail("a dimension is not a number");
      at_ = static_cast<size_t>(end - text_.data());
      if (out_.shape.size() == kMaxDimensions) fail("too many dimensions");
      out_.shape.push_back(value);
      if (peek() != ',') break;
      ++at_;
    }
    expect(')');
  }

  std::string_view text_;
  size_t offset_;
  NpyArray& out_;
  size_t at_ = 0;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false, fortran_ = false;
};

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is not a usable .npy file: {}", name, what));
}

/// Bytes of the array, or nothing if that number does not fit.
std::optional<uint64_t> payload_bytes(const NpyArray& array) {
  uint64_t bytes = npy_type_bytes(array.type);
  bool empty = false;
  for (const uint64_t dimension : array.shape) {
    if (dimension == 0) {
      empty = true;
    } else if (bytes > std::numeric_limits<uint64_t>::max() / dimension) {
      return std::nullopt;
    } else {
      bytes *= dimension;
    }
  }
  return empty ? 0 : bytes;
}

template <class From, class To>
std::vector<To> convert(const NpyArray& array) {
  std::vector<To> out(array.data.size() / sizeof(From));
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, array.data.data() + i * sizeof(From), sizeof(From));
    if constexpr (std::is_integral_v<From>) {
      if (!std::in_range<To>(value)) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("'{}' holds {} at element {}, which is no 32-bit number", array.name, value, i));
      }
    }
    out[i] = static_cast<To>(value);
  }
  return out;
}

}  // namespace

const char* npy_type_name(NpyType type) noexcept { return kTypes[static_cast<size_t>(type)].name; }
size_t npy_type_bytes(NpyType type) noexcept { return kTypes[static_cast<size_t>(type)].bytes; }

uint64_t NpyArray::size() const { return data.size() / npy_type_bytes(type); }

std::vector<float> NpyArray::floats() const {
  switch (type) {
    case NpyType::f4: return convert<float, float>(*this);
    case NpyType::f8: return convert<double, float>(*this);
    default: break;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' holds integers ({}), but floats are needed", name, npy_type_name(type)));
}

std::vector<int32_t> NpyArray::ints() const {
  switch (type) {
    case NpyType::i1: return convert<int8_t, int32_t>(*this);
    case NpyType::i2: return convert<int16_t, int32_t>(*this);
    case NpyType::i4: return convert<int32_t, int32_t>(*this);
    case NpyType::i8: return convert<int64_t, int32_t>(*this);
    case NpyType::u1: return convert<uint8_t, int32_t>(*this);
    case NpyType::u2: return convert<uint16_t, int32_t>(*this);
    case NpyType::u4: return convert<uint32_t, int32_t>(*this);
    case NpyType::u8: return convert<uint64_t, int32_t>(*this);
    default: break;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' holds floats ({}), but integers are needed", name, npy_type_name(type)));
}

NpyArray parse_npy(std::string_view bytes, std::string name) {
  NpyArray array;
  array.name = std::move(name);
  if (bytes.substr(0, kMagic.size()) != kMagic) refuse(array.name, "it does not begin with \\x93NUMPY");
  if (bytes.size() < 8) refuse(array.name, "it ends inside the header");
  const int major = static_cast<unsigned char>(bytes[6]), minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    refuse(array.name, fmt::format("unknown format version {}.{}", major, minor));
  const size_t length_bytes = major == 1 ? 2 : 4, dictionary = 8 + length_bytes;
  if (bytes.size() < dictionary) refuse(array.name, "it ends inside the header");
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, length_bytes);
  if (length > kMaxHeader) refuse(array.name, fmt::format("its header claims {} bytes", length));
  if (bytes.size() - dictionary < length) refuse(array.name, "it ends inside the header");
  HeaderParser(bytes.substr(dictionary, length), dictionary, array).parse();
  const auto expected = payload_bytes(array);
  const uint64_t found = bytes.size() - dictionary - length;
  if (!expected) refuse(array.name, "its shape is larger than any memory");
  if (*expected != found) {
    refuse(array.name,
           fmt::format("its shape ({}) of {} needs {} bytes, the file has {}", fmt::join(array.shape, ", "),
                       npy_type_name(array.type), *expected, found));
  }
  array.data = bytes.substr(dictionary + length);
  return array;
}

NpyArray read_npy(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string bytes;
  std::error_code unused;
  if (in && !std::filesystem::is_directory(path, unused)) {
    // The mark first: a device without end is no reason to fill the memory.
    bytes.resize(kMagic.size());
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(in.gcount()));
    if (bytes == kMagic) bytes.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  } else {
    in.setstate(std::ios::badbit);
    if (errno == 0) errno = EISDIR;
  }
  if (in.bad()) {
    const int error = errno != 0 ? errno : EIO;
    throw Error(ErrorCode::io,
                fmt::format("cannot read '{}': {}", path.string(), std::generic_category().message(error)));
  }
  return parse_npy(bytes, path.string());
}

namespace {

std::string header_of(NpyType type, uint64_t rows, const std::vector<uint64_t>& row) {
  std::string shape = fmt::format("({},", rows);
  for (size_t i = 0; i < row.size(); ++i)
    shape += fmt::format(" {}{}", row[i], i + 1 < row.size() ? "," : "");
  std::string text =
      fmt::format("{{'descr': '<{}', 'fortran_order': False, 'shape': {}), }}", npy_type_name(type), shape);
  const size_t room = kWrittenHeader - kMagic.size() - 4;
  text.resize(room - 1, ' ');
  text += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(room), '\x00'};
  return bytes + text;
}

std::vector<int16_t> narrowed(std::span<const int32_t> values, const std::string& name) {
  std::vector<int16_t> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::in_range<int16_t>(values[i]))
      throw Error(ErrorCode::internal, fmt::format("{} does not fit '{}'", values[i], name));
    narrow[i] = static_cast<int16_t>(values[i]);
  }
  return narrow;
}

}  // namespace

std::string npy_of_codes(std::span<const int32_t> values, size_t width) {
  const std::vector<int16_t> narrow = narrowed(values, "codes");
  std::string bytes = header_of(NpyType::i2, values.size() / width, {width});
  bytes.append(reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(int16_t));
  return bytes;
}

struct NpyWriter::State {
  std::ofstream out;
  std::string name;
  NpyType type;
  std::vector<uint64_t> row;
  size_t row_values = 1;
  uint64_t rows = 0;

  std::string header() const { return header_of(type, rows, row); }
  void check(const char* doing) {
    if (!out)
      throw Error(ErrorCode::io, fmt::format("cannot {} '{}': {}", doing, name,
                                             std::generic_category().message(errno != 0 ? errno : EIO)));
  }
};

NpyWriter::NpyWriter(const std::filesystem::path& path, NpyType type, std::vector<uint64_t> row)
    : state_(std::make_unique<State>()) {
  state_->name = path.string();
  state_->type = type;
  state_->row = std::move(row);
  for (const uint64_t dimension : state_->row) state_->row_values *= dimension;
  errno = 0;
  state_->out.open(path, std::ios::binary | std::ios::trunc);
  state_->check("create");
  state_->out << state_->header();
}

NpyWriter::NpyWriter(NpyWriter&&) noexcept = default;
NpyWriter& NpyWriter::operator=(NpyWriter&&) noexcept = default;

NpyWriter::~NpyWriter() {
  try {
    if (state_) close();
  } catch (const Error&) {  // close() is the way to hear of it
  }
}

void NpyWriter::append_bytes(std::string_view bytes, size_t values) {
  if (state_->row_values == 0 || values % state_->row_values != 0) {
    throw Error(ErrorCode::internal,
                fmt::format("{} values are no whole rows of '{}'", values, state_->name));
  }
  errno = 0;
  state_->out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  state_->check("write");
  state_->rows += values / state_->row_values;
}

void NpyWriter::append(std::span<const float> values) {
  if (state_->type != NpyType::f4)
    throw Error(ErrorCode::internal, "floats for an integer file '" + state_->name + "'");
  append_bytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, values.size());
}

void NpyWriter::append(std::span<const int32_t> values) {
  if (state_->type == NpyType::i4) {
    append_bytes({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, values.size());
    return;
  }
  if (state_->type != NpyType::i2)
    throw Error(ErrorCode::internal, "unexpected type of '" + state_->name + "'");
  const std::vector<int16_t> narrow = narrowed(values, state_->name);
  append_bytes({reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(int16_t)},
               narrow.size());
}

void NpyWriter::close() {
  if (!state_->out.is_open()) return;
  errno = 0;
  state_->out.seekp(0);
  state_->out << state_->header();
  state_->out.close();
  state_->check("finish");
}

}  // namespace skald::audio
