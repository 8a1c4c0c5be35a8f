// Owning types over the function table. Each frees what it holds, unless it is told that the device is gone:
// a driver that waits for a dead device inside a free would never come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "backend/gpu/driver/driver.h"

namespace skald::backend::gpu {

/// One device of a driver, made current on whichever thread uses it.
class Context {
 public:
  /// Throws Error(device) and others as the driver's answer says.
  Context(std::shared_ptr<const Driver> driver, int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Driver& driver() const { return *driver_; }
  const DriverApi& api() const { return driver_->api(); }
  int device() const { return device_; }
  /// Makes the device current on this thread.
  void enter() const { driver_->check(try_enter(), "select the device"); }
  Status try_enter() const noexcept;
  /// The same before something is freed: false when nothing may be freed any more.
  bool enter_to_free() const noexcept { return !abandoned_ && !keeps_ && try_enter() == kSuccess; }

  /// From now on nothing is freed and no call is made: the device is lost or stands still.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  /// From now on nothing is freed, though the device goes on: frees wait for all of its streams, and one
  /// never ends.
  void keep_everything() const { keeps_ = true; }

 private:
  std::shared_ptr<const Driver> driver_;
  int device_;
  void* context_ = nullptr;  ///< CUDA
  std::atomic<bool> abandoned_ = false;
  mutable std::atomic<bool> keeps_ = false;
};

/// Device memory.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  /// Throws Error(out_of_memory) naming `label`, the size, and what the device has.
  DeviceBlock(const Context& context, const std::string& label, size_t bytes);
  DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBlock();

  DeviceAddress address() const { return address_; }
  size_t size() const { return size_; }

 private:
  void swap(DeviceBlock& other) noexcept {
    std::swap(context_, other.context_), std::swap(address_, other.address_), std::swap(size_, other.size_);
  }

  const Context* context_ = nullptr;
  DeviceAddress address_ = 0;
  size_t size_ = 0;
};

/// Page-locked, zeroed host memory that the device sees and that is coherent while it works.
class HostBlock {
 public:
  HostBlock() = default;
  HostBlock(const Context& context, const std::string& label, size_t bytes);
  HostBlock(HostBlock&& other) noexcept { swap(other); }
  HostBlock& operator=(HostBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostBlock();

  template <class T>
  T* as() const {
    return static_cast<T*>(host_);
  }
  DeviceAddress address() const { return address_; }  ///< as the device sees it
  size_t size() const { return size_; }

 private:
  void swap(HostBlock& other) noexcept {
    std::swap(context_, other.context_), std::swap(host_, other.host_), std::swap(address_, other.address_),
        std::swap(size_, other.size_);
  }

  const Context* context_ = nullptr;
  void* host_ = nullptr;
  DeviceAddress address_ = 0;
  size_t size_ = 0;
};

/// What the owners of plain handles share.
template <class Handle, Status (*DriverApi::*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Context& context, Handle handle) : context_(&context), handle_(handle) {}
  Owned(Owned&& other) noexcept { swap(other); }
  Owned& operator=(Owned&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Owned() {
    if (handle_ && context_->enter_to_free()) (context_->api().*Destroy)(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  /// Leaves the handle to the driver.
  void leak() { handle_ = nullptr; }

 private:
  void swap(Owned& other) noexcept { std::swap(context_, other.context_), std::swap(handle_, other.handle_); }

  const Context* context_ = nullptr;
  Handle handle_ = nullptr;
};

using Stream = Owned<StreamHandle, &DriverApi::destroy_stream>;
using Event = Owned<EventHandle, &DriverApi::destroy_event>;
using Module = Owned<ModuleHandle, &DriverApi::unload_module>;
using GraphExec = Owned<GraphExecHandle, &DriverApi::destroy_graph_exec>;

/// `first`: where the driver can, its work goes before that of other streams.
Stream make_stream(const Context& context, bool first = false);
Event make_event(const Context& context);
/// Throws Error(device_code) when the image is not for this device.
Module load_module(const Context& context, const std::string& name, const void* image);

/// "4.0 GiB", "16.0 MiB", "512 bytes".
std::string human_bytes(size_t bytes);

}  // namespace skald::backend::gpu
