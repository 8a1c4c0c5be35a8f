// The folder of voices: atomic, shared, and without a way out (B045, B049, B121, C012).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "voice_samples.h"

namespace skald::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  Folder() {
    std::string name = (fs::temp_directory_path() / "skald-voices-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    folder_ = std::make_unique<VoiceFolder>(root_ / "deep" / "voices");
  }
  ~Folder() override { fs::remove_all(root_); }

  static Voice voice(const std::string& name, float first = -1) {
    Voice v = sample_voice();
    v.name = name, v.x_vector[0] = first;
    return v;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_->path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  static ErrorCode code_of(const std::function<void()>& body, std::string* what = nullptr) {
    try {
      body();
    } catch (const Error& e) {
      if (what) *what = e.what();
      return e.code();
    }
    return ErrorCode::internal;
  }

  fs::path root_;
  std::unique_ptr<VoiceFolder> folder_;
};

TEST_F(Folder, KeepsWhatIsSaved) {
  EXPECT_TRUE(folder_->list().empty()) << "an absent folder";
  folder_->save(voice("bo"), false);
  folder_->save(voice("anna"), false);
  EXPECT_THAT(files(), ElementsAre("anna.safetensors", "bo.safetensors"));
  EXPECT_TRUE(same(folder_->load("anna"), voice("anna")));
  const auto entries = folder_->list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "anna");
  EXPECT_EQ(entries[0].problem, "");
  struct stat info {};
  ASSERT_EQ(::stat((folder_->path() / "anna.safetensors").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "voice data are personal";
}

// C012: replacing takes a word; without it the old voice stays.
TEST_F(Folder, ReplacingMustBeAskedFor) {
  folder_->save(voice("anna", 1), false);
  std::string what;
  EXPECT_EQ(code_of([&] { folder_->save(voice("anna", 2), false); }, &what), ErrorCode::voice_exists);
  EXPECT_THAT(what, HasSubstr("anna"));
  EXPECT_EQ(folder_->load("anna").x_vector[0], 1);
  folder_->save(voice("anna", 2), true);
  EXPECT_EQ(folder_->load("anna").x_vector[0], 2);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(Folder, NamesDifferInMoreThanCase) {
  folder_->save(voice("Anna", 1), false);
  EXPECT_EQ(folder_->load("aNNa").name, "Anna");
  EXPECT_TRUE(folder_->has("anna"));
  EXPECT_EQ(code_of([&] { folder_->save(voice("anna", 2), false); }), ErrorCode::voice_exists);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(Folder, UnknownNamesListWhatThereIs) {
  std::string what;
  EXPECT_EQ(code_of([&] { folder_->load("anna"); }, &what), ErrorCode::unknown_voice);
  EXPECT_THAT(what, HasSubstr("no voices"));
  folder_->save(voice("bo"), false);
  EXPECT_EQ(code_of([&] { folder_->load("anna"); }, &what), ErrorCode::unknown_voice);
  EXPECT_THAT(what, HasSubstr("there are: bo"));
  EXPECT_EQ(code_of([&] { folder_->remove("anna"); }), ErrorCode::unknown_voice);
  EXPECT_EQ(code_of([&] { folder_->rename("anna", "x", false); }), ErrorCode::unknown_voice);
}

TEST_F(Folder, RemoveAndRename) {
  folder_->save(voice("anna", 1), false);
  folder_->save(voice("bo", 2), false);
  EXPECT_EQ(code_of([&] { folder_->rename("anna", "bo", false); }), ErrorCode::voice_exists);
  EXPECT_EQ(folder_->load("bo").x_vector[0], 2);
  folder_->rename("anna", "carl", false);
  EXPECT_EQ(folder_->load("carl").x_vector[0], 1);
  folder_->rename("carl", "bo", true);
  EXPECT_EQ(folder_->load("bo").x_vector[0], 1);
  EXPECT_EQ(folder_->load("bo").name, "bo");
  folder_->rename("bo", "Bo", false);
  EXPECT_THAT(files(), ElementsAre("Bo.safetensors"));
  folder_->remove("bo");
  EXPECT_TRUE(files().empty());
}

// B118: the folder asks too.
TEST_F(Folder, ACloneWithoutConsentIsNotKept) {
  Voice v = voice("anna");
  v.consent.clear();
  EXPECT_EQ(code_of([&] { folder_->save(v, false); }), ErrorCode::consent_required);
  EXPECT_TRUE(folder_->list().empty());
}

// B121: nothing outside of the folder is read, written or removed.
TEST_F(Folder, NoPathLeadsOut) {
  folder_->save(voice("anna"), false);
  const std::string secret = (root_ / "secret.safetensors").string();
  std::ofstream(secret, std::ios::binary) << write_voice(voice("secret"));
  for (const std::string name :
       {"../secret", "../../secret", "secret", "..", "/etc/passwd", "deep/../../secret", "..%2f..%2fsecret",
        "a\\..\\secret", "anna.safetensors", "anna/", "./anna"}) {
    EXPECT_EQ(code_of([&] { folder_->load(name); }), ErrorCode::unknown_voice) << name;
    EXPECT_EQ(code_of([&] { folder_->remove(name); }), ErrorCode::unknown_voice) << name;
    EXPECT_EQ(code_of([&] { folder_->rename("anna", name == "secret" ? "../secret" : name, true); }),
              ErrorCode::unknown_voice)
        << name;
  }
  EXPECT_EQ(code_of([&] { folder_->load(secret); }), ErrorCode::unknown_voice);
  fs::create_symlink(secret, folder_->path() / "link.safetensors");
  EXPECT_EQ(code_of([&] { folder_->load("link"); }), ErrorCode::voice_invalid);
  folder_->remove("link");
  EXPECT_TRUE(fs::exists(secret));
}

// B044: what cannot be used is listed with its reason.
TEST_F(Folder, BrokenFilesAreListedWithTheirProblem) {
  folder_->save(voice("anna"), false);
  const auto put = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder_->path() / name, std::ios::binary) << bytes;
  };
  put("cut.safetensors", write_voice(voice("cut")).substr(0, 300));
  put("words.safetensors", "these are words");
  put("empty.safetensors", "");
  put("notes.txt", "no voice");
  put(".anna-x8Fk2a", "half a file of a process that was killed");
  fs::create_directory(folder_->path() / "dir.safetensors");
  const auto entries = folder_->list();
  std::vector<std::string> good, bad;
  for (const auto& e : entries) (e.problem.empty() ? good : bad).push_back(e.name);
  EXPECT_THAT(good, ElementsAre("anna"));
  EXPECT_THAT(bad, ElementsAre("cut", "dir", "empty", "words"));
}

/// Whoever moved a file gave the voice its name.
TEST_F(Folder, TheFilesNameIsTheVoices) {
  folder_->save(voice("anna"), false);
  fs::rename(folder_->path() / "anna.safetensors", folder_->path() / "berta.safetensors");
  EXPECT_EQ(folder_->load("berta").name, "berta");
}

// B049: many at once; of one name exactly one wins, and no reader sees half a file.
TEST_F(Folder, ManyWritersAtOnce) {
  constexpr int kWriters = 50;
  std::atomic<int> won = 0, refused = 0;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done)
      for (const auto& entry : folder_->list()) EXPECT_EQ(entry.problem, "");
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.emplace_back([&, i] {
      folder_->save(voice("voice" + std::to_string(i)), false);
      try {
        folder_->save(voice("shared", static_cast<float>(i)), false);
        ++won;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::voice_exists);
        ++refused;
      }
      folder_->save(voice("replaced", static_cast<float>(i)), true);
    });
  for (std::thread& t : writers) t.join();
  done = true;
  reader.join();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(refused, kWriters - 1);
  EXPECT_EQ(folder_->list().size(), static_cast<size_t>(kWriters + 2));
  EXPECT_EQ(files().size(), static_cast<size_t>(kWriters + 2)) << "no file is left over";
}

TEST_F(Folder, OfNamesThatDifferInCaseOneWins) {
  for (int round = 0; round < 20; ++round) {
    const fs::path at = root_ / std::to_string(round);
    std::atomic<int> won = 0;
    std::vector<std::thread> writers;
    for (const char* name : {"race", "Race", "RACE", "rAcE"})
      writers.emplace_back([&, name] {
        try {
          VoiceFolder(at).save(voice(name), false);
          ++won;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::voice_exists);
        }
      });
    for (std::thread& t : writers) t.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(VoiceFolder(at).list().size(), 1u);
  }
}

TEST_F(Folder, ThoseWhoReplaceDoNotTakeEachOthersFiles) {
  std::atomic<int> failed = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([&, i] {
      for (int n = 0; n < 60; ++n) {
        try {
          folder_->save(voice("replaced", static_cast<float>(i)), true);
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(failed, 0);
  EXPECT_THAT(files(), ElementsAre("replaced.safetensors"));
}

TEST_F(Folder, NamesOfFilesReachNoTerminal) {
  folder_->save(voice("anna"), false);
  std::ofstream(folder_->path() / "\033[31mred.safetensors") << "x";
  std::string what;
  EXPECT_EQ(code_of([&] { folder_->load("nobody"); }, &what), ErrorCode::unknown_voice);
  EXPECT_THAT(what, HasSubstr("?[31mred"));
}

}  // namespace
}  // namespace skald::test
