// The models of a server: loaded when asked for, let go when nobody has spoken with them for a while.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "server/api_error.h"
#include "server/log_line.h"
#include "skald/skald.h"

namespace skald::server {

struct ModelPlace {
  std::string id;
  std::filesystem::path folder;
};

/// A model in memory. Held by every request that speaks with it.
struct LoadedModel {
  std::shared_ptr<engine::Core> core;
  std::unique_ptr<engine::Scheduler> scheduler;
  double load_seconds = 0;
};

enum class ModelState : uint8_t { unloaded, loading, ready, failed };

/// One model. Any thread.
class ModelHost {
 public:
  ModelHost(ModelPlace place, const EngineOptions& options, LogSink log);

  const ModelPlace& place() const { return place_; }
  /// From the configuration alone, so that lists need no weights. Throws Error(model_not_found),
  /// Error(model_invalid).
  const ModelInfo& info() const { return info_; }

  /// The loaded model; loads it if need be, which takes its time. What failed is tried again after a pause.
  /// Throws ApiError(503).
  std::shared_ptr<LoadedModel> acquire();
  /// The same, with the library's own error.
  std::shared_ptr<LoadedModel> load();
  /// The loaded model if it is there; does not count as use.
  std::shared_ptr<LoadedModel> peek() const;
  /// Lets the model go if nobody uses it and the last use is at least so long ago, as far as looks like this
  /// one can tell.
  bool unload_if_idle(std::chrono::steady_clock::duration since);
  /// Lets it go now, if it is still this one, for the next request to load it anew; requests in work keep
  /// theirs.
  void forget(const LoadedModel& model);

  ModelState state() const;
  std::string failure() const;  ///< why loading failed; may hold paths

 private:
  const ModelPlace place_;
  const EngineOptions options_;
  const LogSink log_;
  ModelInfo info_;
  std::mutex loading_;  // held while loading and while letting go
  mutable std::mutex mutex_;
  std::shared_ptr<LoadedModel> loaded_;
  std::chrono::steady_clock::time_point last_use_, failed_at_;
  ModelState state_ = ModelState::unloaded;
  std::string failure_;
};

}  // namespace skald::server
