// Taking the command line apart (C001).
#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace skald::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ArgumentsTest : public testing::Test {
 protected:
  ArgumentsTest() {
    CLI::App* say = app_.add_subcommand("say");
    say->add_option("TEXT", value_);
    say->add_option("--voice", value_);
    say->add_option("--output,-o", value_);
    say->add_option("--temperature", value_);
    say->add_flag("--greedy", flag_);
    app_.add_subcommand("codec")->add_subcommand("decode");
    app_.add_subcommand("verify")->add_option("DIR", value_);
  }
  Arguments apart(std::vector<std::string> words) { return take_apart(app_, words); }
  std::string refusal(std::vector<std::string> words) {
    try {
      take_apart(app_, words);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }
  CLI::App app_;
  std::string value_;
  std::vector<std::string> list_;
  bool flag_ = false;
};

TEST_F(ArgumentsTest, SeparatesOptionsFromOperands) {
  const Arguments a =
      apart({"say", "--voice", "v", "Some text", "-o", "x.wav", "--greedy", "--temperature=0.5"});
  EXPECT_EQ(a.command->get_name(), "say");
  EXPECT_THAT(a.operands, ElementsAre("Some text"));
  EXPECT_THAT(a.options,
              ElementsAre("say", "--voice", "v", "-o", "x.wav", "--greedy", "--temperature", "0.5"));
}

TEST_F(ArgumentsTest, ValuesMayBeginWithADashOrBeEmpty) {
  EXPECT_THAT(apart({"say", "--voice", "-slowly-", "--output", "--"}).options,
              ElementsAre("say", "--voice", "-slowly-", "--output", "--"));
  EXPECT_THAT(apart({"say", "--voice", "", "--output="}).options,
              ElementsAre("say", "--voice", "", "--output", ""));
  EXPECT_THAT(refusal({"say", "--voice"}), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({"say", "--greedy=no"}), HasSubstr("takes no value"));
}

TEST_F(ArgumentsTest, AnOptionGivenTwiceIsNamed) {
  EXPECT_THAT(refusal({"say", "--voice", "a", "--voice=b"}),
              HasSubstr("option '--voice' is given twice; leave"));
  EXPECT_THAT(refusal({"say", "-o", "a", "--output", "b"}),
              HasSubstr("option '--output' is given twice, first as '-o'"));
  app_.get_subcommand("say")
      ->add_option("--worker", list_)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  EXPECT_THAT(apart({"say", "--greedy", "--greedy", "--worker", "a", "--worker", "b"}).options,
              testing::SizeIs(7));
}

TEST_F(ArgumentsTest, FieldsOfTheLibraryAreNamedAsOptions) {
  CLI::App* say = app_.get_subcommand("say");
  say->add_option("--max-frames", value_);
  say->add_option("--x-vector", value_);
  const auto named = [&](const std::string& sentence) { return with_option_names(sentence, *say); };
  EXPECT_EQ(named("try another seed, or set max_frames to take what there is"),
            "try another seed, or set --max-frames to take what there is");
  EXPECT_EQ(named("x_vector[3] is not finite"), "--x-vector[3] is not finite");
  EXPECT_EQ(named("x_vector_only needs a Base model"), "x_vector_only needs a Base model")
      << "no option here";
  EXPECT_EQ(named("the model's max_frames"), "the model's --max-frames");
  EXPECT_EQ(named("'max_frames.npy' and \"x_vector\" and 'a \"max_frames' max_frames"),
            "'max_frames.npy' and \"x_vector\" and 'a \"max_frames' --max-frames");
  EXPECT_EQ(named("voice and temperature"), "voice and temperature") << "words";
  EXPECT_EQ(named(""), "");
}

TEST_F(ArgumentsTest, C001_AMisspeltOptionNamesItsNeighbour) {
  EXPECT_THAT(refusal({"say", "--vioce", "v", "Hi"}), HasSubstr("did you mean '--voice'?"));
  EXPECT_THAT(refusal({"say", "--tempreature=1", "Hi"}), HasSubstr("did you mean '--temperature'?"));
  EXPECT_THAT(refusal({"say", "--voice", "v", "Hi", "--gredy"}), HasSubstr("did you mean '--greedy'?"));
  EXPECT_THAT(refusal({"say", "--zzzzzzzzzzz"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal({"sya", "Hi"}), HasSubstr("did you mean 'say'?"));
  EXPECT_THAT(refusal({"codec", "decoed"}), HasSubstr("did you mean 'decode'?"));
  EXPECT_THAT(refusal({"verify", "--jsn"}), Not(HasSubstr("text that begins with a dash")))
      << "verify takes no text";
}

TEST_F(ArgumentsTest, C001_TextWithADashIsNeverHalfParsed) {
  for (const char* text :
       {"-30 degrees is cold", "-3", "- milk", "-on my way", "--- or so", "--voice actors speak"}) {
    EXPECT_THAT(refusal({"say", text}), HasSubstr("goes after '--'")) << text;
  }
  const Arguments a = apart({"say", "-o", "x", "--", "-30 degrees is cold"});
  EXPECT_THAT(a.operands, ElementsAre("-30 degrees is cold"));
  EXPECT_TRUE(a.after_mark);
  EXPECT_THAT(apart({"say", "--", "--", "-o"}).operands, ElementsAre("--", "-o"));
  EXPECT_THAT(apart({"say", "--"}).operands, IsEmpty());
}

TEST_F(ArgumentsTest, ASingleDashIsStandardInputUnlessItIsText) {
  EXPECT_EQ(text_operand(apart({"say", "-"}), ""), std::nullopt);
  EXPECT_EQ(text_operand(apart({"say", "--", "-"}), ""), "-");
  EXPECT_EQ(text_operand(apart({"say"}), ""), std::nullopt);
  EXPECT_EQ(text_operand(apart({"say", "Hi"}), ""), "Hi");
  EXPECT_THROW(text_operand(apart({"say", "Hi", "there"}), ""), UsageError);
  EXPECT_THROW(text_operand(apart({"say", "Hi"}), "file.txt"), UsageError);
}

TEST_F(ArgumentsTest, Cli11TakesWhatWasTakenApart) {
  const Arguments a = apart({"say", "--voice", "-slowly-", "Hi", "--output="});
  std::string voice = "unset", output = "unset";
  CLI::App fresh;
  CLI::App* say = fresh.add_subcommand("say");
  say->add_option_function<std::string>("--voice", [&](const std::string& v) { voice = v; });
  say->add_option_function<std::string>("--output,-o", [&](const std::string& v) { output = v; });
  std::vector<std::string> reversed(a.options.rbegin(), a.options.rend());
  fresh.parse(reversed);
  EXPECT_EQ(voice, "-slowly-");
  EXPECT_EQ(output, "");
}

}  // namespace
}  // namespace skald::cli
