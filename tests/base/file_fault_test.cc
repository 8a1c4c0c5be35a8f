// What stands where a file should be, in words.
#include "base/file_fault.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "unprivileged.h"

namespace skald {
namespace {

namespace fs = std::filesystem;

class FileFaultTest : public testing::Test {
 protected:
  FileFaultTest() {
    std::string name = (fs::temp_directory_path() / "skald-fault-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
  }
  ~FileFaultTest() override {
    fs::permissions(dir_, fs::perms::owner_all);
    fs::remove_all(dir_);
  }
  static void expect(const std::optional<FileFault>& fault, ErrorCode code, const char* what) {
    ASSERT_TRUE(fault) << what;
    EXPECT_EQ(fault->code, code) << fault->what;
    EXPECT_NE(fault->what.find(what), std::string::npos) << fault->what;
    EXPECT_FALSE(fault->fix.empty());
    EXPECT_TRUE(fault->missing() || fault->what.find("missing") == std::string::npos) << fault->what;
  }
  fs::path file(const char* name) {
    std::ofstream(dir_ / name) << "text";
    return dir_ / name;
  }

  fs::path dir_;
};

TEST_F(FileFaultTest, PlainFilesAndFoldersAreFine) {
  EXPECT_FALSE(file_fault(file("plain")));
  fs::create_symlink("plain", dir_ / "link");
  EXPECT_FALSE(file_fault(dir_ / "link"));
  EXPECT_FALSE(folder_fault(dir_));
}

TEST_F(FileFaultTest, WhatIsThereInsteadIsNamed) {
  fs::create_directory(dir_ / "folder");
  expect(file_fault(dir_ / "folder"), ErrorCode::model_invalid, "is a folder, not a plain file");
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  expect(file_fault(dir_ / "pipe"), ErrorCode::model_invalid, "is a pipe (FIFO), not a plain file");
  expect(file_fault("/dev/null"), ErrorCode::model_invalid, "is a device, not a plain file");
  expect(folder_fault(file("plain")), ErrorCode::model_not_found, "is a plain file, not a folder");
}

TEST_F(FileFaultTest, LinksThatLeadNowhere) {
  fs::create_symlink("two", dir_ / "one");
  fs::create_symlink("one", dir_ / "two");
  expect(file_fault(dir_ / "one"), ErrorCode::model_invalid, "links lead in a circle");
  expect(folder_fault(dir_ / "one"), ErrorCode::model_invalid, "links lead in a circle");
  fs::create_symlink("nowhere", dir_ / "dangling");
  expect(file_fault(dir_ / "dangling"), ErrorCode::model_not_found, "is a link to something that is missing");
}

TEST_F(FileFaultTest, WhatIsNotThereIsMissing) {
  expect(file_fault(dir_ / "none"), ErrorCode::model_not_found, "none is missing");
  expect(file_fault(file("plain") / "below"), ErrorCode::model_not_found, "is a file, not a folder");
}

TEST_F(FileFaultTest, AFolderThatMayNotBeReadIsNotMissing) {
  const fs::path inside = file("plain");
  ASSERT_EQ(::chmod(dir_.c_str(), 0), 0);
  const test::Unprivileged user;
  ASSERT_TRUE(user.works());
  expect(file_fault(inside), ErrorCode::io, "may not be read (Permission denied)");
}

TEST_F(FileFaultTest, AFileThatMayNotBeReadIsNotMissing) {
  const fs::path mine = file("plain");
  ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(mine.c_str(), 0), 0);
  const test::Unprivileged user;
  ASSERT_TRUE(user.works());
  expect(file_fault(mine), ErrorCode::io, "may not be read (Permission denied)");
}

TEST(FileFault, ErrorsOfTheSystem) {
  EXPECT_EQ(file_fault("f", ENOMEM).code, ErrorCode::out_of_memory);
  EXPECT_NE(file_fault("f", EMFILE).fix.find("ulimit -n"), std::string::npos);
  const FileFault other = file_fault("f", EIO);
  EXPECT_EQ(other.code, ErrorCode::io);
  EXPECT_NE(other.what.find("Input/output error"), std::string::npos);
  EXPECT_EQ(std::string(other.error().what()), other.what + "; " + other.fix);
}

}  // namespace
}  // namespace skald
