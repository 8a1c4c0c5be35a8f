// Compute lock and slots.
#include "engine/core.h"

#include <fmt/format.h>

#include <utility>

namespace skald::engine {

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

void FairMutex::lock() {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  turn_.wait(lock, [&] { return serving_ == ticket; });
}

void FairMutex::unlock() {
  {
    const std::lock_guard lock(mutex_);
    ++serving_;
  }
  turn_.notify_all();
}

SlotPool::SlotPool(int32_t slots) : count_(slots) {
  for (int32_t slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

int32_t SlotPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty())
    throw Error(
        ErrorCode::unsupported,
        fmt::format("all {} slots are taken; wait for a request to end or open the engine with more slots",
                    count_));
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void SlotPool::give_back(int32_t slot) {
  const std::lock_guard lock(mutex_);
  free_.push_back(slot);  // never allocates: the vector held every slot at the start
}

bool SlotPool::any_taken() const {
  const std::lock_guard lock(mutex_);
  return free_.size() < static_cast<size_t>(count_);
}

Core::Core(const EngineOptions& o, std::unique_ptr<backend::Backend> d, std::unique_ptr<model::Model> m,
           text::Tokenizer t)
    : options(o),
      device(std::move(d)),
      model(std::move(m)),
      tokenizer(std::move(t)),
      slots(o.slots),
      speaker_encoder(model->speaker_encoder_hash()),
      references(o.kept_voices) {}

SlotLease::SlotLease(std::shared_ptr<Core> core) : core_(std::move(core)), slot_(core_->slots.take()) {}

void SlotLease::release() noexcept {
  if (!core_) return;
  try {
    const std::lock_guard lock(core_->compute);
    core_->model->release(slot_);
  } catch (...) {  // the slot is reset by the next request anyway
  }
  core_->slots.give_back(slot_);
  core_.reset();
}

}  // namespace skald::engine
