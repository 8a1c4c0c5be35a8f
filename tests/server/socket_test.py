"""The WebSocket: text in pieces, several utterances, faults in between, barge-in."""
import contextlib
import time
import unittest

from support import *

CONFIG = {"type": "session.config", "voice": "alloy", "language": "english", "seed": 7, "max_frames": 20}


class Socket(Case):
    options = ("--slots", 2, "--text-wait-seconds", 2)

    def setUp(self):
        self.ws = WebSocket(self.server)
        self.addCleanup(self.ws.close)
        self.assertEqual(self.ws.status, 101)

    def say(self, text):
        self.ws.send({"type": "input.text", "text": text})

    def done(self):
        self.ws.send({"type": "input.done"})
        return self.ws.until("audio.done")[0]

    def test_pieces_give_the_same_as_one(self):  # B059
        self.ws.send(CONFIG)
        self.say("Hello there. How are you?")
        whole = self.done()
        self.assertEqual(whole["frames"], 20)
        self.assertEqual(len(whole["audio"]), 20 * 2 * FRAME)
        for piece in ("Hel", "lo there", ". How", " are you?"):
            self.say(piece)
        self.assertEqual(self.done()["audio"], whole["audio"])

    def test_audio_comes_before_the_text_has_ended(self):
        self.ws.send(CONFIG)
        self.say("This sentence is long enough to be started at once, before anybody knows how it will go on, and on")
        start, _ = self.ws.until("audio.start")
        self.assertEqual((start["utterance"], start["format"], start["sample_rate"]), (0, "pcm", 24000))
        self.assertIsInstance(self.ws.receive(), bytes)
        self.done()

    def test_several_utterances_with_faults_in_between(self):  # C015
        self.ws.send(CONFIG)
        self.ws.until("session.configured")
        self.say("First.")
        self.assertEqual(self.done()["utterance"], 0)
        self.say("Second.")
        self.assertEqual(self.done()["utterance"], 1)
        self.say("Text that waits")
        self.ws.send({**CONFIG, "voice": "nova"})
        self.assertEqual(self.ws.until("error")[0]["error"]["code"], "text_waiting")
        kept = self.done()
        self.assertEqual(kept["utterance"], 2)
        self.assertGreater(len(kept["audio"]), 0, "the waiting text was lost")
        empty = self.done()
        self.assertEqual((empty["utterance"], empty["frames"], empty["empty"]), (3, 0, True))
        self.say("")
        self.ws.send({**CONFIG, "voice": "nova"})
        self.ws.until("session.configured")
        self.ws.send({"type": "nonsense"})
        self.assertEqual(self.ws.until("error")[0]["error"]["code"], "unknown_message")
        self.say("...")
        failed = self.done()
        self.assertEqual(failed["error"]["code"], "nothing_to_speak")
        self.say("After a failure.")
        self.assertNotIn("error", self.done())
        self.ws.send(b"\x00\x01", opcode=2)
        self.assertEqual(self.ws.until("error")[0]["error"]["code"], "invalid_argument")
        self.ws.send({"type": "session.close"})
        self.assertEqual(self.ws.until("session.done")[0]["utterances"], 6)
        self.assertIsNone(self.ws.receive())

    def test_bad_messages(self):
        self.say("too early")
        self.assertEqual(self.ws.until("error")[0]["error"]["code"], "not_configured")
        for message, code in ((b"{", "invalid_json"), (b"[]", "invalid_json"), (b'{"a":1}', "invalid_argument"),
                              (b'{"type":5}', "invalid_argument")):
            self.ws.send(message)
            self.assertEqual(self.ws.until("error")[0]["error"]["code"], code)
        self.ws.send({**CONFIG, "voice": "nobody"})
        self.assertEqual(self.ws.until("error")[0]["error"]["param"], "voice")
        self.ws.send(CONFIG)
        self.ws.send({"type": "input.text", "text": 5})
        self.assertEqual(self.ws.until("error")[0]["error"]["param"], "text")
        self.ws.send({"type": "input.text", "text": "x" * 4097})
        self.assertEqual(self.ws.until("error")[0]["error"]["code"], "text_too_long")
        self.say("Still fine.")
        self.assertEqual(self.done()["frames"], 20)

    def test_field_aliases_mean_the_same_here(self):  # B015
        config = {k: v for k, v in CONFIG.items() if k != "voice"}
        self.ws.send({**config, "speaker": "nova"})
        self.say("Hello there.")
        spoken = self.done()["audio"]
        plain = self.server.speech(voice="nova", text_layout="ahead").body
        self.assertEqual(spoken, plain)

    def test_text_that_never_comes_ends_the_utterance(self):
        self.ws.send(CONFIG)
        self.say("Hi")
        end, _ = self.ws.until("audio.done")
        self.assertIn("error", end)
        self.say("Hello there.")
        self.assertEqual(self.done()["frames"], 20)

    def test_twenty_five_utterances(self):  # C015
        self.ws.send(CONFIG)
        for i in range(25):
            self.say("Hello there.")
            self.assertEqual(self.done()["utterance"], i)


class Slow(Case):
    seconds = 3 * (6 if SLOW else 1)
    options = ("--slots", 1, "--text-wait-seconds", 10 * seconds, "--request-seconds", seconds)

    def test_text_that_dribbles_does_not_hold_a_slot_for_ever(self):
        ws = WebSocket(self.server)
        ws.send({**CONFIG, "max_frames": 2000})
        ws.until("session.configured")
        ws.socket.settimeout(0.3)
        began = time.monotonic()
        got = None
        while got is None and time.monotonic() - began < 3 * self.seconds:
            ws.send({"type": "input.text", "text": "a"})
            time.sleep(0.3)
            if self.server.metric("skald_requests_running") == 0:
                got = time.monotonic() - began
        self.assertIsNotNone(got, "the slot is still held")
        self.assertGreater(got, 0.8 * self.seconds)
        ws.close()
        self.assertEqual(self.server.speech().status, 200)


class BargeIn(Case):
    model = "tiny-endless"
    options = ("--slots", 1)

    def test_cancel_ends_at_once_and_the_session_goes_on(self):  # B082
        ws = WebSocket(self.server)
        ws.send({**CONFIG, "max_frames": 3000})
        ws.send({"type": "input.text", "text": "Hello"})
        ws.send({"type": "input.done"})
        ws.until("audio.start")
        began = time.monotonic()
        ws.send({"type": "input.cancel"})
        end, _ = ws.until("audio.done")
        self.assertTrue(end["cancelled"])
        self.assertLess(time.monotonic() - began, 5)
        self.server.wait_idle()
        ws.send({**CONFIG, "max_frames": 2})
        ws.until("session.configured")
        ws.send({"type": "input.text", "text": "Hello"})
        ws.send({"type": "input.done"})
        self.assertEqual(ws.until("audio.done")[0]["frames"], 2)
        ws.close()

    def test_a_client_that_takes_nothing_frees_the_slot(self):
        ws = WebSocket(self.server)
        ws.send({**CONFIG, "max_frames": 4000})
        ws.send({"type": "input.text", "text": "Hello"})
        ws.send({"type": "input.done"})
        ws.until("audio.start")
        with contextlib.suppress(ConnectionError):  # sooner or later the server lets go of it
            for _ in range(20):
                ws.send(b"", opcode=10)  # it is alive
                time.sleep(2)
        self.server.wait_idle(20)
        ws.close()

    def test_a_client_that_leaves_frees_the_slot(self):
        for _ in range(5):
            ws = WebSocket(self.server)
            ws.send({**CONFIG, "max_frames": 3000})
            ws.send({"type": "input.text", "text": "Hello"})
            ws.send({"type": "input.done"})
            ws.until("audio.start")
            ws.close()
            self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
