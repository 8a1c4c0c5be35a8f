"""Voices from recordings: uploads, lists, deletions, inline references; consent, limits, other people's changes."""
import base64
import concurrent.futures
import math
import random
import shutil
import struct
import tempfile
import unittest

from support import *


def clip(seconds=4.0, rate=24000, seed=1, level=0.3):
    """A WAV of something like a voice: a tone that wavers, and noise."""
    choose, samples = random.Random(seed), []
    for i in range(int(seconds * rate)):
        t = i / rate
        value = math.sin(2 * math.pi * (150 + 30 * math.sin(3 * t)) * t) * (0.6 + 0.4 * math.sin(5 * t)) + 0.1 * choose.gauss(0, 1)
        samples.append(max(-32768, min(32767, int(level * 32767 * value))))
    data = struct.pack(f"<{len(samples)}h", *samples)
    return (b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " +
            struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16) + b"data" + struct.pack("<I", len(data)) + data)


def form(audio=None, **fields):
    boundary = "8f3a"
    body = b""
    for name, value in fields.items():
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    if audio is not None:
        body += (f'--{boundary}\r\nContent-Disposition: form-data; name="audio_sample"; filename="../../clip.wav"\r\n'
                 "Content-Type: audio/wav\r\n\r\n").encode() + audio + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


class VoiceCase(unittest.TestCase):
    options = ()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skald-voices-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.start()

    def start(self, *options):
        self.server = Server("--voices", self.folder / "shelf", "--audit", self.folder / "audit.jsonl", *self.options, *options,
                             model="tiny-base")
        self.addCleanup(self.server.stop)

    assert_error = Case.assert_error

    def upload(self, audio=None, path="/v1/audio/voices", **fields):
        body, headers = form(clip() if audio is None else audio, **fields)
        return self.server.post(path, body, headers=headers)

    def speak(self, voice="anna", **fields):
        return self.server.speech(voice=voice, model="tiny-base", **fields)

    def names(self):
        return [v["id"] for v in self.server.get("/v1/audio/voices").json()["voices"]]


class Voices(VoiceCase):
    def test_a_life(self):  # B048, B049, B118, C012
        self.assertEqual(self.names(), [])
        self.assert_error(self.speak(), 400, "unknown_voice", "voice")
        self.assert_error(self.upload(name="anna"), 400, "consent_required", "consent")
        self.assert_error(self.upload(name="anna", consent="  "), 400, "consent_required", "consent")
        made = self.upload(name="anna", consent="It is my own voice.", ref_text="What the clip says.")
        self.assertEqual(made.status, 201, made.body)
        self.assertEqual((made.json()["name"], made.json()["in_context"]), ("anna", True))
        self.assertEqual(self.names(), ["anna"])
        entry = self.server.get("/voices").json()["voices"][0]
        self.assertEqual((entry["kind"], entry["clone"], entry["model"]), ("clone", True, "tiny-base"))
        first = self.speak()
        self.assertEqual(first.status, 200, first.body[:200])
        self.assertGreater(len(first.body), FRAME)
        self.assertNotEqual(self.speak(x_vector_only_mode=True).body, first.body)
        # Another recording under the same name: refused, then with force spoken with at once.
        again = self.upload(clip(seed=9), name="anna", consent="mine", ref_text="What the clip says.")
        self.assert_error(again, 409, "voice_exists", "name")
        self.assertEqual(self.audited("voice_made"), 1, "what cannot be kept is not made")
        self.assertEqual(self.speak().body, first.body)
        self.assertEqual(self.upload(clip(seed=9), name="anna", consent="mine", ref_text="What the clip says.", force="true").status, 201)
        second = self.speak().body
        self.assertNotEqual(second, first.body)
        # A restart keeps it; a deletion does not.
        self.assertEqual(self.server.stop(), 0)
        self.start()
        self.assertEqual(self.speak().body, second)
        self.assertEqual(self.server.request("DELETE", "/v1/audio/voices/anna").json()["deleted"], True)
        self.assert_error(self.server.request("DELETE", "/v1/voices/anna"), 404, "unknown_voice", "name")
        self.assert_error(self.speak(), 400, "unknown_voice", "voice")
        self.assertEqual(list((self.folder / "shelf").iterdir()), [])
        lines = [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]
        self.assertIn("cloned_speech", {line["event"] for line in lines})

    def test_a_voice_keeps_its_spelling(self):
        said = {"consent": "mine", "ref_text": "What the clip says."}
        self.assertEqual(self.upload(name="Anna", **said).status, 201)
        first = self.speak("Anna")
        self.assertEqual(self.speak("aNNA").body, first.body)
        self.assert_error(self.upload(name="anna", **said), 409, "voice_exists", "name")
        again = self.upload(clip(seed=9), name="anna", force="true", **said)
        self.assertEqual((again.status, again.json()["name"]), (201, "Anna"))
        self.assertEqual(self.names(), ["Anna"])
        self.assertNotEqual(self.speak("anna").body, first.body)
        self.assertIn("Anna", self.speak("ben").error()["message"])

    def test_a_recording_beside_a_batch_is_encoded_once(self):
        audio = base64.b64encode(clip()).decode()
        said = {"ref_audio": audio, "ref_text": "What the clip says.", "consent": "mine", "response_format": "pcm", "seed": 7,
                "language": "english", "max_frames": 20}
        alone = self.server.post("/v1/audio/voice-clone", {"input": "Hello there.", **said})
        self.assertEqual(alone.status, 200, alone.body[:200])
        made = self.audited("voice_made")
        items = [{"input": "Hello there."}, {"input": "Hello there.", "x_vector_only_mode": True}, {"input": "Hello there."}]
        answer = self.server.post("/v1/audio/speech/batch", {**said, "items": [items[0], items[2], items[1]]})
        results = answer.json()["results"]
        self.assertEqual([r["status"] for r in results], [200, 200, 200])
        self.assertEqual([base64.b64decode(r["audio"]) == alone.body for r in results], [True, True, False])
        self.assertEqual(self.audited("voice_made") - made, 2)

    def audited(self, event):
        lines = (self.folder / "audit.jsonl").read_text().splitlines()
        return sum(json.loads(line)["event"] == event for line in lines)

    def test_changes_of_others_count_at_once(self):  # B048, C012
        self.upload(name="anna", consent="mine", ref_text="What the clip says.")
        self.upload(clip(seed=5), name="ben", consent="mine", ref_text="What the clip says.")
        anna, ben = self.speak("anna").body, self.speak("ben").body
        shelf = self.folder / "shelf"
        stamp = (shelf / "anna.safetensors").stat()
        data = (shelf / "ben.safetensors").read_bytes()
        (shelf / "anna.safetensors").write_bytes(data)
        os.utime(shelf / "anna.safetensors", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        self.assertNotEqual(anna, ben)
        got = self.speak("anna")
        self.assertTrue(got.status == 400 or got.body == ben, "the old recording was spoken")
        (shelf / "anna.safetensors").unlink()
        self.assert_error(self.speak("anna"), 400, "unknown_voice", "voice")
        (shelf / "ben.safetensors").write_bytes(data[:100])
        broken = self.speak("ben")
        self.assertEqual(broken.status, 400)
        self.assertNotIn(str(self.folder), broken.body.decode())

    def test_names_stay_out_of_the_log(self):  # C019
        (self.folder / "shelf").mkdir()
        (self.folder / "shelf" / "zanzibar.safetensors").mkdir()  # cannot be deleted as a file is
        self.assert_error(self.server.request("DELETE", "/v1/voices/zanzibar"), 500, "io")
        for voice in ("zanzibar", "anna"):
            answer = self.speak(voice)
            self.assertGreaterEqual(answer.status, 400)
            self.assertNotIn(str(self.folder), answer.body.decode())
        self.assertEqual(self.server.stop(), 0)
        self.assertNotIn("zanzibar", self.server.log)
        self.assertIn("remove failed: io", self.server.log)

    def test_parallel_uploads(self):  # B049
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.upload(clip(3, seed=i), name=f"v{i % 10}", consent="mine").status, range(20)))
        self.assertEqual(sorted(set(answers)), [201, 409])
        self.assertEqual(answers.count(201), 10)
        self.assertEqual(sorted(self.names()), sorted(f"v{i}" for i in range(10)))

    def test_broken_recordings(self):  # B051, B121, B125, C010
        for audio in (b"", b"RIFF", os.urandom(5000), b"<html>not audio</html>", clip(0.01), clip(level=0.0), clip(70)):
            answer = self.upload(audio, name="x", consent="mine")
            self.assertEqual(answer.status, 400, answer.body[:200])
            message = answer.error()["message"]
            self.assertNotIn("/tmp", message)
            self.assertNotIn("libsndfile", message.lower())
        self.assertEqual(self.names(), [])
        for name in ("../x", "a/b", "", "x" * 65, "%2e%2e"):
            self.assertEqual(self.upload(name=name, consent="mine").status, 400, name)
        self.assertEqual(self.server.request("DELETE", "/v1/voices/..%2f..%2fetc").status, 404)
        self.assertEqual(self.server.request("DELETE", "/v1/voices/%00").status, 404)

    def test_oversize(self):  # B123
        body, headers = form(b"RIFF" + bytes(11_000_000), name="x", consent="mine")
        self.assertEqual(self.server.post("/v1/voices", body, headers=headers).status, 413)
        body, headers = form(b"RIFF" + bytes(20_000_000), name="x", consent="mine")
        self.assertEqual(self.server.post("/v1/voices", body, headers=headers).status, 413)

    def test_inline(self):  # B122
        audio = base64.b64encode(clip()).decode()
        fields = {"ref_audio": audio, "ref_text": "What the clip says.", "consent": "mine"}
        got = self.speak(**fields)
        self.assertEqual(got.status, 200, got.body[:200])
        self.assertEqual(self.speak(**{**fields, "ref_audio": "data:audio/wav;base64," + audio}).body, got.body)
        self.upload(name="anna", consent="mine", ref_text="What the clip says.")
        self.assertEqual(self.speak("anna").body, got.body)
        self.assert_error(self.speak(**{**fields, "consent": ...}), 400, "consent_required", "consent")
        self.assert_error(self.speak(**{**fields, "ref_audio": "http://127.0.0.1:9/a.wav"}), 400, "reference_not_inline", "ref_audio")
        clone = self.server.post("/v1/audio/voice-clone", {
            "input": "Hello there.", "response_format": "pcm", "seed": 7, "language": "english", "max_frames": 20, **fields})
        self.assertEqual(clone.body, got.body)
        self.assert_error(self.server.post("/v1/audio/voice-clone", {"input": "x", "ref_audio": audio, "consent": "mine"}), 400,
                          "missing_ref_text", "ref_text")
        alone = self.server.post("/v1/audio/voice-clone", {"input": "x", "ref_audio": audio, "consent": "mine", "max_frames": 2,
                                                           "x_vector_only_mode": True})
        self.assertEqual(alone.status, 200)
        capabilities = self.server.get("/v1/audio/voice-clone/capabilities").json()
        self.assertEqual((capabilities["supported"], capabilities["model_type"]), (True, "base"))


class Limited(VoiceCase):
    options = ("--max-voices", 1)

    def test_quota(self):
        self.assertEqual(self.upload(name="a", consent="mine").status, 201)
        self.assert_error(self.upload(name="b", consent="mine"), 403, "voice_quota")
        self.assertEqual(self.upload(name="a", consent="mine", force="1").status, 201)


class NoClone(VoiceCase):
    options = ("--no-clone",)

    def test_recordings_are_refused(self):
        self.assert_error(self.upload(name="a", consent="mine"), 403, "cloning_disabled")
        audio = base64.b64encode(clip(1)).decode()
        self.assert_error(self.speak(ref_audio=audio, consent="mine"), 403, "cloning_disabled", "ref_audio")
        self.assertIs(self.server.get("/v1/audio/voice-clone/capabilities").json()["supported"], False)


if __name__ == "__main__":
    unittest.main()
