// Exceptions of every origin end as one type, with a code.
#include "base/to_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

namespace skald {
namespace {

template <class E>
Error converted(const E& thrown) {
  return to_error(std::make_exception_ptr(thrown));
}

TEST(ToError, KeepsAnError) {
  const Error e = converted(Error(ErrorCode::io, "a sentence"));
  EXPECT_EQ(e.code(), ErrorCode::io);
  EXPECT_STREQ(e.what(), "a sentence");
}

TEST(ToError, NamesWhatTheStandardLibraryThrows) {
  EXPECT_EQ(converted(std::bad_alloc()).code(), ErrorCode::out_of_memory);
  const Error file = converted(std::filesystem::filesystem_error(
      "rename", "/some/file", std::make_error_code(std::errc::permission_denied)));
  EXPECT_EQ(file.code(), ErrorCode::io);
  EXPECT_NE(std::string(file.what()).find("'/some/file'"), std::string::npos);
  const Error thread =
      converted(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(thread.code(), ErrorCode::device);
  EXPECT_NE(std::string(thread.what()).find("cannot start a thread"), std::string::npos);
  EXPECT_EQ(converted(std::system_error(std::make_error_code(std::errc::io_error))).code(),
            ErrorCode::internal);
  const Error other = converted(std::runtime_error("some words"));
  EXPECT_EQ(other.code(), ErrorCode::internal);
  EXPECT_STREQ(other.what(), "some words");
  EXPECT_EQ(converted(42).code(), ErrorCode::internal);
}

}  // namespace
}  // namespace skald
