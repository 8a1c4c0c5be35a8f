"""Routes, formats, streams, errors, limits, the door, ends: over loopback, as a client sees it."""
import base64
import concurrent.futures
import os
import re
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest

from support import *


class Routes(Case):
    def test_lists(self):  # B066, B126
        models = self.server.get("/v1/models").json()
        self.assertEqual(models["object"], "list")
        self.assertIn("tiny-cv", [m["id"] for m in models["data"]])
        self.assertEqual(self.server.get("/v1/models/tts-1").json()["id"], "tts-1")
        self.assert_error(self.server.get("/v1/models/nothing"), 404, "model_not_found", "model")
        self.assertEqual(self.server.get("/v1/audio/models").json()["models"][0]["id"], "tiny-cv")
        for path in ("/v1/audio/voices", "/v1/voices", "/voices", "/v1/audio/voices?model=tiny-cv"):
            voices = self.server.get(path).json()
            self.assertEqual(voices["voices"], voices["data"])
            self.assertIn("alloy", [v["id"] for v in voices["voices"]])
        self.assert_error(self.server.get("/v1/voices?model=x"), 404, "model_not_found", "model")
        self.assertIs(self.server.get("/v1/audio/voice-clone/capabilities").json()["supported"], False)

    def test_route_and_method_matrix(self):  # B065, B068
        self.assert_error(self.server.get("/v1/nothing"), 404, "unknown_route")
        self.assert_error(self.server.get("/%zz"), 404, "unknown_route")
        self.assert_error(self.server.get("/../etc/passwd"), 404, "unknown_route")
        wrong = self.server.get("/v1/audio/speech")
        self.assert_error(wrong, 405, "method_not_allowed")
        self.assertEqual(wrong.headers["Allow"], "POST, OPTIONS")
        self.assert_error(self.server.request("DELETE", "/v1/models"), 405, "method_not_allowed")
        self.assertEqual(self.server.request("OPTIONS", "/v1/models").status, 204)
        head = self.server.request("HEAD", "/v1/models")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertGreater(int(head.headers["Content-Length"]), 100)
        self.assert_error(self.server.get("/v1/audio/speech/stream"), 426, "upgrade_required")

    def test_health_and_metrics(self):
        self.assertEqual(self.server.get("/health").json()["status"], "alive")
        ready = self.server.get("/ready")
        self.assertEqual((ready.status, ready.json()["status"]), (200, "ready"))
        self.server.speech()
        text = self.server.get("/metrics").body.decode()
        self.assertGreater(self.server.metric("skald_connections_total"), 3)
        for series in ("skald_requests_total{", "skald_first_audio_seconds_bucket{", "skald_real_time_factor_sum",
                       'skald_speech_ends_total{reason="length"}', "skald_ready 1"):
            self.assertIn(series, text)

    def test_page_is_served_with_a_strict_policy(self):
        for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/player.js", "text/javascript"),
                           ("/style.css", "text/css")):
            answer = self.server.get(path)
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.headers["Content-Type"].startswith(kind))
            self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
            name = "index.html" if path == "/" else path[1:]
            self.assertEqual(answer.body, (ROOT / "web" / name).read_bytes())


class Speech(Case):
    options = ("--slots", 4)

    def test_every_format(self):  # B052, B054, B062, B067, C013, B053
        starts = {"mp3": (b"\xff\xf3", b"\xff\xf2"), "opus": (b"OggS",), "aac": (b"\xff\xf1", b"\xff\xf9"),
                  "flac": (b"fLaC",), "wav": (b"RIFF",)}
        types = {"mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "wav": "audio/wav",
                 "pcm": "audio/pcm", "f32": "audio/x-f32le"}
        for name, kind in types.items():
            streamed = self.server.speech(response_format=name)
            whole = self.server.speech(response_format=f" {name.upper()} ", stream=False)
            if name == "aac" and whole.status == 400:
                self.assert_error(whole, 400, "unsupported_response_format", "response_format")
                continue
            for answer in (streamed, whole):
                self.assertEqual(answer.status, 200, answer.body[:200])
                self.assertEqual(answer.headers["Content-Type"], kind)
                if name in starts:
                    self.assertTrue(answer.body.startswith(starts[name]), answer.body[:8])
            self.assertEqual(streamed.headers["Transfer-Encoding"], "chunked")
            self.assertNotIn("Content-Length", streamed.headers)
            self.assertEqual(int(whole.headers["Content-Length"]), len(whole.body))
            if name == "wav":
                self.assertEqual(streamed.body[44:], whole.body[44:])
                self.assertEqual(streamed.body[4:8], b"\xff" * 4)
                self.assertEqual(struct.unpack("<I", whole.body[4:8])[0], len(whole.body) - 8)
            elif name == "flac":
                self.assertEqual(streamed.body[42:], whole.body[42:])
            else:
                self.assertEqual(streamed.body, whole.body)

    def test_default_format_is_mp3(self):  # B072
        self.assertEqual(self.server.speech(response_format=...).headers["Content-Type"], "audio/mpeg")

    def test_stream_equals_the_command_line(self):  # B055
        import subprocess
        said = subprocess.run([SKALD, "say", "--model", str(MODELS / "tiny-cv"), "--voice",
                               self.server.get("/v1/audio/voices").json()["voices"][0]["id"], "--language", "english",
                               "--seed", "7", "--max-frames", "20", "--raw", "--threads", "1", "--", "Hello there."],
                              capture_output=True, timeout=PATIENCE).stdout
        voice = self.server.get("/v1/audio/voices").json()["voices"][0]["id"]
        self.assertEqual(self.server.speech(voice=voice).body, said)

    def test_headers(self):  # B028
        whole = self.server.speech(stream=False, headers={"X-Request-Id": "my-id.1"})
        self.assertEqual(whole.headers["X-Request-Id"], "my-id.1")
        self.assertEqual(whole.headers["X-Skald-Seed"], "7")
        self.assertEqual(whole.headers["X-Skald-Frames"], "20")
        self.assertEqual(whole.headers["X-Skald-Stop"], "length")
        self.assertGreater(float(whole.headers["X-Skald-Rtf"]), 0)
        self.assertGreater(float(whole.headers["X-Skald-First-Audio-Ms"]), 0)
        self.assertEqual(int(whole.headers["X-Skald-Total-Tokens"]),
                         int(whole.headers["X-Skald-Input-Tokens"]) + 20)
        odd = self.server.speech(headers={"X-Request-Id": "a b"}, voise=1)
        self.assertNotEqual(odd.headers["X-Request-Id"], "a b")
        self.assertEqual(odd.headers["X-Skald-Ignored-Fields"], "voise")

    def test_chunks_grow_and_are_even(self):  # B056, B063
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=100), "TE: trailers\r\nConnection: close\r\n"))
            status, headers, chunks, ended = read_chunks(s)
        self.assertEqual((status, ended), (200, True))
        self.assertEqual(headers["x-accel-buffering"], "no")
        # One frame, less the 5 ms that wait for a fade until it is known whether another piece follows.
        # On a busy machine frames may have come together before they were sent.
        self.assertEqual((len(chunks[0]) // 2 + 120) % FRAME, 0)
        self.assertLessEqual(len(chunks[0]), 2 * 10 * FRAME)
        for chunk in chunks:
            self.assertEqual(len(chunk) % 2, 0)

    def test_events(self):
        answer = self.server.speech(stream_format="sse")
        self.assertEqual(answer.headers["Content-Type"], "text/event-stream")
        got = events(answer.body)
        audio = b"".join(base64.b64decode(e["audio"]) for e in got if e["type"] == "speech.audio.delta")
        self.assertEqual(audio, self.server.speech().body)
        for e in got[:-1]:
            self.assertEqual(len(base64.b64decode(e["audio"])) % 2, 0)
        self.assertEqual(got[-1]["type"], "speech.audio.done")
        self.assertEqual(got[-1]["usage"]["output_tokens"], 20)
        self.assertEqual(self.server.speech(stream=True).headers["Content-Type"], "text/event-stream")

    def test_speed(self):  # B073
        plain = self.server.speech(stream=False, max_frames=50)
        for speed in (0.5, 2, 4):
            answer = self.server.speech(stream=False, max_frames=50, speed=speed)
            self.assertAlmostEqual(len(answer.body) * speed / len(plain.body), 1, delta=0.01)
            self.assertEqual(self.server.speech(max_frames=50, speed=speed).body, answer.body)
        self.assertEqual(self.server.speech(stream=False, max_frames=50, speed=1.0).body, plain.body)

    def test_same_alone_and_in_company(self):  # B079, B080
        bodies = [speech_body(seed=i, max_frames=30 + i, input=f"Sentence number {i} is spoken.") for i in range(12)]
        alone = [self.server.post("/v1/audio/speech", b).body for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda b: self.server.post("/v1/audio/speech", b).body, bodies))
        self.assertEqual(alone, together)
        # One stream alone gives a mean of 1.
        self.assertGreater(self.server.metric("skald_round_streams_total"), self.server.metric("skald_rounds_total"))

    def test_long_text_is_one_stream(self):  # B036, B052, C013
        text = " ".join(f"This is sentence number {i} of a long text." for i in range(40))
        answer = self.server.speech(input=text, max_frames=..., response_format="wav", stream=False)
        if answer.status == 200:
            self.assertEqual(answer.body.count(b"RIFF"), 1)

    def test_estimate(self):
        answer = self.server.post("/v1/audio/speech/estimate", speech_body(max_frames=...)).json()
        self.assertGreater(answer["input_tokens"], 0)
        self.assertGreaterEqual(answer["frame_bound"], 240)
        self.assertEqual(len(answer["pieces"]), 1)

    def test_batch(self):  # B015, B064
        answer = self.server.post("/v1/audio/speech/batch", {
            "model": "tts-1", "voice": "alloy", "response_format": "pcm", "seed": 7, "language": "english", "max_frames": 20,
            "items": [{"input": "Hello there."}, {"input": "x", "voice": "nobody"}, {"input": "Hello there.", "seed": 8}]})
        self.assertEqual(answer.status, 200)
        results = answer.json()["results"]
        self.assertEqual([r["status"] for r in results], [200, 400, 200])
        self.assertEqual([r["index"] for r in results], [0, 1, 2])
        self.assertEqual(answer.headers["Transfer-Encoding"], "chunked")  # an item is sent when it is spoken
        self.assertEqual(base64.b64decode(results[0]["audio"]), self.server.speech().body)
        self.assertEqual(results[1]["error"]["code"], "unknown_voice")
        self.assert_error(self.server.post("/v1/audio/speech/batch", {"items": []}), 400, "invalid_argument", "items")
        self.assert_error(self.server.post("/v1/audio/speech/batch", {"items": [{"input": ""}]}), 400,
                          "nothing_to_speak", "input")

    def test_forms(self):
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        form = "text=Hello+there.&speaker=alloy&max_frames=20&seed=7"
        whole = self.server.post("/api/generate", form, headers=kind)
        self.assertEqual((whole.status, whole.headers["Content-Type"]), (200, "audio/wav"))
        self.assertEqual(whole.headers["X-TTS-Frames"], "20")
        self.assertEqual(whole.body[44:], self.server.speech().body)
        stream = self.server.post("/api/stream", form, headers=kind)
        self.assertEqual(stream.body, whole.body[44:])
        self.assertEqual(stream.headers["X-TTS-Sample-Format"], "s16le")
        self.assert_error(self.server.post("/api/generate", "text=x&seed=abc", headers=kind), 400, "invalid_argument", "seed")
        self.assert_error(self.server.post("/api/generate", "{}", headers={"Content-Type": "application/json"}), 415,
                          "unsupported_media_type")

    def test_refusals_of_the_engine_come_before_any_audio(self):  # B064, C004, C006
        self.assert_error(self.server.speech(input="..."), 400, "nothing_to_speak", "input")
        self.assert_error(self.server.speech(language="nl"), 400, "unknown_language", "language")
        self.assert_error(self.server.speech(input="\u200b\u200b", stream_format="sse"), 400, "nothing_to_speak", "input")
        for language in ("EN", "en-US", "en_GB", "eng", "English", "", None, "auto"):
            self.assertEqual(self.server.speech(language=language).status, 200, language)

    def test_http_1_0(self):
        body = post_bytes("/v1/audio/speech", speech_body()).replace(b"HTTP/1.1", b"HTTP/1.0")
        head, _, audio = self.server.raw(body).partition(b"\r\n\r\n")
        self.assertIn(b"HTTP/1.0 200", head)
        self.assertNotIn(b"chunked", head)
        self.assertEqual(audio, self.server.speech().body)

    def test_keep_alive_and_pipelining(self):
        one = post_bytes("/v1/audio/speech", speech_body(max_frames=3, stream=False))
        got = self.server.raw(one + one.replace(b"Host:", b"Connection: close\r\nHost:"))
        self.assertEqual(got.count(b"HTTP/1.1 200"), 2)


class Failures(Case):
    model = "tiny-endless"
    options = ("--slots", 2, "--queue", 1)

    def test_runaway_is_never_a_clean_end(self):  # B019, B071
        fields = {"max_frames": ..., "input": "Hi"}
        self.assert_error(self.server.speech(stream=False, **fields), 500, "runaway")
        got = events(self.server.speech(stream_format="sse", **fields).body)
        self.assertEqual(got[-1]["type"], "speech.audio.error")
        self.assertEqual(got[-1]["error"]["code"], "runaway")
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(**fields)))
            status, _, chunks, ended = read_chunks(s)
        self.assertEqual((status, ended), (200, False))
        self.assertGreater(len(chunks), 0)
        with self.assertRaises(Exception):
            self.server.speech(**fields)  # an ordinary client sees it
        self.assertGreaterEqual(self.server.metric('skald_speech_ends_total{reason="runaway"}'), 3)

    def test_full_queue(self):  # B084
        fields = {"max_frames": 900, "input": "Hi"}
        held = []
        for _ in range(3):
            s = self.server.connect()
            s.sendall(post_bytes("/v1/audio/speech", speech_body(**fields)))
            held.append(s)
            time.sleep(0.3)
        busy = self.server.speech(**fields)
        self.assert_error(busy, 429, "server_busy")
        self.assertGreaterEqual(int(busy.headers["Retry-After"]), 1)
        self.assertEqual(busy.error()["type"], "rate_limit_error")
        self.assertEqual(self.server.get("/health").status, 200)
        for s in held:
            s.close()
        self.server.wait_idle()
        self.assertEqual(self.server.speech(max_frames=2, input="Hi").status, 200)

    def test_a_client_that_leaves_frees_its_slot(self):  # B081, B082
        for _ in range(10):
            with self.server.connect() as s:
                s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=1000, input="Hi")))
                s.recv(100)
        self.server.wait_idle()
        frames = self.server.metric("skald_speech_frames_total")
        self.assertLess(frames, 10 * 1000)

    def test_retry_after_a_disconnect_does_not_run_twice(self):
        before = self.server.metric("skald_prompts_total")
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=1000, input="Hi")))
            s.recv(10)
        self.assertEqual(self.server.speech(max_frames=2, input="Hi").status, 200)
        self.server.wait_idle()
        self.assertEqual(self.server.metric("skald_prompts_total"), before + 2)

    def test_a_slow_reader_is_waited_for(self):  # B058
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=3000, input="Hi", response_format="f32"),
                                 "Connection: close\r\n"))
            time.sleep(3)  # what is made by now fits nowhere but in front of its reader
            self.assertEqual(self.server.metric("skald_requests_running"), 1)
            _, _, chunks, ended = read_chunks(s)
        self.assertTrue(ended)
        self.assertEqual(sum(map(len, chunks)), 3000 * 4 * FRAME)


class Door(Case):
    options = ("--max-connections", 20)

    def ask(self, head, body=b""):
        return self.server.raw(head.replace("\n", "\r\n").encode() + body)

    def test_foreign_hosts_and_origins(self):  # B123
        for path in ("/v1/models", "/", "/health", "/nothing"):
            got = self.ask(f"GET {path} HTTP/1.1\nHost: evil.example:{self.server.port}\nConnection: close\n\n")
            self.assertIn(b"403", got.split(b"\r\n")[0])
            self.assertIn(b"forbidden_host", got)
        got = self.ask("GET /v1/models HTTP/1.1\nHost: localhost\nOrigin: https://evil.example\nConnection: close\n\n")
        self.assertIn(b"forbidden_origin", got)
        self.assertNotIn(b"Access-Control-Allow-Origin", got)
        self.assertIn(b"400", self.ask("GET / HTTP/1.1\nConnection: close\n\n").split(b"\r\n")[0])
        self.assertIn(b"400", self.ask("GET / HTTP/1.1\nHost: localhost\nHost: evil\nConnection: close\n\n").split(b"\r\n")[0])
        ws = WebSocket(self.server, headers="Origin: https://evil.example\r\n")
        self.assertEqual(ws.status, 403)
        ws.close()

    def test_json_only_under_its_type(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = self.server.post("/v1/audio/speech", '{"input":"x"}', headers={"Content-Type": kind})
            self.assert_error(answer, 415, "unsupported_media_type")

    def test_malformed_requests(self):
        for junk in (b"\r\n\r\n", b"HELLO\r\n\r\n", b"GET / HTTP/3.0\r\n\r\n", b"GET  /  HTTP/1.1\r\n\r\n", bytes(range(256)) * 4,
                     b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
            got = self.server.raw(junk)
            self.assertTrue(got == b"" or got.split(b" ")[1] in (b"400", b"404", b"431"), got[:80])
        got = self.server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n")
        self.assertIn(b" 431 ", got.split(b"\r\n")[0])
        self.assertIn(b'"code":"header_too_large"', got)

    def test_codings_it_does_not_know_end_the_connection(self):
        # Otherwise the body would be read as the next request.
        head = b"POST /v1/audio/speech/estimate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for coding in (b"gzip", b"gzip, chunked", b"chunked, gzip", b"xchunked", b"chunked\r\nTransfer-Encoding: chunked",
                       b"gzip\r\nContent-Length: %d" % len(hidden), b"chunked\r\nContent-Length: %d" % len(hidden)):
            got = self.server.raw(head + b"Transfer-Encoding: " + coding + b"\r\n\r\n" + hidden)
            self.assertIn(got.split(b" ")[1], (b"400", b"501"), coding)
            self.assertNotIn(b"alive", got, coding)
            self.assertEqual(len(re.findall(rb"(?m)^HTTP/1.1 [0-9]", got)), 1, coding)
        text = json.dumps(speech_body()).encode()
        good = head + b"Connection: close\r\nTransfer-Encoding: Chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
        self.assertIn(b" 200 ", self.server.raw(good).split(b"\r\n")[0])

    def test_oversize_bodies(self):  # B123
        limit = 1 << 20
        head = (f"POST /v1/audio/speech/estimate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {limit + 1}\r\n\r\n").encode()
        self.assertIn(b" 413 ", self.server.raw(head).split(b"\r\n")[0])
        got = self.server.raw(head + b"x" * (limit + 1))
        self.assertIn(b" 413 ", got.split(b"\r\n")[0], "the answer must survive what the client still sends")
        chunked = (b"POST /v1/audio/speech/estimate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n")
        with self.server.connect() as s:
            s.sendall(chunked)
            with contextlib.suppress(OSError):
                for _ in range(40):
                    s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            self.assertIn(b" 413 ", read_all(s).split(b"\r\n")[0])
        fits = json.dumps(speech_body(input="x" * 5000)).encode().ljust(limit)
        self.assert_error(self.server.post("/v1/audio/speech/estimate", fits, headers={"Content-Type": "application/json"}), 400,
                          "text_too_long", "input")

    def test_expect_continue(self):
        data = json.dumps(speech_body(max_frames=2)).encode()
        with self.server.connect() as s:
            s.sendall((f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                       f"Content-Length: {len(data)}\r\nExpect: 100-continue\r\n\r\n").encode())
            self.assertIn(b"100 Continue", s.recv(100))
            s.sendall(data)
            self.assertIn(b" 200 ", read_all(s).split(b"\r\n")[0])

    def test_too_many_connections(self):
        held = [self.server.connect() for _ in range(20)]
        time.sleep(0.2)
        self.assertIn(b" 503 ", self.server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n")[0])
        for s in held:
            s.close()
        time.sleep(0.3)
        self.assertEqual(self.server.get("/health").status, 200)


class Slowloris(unittest.TestCase):
    def test_slow_heads_are_cut_and_others_served(self):  # B123
        server = Server()
        try:
            with server.connect() as slow:
                slow.sendall(b"GET /health HTTP/1.1\r\nHost: local")
                began = time.monotonic()
                for _ in range(8):
                    self.assertEqual(server.get("/health").status, 200)
                    with contextlib.suppress(OSError):
                        slow.sendall(b"h")
                    time.sleep(1)
                slow.settimeout(20)
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(slow.recv(10), b"")
                self.assertLess(time.monotonic() - began, 20)
        finally:
            self.assertEqual(server.stop(), 0)


class Keys(Case):
    key = "sk-secret"
    options = ("--open-lists",)

    def test_speech_needs_the_key_and_lists_do_not(self):  # B126
        none = {"Authorization": ""}
        refused = self.server.speech(headers=none)
        self.assert_error(refused, 401, "invalid_api_key")
        self.assertEqual(refused.headers["WWW-Authenticate"], "Bearer")
        self.assert_error(self.server.speech(headers={"Authorization": "Bearer sk-secreT"}), 401, "invalid_api_key")
        self.assertEqual(self.server.get("/v1/audio/voices", headers=none).status, 200)
        self.assertEqual(self.server.get("/v1/audio/models", headers=none).status, 200)
        self.assertEqual(self.server.get("/", headers=none).status, 200)
        self.assertEqual(self.server.get("/ready", headers=none).status, 200)
        self.assert_error(self.server.get("/metrics", headers=none), 401, "invalid_api_key")
        self.assertEqual(self.server.speech().status, 200)


class Cors(Case):
    options = ("--cors-origin", "https://app.example")

    def test_the_named_origin_alone(self):
        ok = self.server.get("/v1/models", headers={"Origin": "https://app.example"})
        self.assertEqual(ok.headers["Access-Control-Allow-Origin"], "https://app.example")
        pre = self.server.request("OPTIONS", "/v1/audio/speech", headers={
            "Origin": "https://app.example", "Access-Control-Request-Method": "POST"})
        self.assertEqual(pre.status, 204)
        self.assertIn("content-type", pre.headers["Access-Control-Allow-Headers"])
        self.assert_error(self.server.get("/v1/models", headers={"Origin": "https://b.example"}), 403, "forbidden_origin")


class Privacy(unittest.TestCase):
    def test_nothing_of_a_text_is_logged(self):  # C019
        server = Server(model="tiny-endless")
        mark = "Zanzibarmark"
        try:
            server.speech(input=f"{mark} speaks", max_frames=2)
            server.speech(input=mark, max_frames=..., stream=False)
            server.speech(input=mark, voice=mark, instructions=mark)
            server.speech(input=mark, language=mark)
            server.post("/v1/audio/speech", f'{{"input": "{mark}" oops', headers={"Content-Type": "application/json"})
            server.speech(input=mark * 1000)
            server.get(f"/{mark}?{mark}={mark}")
            ws = WebSocket(server)
            ws.send({"type": "session.config", "voice": "alloy", "max_frames": 2})
            ws.send({"type": "input.text", "text": mark})
            ws.send({"type": "input.done"})
            ws.until("audio.done")
            ws.close()
            self.assertNotIn(mark, server.get("/metrics").body.decode())
        finally:
            self.assertEqual(server.stop(), 0)
        self.assertNotIn(mark.lower(), server.log.lower())
        self.assertIn("runaway", server.log)


class Ends(unittest.TestCase):
    def test_drain_lets_requests_end(self):
        server = Server(model="tiny-endless")
        got = []
        thread = threading.Thread(target=lambda: got.append(server.speech(max_frames=600, input="Hi")))
        thread.start()
        while server.metric("skald_slots_active") == 0:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        self.assertEqual(server.process.wait(PATIENCE), 0)
        server.stop()
        self.assertEqual(len(got[0].body), 600 * 2 * FRAME)

    def test_drain_ends_in_time(self):
        server = Server("--drain-seconds", 1, "--slots", 1, model="tiny-endless")
        with server.connect() as s, server.connect() as idle:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=3000, input="Hi")))
            time.sleep(0.3)
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 10)
            del idle

    def test_port_in_use(self):  # C017
        server = Server()
        try:
            began = time.monotonic()
            second = subprocess.run([SKALD, "serve", "--model", str(MODELS / "tiny-cv"), "--port", str(server.port)],
                                    capture_output=True, timeout=PATIENCE)
            self.assertLess(time.monotonic() - began, 5 if SLOW else 2)
            self.assertEqual((second.returncode, second.stdout), (1, b""))
            self.assertIn(str(server.port).encode(), second.stderr)
        finally:
            server.process.kill()
            server.process.communicate()
        again = subprocess.Popen([SKALD, "serve", "--model", str(MODELS / "tiny-cv"), "--port", str(server.port)],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertIn(str(server.port).encode(), again.stdout.readline())
        again.send_signal(signal.SIGTERM)
        again.communicate(timeout=PATIENCE)
        self.assertEqual(again.returncode, 0)

    def test_usage(self):
        for words, status in ((["--port", "70000"], 2), (["--host", "0.0.0.0"], 2), (["--voice-alias", "x"], 2),
                              (["--api-key-file", "/nonexistent"], 1), (["text"], 2), (["--devcie", "cpu"], 2)):
            done = subprocess.run([SKALD, "serve", "--model", str(MODELS / "tiny-cv"), *words], capture_output=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stdout), (status, b""), words)
        done = subprocess.run([SKALD, "serve", "--model", "/nonexistent", "--port", "0"], capture_output=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (3, b""))

    def test_two_models_of_one_name(self):
        for name in ("tiny-cv", "first"):
            run = subprocess.run([SKALD, "serve", "--model", MODELS / "tiny-cv", "--name", "first", "--port", "0",
                                  "--add-model", f"{name}={MODELS / 'tiny-vd'}", "--add-model", f"tiny-cv={MODELS / 'tiny-base'}"],
                                 env={"PATH": os.environ["PATH"]}, capture_output=True, timeout=60)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(f'would both be called "{name}"'.encode(), run.stderr)

    def test_several_models(self):
        server = Server("--add-model", f"other={MODELS / 'tiny-cv-1b7'}", "--add-model", f"design={MODELS / 'tiny-vd'}",
                        "--name", "first", "--unload-seconds", 1)
        try:
            states = {m["id"]: m["state"] for m in server.get("/ready").json()["models"]}
            self.assertEqual(states, {"first": "ready", "other": "unloaded", "design": "unloaded"})
            self.assertEqual(server.speech(model="other").status, 200)
            design = server.speech(model="design", voice=..., instructions="An old man", max_frames=3)
            self.assertEqual(design.status, 200, design.body[:200])
            end = time.monotonic() + 30
            while time.monotonic() < end:
                states = {m["id"]: m["state"] for m in server.get("/ready").json()["models"]}
                if set(states.values()) == {"unloaded"}:
                    break
                time.sleep(0.2)
            self.assertEqual(set(states.values()), {"unloaded"})
            self.assertEqual(server.get("/ready").status, 200)
            self.assertEqual(server.speech(model="first").status, 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_a_model_that_fails_harms_no_other_and_comes_back(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="skald-models-"))
        self.addCleanup(shutil.rmtree, folder)
        shutil.copytree(MODELS / "tiny-cv", folder / "first")
        server = Server("--add-model", f"other={MODELS / 'tiny-cv-1b7'}", "--name", "first", "--unload-seconds", 1,
                        model=folder / "first")
        state = lambda: server.get("/ready").json()["models"][0]["state"]

        def wait_for(wanted):
            end = time.monotonic() + 60
            while state() != wanted and time.monotonic() < end:
                time.sleep(0.1)
            self.assertEqual(state(), wanted)
        try:
            self.assertEqual(server.speech(model="other").status, 200)
            wait_for("unloaded")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:  # those after the first wait for it
                answers = list(pool.map(lambda _: server.speech(model="first").status, range(4)))
            self.assertEqual(answers, [200] * 4)
            wait_for("unloaded")
            weights = next((folder / "first").glob("*.safetensors"))
            weights.rename(folder / "away")
            refused = server.speech(model="first")
            self.assertEqual((refused.status, refused.error()["code"]), (503, "model_failed"))
            self.assertEqual((server.get("/ready").status, server.get("/ready").json()["status"]), (503, "model_failed"))
            self.assertEqual(server.speech(model="other").status, 200)
            (folder / "away").rename(weights)
            end = time.monotonic() + 30 * (6 if SLOW else 1)
            while server.get("/ready").status != 200 and time.monotonic() < end:
                time.sleep(0.2)
            self.assertEqual(server.get("/ready").status, 200, "nobody was sent here, so it has to try by itself")
            self.assertEqual(server.speech(model="first").status, 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_idle_costs_nothing(self):  # C021
        server = Server()
        try:
            server.speech()
            held = [server.connect() for _ in range(30)]
            ws = WebSocket(server)
            ticks = lambda: sum(map(int, pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().split()[13:15]))
            time.sleep(1)
            before = ticks()
            time.sleep(5)
            self.assertLess((ticks() - before) / os.sysconf("SC_CLK_TCK"), 0.05)
            ws.close()
            del held
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
