// Spellings of languages as clients write them.
#include "text/languages.h"

#include <gtest/gtest.h>

#include <set>

namespace skald::text {
namespace {

TEST(Languages, SpellingsOfOneLanguage) {
  for (const char* spelling : {"en", "EN", "en-US", "en_GB", "eng", "English", "english", "ENGLISH", " en ",
                               "en_US.UTF-8", "en-Latn-US-x-a"}) {
    EXPECT_EQ(canonical_language(spelling), "english") << spelling;
  }
  for (const char* spelling : {"zh", "zh-CN", "zh-Hans-CN", "zh_TW", "cmn", "zho", "chi", "Chinese",
                               "zh-cmn-Hans", "中文", "Mandarin"}) {
    EXPECT_EQ(canonical_language(spelling), "chinese") << spelling;
  }
  EXPECT_EQ(canonical_language("de_DE@euro"), "german");
  EXPECT_EQ(canonical_language("Français"), "french");
  EXPECT_EQ(canonical_language("ESPAÑOL"), "spanish");
  EXPECT_EQ(canonical_language("pt-BR"), "portuguese");
  EXPECT_EQ(canonical_language("es-419"), "spanish");
}

TEST(Languages, EmptyAndNullMeanAutomatic) {
  for (const char* spelling : {"", " ", "auto", "Auto", "null", "None", "und"})
    EXPECT_EQ(canonical_language(spelling), "auto") << spelling;
}

TEST(Languages, UnknownOnesPassForTheModelToRefuse) {
  EXPECT_EQ(canonical_language("nl"), "nl");
  EXPECT_EQ(canonical_language("xx"), "xx");
  EXPECT_EQ(canonical_language("en;de"), "en;de");
  EXPECT_EQ(canonical_language("en de"), "en de");
  EXPECT_EQ(canonical_language("en-"), "en-");
  EXPECT_EQ(canonical_language("english-us"), "english-us");
  EXPECT_EQ(canonical_language("zh-yue"), "zh-yue");  // Cantonese is no Mandarin
  EXPECT_EQ(canonical_language("Beijing_Dialect"), "beijing_dialect");
  EXPECT_EQ(canonical_language("\xFF\xFE"), "\xFF\xFE");
}

TEST(Languages, TheTableIsThatOfTheModels) {
  std::set<std::string_view> names;
  for (const Language& language : known_languages()) {
    names.insert(language.name);
    EXPECT_EQ(canonical_language(language.name), language.name);
    EXPECT_EQ(canonical_language(language.code), language.name);
    EXPECT_EQ(language_code(language.name), language.code);
  }
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ(language_code("beijing_dialect"), "");
}

}  // namespace
}  // namespace skald::text
