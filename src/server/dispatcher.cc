// Queue and workers.
#include "server/dispatcher.h"

#include <algorithm>
#include <cmath>

namespace skald::server {
namespace {

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Dispatcher::Dispatcher(size_t workers, size_t bound) : workers_(workers), bound_(bound) {
  for (size_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
}

Dispatcher::~Dispatcher() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = ending_ = true;
    queue_.clear();
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
}

bool Dispatcher::submit(const std::shared_ptr<Task>& task) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || running_ + queue_.size() >= workers_ + bound_) return false;
    queue_.push_back({task, Clock::now()});
  }
  wake_.notify_one();
  return true;
}

bool Dispatcher::withdraw(const Task* task) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(queue_, [&](const Entry& e) { return e.task.get() == task; }) > 0;
}

bool Dispatcher::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  return queue_.empty() && running_ == 0;
}

size_t Dispatcher::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

size_t Dispatcher::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

int Dispatcher::retry_after() const {
  const std::lock_guard lock(mutex_);
  const double rounds = std::ceil(static_cast<double>(queue_.size() + 1) / static_cast<double>(workers_));
  return static_cast<int>(std::clamp(std::ceil(rounds * mean_seconds_), 1.0, 60.0));
}

void Dispatcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    const auto from = Clock::now();
    entry.task->run(seconds(from - entry.since));
    entry.task->run = nullptr;  // what it holds is let go here, not by whoever withdraws it too late
    const double took = seconds(Clock::now() - from);
    lock.lock();
    --running_;
    mean_seconds_ += 0.1 * (took - mean_seconds_);
  }
}

}  // namespace skald::server
