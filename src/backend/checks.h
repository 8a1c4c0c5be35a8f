// The arguments of recorded calls: what every backend checks before it works with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/ops.h"

namespace skald::backend {

/// What is known of a loaded weight, however it is packed.
struct WeightShape {
  WeightRole role = WeightRole::vector;
  std::string name;
  int outputs = 0, inputs = 0;  ///< matrix, convolutions: of one tap
  int taps = 1;                 ///< convolutions: the kernel size
  int64_t rows = 0, width = 0;  ///< table: entries, width; vector: 1, n; depthwise: taps, channels
};

/// What checks need of a device.
class CallTarget {
 public:
  virtual ~CallTarget() = default;
  /// Address of a view's first element as the device sees it, which need not be one of this process. Throws
  /// Error(internal) that begins with `what` when the view leaves its allocation.
  virtual std::byte* locate(const Buffer& view, const std::string& what) const = 0;
  virtual const WeightShape& weight_shape(Weight weight, const std::string& what) const = 0;
};

/// Where a view's first element lies in its allocation of `size` bytes, in bytes. Throws Error(internal) that
/// begins with `what` when the view leaves the allocation, which is called `label`.
int64_t checked_offset(const Buffer& view, size_t size, const std::string& label, const std::string& what);

/// A bound two-dimensional view; a null one means "absent". Addresses are the device's.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  explicit operator bool() const { return data != nullptr; }
  T* operator[](int64_t row) const { return data + row * stride; }
};

/// A bound list of numbers, one per lane or slot.
struct Elements {
  int32_t* data = nullptr;
  int64_t stride = 1;
  int32_t count = 0;
  explicit operator bool() const { return data != nullptr; }
  int32_t& operator[](int64_t i) const { return data[i * stride]; }
};

/// Every check throws Error(internal) that names program, label and argument: the model code is wrong, not
/// the user.
class Checker {
 public:
  Checker(const CallTarget& target, std::string where) : target_(target), where_(std::move(where)) {}

  void require(bool holds, const char* what) const {
    if (!holds) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) const;
  const std::string& where() const { return where_; }

  /// At least `rows` rows of exactly `width` columns. Floats unless T says otherwise.
  template <class T = float>
  Rows<T> rows(const Buffer& buffer, int64_t rows, int64_t width, const char* what) const {
    return {reinterpret_cast<T*>(bind(buffer, sizeof(T), rows, width, what)), buffer.stride};
  }
  template <class T = float>
  Rows<T> optional_rows(const Buffer& buffer, int64_t count, int64_t width, const char* what) const {
    return buffer ? rows<T>(buffer, count, width, what) : Rows<T>{};
  }
  /// A column or a row of at least `count` i32.
  Elements elements(const Buffer& buffer, int64_t count, const char* what) const;

  const WeightShape& shape(Weight weight, WeightRole role, const char* what) const;
  void require_matrix(Weight weight, int outputs, int inputs, const char* what) const;
  /// [n], or absent.
  void require_vector(Weight weight, int64_t n, const char* what) const;
  /// The two views share no element (checked on the address range they span).
  void require_disjoint(const Buffer& a, const Buffer& b, const char* what) const;

 private:
  std::byte* bind(const Buffer& buffer, size_t element, int64_t rows, int64_t width, const char* what) const;

  const CallTarget& target_;
  std::string where_;
};

/// Whether two views may share an element.
bool may_overlap(const Buffer& a, const Buffer& b);

// Everything about a call that can be known when it is recorded, see ops.h. What moves from run to run
// (slots, counts, positions, ids) the backend checks while it runs.
void check(const Checker&, const Lanes&);
void check(const Checker&, const GatherSum&);
void check(const Checker&, const Linear&);
void check(const Checker&, const GatedPair&);
void check(const Checker&, const RopeAngles&);
void check(const Checker&, const QkvRope&);
void check(const Checker&, const Attention&);
void check(const Checker&, const StoreRows&);
void check(const Checker&, const Copy&);
void check(const Checker&, const Sample&);
void check(const Checker&, const PublishFrame&);
void check(const Checker&, const Advance&);
void check(const Checker&, const Conv&);
void check(const Checker&, const ConvTransposed&);
void check(const Checker&, const Depthwise&);
void check(const Checker&, const LogMel&);
void check(const Checker&, const PaddedConv&);
void check(const Checker&, const Statistics&);
void check(const Checker&, const ScaleRows&);
void check(const Checker&, const NearestCode&);

}  // namespace skald::backend
