"""Workers: a process for every device, replaced when it crashes, stands still, or loses its device."""
import concurrent.futures
import signal
import socket
import threading
import unittest

from support import *


class WorkerCase(unittest.TestCase):
    workers, options, model = 1, (), "tiny-endless"

    def setUp(self):
        words = [word for _ in range(self.workers) for word in ("--worker", "cpu")]
        self.server = Server(*words, *self.options, model=self.model)
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))
        self.pids = children(self.server.process.pid)
        self.assertEqual(len(self.pids), self.workers)

    def wait_ready(self, seconds=10):
        """The clock of the promise: able to speak again within ten seconds."""
        end = time.monotonic() + seconds * (6 if SLOW else 1)
        while time.monotonic() < end:
            if self.server.get("/ready").status == 200:
                return
            time.sleep(0.05)
        raise AssertionError("the server does not come back")

    def hold(self, **fields):
        """A request that is being spoken: its socket, after the first bytes where it is a stream."""
        s = self.server.connect()
        s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=3000, input="Hi", **fields)))
        return s


class Crash(WorkerCase):
    def test_a_crash_ends_requests_with_a_named_error_and_nothing_else(self):
        self.assertEqual(self.server.speech(max_frames=3, input="Hi").status, 200)
        whole, events_of, stream = self.hold(stream=False), self.hold(stream_format="sse"), self.hold()
        first = b""
        for s in (events_of, stream):
            while first.count(b"\r\n") < 20:
                first += s.recv(1000)
            first = b""
        os.kill(self.pids[0], signal.SIGKILL)
        got = read_all(whole)
        self.assertIn(b" 503 ", got.split(b"\r\n")[0])
        self.assertIn(b'"code":"worker_lost"', got)
        self.assertIn(b"Retry-After: ", got)
        got = read_all(events_of)
        self.assertIn(b'"type":"speech.audio.error"', got[-400:])
        self.assertIn(b'"code":"worker_lost"', got[-400:])
        self.assertTrue(got.endswith(b"\r\n0\r\n\r\n"))
        self.assertFalse(read_all(stream).endswith(b"0\r\n\r\n"), "a broken stream must not look whole")
        for s in (whole, events_of, stream):
            s.close()
        self.assertEqual(self.server.get("/health").status, 200)
        self.wait_ready()
        self.assertEqual(self.server.speech(max_frames=3, input="Hi").status, 200)
        self.assertNotEqual(children(self.server.process.pid), self.pids)
        text = self.server.get("/metrics").body.decode()
        self.assertIn('skald_worker_restarts_total{worker="0"} 1\n', text)

    def test_an_answer_that_ends_with_its_connection_does_not_end_well(self):
        body = post_bytes("/v1/audio/speech", speech_body(max_frames=..., input="Hi")).replace(b"HTTP/1.1", b"HTTP/1.0")
        for end in ("runaway", "crash"):
            with self.server.connect() as s:
                s.sendall(body)
                got = s.recv(1000)
                self.assertIn(b"HTTP/1.0 200", got)
                if end == "crash":
                    os.kill(self.pids[0], signal.SIGKILL)
                with self.assertRaises(ConnectionResetError, msg=end):
                    while s.recv(65536):
                        pass

    def test_a_request_that_does_not_go_on_is_no_lost_worker(self):
        with self.server.connect() as s:
            s.sendall(b"GET /health HTTP/1.1\r\n")
            self.assertEqual(read_all(s), b"")
        large = (b"POST /v1/audio/speech/estimate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: 20000000\r\n\r\n")
        with self.server.connect() as s:
            s.sendall(large)
            got = s.recv(100)
            with contextlib.suppress(OSError):
                s.sendall(b"x" * 1000000)
            got += read_all(s)
        self.assertIn(b" 413 ", got.split(b"\r\n")[0])
        self.assertEqual(got.count(b"HTTP/1.1"), 1, got)

    def test_a_websocket_learns_of_it_too(self):
        ws = WebSocket(self.server)
        ws.send({"type": "session.config", "voice": "alloy", "max_frames": 3})
        ws.until("session.configured")
        os.kill(self.pids[0], signal.SIGKILL)
        self.assertEqual(ws.until("error")[0]["error"]["code"], "worker_lost")
        self.assertIsNone(ws.receive())
        ws.close()
        self.wait_ready()

    def test_readiness_flips_and_returns(self):
        os.kill(self.pids[0], signal.SIGKILL)
        states = set()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and (200 not in states or 503 not in states):
            answer = self.server.get("/ready")
            states.add(answer.status)
            if answer.status == 503:
                body = answer.json()
                self.assertIn(body.get("status") or body["error"]["code"], ("restarting", "worker_lost"))
                refused = self.server.speech()
                self.assertIn(refused.status, (200, 503))
                if refused.status == 503:
                    self.assertIn(refused.error()["code"], ("restarting", "worker_lost"))
                    self.assertIn("Retry-After", refused.headers)
            self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(states, {200, 503})

    def test_the_port_stays_with_the_front(self):
        self.addCleanup(self.hold().close)
        while self.server.metric("skald_slots_active") == 0:
            time.sleep(0.01)
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.process.wait()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", self.server.port))
            again.listen()  # a worker still drains, and holds no port of the front's
            self.assertTrue(pathlib.Path(f"/proc/{self.pids[0]}").exists(), "too late to tell")
        end = time.monotonic() + 20
        while time.monotonic() < end and pathlib.Path(f"/proc/{self.pids[0]}").exists():
            time.sleep(0.05)
        self.assertFalse(pathlib.Path(f"/proc/{self.pids[0]}").exists(), "a worker outlives its front")
        self.server.process.communicate()
        self.server.process.returncode = 0


class Stuck(WorkerCase):
    options = ("--stuck-seconds", 2)

    def test_a_worker_that_does_not_answer_is_replaced(self):
        with self.hold(stream=False) as s:
            time.sleep(0.3)
            os.kill(self.pids[0], signal.SIGSTOP)
            self.assertIn(b'"code":"worker_lost"', read_all(s))
        self.wait_ready()
        self.assertEqual(self.server.speech(max_frames=3, input="Hi").status, 200)


class Passing(WorkerCase):
    """What a worker says arrives as it was said."""
    model = "tiny-cv"

    def test_everything_is_as_without_a_front(self):
        plain = Server()
        try:
            for name in ("pcm", "wav", "mp3", "opus"):
                self.assertEqual(self.server.speech(response_format=name).body, plain.speech(response_format=name).body, name)
            self.assertEqual(self.server.speech(stream=False).body, plain.speech(stream=False).body)
            self.assertEqual(events(self.server.speech(stream_format="sse").body)[-1]["type"], "speech.audio.done")
            self.assertEqual(self.server.speech(voice="nobody").error()["code"], "unknown_voice")
            self.assertEqual(self.server.get("/nothing").status, 404)
            self.assertEqual(self.server.get("/").body, plain.get("/").body)
            big = self.server.post("/v1/audio/speech/estimate", b"x" * (1 << 20) + b"y", headers={"Content-Type": "application/json"})
            self.assertEqual(big.status, 413)
        finally:
            self.assertEqual(plain.stop(), 0)
        foreign = self.server.raw(b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        self.assertIn(b" 403 ", foreign.split(b"\r\n")[0])
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=60), "Connection: close\r\n"))
            _, _, chunks, ended = read_chunks(s)
        self.assertTrue(ended and all(len(chunk) % 2 == 0 for chunk in chunks))

    def test_a_websocket_passes(self):
        ws = WebSocket(self.server)
        ws.send({"type": "session.config", "voice": "alloy", "language": "english", "seed": 7, "max_frames": 20})
        for _ in range(2):
            ws.send({"type": "input.text", "text": "Hello there."})
            ws.send({"type": "input.done"})
            self.assertEqual(ws.until("audio.done")[0]["frames"], 20)
        ws.close()
        self.server.wait_idle()

    def test_a_client_that_leaves_frees_its_slot(self):
        for _ in range(5):
            with self.server.connect() as s:
                s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=1000)))
                s.recv(100)
        self.server.wait_idle()

    def test_too_many_connections(self):
        self.server.stop()
        self.server = Server("--worker", "cpu", "--max-connections", 3)
        held = [self.server.connect() for _ in range(3)]
        time.sleep(0.3)
        got = self.server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIn(b" 503 ", got.split(b"\r\n")[0])
        self.assertIn(b"too_many_connections", got)
        for s in held:
            s.close()


class Several(WorkerCase):
    workers, options = 2, ("--slots", 2)

    def test_the_others_go_on(self):
        before = {pid: children(pid) for pid in self.pids}
        self.assertEqual(len(before), 2)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(self.server.speech, max_frames=400, input="Hi", stream=False, seed=7) for _ in range(4)]
            time.sleep(0.5)
            os.kill(self.pids[0], signal.SIGKILL)
            answers = [job.result() for job in jobs]
        statuses = sorted(a.status for a in answers)
        self.assertEqual(statuses, [200, 200, 503, 503])
        self.assertEqual(len({a.body for a in answers if a.status == 200}), 1)
        self.assertEqual(self.server.speech(max_frames=3, input="Hi").status, 200, "the other worker takes it")
        self.wait_ready()
        self.assertGreaterEqual(self.server.metric("skald_speech_frames_total"), 803)
        self.assertIn('skald_worker_up{worker="1"} ', self.server.get("/metrics").body.decode())


    def test_a_client_sees_the_end_of_its_worker_while_another_lives(self):
        streams = [self.server.connect() for _ in range(2)]
        for s in streams:  # more than fits between the two
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=3000, input="Hi", response_format="f32")))
            s.settimeout(0.5)
            self.assertTrue(s.recv(1000))
        os.kill(self.pids[1], signal.SIGKILL)
        other = None
        while other is None:  # the one that goes on was taken before the new worker began
            for i, s in enumerate(streams):
                with contextlib.suppress(TimeoutError):
                    if not self.flows(s):
                        other = streams[1 - i]
        while len(now := children(self.server.process.pid)) < 2 or now == self.pids:
            time.sleep(0.02)
        self.wait_ready()
        os.kill(self.pids[0], signal.SIGKILL)
        began = time.monotonic()
        other.settimeout(PATIENCE)
        while self.flows(other):
            pass
        self.assertLess(time.monotonic() - began, 2 * (6 if SLOW else 1))
        for s in streams:
            s.close()

    @staticmethod
    def flows(s):
        try:
            return bool(s.recv(1 << 20))
        except ConnectionResetError:
            return False


class Keyed(unittest.TestCase):
    def test_the_key_is_asked_for_behind_the_front(self):
        server = Server("--worker", "cpu", "--open-lists", env={"SKALD_API_KEY": "sk-x"}, key="sk-x")
        try:
            none = {"Authorization": ""}
            for path, status in (("/metrics", 401), ("/v1/models", 200), ("/health", 200)):
                self.assertEqual(server.get(path, headers=none).status, status, path)
            self.assertEqual(server.speech(headers=none).status, 401)
            self.assertEqual(server.speech().status, 200)
            self.assertEqual(server.get("/metrics").status, 200)
        finally:
            self.assertEqual(server.stop(), 0)


class Starts(unittest.TestCase):
    def run_serve(self, *words):
        return subprocess.run([SKALD, "serve", "--port", "0", *map(str, words)], capture_output=True, timeout=PATIENCE)

    def test_a_worker_that_cannot_start_ends_the_server_with_its_status(self):
        model = MODELS / "tiny-cv"
        self.assertEqual(self.run_serve("--model", "/nonexistent", "--worker", "cpu").returncode, 3)
        self.assertEqual(self.run_serve("--model", model, "--worker", "cpu", "--device", "cpu").returncode, 2)
        self.assertEqual(self.run_serve("--model", model, "--worker", "cpu", "--voice-alias", "x").returncode, 2)
        self.assertEqual(self.run_serve("--model", model, "--worker", "gfx9999").returncode, 4)

    def test_drain_lets_requests_end(self):
        server = Server("--worker", "cpu", model="tiny-endless")
        got = []
        thread = threading.Thread(target=lambda: got.append(server.speech(max_frames=600, input="Hi")))
        thread.start()
        while server.metric("skald_slots_active") == 0:
            time.sleep(0.01)
        self.assertEqual(server.stop(), 0)
        thread.join()
        self.assertEqual(len(got[0].body), 600 * 2 * FRAME)


if __name__ == "__main__":
    unittest.main()
