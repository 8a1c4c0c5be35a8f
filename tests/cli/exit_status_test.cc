// The table of exit statuses and its page.
#include "cli/exit_status.h"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skald::cli {
namespace {

TEST(ExitStatus, FollowsTheFixedMeanings) {
  EXPECT_EQ(exit_status(ErrorCode::nothing_to_speak), 2);
  EXPECT_EQ(exit_status(ErrorCode::model_invalid), 3);
  EXPECT_EQ(exit_status(ErrorCode::device), 4);
  EXPECT_EQ(exit_status(ErrorCode::runaway), 5);
  EXPECT_EQ(exit_status(ErrorCode::cancelled), 130);
  EXPECT_EQ(exit_status(ErrorCode::io), 1);
}

TEST(ExitStatus, ThePageHasEveryCodeWithItsStatus) {
  std::ifstream in(SKALD_SOURCE_DIR "/docs/errors.md");
  std::ostringstream text;
  text << in.rdbuf();
  const std::string page = text.str();
  for (int i = 0; i <= static_cast<int>(ErrorCode::consent_required); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    const std::string row =
        "| `" + std::string(error_code_name(code)) + "` | " + std::to_string(exit_status(code)) + " |";
    EXPECT_THAT(page, testing::HasSubstr(row));
  }
}

}  // namespace
}  // namespace skald::cli
