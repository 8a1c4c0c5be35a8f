// Checkpoints that the system refuses: no permission, no address space.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "model/checkpoint.h"
#include "snapshot_files.h"
#include "unprivileged.h"

namespace skald::model {
namespace {

namespace fs = std::filesystem;

/// The error that opening the folder gives.
Error open_error(const fs::path& dir) {
  try {
    Checkpoint::open(dir);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::internal, "no error");
}

TEST(CheckpointLimits, AFolderThatMayNotBeReadIsNotMissing) {
  const test::TempDir dir;
  test::write_file(dir / "model.safetensors", "text");
  fs::permissions(dir.path(), fs::perms::none);
  const Error error = [&] {
    const test::Unprivileged user;
    EXPECT_TRUE(user.works());
    return open_error(dir.path());
  }();
  fs::permissions(dir.path(), fs::perms::owner_all);
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_NE(std::string(error.what()).find("model.safetensors may not be read (Permission denied)"),
            std::string::npos)
      << error.what();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the addresses themselves
TEST(CheckpointLimits, AMappingWithoutAddressSpaceIsOutOfMemory) {
  const test::TempDir dir;
  test::write_sparse(dir / "model.safetensors", {{"a", "F32", {1 << 28}, ""}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit small{rlim_t{512} << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  const Error error = open_error(dir.path());
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_NE(std::string(error.what()).find("cannot be mapped (Cannot allocate memory)"), std::string::npos)
      << error.what();
}
#endif

}  // namespace
}  // namespace skald::model
