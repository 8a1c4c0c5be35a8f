// Bodies, forms and heads of requests: any bytes give a request or an ApiError, never anything else.
#include <algorithm>
#include <cstdint>
#include <string>

#include "server/base64.h"
#include "server/catalog.h"
#include "server/door.h"
#include "server/form.h"
#include "server/front_text.h"
#include "server/openai.h"
#include "server/reference.h"
#include "server/response_watch.h"
#include "skald/voice.h"

namespace {

const skald::server::Catalog& catalog() {
  static const skald::server::Catalog instance = [] {
    skald::server::ServedModel model;
    model.id = "m";
    model.info.type = "custom_voice";
    model.info.voices = {"anna", "ono_anna"};
    model.info.languages = {"auto", "english"};
    skald::server::ServedModel design;
    design.id = "d";
    design.info.type = "voice_design";
    skald::server::ServedModel base;
    base.id = "b";
    base.info.type = "base";
    return skald::server::Catalog({model, design, base}, {});
  }();
  return instance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald::server;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    switch (data[0] % 6) {
      case 0: {
        ApiRules rules;
        rules.strict = data[0] >= 128;
        const SpeechCall call = parse_speech(bytes, catalog(), rules);
        if (call.request.text.empty() || call.model > 2) __builtin_trap();
        break;
      }
      case 1: (void)parse_form(bytes); break;
      case 4: {
        const size_t cut = std::min(bytes.find('\n'), bytes.size());
        const Upload upload =
            read_upload(bytes.substr(0, cut), bytes.substr(std::min(cut + 1, bytes.size())), 1000);
        if (!skald::valid_voice_name(upload.name) ||
            (upload.reference.audio && upload.reference.audio->size() > 1000))
          __builtin_trap();
        break;
      }
      case 5: {
        // What the front reads without a worker: heads of clients, answers of workers.
        const WorkerView worker{"cpu", "restarting", 1};
        if (!answer_without_worker(bytes, {&worker, 1}, false, false, "id").starts_with("HTTP/1.1 "))
          __builtin_trap();
        (void)closing_request(bytes);
        (void)read_worker_line(bytes);
        (void)longest_still_ms(bytes);
        const std::string answer = "HTTP/1.1 200 OK\r\n\r\n" + std::string(bytes);
        (void)summed_metrics({&answer, 1}, {&worker, 1});
        ResponseWatch watch;
        for (size_t at = 0; at < bytes.size(); at += 7) {
          at % 2 ? watch.request_bytes(bytes.substr(at, 7)) : watch.answer_bytes(bytes.substr(at, 7));
          (void)watch.owed();
        }
        break;
      }
      case 2:
        if (const auto back = from_base64(bytes); back && to_base64(*back) != bytes) __builtin_trap();
        break;
      default: {
        const std::string text(bytes);
        const Knock knock{
            .method = "GET", .host = text, .origin = text, .authorization = text, .api_key = text};
        const bool refused = refuse_entry({}, knock, Guard::key).has_value();
        if (!refused && !is_loopback(host_name(text))) __builtin_trap();
        (void)refuse_entry({.keys = {"k"}}, knock, Guard::key);
        (void)is_json_type(text);
      }
    }
  } catch (const ApiError& error) {
    (void)error_body(error, "id");
  }
  return 0;
}
