// The trained model against the official package: greedy codes and ends of 20 sentences
// (python/reference/small_voice.py).
#include <fstream>

#include <nlohmann/json.hpp>

#include "small_voice.h"

namespace skald::test {
namespace {

TEST(SmallVoiceParity, GreedyCodesAndEndsAreTheOfficialOnes) {
  std::ifstream in(std::filesystem::path(SKALD_FIXTURES) / "small_voice" / "parity.json");
  const nlohmann::json cases = nlohmann::json::parse(in);
  ASSERT_EQ(cases.size(), 20u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c["text"].get<std::string>());
    SpeechRequest request;
    request.text = c["text"], request.voice = c["voice"], request.language = c["language"];
    request.layout = c["layout"] == "whole" ? TextLayout::whole : TextLayout::stream;
    request.sampling.greedy = true;
    request.raw_tokens = true;
    const Spoken spoken = speak(request);
    EXPECT_EQ(spoken.codes, c["codes"].get<std::vector<int32_t>>());
    EXPECT_EQ(spoken.result.frames, c["frames"]);
    EXPECT_EQ(stop_reason_name(spoken.result.stop), c["stop"].get<std::string>());
  }
}

}  // namespace
}  // namespace skald::test
