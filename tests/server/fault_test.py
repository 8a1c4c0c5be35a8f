"""Faults of the stand-in GPU while requests are spoken: the right status, then another process and the same speech again.

The stand-in is slow: a frame takes a good part of a second, on a busy machine many. What is promised in seconds is the way back:
from the first request that fails to a server that can speak again.
"""
import shutil
import tempfile
import threading
import unittest

from support import *

STANDIN = pathlib.Path(os.environ.get("SKALD_STANDIN", ""))
# The device's own error where the request met it, or what a request meets while the worker is replaced.
LOST = {"device_lost", "worker_lost", "restarting", "draining"}
HANGS = {"device_wedged", "wedged", "worker_lost", "restarting", "draining"}
BACK_SECONDS = 10 * (6 if SLOW else 1)
WAIT = 300  # for a speech: the stand-in's, with as many others


class Devices(unittest.TestCase):
    """A server on stand-in devices whose faults are switched by a file."""
    options, devices, faults = (), "gfx1100:8192:d", ""

    @classmethod
    def setUpClass(cls):
        if not STANDIN.name:
            raise unittest.SkipTest("there is no stand-in")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="skald-faults-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.put("faults", cls.faults)
        cls.put("devices", cls.devices)
        cls.server = Server("--slots", 2, "--cache-capacity", 64, *cls.options, env={
            "SKALD_GPU_LIBRARIES": str(STANDIN / "hip"), "SKALD_SELF_TEST": "off", "XDG_CACHE_HOME": str(STANDIN / "code"),
            "STANDIN_HIP_FAULTS": f"@{cls.folder}/faults", "STANDIN_HIP_DEVICES": f"@{cls.folder}/devices"})
        first = cls.speak()
        assert first.status == 200, first.body[:300]
        cls.good = first.body

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, (status, cls.server.log)

    @classmethod
    def put(cls, name, text):
        new = cls.folder / (name + ".new")
        new.write_text(text + "\n")
        new.rename(cls.folder / name)

    @classmethod
    def fault(cls, text):
        cls.put("faults", text)

    @classmethod
    def speak(cls, **fields):
        return cls.server.speech(max_frames=3, input="Hi", timeout=WAIT, **{"stream": False, **fields})

    def worker(self):
        workers = children(self.server.process.pid)
        return workers[0] if workers else None

    def wait_ready(self, seconds=BACK_SECONDS, since=None):
        """Seconds until the server can speak."""
        since = time.monotonic() if since is None else since
        while self.server.get("/ready").status != 200:
            self.assertLess(time.monotonic() - since, seconds, "the server does not come back")
            time.sleep(0.02)
        return time.monotonic() - since

    def speaks_as_before(self):
        after = self.speak()
        self.assertEqual(after.status, 200, after.body[:300])
        self.assertTrue(after.body == self.good, "other audio than before")


class Load:
    """Three clients with two requests each: two take whole answers, one a stream."""

    def __init__(self, test):
        self.test, self.codes, self.wrong, self.failed_at = test, [], [], None
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(3)]
        for thread in self.threads:
            thread.start()

    def client(self, number):
        for _ in range(2):
            code = "ok"
            try:
                answer = self.test.speak(stream=False if number else ...)
                if answer.status != 200:
                    code = answer.error()["code"]
                    if answer.status != 503 or "Retry-After" not in answer.headers:
                        self.wrong.append((answer.status, dict(answer.headers), answer.body[:300]))
                elif answer.body != self.test.good:
                    self.wrong.append("other audio than alone")
            except (http.client.HTTPException, OSError) as error:
                # Only what had begun to be heard may end so.
                code = "broken off"
                if number:
                    self.wrong.append(f"a whole answer: {error!r}")
            self.codes.append(code)
            if code != "ok" and self.failed_at is None:
                self.failed_at = time.monotonic()

    def failed(self):
        """Waits for a request that fails; False = they all ended well."""
        while self.failed_at is None and any(thread.is_alive() for thread in self.threads):
            time.sleep(0.01)
        return self.failed_at is not None

    def join(self):
        for thread in self.threads:
            thread.join()
        self.test.assertEqual(self.wrong, [])
        self.seconds = time.monotonic() - self.began


class Faults(Devices):
    options = ("--worker", "hip")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        assert "the worker on GPU-" in cls.server.log, cls.server.log

    def check(self, fault, expected):
        """Requests while the fault is there fail in a way that is expected; the next process finds a healthy device."""
        worker, load = self.worker(), Load(self)
        time.sleep(0.5)
        self.fault(fault)
        met = load.failed()
        self.fault("")
        self.assertTrue(met, "the fault was not met")
        # Its requests may still be on their way out of the old process, which is no state to be ready in.
        while self.worker() == worker:
            self.assertLess(time.monotonic() - load.failed_at, BACK_SECONDS, "the worker is not replaced")
            time.sleep(0.01)
        back = self.wait_ready(since=load.failed_at)
        load.join()
        print(f"{fault}: {sorted(load.codes)}; able to speak {back:.1f} s after the first failure", flush=True)
        self.assertLessEqual(set(load.codes), expected | {"ok", "broken off"}, load.codes)
        self.assertEqual(self.server.get("/health").status, 200)
        self.speaks_as_before()

    def test_a_lost_device(self):
        self.check("dead@launch=2", LOST)

    def test_work_that_never_ends(self):
        self.check("hang@launch=2", HANGS)

    def test_work_that_is_the_last_to_end(self):
        self.check("lost@launch=2", HANGS)

    def test_calls_that_fail(self):
        for code in (719, 999):
            with self.subTest(code):
                self.check(f"fail=launch_graph:{code}", LOST)

    def test_a_call_that_the_device_refuses(self):
        self.check("fail=launch_graph:1", {"device"} | LOST)

    def test_a_device_that_cannot_be_opened_for_a_while(self):
        for fault in ("fail=set_device:101", "oom@malloc=3", "nobin=gfx1100", "nofunc=link_mark", "crash@init"):
            with self.subTest(fault):
                before = self.server.metric("skald_worker_restarts_total")
                self.fault(fault)
                seen, end = {self.worker()}, time.monotonic() + 60
                os.kill(max(seen), signal.SIGKILL)
                while len(seen) < 4 and time.monotonic() < end:  # the old one, none, and two that cannot open it
                    seen.add(self.worker())
                    time.sleep(0.005)
                self.assertGreaterEqual(len(seen), 4, "the fault was not met")
                refused = self.speak()
                self.assertEqual((refused.status, refused.error()["code"]), (503, "restarting"))
                self.fault("")
                back = self.wait_ready()
                print(f"{fault} at the start: able to speak {back:.1f} s after its end", flush=True)
                self.speaks_as_before()
                self.assertGreater(self.server.metric("skald_worker_restarts_total"), before + 1)


    def test_a_driver_that_hangs_in_its_start(self):
        """It is tried out in a process of its own, and in another one while that has not ended."""
        self.fault("hang@init")
        os.kill(self.worker(), signal.SIGKILL)
        time.sleep(3)
        refused = self.speak()
        self.assertEqual((refused.status, refused.error()["code"]), (503, "restarting"))
        self.fault("")
        print(f"hang@init: able to speak {self.wait_ready():.1f} s after its end", flush=True)
        self.speaks_as_before()


class Completions(Devices):
    # However slow the stand-in is, its work is no standstill here.
    options = ("--worker", "hip", "--gpu-deadline", 600, "--stuck-seconds", 600)

    def test_one_that_never_comes_neither_fails_nor_delays(self):
        plain = Load(self)
        plain.join()
        self.assertEqual(set(plain.codes), {"ok"})
        lost, worker = self.server.metric("skald_lost_completions_total"), self.worker()
        load = Load(self)
        time.sleep(0.5)
        self.fault("blind@launch=2")
        load.join()
        self.fault("")
        print(f"blind: {load.seconds:.1f} s, without {plain.seconds:.1f} s", flush=True)
        self.assertEqual(load.codes, ["ok"] * 6)
        self.assertLess(load.seconds, 2 * plain.seconds + 5)
        self.server.wait_idle(60)
        self.assertGreater(self.server.metric("skald_lost_completions_total"), lost)
        self.assertEqual(self.worker(), worker)
        self.assertEqual(self.server.metric("skald_worker_restarts_total"), 0)
        self.speaks_as_before()


class Identity(Devices):
    """A worker is opened again on the device that it had, whatever its number is by then; never on another."""
    options, devices, name = ("--worker", "hip:1"), "gfx1100:8192:d:32:a,gfx1100:8192:d:32:b", "GPU-000000000000abcb"

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        assert f"the worker on {cls.name} can speak again" in cls.server.log, cls.server.log

    def device(self):
        return self.server.get("/ready").json()["models"][0]["device"].split()[0]

    def replace(self, devices):
        self.put("devices", devices)
        os.kill(self.worker(), signal.SIGKILL)
        while self.server.get("/ready").status == 200:
            time.sleep(0.01)

    def test_the_same_device_under_another_number(self):
        first, second = self.devices.split(",")
        self.assertEqual(self.device(), "hip:1")
        self.replace(f"{second},{first}")
        self.wait_ready()
        self.assertEqual(self.device(), "hip:0")
        self.speaks_as_before()
        self.replace(first)
        for _ in range(30):
            self.assertEqual(self.server.get("/ready").status, 503)
            time.sleep(0.1)
        self.put("devices", self.devices)
        self.wait_ready()
        self.assertEqual(self.device(), "hip:1")


class IdentityWithoutUuid(Identity):
    faults, name = "nouuid", "0000:0b:00.0"


if __name__ == "__main__":
    unittest.main()
