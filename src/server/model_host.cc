// Loading and letting go.
#include "server/model_host.h"

#include <fmt/format.h>

#include <utility>

#include "engine/core.h"
#include "engine/streams.h"

namespace skald::server {

using Clock = std::chrono::steady_clock;

ModelHost::ModelHost(ModelPlace place, const EngineOptions& options, LogSink log)
    : place_(std::move(place)),
      options_(options),
      log_(std::move(log)),
      info_(engine::read_model_info(place_.folder)) {}

std::shared_ptr<LoadedModel> ModelHost::acquire() {
  static constexpr std::chrono::seconds kPause(5);
  const auto failed = [] {
    ApiError error(503, "model_failed", "the model cannot be loaded; the server's log says why", "model");
    error.retry_after = static_cast<int>(kPause.count());
    return error;
  };
  {
    const std::lock_guard lock(mutex_);
    if (state_ == ModelState::failed && Clock::now() - failed_at_ < kPause) throw failed();
  }
  try {
    return load();
  } catch (const std::exception&) {
    throw failed();
  }
}

std::shared_ptr<LoadedModel> ModelHost::load() {
  const std::lock_guard one_loads(loading_);
  {
    const std::lock_guard lock(mutex_);
    last_use_ = Clock::now();
    if (loaded_) return loaded_;
    state_ = ModelState::loading;
  }
  try {
    const auto from = Clock::now();
    auto model = std::make_shared<LoadedModel>();
    model->core = engine::load_core(place_.folder, options_);
    model->scheduler = std::make_unique<engine::Scheduler>(model->core);
    model->load_seconds = std::chrono::duration<double>(Clock::now() - from).count();
    log_(LogLevel::note, fmt::format("model {} loaded in {:.1f} s on {}", place_.id, model->load_seconds,
                                     model->core->device->name()));
    const std::lock_guard lock(mutex_);
    loaded_ = model;
    state_ = ModelState::ready;
    failure_.clear();
    return model;
  } catch (const std::exception& e) {
    log_(LogLevel::error, fmt::format("model {} cannot be loaded: {}", place_.id, e.what()));
    const std::lock_guard lock(mutex_);
    state_ = ModelState::failed;
    failed_at_ = Clock::now();
    failure_ = e.what();
    throw;
  }
}

std::shared_ptr<LoadedModel> ModelHost::peek() const {
  const std::lock_guard lock(mutex_);
  return loaded_;
}

bool ModelHost::unload_if_idle(Clock::duration since) {
  // Whoever wants it again waits until its memory is free.
  const std::unique_lock one_loads(loading_, std::try_to_lock);
  if (!one_loads) return false;
  std::shared_ptr<LoadedModel> gone;
  {
    const std::lock_guard lock(mutex_);
    if (!loaded_) return false;
    if (loaded_.use_count() > 1) last_use_ = Clock::now();
    if (Clock::now() - last_use_ < since) return false;
    gone = std::exchange(loaded_, nullptr);
    state_ = ModelState::unloaded;
  }
  gone.reset();  // takes a while
  log_(LogLevel::note, fmt::format("model {} let go", place_.id));
  return true;
}

void ModelHost::forget(const LoadedModel& model) {
  std::shared_ptr<LoadedModel> gone;
  const std::lock_guard lock(mutex_);
  if (loaded_.get() != &model) return;
  gone = std::exchange(loaded_, nullptr);
  state_ = ModelState::unloaded;
}

ModelState ModelHost::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string ModelHost::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace skald::server
