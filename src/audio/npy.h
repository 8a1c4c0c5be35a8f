// NumPy's .npy: a strict reader of untrusted files and a writer whose bytes depend on the values alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skald::audio {

enum class NpyType { f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 };

/// Name without byte order, e.g. "f4".
const char* npy_type_name(NpyType type) noexcept;
size_t npy_type_bytes(NpyType type) noexcept;

/// A read array: little endian, C order. `name` is used in error sentences.
struct NpyArray {
  std::string name;
  NpyType type = NpyType::f4;
  std::vector<uint64_t> shape;
  std::string data;  ///< product(shape) * npy_type_bytes(type) bytes

  uint64_t size() const;  ///< number of elements
  /// Elements of any float type. Throws Error(invalid_argument) for an integer type.
  std::vector<float> floats() const;
  /// Elements of any integer type. Throws Error(invalid_argument) for a float type or a value outside int32.
  std::vector<int32_t> ints() const;
};

/// Parses format versions 1.0, 2.0 and 3.0. Refused with Error(invalid_argument) naming the file and the byte
/// offset: other versions, big endian, Fortran order of two and more dimensions, other types, missing or
/// surplus bytes.
NpyArray parse_npy(std::string_view bytes, std::string name);
/// Reads and parses a file. Throws Error(io) if it cannot be read.
NpyArray read_npy(const std::filesystem::path& path);

/// A whole file of small integers [values / width, width] as int16. Throws Error(internal) for one that does
/// not fit.
std::string npy_of_codes(std::span<const int32_t> values, size_t width);

/// Writes rows while they come; the number of rows is put into the header at the end. A close that fails
/// throws Error(io), the destructor closes without reporting.
class NpyWriter {
 public:
  /// `row` is the shape of one row, e.g. {15, 2048}; empty for a vector of scalars.
  NpyWriter(const std::filesystem::path& path, NpyType type, std::vector<uint64_t> row);
  ~NpyWriter();
  NpyWriter(NpyWriter&&) noexcept;
  NpyWriter& operator=(NpyWriter&&) noexcept;

  /// Whole rows, converted to the type of the file: f4, i2 or i4. Throws Error(internal) for any other type
  /// or part of a row, Error(io) if it cannot be written.
  void append(std::span<const float> values);
  void append(std::span<const int32_t> values);
  void close();

 private:
  struct State;
  void append_bytes(std::string_view bytes, size_t values);
  std::unique_ptr<State> state_;
};

}  // namespace skald::audio
