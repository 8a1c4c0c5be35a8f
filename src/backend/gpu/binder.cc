// Arguments of kernels, and fault words.
#include "backend/gpu/binder.h"

#include <fmt/format.h>

#include <algorithm>

namespace skald::backend::gpu {

LaneArgs Binder::lanes(const Lanes& lanes, int64_t slots) const {
  LaneArgs a{};
  const auto list = [&](const Buffer& buffer, int64_t count, const char* what, const int*& data,
                        int& stride) {
    if (!buffer) return int64_t{INT32_MAX};
    const Elements e = elements(buffer, count, what);
    data = e.data, stride = static_cast<int>(e.stride);
    return int64_t{e.count};
  };
  list(lanes.slot, lanes.lanes, "lanes.slot", a.slot, a.slot_stride);
  list(lanes.count, lanes.lanes, "lanes.count", a.count, a.count_stride);
  slots = std::min(slots, list(lanes.start, 1, "lanes.start", a.start, a.start_stride));
  slots = std::min(slots, list(lanes.gate, 1, "lanes.gate", a.gate, a.gate_stride));
  a.lanes = lanes.lanes, a.rows = lanes.rows, a.rate = lanes.rate, a.start_offset = lanes.start_offset;
  a.slots = static_cast<int>(slots);
  a.op = static_cast<int>(number_);
  a.fault = reinterpret_cast<kp_u64*>(target_.fault_word());
  return a;
}

NormArgs Binder::norm(const Norm& norm) const {
  return {vector(norm.weight), vector(norm.bias), norm.epsilon, static_cast<int>(norm.kind)};
}

InputArgs Binder::input(const Buffer& x, const Lanes& lanes) const {
  const Rows<float> bound = rows(x, lanes.total(), x.width, "x");
  return {bound.data, bound.stride * lanes.rows, bound.stride};
}

MatrixArgs Binder::matrix(Weight handle) const {
  const DeviceWeight& w = weight(handle);
  const PanelLayout l = w.layout();
  return {.data = reinterpret_cast<const kp_u8*>(w.address),
          .panel_bytes = l.panel_bytes(),
          .tap_bytes = l.tap_bytes(),
          .phase_bytes = 0,
          .scale_bytes = l.scale_bytes(),
          .outputs = l.outputs,
          .inputs = l.inputs,
          .taps = l.taps,
          .phases = 1,
          .groups = l.groups()};
}

CacheArgs Binder::cache(const KvCache& cache, int width) const {
  const Rows<float> k = rows(cache.k, cache.capacity, width, "cache.k"),
                    v = rows(cache.v, cache.k.rows, width, "cache.v");
  return {k.data, v.data, k.stride, v.stride, cache.capacity, cache.ring ? 1 : 0};
}

CounterArgs Binder::counter(const Buffer& buffer, int64_t count, const char* what) const {
  const Elements e = elements(buffer, count, what);
  return {e.data, static_cast<int>(e.stride)};
}

Fault decode_fault(uint64_t word) {
  return {static_cast<FaultCode>(word >> 56), static_cast<uint32_t>(word >> 32 & 0xFFFFFFu),
          static_cast<int32_t>(word & 0xFFFFFFFFu)};
}

std::string describe(const Fault& fault) {
  switch (fault.code) {
    case kFaultNone: return "no fault";
    case kFaultSlot: return fmt::format("a lane names slot {}, which does not exist", fault.value);
    case kFaultCount: return fmt::format("a lane counts {} units, which it does not have", fault.value);
    case kFaultPosition: return fmt::format("position {} is outside the cache or store", fault.value);
    case kFaultId: return fmt::format("id {} is outside its table or logits", fault.value);
    case kFaultStored: return fmt::format("step {} is outside the stored rows", fault.value);
    case kFaultShort:
      return fmt::format("a lane of {} rows is too short to be mirrored at its ends", fault.value);
    case kFaultNoise: return fmt::format("slot {} asks for recorded noise, but there is none", fault.value);
  }
  return fmt::format("unknown fault {}", static_cast<int>(fault.code));
}

}  // namespace skald::backend::gpu
