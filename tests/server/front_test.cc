// What the front makes of the bytes that pass, and what it says by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include "server/front_text.h"
#include "server/response_watch.h"
#include "server/worker_process.h"

namespace skald::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kRequest = "POST /v1/audio/speech HTTP/1.1\r\n\r\n{}";

ResponseWatch after(std::initializer_list<const char*> answer) {
  ResponseWatch watch;
  watch.request_bytes(kRequest);
  for (const char* part : answer) watch.answer_bytes(part);
  return watch;
}

TEST(ResponseWatch, ARequestWithoutAByteOfAnswerIsOwedOne) {
  EXPECT_EQ(ResponseWatch().owed(), Owed::rest);
  EXPECT_EQ(after({}).owed(), Owed::answer);
  EXPECT_EQ(after({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"}).owed(), Owed::rest);
  EXPECT_EQ(after({"HTTP/1.1 100 Continue\r\n\r\n"}).owed(), Owed::answer);
  ResponseWatch again = after({"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"});
  again.request_bytes(kRequest);
  EXPECT_EQ(again.owed(), Owed::answer);
}

TEST(ResponseWatch, EventsMayEndWithOneMore) {
  const char* head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(after({head, "9\r\ndata: {}\n\n\r\n"}).owed(), Owed::event);
  EXPECT_TRUE(after({head}).chunked());
  EXPECT_EQ(after({head, "9\r\ndata"}).owed(), Owed::rest) << "an event that is cut cannot be followed";
  EXPECT_EQ(after({head, "9\r\ndata: {}\n\n\r\n", "0\r\n\r\n"}).owed(), Owed::rest) << "it was whole";
  EXPECT_EQ(after({"HTTP/1.1 200 OK\r\ncontent-type: text/event", "-stream\r\n\r\ndata: {}\n", "\n"}).owed(),
            Owed::event);
}

TEST(ResponseWatch, AWebSocketIsOwedNothingThatLooksLikeHttp) {
  ResponseWatch watch = after({"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"});
  watch.request_bytes("frame");
  EXPECT_EQ(watch.owed(), Owed::message);
  watch.answer_bytes("\x82");
  EXPECT_EQ(watch.owed(), Owed::rest) << "in the head of a frame";
  watch.answer_bytes(
      "\x03"
      "ab");
  EXPECT_EQ(watch.owed(), Owed::rest) << "in a frame";
  watch.answer_bytes(std::string("c\x81\x7e\x01\x00", 5) + std::string(255, 'x'));
  EXPECT_EQ(watch.owed(), Owed::rest);
  watch.answer_bytes("x");
  EXPECT_EQ(watch.owed(), Owed::message);
  EXPECT_EQ(after({"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02"
                   "ab"})
                .owed(),
            Owed::message);
}

TEST(ErrorMessage, IsATextFrameAndAClose) {
  const std::string frames = error_message(ApiError(503, "worker_lost", "gone"), "id");
  const size_t size = static_cast<unsigned char>(frames[2]) * 256u + static_cast<unsigned char>(frames[3]);
  EXPECT_EQ(frames.substr(0, 2), "\x81\x7e");
  EXPECT_THAT(frames.substr(4, size),
              testing::AllOf(StartsWith(R"({"type":"error","error":{)"), EndsWith("}}")));
  EXPECT_EQ(frames.substr(4 + size), "\x88\x02\x03\xf4");
}

TEST(ResponseWatch, KnowsAnswersThatEndWithTheConnection) {
  EXPECT_TRUE(after({"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n"}).ends_by_closing());
  EXPECT_FALSE(after({"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n"}).ends_by_closing());
  EXPECT_FALSE(after({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}).ends_by_closing());
}

TEST(WorkerLine, IsWhatAWorkerWrites) {
  const auto line = read_worker_line(worker_line("http://127.0.0.1:4711", "GPU-12 34"));
  ASSERT_TRUE(line);
  EXPECT_EQ(line->port, 4711);
  EXPECT_EQ(line->identity, "GPU-12 34");
  EXPECT_EQ(worker_line("http://127.0.0.1:1", ""), "http://127.0.0.1:1\n");
  EXPECT_EQ(read_worker_line("http://127.0.0.1:1\n")->identity, "");
  for (const char* bad : {"", "\n", "http://127.0.0.1:4711", "http://127.0.0.1:99999\n", "http://x:0\n",
                          "error: no model\n", "http://127.0.0.1:47x\n"})
    EXPECT_FALSE(read_worker_line(bad)) << bad;
}

TEST(WithoutWorker, HealthIsAliveAndTheRestSaysWhy) {
  const WorkerView loading{"cpu", "loading"}, lost{"cpu", "restarting"};
  const auto say = [](std::string_view request, const WorkerView& worker, bool full = false,
                      bool draining = false) {
    return answer_without_worker(request, {&worker, 1}, full, draining, "front-1");
  };
  EXPECT_THAT(say("GET /health HTTP/1.1\r\n\r\n", lost), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(say("GET /ready?x HTTP/1.1\r\n\r\n", lost),
              HasSubstr(R"({"status":"restarting","models":[]})"));
  EXPECT_THAT(say(kRequest, loading), HasSubstr(R"("code":"loading")"));
  EXPECT_THAT(say(kRequest, lost), HasSubstr("\r\nRetry-After: 2\r\n"));
  EXPECT_THAT(say(kRequest, lost, false, true), HasSubstr(R"("code":"draining")"));
  EXPECT_THAT(say("", lost, true), HasSubstr(R"("code":"too_many_connections")"));
  EXPECT_THAT(say("HEAD /ready HTTP/1.1\r\n\r\n", lost), EndsWith("\r\n\r\n"));
  EXPECT_THAT(say("\r\n", lost), StartsWith("HTTP/1.1 503 "));
}

TEST(ErrorEvent, IsAChunkWhereTheOthersWere) {
  const ApiError error(503, "worker_lost", "gone");
  const std::string event = error_event(error, "id", false), chunk = error_event(error, "id", true);
  EXPECT_THAT(event, StartsWith(R"(data: {"type":"speech.audio.error","error":{"message":"gone")"));
  EXPECT_EQ(std::stoul(chunk, nullptr, 16), event.size());
  EXPECT_THAT(chunk, EndsWith(event + "\r\n0\r\n\r\n"));
}

TEST(LongestRound, IsReadFromReadiness) {
  EXPECT_EQ(longest_still_ms("HTTP/1.1 200 OK\r\n\r\n"
                             R"({"models":[{"id":"a"},{"still_ms":3.5},{"still_ms":2}]})"),
            3.5);
  for (const char* odd : {"", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n[1]",
                          "HTTP/1.1 200 OK\r\n\r\n{\"models\":[1,{\"still_ms\":\"x\"}]}"})
    EXPECT_EQ(longest_still_ms(odd), 0) << odd;
}

TEST(SummedMetrics, AddsSeriesAndKeepsTheLargestOfSome) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
  const std::vector<std::string> answers{head + "# HELP a A.\na 1\nb{x=\"y z\"} 2\nskald_ready 1\n",
                                         head + "# HELP a A.\na 0.5\nb{x=\"q\"} 4\nskald_ready 1\n"};
  const std::vector<WorkerView> workers{{"cpu", "ready", 0}, {"cpu", "restarting", 3}};
  const std::string text = summed_metrics(answers, workers);
  EXPECT_THAT(text, HasSubstr("\r\n\r\n# HELP a A.\na 1.5\nb{x=\"y z\"} 2\nb{x=\"q\"} 4\nskald_ready 1\n"));
  EXPECT_THAT(text, HasSubstr("skald_worker_up{worker=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("skald_worker_restarts_total{worker=\"1\"} 3\n"));
  const std::vector<std::string> refused{"HTTP/1.1 401 Unauthorized\r\n\r\n{}"};
  EXPECT_EQ(summed_metrics(refused, workers), refused[0]);
}

TEST(SummedMetrics, SeriesOfOneNameStandTogether) {
  const std::string head = "HTTP/1.1 200 OK\r\n\r\n";
  const std::vector<std::string> answers{head +
                                             "# HELP n N.\n# TYPE n counter\nn{r=\"a\"} 1\n# HELP h H.\n# "
                                             "TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\n",
                                         head +
                                             "# HELP n N.\n# TYPE n counter\nn{r=\"b\"} 2\n# HELP h H.\n# "
                                             "TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 2\n"};
  EXPECT_THAT(
      summed_metrics(answers, {}),
      HasSubstr("# HELP n N.\n# TYPE n counter\nn{r=\"a\"} 1\nn{r=\"b\"} 2\n# HELP h H.\n# TYPE h histogram\n"
                "h_bucket{le=\"1\"} 2\nh_sum 3\n"));
}

TEST(AsksForMetrics, ByAWholeHead) {
  EXPECT_TRUE(asks_for_metrics("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_TRUE(asks_for_metrics("GET /metrics?x=1 HTTP/1.1\r\n\r\n"));
  for (const char* other : {"", "GET /metrics HTTP/1.1\r\nHost: a\r\n", "GET /metricsx HTTP/1.1\r\n\r\n",
                            "POST /metrics HTTP/1.1\r\n\r\n"})
    EXPECT_FALSE(asks_for_metrics(other)) << other;
}

TEST(ClosingRequest, LosesTheBodyAndTheOldWish) {
  EXPECT_EQ(closing_request("GET /metrics HTTP/1.1\r\nHost: a\r\nCONNECTION: keep-alive\r\nX: y\r\n\r\nrest"),
            "GET /metrics HTTP/1.1\r\nHost: a\r\nX: y\r\nConnection: close\r\n\r\n");
}

TEST(EndOfProcess, IsAWord) {
  EXPECT_EQ(end_of_process(W_EXITCODE(4, 0)), "status 4");
  EXPECT_EQ(end_of_process(W_EXITCODE(0, 11)), "signal 11");
}

// ---- when a worker is started again

TEST(Patience, IsShortAfterAWorkerThatCouldSpeakAndGrowsWithFailedStarts) {
  using namespace std::chrono_literals;
  Patience patience;
  EXPECT_EQ(patience.after(true, 10s), 100ms);
  for (const auto wait : {1s, 2s, 2s, 2s}) EXPECT_EQ(patience.after(true, 10s), wait);
  for (const auto wait : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) EXPECT_EQ(patience.after(false, 1s), wait);
  EXPECT_EQ(patience.after(true, 10s), 2s) << "it begins anew, and ends as soon as before";
  EXPECT_EQ(patience.after(false, 1s), 1s);
  EXPECT_EQ(patience.after(true, 61s), 100ms);
}

}  // namespace
}  // namespace skald::server
