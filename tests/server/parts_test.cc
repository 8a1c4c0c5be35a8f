// The parts between sockets and models: outboxes, the queue of requests, counters, routes.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "server/dispatcher.h"
#include "server/metrics.h"
#include "server/outbox.h"
#include "server/routes.h"
#include "server/voice_shelf.h"

namespace skald::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Exchange, HandsOverInOrderAndInParts) {
  int notified = 0;
  Exchange e(1000, [&] { ++notified; });
  EXPECT_FALSE(e.ready());
  e.begin({200, {{"A", "b"}}, 6});
  EXPECT_TRUE(e.write("abc") && e.write("") && e.write("def"));
  e.end({{"T", "1"}});
  EXPECT_EQ(notified, 4);
  Exchange::Pending first = e.take(3);
  ASSERT_TRUE(first.head);
  EXPECT_EQ(first.head->status, 200);
  EXPECT_EQ(first.bytes, "abc");
  EXPECT_FALSE(first.ended);
  const Exchange::Pending rest = e.take(100);
  EXPECT_EQ(rest.bytes, "def");
  EXPECT_TRUE(rest.ended);
  EXPECT_EQ(rest.trailers.size(), 1u);
}

TEST(Exchange, AWriterWaitsForRoomAndIsReleasedWhenTheClientLeaves) {
  Exchange e(10, [] {});
  EXPECT_TRUE(e.write(std::string(10, 'x')));
  std::atomic<int> stage = 0;
  std::thread writer([&] {
    EXPECT_TRUE(e.write("y"));
    stage = 1;
    EXPECT_TRUE(e.write(std::string(20, 'z')));
    stage = 2;
    EXPECT_FALSE(e.write("never"));
  });
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(stage, 0);
  e.sent(e.take(10).bytes.size());
  while (stage < 2) std::this_thread::sleep_for(1ms);
  std::atomic<int> told = 0;
  e.on_gone([&] { ++told; });
  e.set_gone();
  e.set_gone();
  writer.join();
  EXPECT_EQ(told, 1);
  e.on_gone([&] { ++told; });
  EXPECT_EQ(told, 2) << "who asks too late is told at once";
  EXPECT_TRUE(e.gone());
}

TEST(Exchange, AHandlerTakenAwayIsNotCalled) {
  Exchange e(10, [] {});
  bool told = false;
  e.on_gone([&] { told = true; });
  e.on_gone({});
  e.set_gone();
  EXPECT_FALSE(told);
}

TEST(Exchange, ASecondHeadBreaksTheFirstAnswerOff) {
  Exchange e(100, [] {});
  e.begin({200, {}, std::nullopt});
  EXPECT_TRUE(e.write("abc"));
  e.send({500, "text/plain", "late", {}});
  const Exchange::Pending got = e.take(100);
  EXPECT_EQ(got.head->status, 200);
  EXPECT_EQ(got.bytes, "abc");
  EXPECT_TRUE(got.aborted);
  EXPECT_FALSE(e.take(100).head);

  Exchange whole(100, [] {});
  whole.send({200, "text/plain", "abc", {}});
  whole.send({500, "text/plain", "late", {}});
  const Exchange::Pending kept = whole.take(100);
  EXPECT_EQ(kept.bytes, "abc");
  EXPECT_TRUE(kept.ended && !kept.aborted) << "what is whole stays whole";
}

TEST(WebSocketOut, GivesUpAClientThatReadsNoWords) {
  int notified = 0;
  WebSocketOut out(10, [&] { ++notified; });
  EXPECT_TRUE(out.send_text(std::string(19, 'x')) && out.send_text("y"));
  EXPECT_EQ(notified, 2);
  EXPECT_FALSE(out.send_text("z"));
  EXPECT_EQ(notified, 3) << "somebody has to close the connection";
  EXPECT_TRUE(out.ready());
  EXPECT_FALSE(out.take());
  EXPECT_FALSE(out.send_binary("b"));
}

TEST(WebSocketOut, DropsAudioAndKeepsMessages) {
  WebSocketOut out(8, [] {});
  EXPECT_TRUE(out.send_text("{}") && out.send_binary("aaaa") && out.send_text("[]"));
  out.drop_binary();
  EXPECT_TRUE(out.send_binary("bb"));
  EXPECT_EQ(out.take()->bytes, "{}");
  EXPECT_EQ(out.take()->bytes, "[]");
  EXPECT_TRUE(out.take()->binary);
  std::thread writer(
      [&] { EXPECT_FALSE(out.send_binary("cccc") && out.send_binary("dddd") && out.send_binary("eeee")); });
  std::this_thread::sleep_for(5ms);
  out.set_gone();
  writer.join();
  EXPECT_FALSE(out.take());
  EXPECT_TRUE(out.ready());
}

TEST(Dispatcher, BoundsWhatWaits) {
  std::atomic<bool> open = false;
  std::atomic<int> ran = 0;
  const auto task = [&] {
    auto t = std::make_shared<Task>();
    t->run = [&](double waited) {
      EXPECT_GE(waited, 0);
      while (!open) std::this_thread::sleep_for(1ms);
      ++ran;
    };
    return t;
  };
  Dispatcher d(2, 2);
  std::vector<std::shared_ptr<Task>> tasks;
  for (int i = 0; i < 4; ++i) {
    tasks.push_back(task());
    EXPECT_TRUE(d.submit(tasks.back())) << i;
  }
  EXPECT_FALSE(d.submit(task()));
  while (d.running() < 2) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(d.waiting(), 2u);
  EXPECT_GE(d.retry_after(), 1);
  EXPECT_TRUE(d.withdraw(tasks.back().get()));
  EXPECT_FALSE(d.withdraw(tasks.back().get()));
  EXPECT_TRUE(d.submit(task())) << "a place in the queue is free again";
  EXPECT_FALSE(d.close());
  EXPECT_FALSE(d.submit(task()));
  open = true;
  while (!d.close()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(ran, 4);
}

TEST(Metrics, AreWhatPrometheusReads) {
  Metrics m;
  m.count_request("speech", 200), m.count_request("speech", 200), m.count_request("speech", 429);
  m.count_end("eos");
  m.first_audio_seconds.add(0.015), m.first_audio_seconds.add(0.3), m.first_audio_seconds.add(100);
  m.frames.add(12);
  const std::string text = m.text();
  EXPECT_THAT(text, HasSubstr("skald_requests_total{route=\"speech\",status=\"200\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("skald_first_audio_seconds_bucket{le=\"0.02\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("skald_first_audio_seconds_bucket{le=\"0.3\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("skald_first_audio_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("skald_first_audio_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("skald_speech_frames_total 12\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE skald_speech_ends_total counter\n"));
}

TEST(Routes, EveryPathHasItsMethods) {
  EXPECT_EQ(find_route("POST", "/v1/audio/speech").route->label, "speech");
  EXPECT_EQ(find_route("HEAD", "/v1/models").route->label, "models");
  EXPECT_EQ(find_route("GET", "/v1/models/a/b").route->label, "model");
  EXPECT_EQ(find_route("GET", "/v1/models/").route, nullptr);
  EXPECT_FALSE(find_route("GET", "/v1/model").path_known);
  const RouteMatch wrong = find_route("PUT", "/v1/audio/speech");
  EXPECT_TRUE(wrong.path_known);
  EXPECT_EQ(wrong.route, nullptr);
  EXPECT_EQ(wrong.allow, "POST, OPTIONS");
  EXPECT_EQ(rest_of_path(*find_route("GET", "/v1/models/x-y").route, "/v1/models/x-y"), "x-y");
  EXPECT_THAT(route_table(), HasSubstr("| `POST /v1/audio/speech` | JSON | yes |"));
}

TEST(LogSentences, NameFoldersAndNoVoices) {
  EXPECT_EQ(without_voice_names("cannot write '/data/voices/anna.safetensors': No space left on device"),
            "cannot write '/data/voices/*.safetensors': No space left on device");
  EXPECT_EQ(without_voice_names("'a.safetensors' and '/b/c.safetensors'"),
            "'*.safetensors' and '/b/*.safetensors'");
  EXPECT_EQ(without_voice_names("cannot write the audit to '/x/audit.jsonl': Not a directory"),
            "cannot write the audit to '/x/audit.jsonl': Not a directory");
}

}  // namespace
}  // namespace skald::server
