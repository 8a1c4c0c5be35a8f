// Owning types over the function table.
#include "backend/gpu/driver/handles.h"

#include <fmt/format.h>

#include <cstring>

namespace skald::backend::gpu {

Context::Context(std::shared_ptr<const Driver> driver, int device)
    : driver_(std::move(driver)), device_(device) {
  if (api().retain_context)
    driver_->check(api().retain_context(&context_, device), fmt::format("open device {}", device));
  enter();
}

Context::~Context() {
  if (context_ && !abandoned_ && !keeps_) api().release_context(device_);
}

Status Context::try_enter() const noexcept {
  return api().set_device ? api().set_device(device_) : api().set_context(context_);
}

std::string human_bytes(size_t bytes) {
  const auto n = static_cast<double>(bytes);
  if (bytes >= size_t{1} << 30) return fmt::format("{:.1f} GiB", n / (1 << 30));
  if (bytes >= size_t{1} << 20) return fmt::format("{:.1f} MiB", n / (1 << 20));
  return fmt::format("{} bytes", bytes);
}

namespace {

[[noreturn]] void fail_allocation(const Context& context, Status status, const std::string& label,
                                  size_t bytes, const char* kind) {
  if (status != kOutOfMemory)
    context.driver().fail(status, fmt::format("reserve {} for '{}'", human_bytes(bytes), label));
  size_t free = 0, total = 0;
  if (context.api().last_error) context.api().last_error();
  const bool known = context.api().memory_info(&free, &total) == kSuccess;
  throw Error(
      ErrorCode::out_of_memory,
      fmt::format("cannot reserve {} ({} bytes) of {} memory for '{}': {}; lower the number of slots or "
                  "cache_capacity, choose smaller weights, or free memory of the device",
                  human_bytes(bytes), bytes, kind, label,
                  known ? fmt::format("{} of {} are free", human_bytes(free), human_bytes(total))
                        : "the driver does not tell how much is free"));
}

}  // namespace

DeviceBlock::DeviceBlock(const Context& context, const std::string& label, size_t bytes)
    : context_(&context), size_(bytes) {
  if (bytes == 0) return;
  context.enter();
  const Status status = context.api().allocate(&address_, bytes);
  if (status != kSuccess) fail_allocation(context, status, label, bytes, "device");
}

DeviceBlock::~DeviceBlock() {
  if (address_ && context_->enter_to_free()) context_->api().free(address_);
}

HostBlock::HostBlock(const Context& context, const std::string& label, size_t bytes)
    : context_(&context), size_(bytes) {
  context.enter();
  const Status status = context.api().allocate_host(&host_, bytes, context.api().host_flags);
  if (status != kSuccess) fail_allocation(context, status, label, bytes, "page-locked host");
  if (const Status shown = context.api().host_address(&address_, host_, 0); shown != kSuccess) {
    context.api().free_host(host_);
    context.driver().fail(shown, fmt::format("show '{}' to the device", label));
  }
  std::memset(host_, 0, bytes);
}

HostBlock::~HostBlock() {
  if (host_ && context_->enter_to_free()) context_->api().free_host(host_);
}

Stream make_stream(const Context& context, bool first) {
  constexpr int kFirst = -1;
  const DriverApi& api = context.api();
  context.enter();
  StreamHandle handle = nullptr;
  context.driver().check(first && api.create_stream_with_priority
                             ? api.create_stream_with_priority(&handle, api.stream_flags, kFirst)
                             : api.create_stream(&handle, api.stream_flags),
                         "make a stream");
  return {context, handle};
}

Event make_event(const Context& context) {
  context.enter();
  EventHandle handle = nullptr;
  context.driver().check(context.api().create_event(&handle, context.api().event_flags), "make an event");
  return {context, handle};
}

Module load_module(const Context& context, const std::string& name, const void* image) {
  context.enter();
  ModuleHandle handle = nullptr;
  context.driver().check(context.api().load_module(&handle, image), fmt::format("load the code '{}'", name));
  return {context, handle};
}

}  // namespace skald::backend::gpu
