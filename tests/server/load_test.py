"""Load: many streams for a while, clients that leave at random, memory that stays."""
import json
import os
import random
import subprocess
import sys
import threading
import unittest

from support import *

SECONDS = float(os.environ.get("SKALD_LOAD_SECONDS", 4 if SLOW else 10))
# A sanitizer keeps what was freed for a while, so that its process grows without any leak (it finds those itself).
MEMORY_MEANS_SOMETHING = not SLOW
STREAMS = int(os.environ.get("SKALD_LOAD_STREAMS", 8 if SLOW else 64))


class Load(unittest.TestCase):
    def test_many_streams(self):  # B079, B085
        server = Server("--slots", STREAMS, "--cache-capacity", 512, "--max-connections", 4 * STREAMS)
        try:
            done = subprocess.run([sys.executable, "load.py", server.address, "--streams", str(STREAMS), "--seconds", str(SECONDS),
                                   "--pid", str(server.process.pid)], capture_output=True, timeout=SECONDS * 3 + 600)
            report = json.loads(done.stdout)
            print(json.dumps(report))
            self.assertEqual(done.returncode, 0, report)
            self.assertEqual(report["refused"], 0)
            if MEMORY_MEANS_SOMETHING:
                growth = report["memory_mb"]["at_end"] - report["memory_mb"]["after_first_third"]
                self.assertLess(growth, 16, "memory grows")
            server.wait_idle()
        finally:
            self.assertEqual(server.stop(), 0)

    def test_models_come_and_go_under_load(self):
        """Models that are loaded by requests and let go between them: no request is lost, none hears another model."""
        seconds = min(SECONDS, 10)
        models = {"first": "tiny-cv", "second": "tiny-cv-1b7", "third": "tiny-endless"}
        server = Server("--name", "first", "--unload-seconds", 1, "--slots", 4, "--cache-capacity", 256,
                        *(word for name in ("second", "third") for word in ("--add-model", f"{name}={MODELS / models[name]}")))
        try:
            ask = lambda name, seed: server.speech(model=name, seed=seed, max_frames=1 + seed % 9, input="Hi")
            alone = {(name, seed): ask(name, seed).body for name in models for seed in range(4)}
            self.assertEqual(len(set(alone.values())), len(alone))
            wrong, spoken, gone = [], [], set()
            end = time.monotonic() + seconds

            def client(number):
                choose = random.Random(number)
                while time.monotonic() < end:
                    key = choose.choice(list(alone))
                    answer = ask(*key)
                    spoken.append(key[0])
                    if answer.status != 200 or answer.body != alone[key]:
                        wrong.append((key, answer.status, answer.body[:300]))
                    time.sleep(choose.choice((0, 0, 1, 2.5)))

            threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            before = dict.fromkeys(models, "ready")
            while any(thread.is_alive() for thread in threads):
                states = {m["id"]: m["state"] for m in server.get("/ready").json()["models"]}
                gone |= {name for name in models if states[name] == "unloaded" and before[name] != "unloaded"}
                before = states
                time.sleep(0.01)
            self.assertEqual(wrong, [])
            self.assertEqual(set(spoken), set(models))
            self.assertTrue(gone, "no model was let go while others spoke: the test shows nothing")
            print(f"{len(spoken)} requests to {len(models)} models, let go in between: {sorted(gone)}")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_clients_that_leave_at_random(self):  # B081
        count = 60 if SLOW else int(os.environ.get("SKALD_LOAD_DISCONNECTS", 200))
        server = Server("--slots", 4, "--queue", 64, model="tiny-endless")
        try:
            def leave(number):
                choose = random.Random(number)
                for _ in range(count // 8):
                    with contextlib.suppress(OSError), server.connect() as s:
                        data = post_bytes("/v1/audio/speech", speech_body(max_frames=choose.randrange(1, 400), input="Hi",
                                                                          response_format=choose.choice(["pcm", "mp3", "opus", "wav"]),
                                                                          stream=choose.choice([..., False, True])))
                        s.sendall(data[:choose.randrange(len(data) + 200)])
                        s.settimeout(choose.random() * 0.3)
                        with contextlib.suppress(OSError):
                            for _ in range(choose.randrange(20)):
                                s.recv(4096)
            threads = [threading.Thread(target=leave, args=(i,)) for i in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            server.wait_idle(30)
            self.assertEqual(server.speech(max_frames=3, input="Hi").status, 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_many_requests_keep_memory_flat(self):  # B085, B089: nobody reads the log
        count = 150 if SLOW else int(os.environ.get("SKALD_LOAD_REQUESTS", 600))
        server = Server("--cache-capacity", 512)
        try:
            after = 0
            for i in range(count):
                self.assertEqual(server.speech(max_frames=1 + i % 7, seed=i, input=f"Request {i}.").status, 200)
                if i == count // 3:
                    after = server.memory()
            if MEMORY_MEANS_SOMETHING:
                self.assertLess(server.memory() - after, 8 * 2**20)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
