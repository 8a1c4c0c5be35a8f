// gather_sum, store_rows, copy, advance and publish_frame.
#include <fmt/format.h>

#include <cstring>

#include "backend/cpu/binder.h"
#include "backend/cpu/recorder.h"
#include "backend/cpu/tasks.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

class GatherSumOp final : public BoundOp {
 public:
  GatherSumOp(Binder& b, const GatherSum& a)
      : device_(b.device()), lanes_(b, a.lanes), width_(a.out.width), ids_by_slot_(a.ids_by_slot) {
    for (const Weight table : a.tables) tables_.push_back(&b.weight(table));
    if (!tables_.empty()) {
      ids_ = b.rows<int32_t>(a.ids, ids_by_slot_ ? 1 : lanes_.total(), static_cast<int64_t>(tables_.size()),
                             "ids");
      ids_rows_ = a.ids.rows;
    }
    add_ = b.optional_rows(a.add, lanes_.total(), width_, "add");
    out_ = b.rows(a.out, lanes_.total(), width_, "out");
    if (!a.stored) return;
    count_ = b.elements(a.stored_count, 1, "stored_count");
    step_ = b.elements(a.stored_step, count_.count, "stored_step");
    stored_ = b.rows(a.stored, count_.count, width_, "stored");
    capacity_ = a.stored.rows / count_.count;
    pad_ = b.rows(a.pad, 1, width_, "pad");
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active())
      for_rows(device_.pool(), lane.rows, width_ * static_cast<int64_t>(tables_.size() + 2),
               [&](int r, int) { sum(lane, lane.row + r); });
  }

 private:
  void sum(const ActiveLane& lane, int32_t row) {
    const Kernels& k = device_.kernels();
    float* out = out_[row];
    bool empty = true;  // the first contribution is copied, the others are added
    if (add_) std::memmove(out, add_[row], bytes()), empty = false;
    for (size_t j = 0; j < tables_.size(); ++j) {
      const int32_t id = ids_[checked_row(lane, row)][j];
      if (id < 0) continue;
      if (id >= tables_[j]->rows)
        throw Error(ErrorCode::internal, fmt::format("id {} is outside table '{}' of {} rows", id,
                                                     tables_[j]->name, tables_[j]->rows));
      read_table_row(*tables_[j], id, !empty, out);
      empty = false;
    }
    if (empty) std::memset(out, 0, bytes());
    if (stored_) k.add(trailing(lane), width_, out);
  }

  int64_t checked_row(const ActiveLane& lane, int32_t row) const {
    if (!ids_by_slot_) return row;
    if (lane.slot >= ids_rows_)
      throw Error(ErrorCode::internal, fmt::format("slot {} has no ids", lane.slot));
    return lane.slot;
  }

  const float* trailing(const ActiveLane& lane) const {
    if (lane.slot >= count_.count)
      throw Error(ErrorCode::internal, fmt::format("slot {} stores no rows", lane.slot));
    const int32_t step = step_[lane.slot];
    if (step >= count_[lane.slot]) return pad_[0];
    if (step < 0 || step >= capacity_)
      throw Error(ErrorCode::internal,
                  fmt::format("stored row {} of slot {} is outside its {}", step, lane.slot, capacity_));
    return stored_[lane.slot * capacity_ + step];
  }

  size_t bytes() const { return static_cast<size_t>(width_) * sizeof(float); }

  CpuDevice& device_;
  LaneSet lanes_;
  int width_;
  bool ids_by_slot_;
  int32_t ids_rows_ = 0;
  std::vector<const LoadedWeight*> tables_;
  Rows<int32_t> ids_;
  Rows<float> add_, stored_, pad_, out_;
  Elements count_, step_;
  int64_t capacity_ = 0;
};

class StoreRowsOp final : public BoundOp {
 public:
  StoreRowsOp(Binder& b, const StoreRows& a) : lanes_(b, a.lanes), capacity_(a.capacity), width_(a.x.width) {
    x_ = b.rows(a.x, lanes_.total(), width_, "x");
    store_ = b.rows(a.store, a.capacity, width_, "store");
    slots_ = a.store.rows / a.capacity;
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      if (lane.slot >= slots_ || lane.position < 0 || lane.position + lane.rows > capacity_)
        throw Error(ErrorCode::internal,
                    fmt::format("slot {} at position {} with {} rows is outside a store of {} "
                                "slots x {} rows",
                                lane.slot, lane.position, lane.rows, slots_, capacity_));
      for (int32_t r = 0; r < lane.rows; ++r)
        std::copy_n(x_[lane.row + r], width_, store_[lane.slot * capacity_ + lane.position + r]);
    }
  }

 private:
  LaneSet lanes_;
  int64_t capacity_;
  int width_, slots_ = 0;
  Rows<float> x_, store_;
};

class CopyOp final : public BoundOp {
 public:
  CopyOp(Binder& b, const Copy& a)
      : lanes_(b, a.lanes), which_(a.rows), width_(a.x.width), x_rows_(a.x.rows) {
    x_ = b.rows(a.x, which_ == Copy::of_slot ? 1 : lanes_.total(), width_, "x");
    out_ = b.rows(a.out, which_ == Copy::each ? lanes_.total() : lanes_.lanes(), width_, "out");
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) switch (which_) {
        case Copy::each:
          for (int32_t r = 0; r < lane.rows; ++r) copy_row(lane.row + r, lane.row + r);
          break;
        case Copy::last: copy_row(lane.row + lane.rows - 1, lane.lane); break;
        case Copy::of_slot:
          if (lane.slot >= x_rows_)
            throw Error(ErrorCode::internal, fmt::format("slot {} has no row to copy", lane.slot));
          copy_row(lane.slot, lane.lane);
          break;
      }
  }

 private:
  void copy_row(int32_t from, int32_t to) {
    std::memmove(out_[to], x_[from], static_cast<size_t>(width_) * sizeof(float));
  }

  LaneSet lanes_;
  Copy::Rows which_;
  int width_;
  int32_t x_rows_;
  Rows<float> x_, out_;
};

class AdvanceOp final : public BoundOp {
 public:
  AdvanceOp(Binder& b, const Advance& a)
      : lanes_(b, a.lanes), counter_(b.elements(a.counter, 1, "counter")) {}

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      if (lane.slot >= counter_.count)
        throw Error(ErrorCode::internal, fmt::format("slot {} has no counter", lane.slot));
      counter_[lane.slot] += lane.rows;
    }
  }

 private:
  LaneSet lanes_;
  Elements counter_;
};

class PublishFrameOp final : public BoundOp {
 public:
  PublishFrameOp(Binder& b, const PublishFrame& a)
      : lanes_(b, a.lanes),
        capacity_(a.slots.cache_capacity),
        ring_frames_(a.slots.ring_frames),
        groups_(a.slots.groups) {
    const SlotArrays& s = a.slots;
    slots_ = s.settings.rows;
    settings_ = b.rows<uint8_t>(s.settings, slots_, sizeof(SlotSettings), "settings");
    status_ = b.elements(s.status, slots_, "status");
    position_ = b.elements(s.position, slots_, "position");
    frames_ = b.elements(s.frames, slots_, "frames");
    codes_ = b.rows<int32_t>(s.codes, slots_, groups_, "codes");
    ring_ = b.rows<int32_t>(s.ring, int64_t{slots_} * ring_frames_, groups_, "ring");
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      const int32_t slot = lane.slot;
      if (slot >= slots_) throw Error(ErrorCode::internal, fmt::format("slot {} does not exist", slot));
      SlotSettings settings;
      std::memcpy(&settings, settings_[slot], sizeof(settings));
      std::copy_n(codes_[slot], groups_, ring_[int64_t{slot} * ring_frames_ + frames_[slot] % ring_frames_]);
      ++frames_[slot];
      if (frames_[slot] >= settings.max_frames)
        status_[slot] = kLength;
      else if (position_[slot] >= capacity_)
        status_[slot] = kCacheFull;
    }
  }

 private:
  LaneSet lanes_;
  int32_t capacity_, ring_frames_, groups_, slots_ = 0;
  Rows<uint8_t> settings_;
  Elements status_, position_, frames_;
  Rows<int32_t> codes_, ring_;
};

}  // namespace

void Recorder::gather_sum(const GatherSum& a) { add<GatherSumOp>("gather_sum", a, {a.out}); }
void Recorder::store_rows(const StoreRows& a) { add<StoreRowsOp>("store_rows", a, {a.store}); }
void Recorder::copy(const Copy& a) { add<CopyOp>("copy", a, {a.out}); }
void Recorder::advance(const Advance& a) { add<AdvanceOp>("advance", a, {a.counter}); }
void Recorder::publish_frame(const PublishFrame& a) {
  add<PublishFrameOp>("publish_frame", a, {a.slots.ring, a.slots.frames, a.slots.status});
}

}  // namespace skald::backend::cpu
