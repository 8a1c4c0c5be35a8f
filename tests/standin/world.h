// What the parts of the stand-in driver share: its state, and what every call begins with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core.h"

namespace standin {

struct Device : Properties {
  size_t used = 0;
  int sticky = 0;  ///< answered to every call once it is set
};

struct Faults {
  long lost = -1, blind = -1, hang = -1, dead = -1, oom = -1, slow_us = 0;
  bool newest = false, crash_init = false, hang_init = false, nouuid = false;
  std::string nobin, nofunc, fail_call, skew_kernel;
  int fail_code = 0;
  float skew = 0;
};

struct Event {
  uint64_t recorded = 0, done = 0;
  std::chrono::steady_clock::time_point time;
};

struct Op {
  std::function<void(int device)> run;
  std::shared_ptr<Event> event;
  uint64_t event_number = 0;
  bool is_launch = false, stuck = false;
  uint64_t number = 0;  ///< in the order in which work was handed over
};
using Graph = std::vector<Op>;

struct Stream {
  int device = 0;
  std::deque<Op> queue;
  bool busy = false;
  bool stuck = false;  ///< nothing starts any more
  bool blind = false;  ///< works, but never tells
  std::shared_ptr<Graph> capture;
  bool idle() const { return queue.empty() && !busy && !stuck; }
};

struct Block {
  char* map = nullptr;
  size_t mapped = 0, bytes = 0;
  int device = 0;
  char* host = nullptr;  ///< host memory: the other mapping
};

/// Everything. Never destroyed: the executor thread outlives static destructors.
struct World {
  std::recursive_mutex mutex;
  std::condition_variable_any work, done;
  bool configured = false;
  std::vector<Device> devices;
  Faults faults;
  std::map<std::string, unsigned long> counts;
  std::map<uintptr_t, Block> blocks;
  std::set<Stream*> streams;
  uint64_t submitted = 0;
  std::string fault_file;  ///< empty = faults come from elsewhere
  int64_t fault_stamp = 0;
  std::once_flag started;
};

World& world();
/// The device that is current on this thread.
Device& here();
inline unsigned long& count(const char* what) { return world().counts[what]; }

/// What every call begins with: the lock, the configuration, planted answers.
class Call {
 public:
  explicit Call(const char* name);
  int status() const { return status_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  int status_ = kOk;
};
#define STANDIN_CALL(name) \
  const Call call(name);   \
  if (call.status() != kOk) return call.status()

/// The allocation that holds an address, and where it begins; null = none.
Block* find_block(uintptr_t address, uintptr_t* base = nullptr);
/// Puts work onto a stream, or into the graph that it is captured into.
int submit(void* stream, Op op);

}  // namespace standin
