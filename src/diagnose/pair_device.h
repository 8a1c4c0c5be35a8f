// Two devices as one: a model on it runs on both, op by op on the same inputs, or side by side.
//
// It stands where a model expects its device, so one model, loaded once, drives both. In lock step every op
// of a program runs on both devices, its results are compared, and those of `a` go to `b`: each op starts
// from equal inputs, and a difference is that op's own. Apart, each device goes on from what it computed
// itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "diagnose/call_outputs.h"
#include "diagnose/difference.h"

namespace skald::diagnose {

/// An op's result on `b` that is too far from that on `a`.
struct OpDifference {
  std::string context;      ///< what was being done, in the words of set_context()
  std::string program;      ///< "talker.prefill"
  size_t op = 0;            ///< index in the program
  std::string kind, label;  ///< "attention", "talker.layers.3"
  std::string output;       ///< the argument, "cache.k"
  Measure measure = Measure::none;
  double value = 0, limit = 0;
  int32_t row = 0, column = 0;  ///< of the output's view; row of its buffer for caches and slot arrays
  int32_t slot = -1;
  int64_t position = -1;                                 ///< of the row in its slot, -1 = rows have none
  double expected = 0, got = 0;                          ///< the value that is most different
  double element = 0, norm_ratio = 1, signed_error = 0;  ///< of the row
  int32_t holds_row = -1;  ///< the row of the same output whose expected values are here instead
  uint64_t times = 1;      ///< rows of this output of this op that were too far, over the whole run
};

/// One output of one op over all its runs.
struct OpStatistics {
  uint64_t runs = 0, rows = 0, values = 0;
  uint64_t equal_rows = 0;                                                 ///< bit for bit
  double worst_element = 0, worst_norm_ratio = 1, worst_signed_error = 0;  ///< of one row
  double sum_a = 0, sum_signed = 0, squares_a = 0, squares_b = 0;
  double mean_signed_error() const { return sum_a > 0 ? sum_signed / sum_a : 0; }
  double norm_ratio() const;
  void add(const OpStatistics& other);
};

/// Both devices number weights, buffers and programs in the order of the calls, which is checked.
class PairDevice final : public backend::Backend {
 public:
  enum class Mode : uint8_t { lockstep, apart };
  enum class Side : uint8_t { a, b };

  PairDevice(std::unique_ptr<backend::Backend> a, std::unique_ptr<backend::Backend> b,
             const OpTolerance& tolerance);

  void set_mode(Mode mode) {
    mode_ = mode;
    words_.clear();
  }
  /// Whose memory read() reads; apart from the mode.
  void read_from(Side side) { side_ = side; }
  void set_context(std::string context) { context_ = std::move(context); }

  /// Compares all memory of both devices and makes it equal. What differs was written by an op outside of
  /// its outputs' rows since the last call; it is noted as a stray write, with the buffer's label.
  void compare_memory();

  /// In the order in which they were found, one for each output of an op.
  const std::vector<OpDifference>& differences() const { return differences_; }
  struct OpKey {
    int32_t program = 0;
    size_t op = 0, output = 0;
    auto operator<=>(const OpKey&) const = default;
  };
  const std::map<OpKey, OpStatistics>& statistics() const { return statistics_; }
  const std::string& program_name(int32_t program) const { return programs_.at(program).name; }
  const RecordedCall& call(const OpKey& key) const { return programs_.at(key.program).calls.at(key.op); }
  uint64_t ops_compared() const { return ops_compared_; }

  std::string_view name() const override { return name_; }
  const backend::Backend& device(Side side) const { return side == Side::a ? *a_ : *b_; }

  backend::Weight load(backend::WeightRole role, const backend::TensorSource& source) override;
  backend::Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows,
                           int32_t width) override;
  void write(const backend::Buffer& to, std::span<const std::byte> bytes) override;
  void read(const backend::Buffer& from, std::span<std::byte> bytes) override;
  void zero(const backend::Buffer& view) override;
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override;
  void run(backend::Program program) override;
  std::span<const backend::OpRecord> ops(backend::Program program) const override { return a_->ops(program); }
  void run_op(backend::Program program, size_t index) override;
  void select(backend::Queue queue) override;
  size_t weight_bytes() const override { return a_->weight_bytes(); }
  size_t buffer_bytes() const override { return a_->buffer_bytes(); }

 private:
  struct Recorded {
    std::string name;
    std::vector<RecordedCall> calls;
  };
  /// Rows of an output on both devices, packed.
  struct Rows {
    std::vector<std::byte> a, b;
    backend::Buffer view;
    size_t row_bytes = 0;
    std::span<const std::byte> row(Side side, int32_t r) const;
    std::span<const float> floats(Side side, int32_t first, int32_t count) const;
  };
  class Tee;

  std::vector<RunningLane> running(const backend::Lanes& lanes);
  const std::vector<int32_t>& words(const backend::Buffer& array);
  void forget_words(const backend::Buffer& array) { words_.erase(array.id); }
  /// Runs one side of something and says whose error it was.
  template <class F>
  void guarded(Side side, const Recorded& program, const RecordedCall* call, F&& f);

  void run_both(backend::Program program, size_t op);
  void compare_output(const OpKey& key, const std::vector<RunningLane>& lanes);
  void compare_block(const OpKey& key, const std::vector<RowSpan>& spans, const backend::Buffer& view,
                     int32_t first_row, OpStatistics& statistics);
  void compare_floats(const OpKey& key, const RowSpan& span, const Rows& rows, int32_t first_row,
                      OpStatistics& statistics);
  void compare_words(const OpKey& key, const RowSpan& span, const Rows& rows, int32_t first_row,
                     OpStatistics& statistics);
  void compare_idle(const OpKey& key, const std::vector<RowSpan>& spans, const Rows& rows, int32_t first_row);
  OpDifference& note(const OpKey& key, Measure measure, OpDifference difference);

  std::unique_ptr<backend::Backend> a_, b_;
  const OpTolerance tolerance_;
  const std::string name_;
  Mode mode_ = Mode::lockstep;
  Side side_ = Side::a;
  std::string context_;
  struct Allocation {
    std::string label;
    backend::Buffer whole;
  };
  std::vector<Allocation> allocations_;
  std::vector<Recorded> programs_;
  std::map<int32_t, std::vector<int32_t>> words_;  ///< small i32 buffers of `a` by id, whole
  std::map<OpKey, OpStatistics> statistics_;
  std::map<OpKey, size_t> known_;  ///< index into differences_
  std::vector<OpDifference> differences_;
  OpDifference uncounted_;  ///< beyond the most that are kept
  uint64_t ops_compared_ = 0;
  std::string last_program_;
};

}  // namespace skald::diagnose
