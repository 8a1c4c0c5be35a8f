// sample.
#include <fmt/format.h>

#include <cstring>

#include "backend/cpu/binder.h"
#include "backend/cpu/recorder.h"
#include "backend/cpu/sampler.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

class SampleOp final : public BoundOp {
 public:
  SampleOp(Binder& b, const Sample& a)
      : lanes_(b, a.lanes),
        group_(a.group),
        codes_(a.codes),
        stop_id_(a.stop_id),
        vocabulary_(a.logits.width) {
    const SlotArrays& s = a.slots;
    slots_ = s.settings.rows;
    logits_ = b.rows(a.logits, lanes_.total(), vocabulary_, "logits");
    probs_ = b.optional_rows(a.probs, lanes_.total(), vocabulary_, "probs");
    settings_ = b.rows<uint8_t>(s.settings, slots_, sizeof(SlotSettings), "settings");
    status_ = b.elements(s.status, slots_, "status");
    sampled_ = b.elements(s.sampled, slots_, "sampled");
    drawn_ = b.rows<int32_t>(s.codes, slots_, s.groups, "codes");
    forced_ = b.rows<int32_t>(s.forced, slots_, s.groups, "forced");
    if (group_ == 0) {
      seen_ = b.rows<uint8_t>(s.seen, slots_, vocabulary_, "seen");
      noise_ = b.optional_rows(s.noise, slots_, vocabulary_, "noise");
    } else {
      noise_ = b.optional_rows(s.predictor_noise, slots_, int64_t{s.groups - 1} * codes_, "predictor_noise");
    }
    scores_ = b.scratch<float>(vocabulary_);
    work_ = b.scratch<float>(vocabulary_);
    order_ = b.scratch<int32_t>(vocabulary_);
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      if (lane.slot >= slots_)
        throw Error(ErrorCode::internal, fmt::format("slot {} does not exist", lane.slot));
      SlotSettings settings;
      std::memcpy(&settings, settings_[lane.slot], sizeof(settings));
      const int32_t id = draw(request(lane, settings), {scores_.get(), work_.get(), order_.get()});
      if (id == kDrawNonFinite)
        status_[lane.slot] = kNonFinite;
      else
        keep(lane.slot, id);
    }
  }

 private:
  DrawRequest request(const ActiveLane& lane, const SlotSettings& settings) const {
    const int32_t slot = lane.slot;
    DrawRequest r{.logits = {logits_[lane.row], static_cast<size_t>(vocabulary_)},
                  .settings = group_ == 0 ? settings.talker : settings.predictor,
                  .codes = codes_,
                  .stop_id = stop_id_,
                  .seed = {settings.seed_low, settings.seed_high},
                  .frame = static_cast<uint32_t>(sampled_[slot]),
                  .group = static_cast<uint32_t>(group_),
                  .forced = forced_[slot][group_],
                  .probs = settings.want_probs && probs_ ? probs_[lane.row] : nullptr};
    if (group_ == 0) {
      r.seen = seen_[slot];
      r.forbid_stop = sampled_[slot] < r.settings.min_new_tokens;
    }
    if (settings.recorded_noise) {
      if (!noise_)
        throw Error(ErrorCode::internal,
                    fmt::format("slot {} asks for recorded noise, but there is none", slot));
      r.noise = noise_[slot] + (group_ == 0 ? 0 : int64_t{group_ - 1} * codes_);
    }
    if (r.forced >= vocabulary_)
      throw Error(ErrorCode::internal,
                  fmt::format("forced code {} is outside the {} logits", r.forced, vocabulary_));
    return r;
  }

  void keep(int32_t slot, int32_t id) {
    drawn_[slot][group_] = id;
    if (group_ != 0) return;
    seen_[slot][id] = 1;
    ++sampled_[slot];
    if (id == stop_id_) status_[slot] = kStopToken;
  }

  LaneSet lanes_;
  int32_t group_, codes_, stop_id_, vocabulary_, slots_ = 0;
  Rows<float> logits_, probs_, noise_;
  Rows<uint8_t> settings_, seen_;
  Rows<int32_t> drawn_, forced_;
  Elements status_, sampled_;
  Scratch<float> scores_, work_;
  Scratch<int32_t> order_;
};

}  // namespace

void Recorder::sample(const Sample& a) {
  add<SampleOp>(
      "sample", a,
      {a.probs, a.slots.codes, a.slots.status, a.slots.sampled, a.group == 0 ? a.slots.seen : Buffer{}});
}

}  // namespace skald::backend::cpu
