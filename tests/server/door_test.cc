// The door: hosts, origins, keys; forms and media types.
#include "server/door.h"

#include "server/form.h"
#include "support.h"

namespace skald::server {
namespace {

using test::api_error_of;

std::string verdict(const DoorRules& rules, Knock knock, Guard guard = Guard::key) {
  const auto error = refuse_entry(rules, knock, guard);
  return error ? error->code() : "";
}

TEST(Door, WithoutAKeyOnlyTheMachinesOwnNames) {
  const DoorRules rules;
  for (const char* host : {"localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000",
                           "[::1]", "localhost.", "skald.localhost"})
    EXPECT_EQ(verdict(rules, {.host = host}), "") << host;
  for (const char* host : {"", "evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                           "127.evil.example", "128.0.0.1", "127.0.0.256", "127.0.0", "[::2]", "[::1",
                           "localhost:80x", "a:b:c", "localhost.evil.example", "0x7f000001", "2130706433"})
    EXPECT_EQ(verdict(rules, {.host = host}), "forbidden_host") << host;
  // Also what costs nothing: a rebound page may not even ask whether a server is here.
  EXPECT_EQ(verdict(rules, {.host = "evil.example"}, Guard::open), "forbidden_host");
  EXPECT_EQ(verdict({.hosts = {"Speech.Lan"}}, {.host = "speech.lan:8000"}), "");
}

TEST(Door, ForeignOriginsAreRefusedEverywhere) {
  const DoorRules rules;
  EXPECT_EQ(verdict(rules, {.host = "localhost:8000", .origin = "http://localhost:8000"}), "");
  for (const char* origin : {"https://evil.example", "null", "http://localhost:9000", "http://localhost",
                             "http://localhost:8000.evil.example", "file://"})
    EXPECT_EQ(verdict(rules, {.host = "localhost:8000", .origin = origin}), "forbidden_origin") << origin;
  const DoorRules open{.origins = {"https://app.example"}};
  EXPECT_EQ(verdict(open, {.host = "localhost", .origin = "https://app.example"}), "");
  EXPECT_EQ(verdict(open, {.host = "localhost", .origin = "https://other.example"}), "forbidden_origin");
  EXPECT_EQ(allowed_origin(open, "https://app.example"), "https://app.example");
  EXPECT_EQ(allowed_origin({}, "https://app.example"), "");
  EXPECT_EQ(allowed_origin({.origins = {"*"}}, "null"), "*");
}

TEST(Door, KeysOpenWhateverTheHost) {
  const DoorRules rules{.keys = {"first-key", "second"}};
  EXPECT_EQ(verdict(rules, {.host = "speech.example"}), "invalid_api_key");
  EXPECT_EQ(verdict(rules, {.host = "speech.example", .authorization = "Bearer first-key"}), "");
  EXPECT_EQ(verdict(rules, {.host = "speech.example", .authorization = "bearer  second "}), "");
  EXPECT_EQ(verdict(rules, {.host = "speech.example", .api_key = "second"}), "");
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer first-ke", "Bearer first-keyy",
                             "Basic first-key", "first-key", "Bearer First-key"})
    EXPECT_EQ(verdict(rules, {.authorization = header}), "invalid_api_key") << header;
  EXPECT_EQ(verdict(rules, {}, Guard::open), "");
  EXPECT_EQ(verdict(rules, {}, Guard::listing), "invalid_api_key");
  EXPECT_EQ(verdict({.keys = {"k"}, .open_lists = true}, {}, Guard::listing), "");
  // Without configured keys any key is taken.
  EXPECT_EQ(verdict({}, {.host = "localhost", .authorization = "Bearer sk-whatever"}), "");
}

TEST(Door, SecretsCompare) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcd", "xbc"}) EXPECT_FALSE(same_secret("abc", other)) << other;
  EXPECT_FALSE(same_secret("", "a"));
}

TEST(Door, MediaTypes) {
  EXPECT_TRUE(is_json_type("application/json"));
  EXPECT_TRUE(is_json_type("Application/JSON; charset=utf-8"));
  EXPECT_TRUE(is_json_type("application/problem+json"));
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "text/json", "application/jsonx",
        "application/+json", "multipart/form-data; x=application/json"})
    EXPECT_FALSE(is_json_type(type)) << type;
  EXPECT_TRUE(
      is_media_type("application/x-www-form-urlencoded;charset=UTF-8", "application/x-www-form-urlencoded"));
}

TEST(Form, DecodesAndRefuses) {
  const auto form = parse_form("text=Hello+w%C3%B6rld%21&seed=7&&flag&text=last");
  EXPECT_EQ(form.at("text"), "last");
  EXPECT_EQ(form.at("flag"), "");
  EXPECT_EQ(parse_form("a=%2B+%26").at("a"), "+ &");
  for (const char* bad : {"a=%", "a=%4", "a=%zz", "a=%ff", "%C3=1"})
    EXPECT_EQ(api_error_of([&] { parse_form(bad); }).code(), "invalid_form") << bad;
  std::string many;
  for (int i = 0; i < 101; ++i) many.append("f").append(std::to_string(i)).append("=1&");
  EXPECT_EQ(api_error_of([&] { parse_form(many); }).status(), 400);
}

}  // namespace
}  // namespace skald::server
