// The routes about voices: uploads, deletions, speech in the voice of a recording.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/service.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;

/// The model that is named, if it takes recordings; else the first one that does.
size_t base_model(const Catalog& catalog, const std::string& name) {
  const size_t named = catalog.find_model(name).index;
  if (catalog.model(named).info.type == "base") return named;
  for (size_t i = 0; i < catalog.models().size(); ++i)
    if (catalog.model(i).info.type == "base") return i;
  throw ApiError(400, "cloning_not_supported", "this server has no Base model, which alone takes recordings",
                 "model");
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto value = object.find(name);
  return value != object.end() && value->is_string() ? value->get<std::string>() : "";
}

}  // namespace

void Service::give_voice(SpeechCall& call, LoadedModel& model, const std::string& request_id) {
  if (catalog_.model(call.model).info.type != "base") return;
  if (call.reference) {
    const auto engine = model.scheduler->client(false);
    MadeVoice made = shelf_->make(*engine, "inline", *call.reference, "", "", request_id);
    call.reference.reset();  // the bytes are of no use any more
    call.request.clone = std::make_shared<const Voice>(std::move(made.voice));
  } else if (!call.request.voice.empty()) {
    call.request.clone = shelf_->load(call.request.voice);
  }
}

void Service::give_voice_again(SpeechCall& call, LoadedModel& model, const std::string& request_id,
                               Given& before) {
  if (!call.reference) return give_voice(call, model, request_id);
  if (before.voice && before.model == call.model && before.reference == *call.reference) {
    call.reference.reset();
    call.request.clone = before.voice;
    return;
  }
  before = {call.model, *call.reference, nullptr};
  give_voice(call, model, request_id);
  before.voice = call.request.clone;
}

void Service::prepare_clone(Work& work) {
  nlohmann::json object = parse_object(work.request->body);
  object["model"] = catalog_.model(base_model(catalog_, text_of(object, "model"))).id;
  if (text_of(object, "ref_audio").empty())
    throw ApiError(400, "invalid_argument", "ref_audio is missing: the recording in base64", "ref_audio");
  const auto alone = object.find("x_vector_only_mode");
  const bool vector_only = alone != object.end() && *alone == true;
  if (!vector_only && text_of(object, "ref_text").empty())
    throw ApiError(400, "missing_ref_text",
                   "ref_text is missing: what the recording says, or x_vector_only_mode true", "ref_text");
  work.call = read_speech(object, catalog_, options_.api);
}

void Service::prepare_upload(Work& work) {
  work.upload =
      read_upload(work.request->header("content-type"), work.request->body, options_.voices.upload_bytes);
  work.call.model = base_model(catalog_, work.upload.model);
  if (!options_.voices.cloning)
    throw ApiError(403, "cloning_disabled", "this server makes no voices from recordings");
}

void Service::run_upload(Work& work) {
  const Upload& upload = work.upload;
  // What cannot be kept is not made, and no audit says that it was.
  shelf_->require_place(upload.name, upload.replace);
  const std::shared_ptr<LoadedModel> model = model_of(work.call);
  const auto engine = model->scheduler->client(false);
  const MadeVoice made = shelf_->make(*engine, upload.name, upload.reference, upload.language,
                                      upload.description, work.request->id);
  const std::string name = shelf_->save(made.voice, upload.replace);
  metrics_.count_request("upload", 201);
  log_(LogLevel::note, fmt::format("{} a voice of {:.1f} s was kept", work.request->id, made.voice.seconds));
  work.reply->send({201,
                    "application/json",
                    to_text({{"id", name},
                             {"name", name},
                             {"object", "voice"},
                             {"kind", "clone"},
                             {"model", catalog_.model(work.call.model).id},
                             {"seconds", made.voice.seconds},
                             {"in_context", made.voice.in_context()},
                             {"warnings", made.warnings}}),
                    {}});
}

Answer Service::remove_voice(const HttpRequest& request) {
  const Route& route = *find_route(request.method, request.path).route;
  const std::string name(rest_of_path(route, request.path));
  shelf_->remove(name);
  return {200, "application/json", to_text({{"id", name}, {"object", "voice"}, {"deleted", true}}), {}};
}

}  // namespace skald::server
