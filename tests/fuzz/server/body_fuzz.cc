// Bodies, forms and heads of requests: any bytes give a request or an ApiError, never anything else.
#include <cstdint>
#include <string>

#include "server/base64.h"
#include "server/catalog.h"
#include "server/door.h"
#include "server/form.h"
#include "server/openai.h"

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
    return skald::server::Catalog({model, design}, {});
  }();
  return instance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald::server;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    switch (data[0] % 4) {
      case 0: {
        ApiRules rules;
        rules.strict = (data[0] & 4) != 0;
        const SpeechCall call = parse_speech(bytes, catalog(), rules);
        if (call.request.text.empty() || call.model > 1) __builtin_trap();
        break;
      }
      case 1: (void)parse_form(bytes); break;
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
