// What the tests of the server's pure parts share: catalogs of models that need no files.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "server/api_error.h"
#include "server/catalog.h"

namespace skald::test {

inline server::ServedModel served(const std::string& id, const std::string& type,
                                  std::vector<std::string> voices) {
  server::ServedModel m;
  m.id = id, m.created = 1700000000;
  m.info.type = type;
  m.info.voices = std::move(voices);
  m.info.languages = {"auto", "english", "german"};
  m.info.sample_rate = 24000, m.info.samples_per_frame = 1920;
  return m;
}

/// The published voices, a design model and a base model.
inline server::Catalog catalog(server::AliasRules aliases = {}) {
  return server::Catalog(
      {served("qwen", "custom_voice", {"aiden", "dylan", "eric", "ono_anna", "ryan", "serena", "vivian"}),
       served("designer", "voice_design", {}), served("plain", "base", {})},
      std::move(aliases));
}

inline server::ApiError api_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const server::ApiError& e) {
    return e;
  }
  ADD_FAILURE() << "no error was thrown";
  return server::ApiError(0, "none", "none");
}

}  // namespace skald::test
