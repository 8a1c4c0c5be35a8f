// The routes that speak.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
  work.reply->on_gone([&speech] { speech.cancel(); });
  // The handler must not outlive what it refers to.
  struct Release {
    Reply& reply;
    ~Release() { reply.on_gone({}); }
  } const release{*work.reply};
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
    if (!begun) throw;
    speech.cancel();
    if (events) reply.write(event_of_error(error, work.request->id));
    events ? reply.end() : reply.abort();
  } catch (const Error& error) {
    note_end(work.request->id, work.call, speech, &error);
    if (!begun) return reply.gone() ? void() : refuse(*work.request, reply, to_api_error(error));
    if (events) reply.write(event_of_error(to_api_error(error), work.request->id));
    events ? reply.end() : reply.abort();
  }
}

// ---- several at once

void Service::prepare_batch(Work& work) {
  constexpr size_t kItems = 32;
  const nlohmann::json body = parse_object(work.request->body);
  const auto items = body.find("items");
  if (items == body.end() || !items->is_array() || items->empty() || items->size() > kItems)
    throw ApiError(400, "invalid_argument", fmt::format("items must be a list of 1 to {} objects", kItems),
                   "items");
  nlohmann::json defaults = body;
  defaults.erase("items");
  for (const nlohmann::json& item : *items) {
    work.items.emplace_back();
    work.refusals.emplace_back();
    try {
      if (!item.is_object()) throw ApiError(400, "invalid_argument", "an item must be an object", "items");
      nlohmann::json merged = defaults;
      merged.update(item);
      work.items.back() = read_speech(merged, catalog_, options_.api);
      work.items.back().delivery = Delivery::whole;
    } catch (const ApiError& error) {
      work.refusals.back() = error;
    }
  }
  for (const auto& refusal : work.refusals)
    if (!refusal) return;
  throw ApiError(*work.refusals.front());  // nothing of it can be spoken
}

void Service::run_batch(Work& work) {
  Json results = Json::array();
  size_t spoken = 0;
  std::optional<ApiError> first;
  for (size_t i = 0; i < work.items.size(); ++i) {
    SpeechCall& call = work.items[i];
    Json result{{"index", i}};
    std::optional<ApiError> failure = work.refusals[i];
    if (!failure) {
      try {
        const std::shared_ptr<LoadedModel> model = model_of(call);
        call.request.request_id = fmt::format("{}.{}", work.request->id, i);
        give_voice(call, *model, call.request.request_id);
        Speech speech(*model->scheduler, call, work.arrived, std::chrono::seconds(options_.request_seconds));
        work.reply->on_gone([&speech] { speech.cancel(); });
        struct Release {
          Reply& reply;
          ~Release() { reply.on_gone({}); }
        } const release{*work.reply};
        const std::string bytes = speech.all();
        if (bytes.empty()) throw no_audio();
        note_end(call.request.request_id, call, speech, nullptr);
        const Usage usage = usage_of(speech.result());
        result["status"] = 200;
        result["format"] = audio::format_name(call.format);
        result["seed"] = speech.result().seed;
        result["audio"] = to_base64(bytes);
        result["usage"] = {{"input_tokens", usage.input_tokens},
                           {"output_tokens", usage.output_tokens},
                           {"total_tokens", usage.input_tokens + usage.output_tokens}};
        ++spoken;
      } catch (const ApiError& error) {
        failure = error;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::cancelled && work.reply->gone()) return;
        note_end(call.request.request_id, call, error);
        failure = to_api_error(error);
      }
    }
    if (failure) {
      result["status"] = failure->status();
      result["error"] = Json::parse(error_body(*failure, ""))["error"];
      if (!first) first = failure;
    }
    results.push_back(std::move(result));
  }
  if (spoken == 0) throw ApiError(*first);
  metrics_.count_request("batch", 200);
  work.reply->send(
      {200, "application/json", to_text({{"object", "batch"}, {"results", std::move(results)}}), {}});
}

void Service::run_estimate(Work& work) {
  const std::shared_ptr<LoadedModel> model = model_of(work.call);
  give_voice(work.call, *model, work.request->id);
  const auto engine = model->scheduler->client(false);
  const ModelInfo& info = engine->info();
  const auto limit = static_cast<size_t>(engine::default_piece_limit(info));
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
