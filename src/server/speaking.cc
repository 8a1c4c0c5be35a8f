// The routes that speak.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/to_error.h"
#include "engine/settings.h"
#include "server/base64.h"
#include "server/form.h"
#include "server/json_text.h"
#include "server/service.h"
#include "text/sentences.h"
#include "text/utf8.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;

ApiError no_audio() {
  return ApiError(500, "no_audio",
                  "the model ended before the first frame; try another seed or another text");
}

/// A client that leaves ends its speech; the handler does not outlive what it refers to.
class CancelWhenGone {
 public:
  CancelWhenGone(Reply& reply, Speech& speech) : reply_(reply) {
    reply_.on_gone([&speech] { speech.cancel(); });
  }
  ~CancelWhenGone() { reply_.on_gone({}); }
  CancelWhenGone(const CancelWhenGone&) = delete;
  CancelWhenGone& operator=(const CancelWhenGone&) = delete;

 private:
  Reply& reply_;
};

}  // namespace

void Service::prepare_speech(Work& work) {
  work.call = parse_speech(work.request->body, catalog_, options_.api);
}

void Service::prepare_form(Work& work) {
  work.call = read_speech(object_of_form(parse_form(work.request->body)), catalog_, options_.api);
  work.api_route = true;
  const bool stream = work.request->path == "/api/stream";
  work.call.delivery = stream ? Delivery::chunked : Delivery::whole;
  work.call.format = stream ? audio::Format::pcm : audio::Format::wav;
}

void Service::run_speech(Work& work) {
  const std::shared_ptr<LoadedModel> model = model_of(work.call);
  work.call.request.request_id = work.request->id;
  give_voice(work.call, *model, work.request->id);
  Speech speech(*model->scheduler, work.call, work.arrived, std::chrono::seconds(options_.request_seconds));
  const CancelWhenGone cancel(*work.reply, speech);
  if (work.call.delivery != Delivery::whole) return stream(work, *model, speech);
  try {
    std::string bytes = speech.all();
    if (bytes.empty()) throw no_audio();
    note_end(work.request->id, work.call, speech, nullptr);
    Answer answer{200, std::string(audio::content_type(work.call.format)), std::move(bytes), {}};
    answer.headers = work.api_route
                         ? api_headers(work.call, speech, model->load_seconds, true)
                         : speech_headers(work.call, speech, std::string(model->core->device->name()), true);
    metrics_.bytes_sent.add(static_cast<double>(answer.body.size()));
    metrics_.count_request("speech", 200);
    work.reply->send(std::move(answer));
  } catch (const ApiError& error) {
    note_end(work.request->id, speech, error);
    throw;
  } catch (const Error& error) {
    note_end(work.request->id, work.call, speech, &error);
    if (error.code() == ErrorCode::cancelled && work.reply->gone()) return;
    refuse(*work.request, *work.reply, to_api_error(error));
  }
}

/// Audio as it is made. Until the first of it an error is an answer of its own; later it must be seen in what
/// the client already reads.
void Service::stream(Work& work, LoadedModel& model, Speech& speech) {
  Reply& reply = *work.reply;
  const bool events = work.call.delivery == Delivery::events;
  const auto send = [&](std::string bytes) {
    metrics_.bytes_sent.add(static_cast<double>(bytes.size()));
    return reply.write(events ? event_of_audio(bytes) : std::move(bytes));
  };
  bool begun = false;
  try {
    for (bool last = false; !last;) {
      Speech::Part part = speech.next();
      last = part.last;
      if (!begun) {
        if (part.bytes.empty()) throw no_audio();
        const std::string device(model.core->device->name());
        HttpHead head{200,
                      work.api_route ? api_headers(work.call, speech, model.load_seconds, false)
                                     : speech_headers(work.call, speech, device, false),
                      std::nullopt};
        head.headers.emplace_back("Content-Type",
                                  events ? "text/event-stream" : audio::content_type(work.call.format));
        head.headers.emplace_back("X-Accel-Buffering", "no");
        metrics_.count_request("speech", 200);
        reply.begin(std::move(head));
        begun = true;
      }
      if (!part.bytes.empty() && !send(std::move(part.bytes))) speech.cancel();
    }
    note_end(work.request->id, work.call, speech, nullptr);
    if (events) reply.write(event_of_end(usage_of(speech.result()), speech.result()));
    reply.end(speech_headers(work.call, speech, std::string(model.core->device->name()), true));
  } catch (const ApiError& error) {
    note_end(work.request->id, speech, error);
    if (!begun) throw;
    speech.cancel();
    if (events) reply.write(event_of_error(error, work.request->id));
    events ? reply.end() : reply.abort();
  } catch (...) {
    const Error error = to_error(std::current_exception());
    note_end(work.request->id, work.call, speech, &error);
    if (!begun) return reply.gone() ? void() : refuse(*work.request, reply, to_api_error(error));
    if (events) reply.write(event_of_error(to_api_error(error), work.request->id));
    events ? reply.end() : reply.abort();
  }
}

// ---- several at once

void Service::prepare_batch(Work& work) {
  constexpr size_t kItems = 32;
  nlohmann::json defaults = parse_object(work.request->body);
  const auto found = defaults.find("items");
  if (found == defaults.end() || !found->is_array() || found->empty() || found->size() > kItems)
    throw ApiError(400, "invalid_argument", fmt::format("items must be a list of 1 to {} objects", kItems),
                   "items");
  const nlohmann::json items = std::move(*found);
  defaults.erase("items");
  // A recording for all is decoded once; what stands for it in the items has the right form.
  std::shared_ptr<const std::string> recording;
  if (const auto audio = defaults.find("ref_audio"); audio != defaults.end() && audio->is_string()) {
    recording = std::make_shared<const std::string>(
        decode_recording(audio->get_ref<const std::string&>(), options_.api.max_reference, "ref_audio"));
    *audio = "AAAA";
  }
  for (const nlohmann::json& item : items) {
    work.items.emplace_back();
    work.refusals.emplace_back();
    try {
      if (!item.is_object()) throw ApiError(400, "invalid_argument", "an item must be an object", "items");
      nlohmann::json merged = defaults;
      merged.update(item);
      SpeechCall& call = work.items.back() = read_speech(merged, catalog_, options_.api);
      call.delivery = Delivery::whole;
      if (recording && call.reference && !item.contains("ref_audio")) call.reference->audio = recording;
    } catch (const ApiError& error) {
      work.refusals.back() = error;
    }
  }
  for (const auto& refusal : work.refusals)
    if (!refusal) return;
  throw ApiError(*work.refusals.front());  // nothing of it can be spoken
}

/// One item of a batch as its part of the answer. Throws what ends it.
Json Service::speak_item(Work& work, size_t index, Given& given) {
  SpeechCall& call = work.items[index];
  call.request.request_id = fmt::format("{}.{}", work.request->id, index);
  if (work.refusals[index]) throw ApiError(*work.refusals[index]);
  const std::shared_ptr<LoadedModel> model = model_of(call);
  give_voice_again(call, *model, call.request.request_id, given);
  Speech speech(*model->scheduler, call, work.arrived, std::chrono::seconds(options_.request_seconds));
  const CancelWhenGone cancel(*work.reply, speech);
  const std::string bytes = speech.all();
  if (bytes.empty()) throw no_audio();
  note_end(call.request.request_id, call, speech, nullptr);
  return {{"index", index},
          {"status", 200},
          {"format", audio::format_name(call.format)},
          {"seed", speech.result().seed},
          {"audio", to_base64(bytes)},
          {"usage", usage_json(usage_of(speech.result()))}};
}

/// The items as they are spoken, so that there is never more than one of them in memory. Until the first can
/// be heard the answer may still become an error.
void Service::run_batch(Work& work) {
  std::string pending = R"({"object":"batch","results":[)";
  std::optional<ApiError> first;
  Given given;
  bool begun = false;
  for (size_t i = 0; i < work.items.size(); ++i) {
    Json result{{"index", i}};
    std::optional<ApiError> failure;
    try {
      result = speak_item(work, i, given);
    } catch (const ApiError& error) {
      failure = error;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled && work.reply->gone()) return;
      note_end(work.items[i].request.request_id, work.items[i], error);
      failure = to_api_error(error);
    }
    if (failure) {
      result["status"] = failure->status();
      result["error"] = Json::parse(error_body(*failure, ""))["error"];
      if (!first) first = failure;
    } else if (!std::exchange(begun, true)) {
      metrics_.count_request("batch", 200);
      work.reply->begin({200, {{"Content-Type", "application/json"}}, std::nullopt});
    }
    if (i > 0) pending += ',';
    pending += to_text(result);
    if (begun && !work.reply->write_parts(std::exchange(pending, {}))) return;
  }
  if (!begun) throw ApiError(*first);
  work.reply->write("]}");
  work.reply->end();
}

void Service::run_estimate(Work& work) {
  const std::shared_ptr<LoadedModel> model = model_of(work.call);
  give_voice(work.call, *model, work.request->id);
  const auto engine = model->scheduler->client(false);
  const ModelInfo& info = engine->info();
  const auto limit = static_cast<size_t>(info.piece_limit);
  Json pieces = Json::array();
  int64_t tokens = 0, rows = 0, bound = 0;
  const auto add = [&](const std::string& text) {
    SpeechRequest request = work.call.request;
    request.text = text;
    const PromptInfo prompt = engine->prompt(request);
    const int64_t frames = engine::text_frame_bound(text::count_code_points(text));
    pieces.push_back({{"characters", text::count_code_points(text)},
                      {"input_tokens", prompt.ids.size()},
                      {"prompt_rows", prompt.rows.size()},
                      {"frame_bound", frames}});
    tokens += static_cast<int64_t>(prompt.ids.size()), rows += static_cast<int64_t>(prompt.rows.size());
    bound += frames;
  };
  const std::string& text = work.call.request.text;
  const auto cut = work.call.split ? text::split_sentences(text, limit) : std::vector<text::Piece>();
  for (const text::Piece& piece : cut) add(text.substr(piece.offset, piece.length));
  if (cut.empty()) add(text);
  if (const auto most = work.call.request.max_frames) bound = std::min<int64_t>(bound, *most);
  metrics_.count_request("estimate", 200);
  const double frame_seconds = static_cast<double>(info.samples_per_frame) / info.sample_rate;
  work.reply->send({200,
                    "application/json",
                    to_text({{"object", "estimate"},
                             {"model", catalog_.model(work.call.model).id},
                             {"input_tokens", tokens},
                             {"prompt_rows", rows},
                             {"frame_bound", bound},
                             {"seconds_bound", static_cast<double>(bound) * frame_seconds / work.call.speed},
                             {"pieces", std::move(pieces)}}),
                    {}});
}

}  // namespace skald::server
