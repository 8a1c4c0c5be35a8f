// The table of fields and the reader of requests know the same names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "server/api_fields.h"
#include "server/openai.h"
#include "server/routes.h"
#include "support.h"

namespace skald::server {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

std::string file(const std::string& name) {
  std::ifstream in(std::string(SKALD_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::set<std::string> listed() {
  std::set<std::string> out;
  for (const ApiField& field : api_fields()) {
    std::istringstream names{std::string(field.names)};
    for (std::string name; std::getline(names >> std::ws, name, ',');) out.insert(name);
  }
  return out;
}

/// The names in `fields.text({"a", "b"})` and its likes.
std::set<std::string> read_by(const std::string& source) {
  const std::regex call(R"((?:fields\.\w+|real|whole)\(\{("[a-z_]+"(?:, "[a-z_]+")*)\})"),
      word("\"([a-z_]+)\"");
  std::set<std::string> out;
  for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) {
    const std::string names = (*it)[1];
    for (std::sregex_iterator w(names.begin(), names.end(), word); w != end; ++w) out.insert((*w)[1]);
  }
  return out;
}

TEST(ApiFields, AreThoseThatTheReaderTakes) {
  const std::string reference = file("src/server/reference.cc");
  std::set<std::string> read = read_by(file("src/server/openai.cc"));
  // Uploads have fields of their own, further down in that file.
  read.merge(read_by(reference.substr(reference.find("std::optional<Reference> read_reference"))));
  read.insert("consent"), read.insert("consent_attestation");
  EXPECT_EQ(listed(), read);
}

TEST(ApiFields, NoneIsUnknownToTheReader) {
  Json body{{"input", "Hi"}, {"voice", "aiden"}};
  for (const std::string& name : listed())
    if (!body.contains(name)) body[name] = nullptr;
  EXPECT_TRUE(parse_speech(body.dump(), test::catalog(), {}).ignored.empty());
}

TEST(ApiFields, RangesAreThoseThatTheReaderKeeps) {
  for (const ApiField& field : api_fields()) {
    if (field.type != FieldType::number && field.type != FieldType::whole) continue;
    const std::string name(field.names.substr(0, field.names.find(',')));
    const auto accepts = [&](const Json& value) {
      try {
        parse_speech(Json{{"input", "Hi"}, {"voice", "aiden"}, {name, value}}.dump(), test::catalog(), {});
        return true;
      } catch (const ApiError&) {
        return false;
      }
    };
    const bool whole = field.type == FieldType::whole;
    const auto value = [&](double v) { return whole ? Json(static_cast<int64_t>(v)) : Json(v); };
    EXPECT_TRUE(accepts(value(field.least))) << name;
    EXPECT_TRUE(accepts(value(field.most))) << name;
    EXPECT_FALSE(accepts(value(whole ? field.least - 1 : field.least - 1e-9 - field.least / 100))) << name;
    if (field.most > 1e18) continue;  // more than any number
    EXPECT_FALSE(accepts(value(whole ? field.most + 1 : field.most * 1.01))) << name;
  }
}

TEST(ApiFields, TheReferenceShowsThem) {
  const std::string page = file("docs/server.md");
  EXPECT_THAT(page, HasSubstr(route_table()));
  EXPECT_THAT(page, HasSubstr(field_table()));
}

TEST(OpenApi, NamesEveryRouteAndField) {
  const Json document = Json::parse(openapi_document("mp3, wav"));
  for (const Route& route : all_routes())
    EXPECT_TRUE(document["paths"].contains(std::string(route.path))) << route.path;
  const Json& speech = document["components"]["schemas"]["Speech"];
  EXPECT_EQ(speech["properties"].size(), listed().size());
  EXPECT_EQ(speech["required"], Json({"input"}));
  EXPECT_EQ(speech["properties"]["response_format"]["enum"], Json({"mp3", "wav"}));
  EXPECT_EQ(document["paths"]["/v1/audio/voices/{name}"]["delete"]["parameters"][0]["name"], "name");
}

}  // namespace
}  // namespace skald::server
