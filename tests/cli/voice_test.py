"""Voices as their users make and keep them, and the two directions of the codec."""
import array
import json
import os
import pathlib
import signal
import struct
import subprocess
import time
import unittest
import wave

from support import FRAME, MODELS, ROOT, SKALD, Case, Npy, environment, skald, wav, write_npy

BASE, BASE_1B7, DESIGN = MODELS / "tiny-base", MODELS / "tiny-base-1b7", MODELS / "tiny-vd"
RIGHTS = "--i-have-rights"
SANITIZED = bool(os.environ.get("SKALD_SANITIZE"))


def tone(count, seed=1, level=0.2):
    """Something like a voice: a buzz whose pitch depends on the seed, in syllables, with noise."""
    period, noise, out = 90 + 37 * seed % 120, seed, array.array("h")
    for n in range(count):
        noise = (noise * 1664525 + 1013904223) & 0xFFFFFFFF
        swell = abs((n * 5 // 24 % 2000) - 1000) / 1000
        buzz = 2 * (n % period) / period - 1
        out.append(int(32767 * level * (swell * buzz + 0.05 * (noise / 2**31 - 1))))
    return out


def write_wav(path, samples, rate=24000, channels=1):
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return path


class Safetensors:
    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        self.header = json.loads(data[8:8 + size])
        self.metadata, self.body = self.header.pop("__metadata__"), data[8 + size:]

    def values(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        return array.array({"F32": "f", "I32": "i"}[entry["dtype"]], self.body[begin:end]).tolist()


class Voices(Case):
    def setUp(self):
        super().setUp()
        self.store = self.dir / "store"
        self.env = {"SKALD_VOICES": str(self.store), "SKALD_MODEL": str(BASE)}
        self.clip = write_wav(self.dir / "clip.wav", tone(36000))

    def skald(self, *words, status=0, **more):
        more.setdefault("env", self.env)
        return self.assert_status(skald(*words, **more), status)

    def add(self, name="anna", *words, clip=None, **more):
        return self.skald("voice", "add", name, "--from", clip or self.clip, RIGHTS, *words, **more)

    def speak(self, voice, *words, text="Hello there", **more):
        out = self.dir / "out.wav"
        self.skald("say", "--voice", voice, "--greedy", "--max-frames", "12", "-o", out, *words, text, **more)
        return wav(out).data

    def names(self):
        return [v["name"] for v in self.skald("voice", "list", "--json").json()["voices"]]

    def refused(self, result, code):
        self.assertIn(f"[{code}]", result.err)
        self.assertEqual(result.err.count("\n"), 1, result.err)

    def stored(self):
        return sorted(p.name for p in self.store.glob("*.safetensors")) if self.store.exists() else []


class Making(Voices):
    def test_add_and_speak(self):
        made = self.add("anna", "--text", "Words of the clip", "--language", "en", "--identity", "real", "--json").json()
        self.assertEqual((made["kind"], made["width"], made["frames"], made["identity"]), ("in_context", 32, 19, "real"))
        file = Safetensors(self.store / "anna.safetensors")
        self.assertEqual(file.header["xvector"]["shape"], [32])
        self.assertEqual(file.header["codes"]["shape"], [19, 16])
        self.assertEqual(file.metadata["name"], "anna")
        self.assertEqual(file.metadata["ref_text"], "Words of the clip")
        self.assertIn("--i-have-rights", file.metadata["consent"])
        self.skald("codec", "encode", self.clip, "-o", self.dir / "codes.npy")
        self.assertEqual(list(Npy(self.dir / "codes.npy").values()), file.values("codes"))
        self.assertEqual(len(self.speak("anna")), 12 * FRAME * 2)
        # The same from the parts of the file.
        write_npy(self.dir / "x.npy", "<f4", [32], file.values("xvector"))
        parts = self.dir / "parts.wav"
        self.skald("say", "--x-vector", self.dir / "x.npy", "--ref-codes", self.dir / "codes.npy", "--ref-text",
                   "Words of the clip", "--language", "en", "--greedy", "--max-frames", "12", "-o", parts, "Hello there")
        self.assertEqual(wav(parts).data, self.speak("anna"))
        rows = len(self.skald("prompt", "--json", "--voice", "anna", "Hello").json()["rows"])
        alone = len(self.skald("prompt", "--json", "--voice", "anna", "--x-vector-only", "Hello").json()["rows"])
        self.assertEqual(rows - alone, 19)  # its frames
        self.assertNotEqual(self.speak("anna", "--x-vector-only"), self.speak("anna"))

    def test_memory_that_was_used_before_changes_nothing(self):  # B040
        results = []
        for fill in (0, 170):  # glibc fills what it hands out, as does the allocator of the address sanitizer
            self.env["MALLOC_PERTURB_"] = str(fill)
            self.env["ASAN_OPTIONS"] = (os.environ.get("ASAN_OPTIONS", "") +
                                        f":max_malloc_fill_size={1 << 20}:malloc_fill_byte={fill}")
            self.add("anna", "--text", "Words of the clip", "--replace")
            file = Safetensors(self.store / "anna.safetensors")
            del file.metadata["created"]  # the second differs
            self.assertEqual(len(file.values("codes")), 19 * 16)
            results.append((file.metadata, file.header, file.body, self.speak("anna")))
        for what, clean, used in zip(("metadata", "tensors", "numbers", "speech"), *results):
            self.assertTrue(clean == used, what)

    def test_without_words_the_speaker_vector_alone(self):
        made = self.add("anna", "--json").json()
        self.assertEqual((made["kind"], made["frames"]), ("x_vector", 0))
        self.assertEqual(list(Safetensors(self.store / "anna.safetensors").header), ["xvector"])
        self.speak("anna")

    def test_every_common_format(self):
        for suffix in ("flac", "mp3", "ogg", "opus"):
            clip = ROOT / "tests/fixtures/audio" / f"clip.{suffix}"
            self.assertGreater(self.add(suffix, "--json", clip=clip).json()["seconds"], 0.3)
        self.assertGreater(self.skald("voice", "add", "piped", "--from", "-", RIGHTS, "--json",
                                      stdin=self.clip.read_bytes()).json()["seconds"], 1)
        self.assertEqual(self.names(), ["flac", "mp3", "ogg", "opus", "piped"])

    def test_no_consent_no_voice(self):  # B118
        for words in ([], ["--identity", "real"], ["--consent", " "]):
            result = self.skald("voice", "add", "anna", "--from", self.clip, "--text", "Some words", *words, status=2)
            self.refused(result, "consent_required")
            self.assertIn("--i-have-rights", result.err)
        self.assertFalse(self.store.exists())
        self.skald("voice", "add", "anna", "--from", self.clip, "--consent", "Anna, on Monday")
        self.assertEqual(self.skald("voice", "show", "anna", "--json").json()["consent"], "Anna, on Monday")

    def test_words_beside_the_clip(self):  # B050
        (self.dir / "clip.txt").write_text("Words from beside\n")
        note = self.add("beside")
        self.assertIn("clip.txt", note.err)
        self.add("given", "--text", "Given words")
        self.add("none", "--text", "")
        texts = [self.skald("voice", "show", n, "--json").json()["ref_text"] for n in ("beside", "given", "none")]
        self.assertEqual(texts, ["Words from beside", "Given words", ""])

    def test_doubtful_words_are_warned_about(self):  # B021
        self.assertIn("2000 characters for 1.5 s", self.add("anna", "--text", "a" * 2000).err)
        self.assertIn("1 characters for 1.5 s", self.add("bo", "--text", "a").err)

    def test_verdicts_about_the_clip(self):  # C010, B051
        loud = tone(48000)
        pairs = lambda right: array.array("h", (v for x in loud for v in (x, right(x))))
        cancel = write_wav(self.dir / "cancel.wav", pairs(lambda x: -x), channels=2)
        result = self.add("anna", clip=cancel, status=2)
        self.refused(result, "audio_invalid")
        self.assertIn("cancel", result.err)
        silent = write_wav(self.dir / "silent.wav", array.array("h", [0] * 48000))
        self.refused(self.add("anna", clip=silent, status=2), "audio_invalid")
        short = write_wav(self.dir / "short.wav", loud[:1000])
        self.refused(self.add("anna", clip=short, status=2), "audio_invalid")
        empty = write_wav(self.dir / "empty.wav", loud[:0])
        self.refused(self.add("anna", clip=empty, status=2), "audio_invalid")
        odd = self.dir / "odd.wav"
        body = array.array("f", [x / 32768 for x in loud])
        body[777] = float("nan")
        odd.write_bytes(b"RIFF" + struct.pack("<I", 36 + 4 * len(body)) + b"WAVEfmt " +
                        struct.pack("<IHHIIHH", 16, 3, 1, 24000, 96000, 4, 32) + b"data" +
                        struct.pack("<I", 4 * len(body)) + body.tobytes())
        for command in (["voice", "add", "anna", RIGHTS, "--from"], ["codec", "encode", "-o", self.dir / "c.npy"]):
            result = self.skald(*command, odd, status=2)
            self.refused(result, "audio_invalid")
            self.assertIn("777", result.err)
        self.assertEqual(self.stored(), [])
        one_side = write_wav(self.dir / "one.wav", pairs(lambda x: 0), channels=2)
        self.add("one", clip=one_side)
        quiet = write_wav(self.dir / "quiet.wav", tone(48000, level=0.008))
        self.assertRegex(self.add("quiet", clip=quiet).err, r"quiet .*0\.00")

    def test_what_is_no_audio(self):  # B043, B125
        text = self.dir / "text.wav"
        text.write_text("no audio at all" * 100)
        result = self.add("anna", clip=text, status=2)
        self.refused(result, "audio_invalid")
        self.assertNotRegex(result.err.replace(str(text), ""), r"/|sndfile|\d\.\d")  # B125: no path or version of ours
        self.refused(self.add("anna", clip=self.dir / "absent.wav", status=1), "io")
        half = self.dir / "half.flac"
        half.write_bytes((ROOT / "tests/fixtures/audio/clip.flac").read_bytes()[:25000])
        self.assertRegex(self.add("half", clip=half).err, r"ends early: \d+ of 36000 samples")
        cut = self.dir / "cut.wav"
        whole = self.clip.read_bytes()
        cut.write_bytes(whole[:len(whole) // 2])
        self.assertRegex(self.add("cut", clip=cut).err, r"ends early: \d+ of \d+ samples")
        self.assertNotIn("ends early", self.add("whole").err)

    def test_names(self):  # B045, B121
        self.add("anna")
        for name in ("../anna", "a/b", "/etc/passwd", "a.wav", "%2e%2e", "a b", "x" * 65, "\uff0e\uff0e"):
            self.refused(self.skald("voice", "add", name, "--from", self.clip, RIGHTS, status=2), "invalid_argument")
            for command in (["voice", "show"], ["voice", "remove"]):
                self.assertIn(self.skald(*command, name, status=2).err.count("\n"), (1,))
            said = self.skald("say", "--voice", name, "-o", self.dir / "o.wav", "Hello", status=2)
            self.assertEqual(said.err.count("\n"), 1)
        for control in ("a\nb", "\x1b[31m"):  # B123: nothing of a name reaches the terminal as it is
            result = self.skald("say", "--voice", control, "-o", self.dir / "o.wav", "Hello", status=2)
            self.assertEqual(result.err.count("\n"), 1)
            self.assertNotIn("\x1b", result.err)
        result = self.skald("say", "--voice", "nobody", "-o", self.dir / "o.wav", "Hello", status=2)
        self.refused(result, "unknown_voice")
        self.assertIn("anna", result.err)
        self.assertFalse((self.dir / "o.wav").exists())

    def test_a_model_of_another_width(self):
        self.add("anna", "--text", "Some words here")
        write_npy(self.dir / "x.npy", "<f4", [31], [0.25] * 31)
        result = self.skald("say", "--x-vector", self.dir / "x.npy", "-o", self.dir / "o.wav", "Hello", status=2)
        self.assertIn("--x-vector has 31 numbers", result.err)
        result = self.skald("say", "--model", BASE_1B7, "--voice", "anna", "-o", self.dir / "o.wav", "Hello", status=2)
        self.refused(result, "voice_invalid")
        self.assertRegex(result.err, "base 0b6.*base 1b7")
        self.skald("voice", "add", "bo", "--model", BASE_1B7, "--from", self.clip, RIGHTS)
        listed = self.skald("say", "--list-voices")
        self.assertEqual(listed.out.decode().split(), ["anna"])
        self.assertIn('"bo"', listed.err)
        for model in (DESIGN, MODELS / "tiny-cv"):
            self.refused(self.skald("voice", "add", "carl", "--model", model, "--from", self.clip, RIGHTS, status=2),
                         "unsupported")

    def test_design(self):
        sample = self.dir / "sample.wav"
        made = self.skald("voice", "design", "vera", "--model", DESIGN, "--base", BASE, "--describe", "A calm voice",
                          "--sample-text", "Some words to be said.", "--language", "en", "--seed", "3", "-o", sample,
                          "--json").json()
        self.assertEqual((made["identity"], made["clone"], made["source"], made["seed"]), ("synthetic", False, "design", 3))
        shown = self.skald("voice", "show", "vera", "--json").json()
        self.assertEqual((shown["description"], shown["ref_text"], shown["language"]),
                         ("A calm voice", "Some words to be said.", "english"))
        self.assertEqual(made["frames"] * FRAME, wav(sample).samples)
        said = self.dir / "said.wav"
        self.skald("say", "--model", DESIGN, "--instruct", "A calm voice", "--language", "en", "--seed", "3", "-o", said,
                   "Some words to be said.")
        self.assertEqual(sample.read_bytes(), said.read_bytes())
        self.skald("codec", "encode", sample, "-o", self.dir / "codes.npy")  # of 16-bit samples: nearly the same
        self.assertEqual(Npy(self.dir / "codes.npy").shape, (made["frames"], 16))
        self.speak("vera")
        for model, base in ((BASE, BASE), (DESIGN, DESIGN)):
            self.refused(self.skald("voice", "design", "b", "--model", model, "--base", base, "--describe", "x",
                                    "--sample-text", "y", status=2), "unsupported")


class Keeping(Voices):
    def test_nothing_is_replaced_unasked(self):  # C012
        self.add("anna", "--text", "Some words")
        before, file = self.speak("anna"), (self.store / "anna.safetensors").read_bytes()
        other = write_wav(self.dir / "other.wav", tone(30000, seed=5))
        for name in ("anna", "Anna"):
            self.refused(self.add(name, "--text", "Some words", clip=other, status=1), "voice_exists")
        self.assertEqual((self.store / "anna.safetensors").read_bytes(), file)
        self.add("anna", "--text", "Some words", "--replace", clip=other)
        os.utime(self.store / "anna.safetensors", (0, 0))
        self.assertNotEqual(self.speak("anna"), before)
        self.add("bo", "--text", "Some words")
        self.refused(self.skald("voice", "rename", "bo", "anna", status=1), "voice_exists")
        self.skald("voice", "rename", "bo", "anna", "--replace")
        self.assertEqual(self.speak("anna"), before)
        self.assertEqual(self.names(), ["anna"])

    def test_export_import_remove(self):
        self.add("anna", "--text", "Some words")
        before = self.speak("anna")
        file = self.dir / "anna.file"
        self.skald("voice", "export", "anna", "-o", file)
        self.assertEqual(self.skald("voice", "export", "anna", "-o", "-").out, file.read_bytes())
        self.skald("voice", "remove", "anna")
        self.refused(self.skald("voice", "remove", "anna", status=2), "unknown_voice")
        self.refused(self.skald("voice", "import", file, status=2), "consent_required")
        self.assertEqual(self.names(), [])
        self.skald("voice", "import", file, "--name", "bo", "--consent", "stated anew")
        self.assertEqual(self.speak("bo"), before)
        self.assertEqual(self.skald("voice", "show", "bo", "--json").json()["consent"], "stated anew")
        self.refused(self.skald("voice", "import", file, "--name", "bo", RIGHTS, status=1), "voice_exists")

    def test_import_of_other_programs(self):  # B123: of any length
        shared = ROOT / "tests/fixtures/voices"
        made = self.skald("voice", "import", shared / "vector.pt", RIGHTS, "--json").json()["voices"]
        self.assertEqual([v["name"] for v in made], ["vector"])
        self.refused(self.skald("voice", "import", shared / "evil.pt", RIGHTS, status=2), "voice_invalid")
        prompt = self.dir / "hip.json"
        prompt.write_text("[1, 2")
        self.refused(self.skald("voice", "import", prompt, RIGHTS, status=2), "voice_invalid")
        self.refused(self.skald("voice", "import", "/dev/zero", RIGHTS, status=2), "voice_invalid")
        self.speak("vector")

    def test_voices_of_one_name_in_one_file(self):
        pack = ROOT / "tests/fixtures/voices/demo.pt"
        self.skald("voice", "import", pack, RIGHTS)
        kinds = {v["name"]: v["kind"] for v in self.skald("voice", "list", "--json").json()["voices"]}
        self.assertEqual(kinds, {"demo": "in_context", "demo-2": "x_vector"})
        before = sorted((p.name, p.read_bytes()) for p in self.store.glob("*.safetensors"))
        again = self.skald("voice", "import", pack, RIGHTS, status=1)
        self.refused(again, "voice_exists")
        self.assertIn("nothing was stored", again.err)
        self.assertEqual(sorted((p.name, p.read_bytes()) for p in self.store.glob("*.safetensors")), before)

    def test_files_that_are_no_voices(self):  # B044
        self.add("good")
        whole = (self.store / "good.safetensors").read_bytes()
        (self.store / "half.safetensors").write_bytes(whole[:300])
        damaged = bytearray(whole)
        damaged[-5] ^= 1
        (self.store / "damaged.safetensors").write_bytes(damaged)
        (self.store / "audio.safetensors").write_bytes(self.clip.read_bytes())
        (self.store / "link.safetensors").symlink_to("/etc/passwd")
        (self.store / "notes.txt").write_text("mine")
        listed = self.skald("voice", "list", "--json")
        voices = {v["name"]: v.get("problem") for v in listed.json()["voices"]}
        self.assertEqual([n for n, p in voices.items() if p is None], ["good"])
        self.assertEqual(set(voices), {"good", "half", "damaged", "audio", "link"})
        for name, problem in voices.items():
            if problem is not None:
                self.assertIn(f'"{name}"', listed.err)
                self.refused(self.skald("say", "--voice", name, "-o", self.dir / "o.wav", "Hello", status=2),
                             "voice_invalid")
        self.speak("good")

    def test_a_file_removed_behind_the_back(self):  # B048
        self.add("anna")
        (self.store / "anna.safetensors").unlink()
        self.refused(self.skald("say", "--voice", "anna", "-o", self.dir / "o.wav", "Hello", status=2), "unknown_voice")

    def test_ended_while_it_is_written(self):
        slow = self.dir / "slow.c"
        slow.write_text("#include <unistd.h>\nint fsync(int fd) { (void)fd; write(2, \"syncing\\n\", 8); sleep(20); return 0; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.dir / "slow.so", slow], check=True)
        for number in (signal.SIGTERM, signal.SIGKILL):
            run = subprocess.Popen([SKALD, "voice", "add", "anna", "--from", self.clip, RIGHTS], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env={**environment(), **self.env, "LD_PRELOAD": str(self.dir / "slow.so")})
            while b"syncing" not in (line := run.stderr.readline()):
                self.assertNotEqual(line, b"", "it never came to the disk")
            run.send_signal(number)
            self.assertEqual(run.wait(30), -number if number == signal.SIGKILL else 128 + number)
            run.stderr.close()
            self.assertEqual([p.name for p in self.store.iterdir() if p.suffix != ".jsonl"], [])

    def test_many_at_once_and_one_killed(self):  # B049
        command = lambda name: [SKALD, "voice", "add", name, "--from", self.clip, RIGHTS, "--text", "Some words"]
        env = {**environment(), **self.env}
        start = lambda name: subprocess.Popen(command(name), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        same = [start("same") for _ in range(4)]
        others = [start(f"v{i}") for i in range(8)]
        killed = start("killed")
        time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.assertEqual(sorted(p.wait(120) for p in same), [0, 1, 1, 1])
        self.assertEqual([p.wait(120) for p in others], [0] * 8)
        listed = self.skald("voice", "list", "--json").json()["voices"]
        self.assertEqual([v for v in listed if "problem" in v], [])
        self.assertEqual({v["name"] for v in listed} - {"killed"}, {"same", *(f"v{i}" for i in range(8))})

    def test_where_the_folder_is(self):
        self.env = {"SKALD_MODEL": str(BASE), "SKALD_VOICES": "", "XDG_DATA_HOME": "", "HOME": str(self.dir)}
        self.add("a")
        self.assertTrue((self.dir / ".local/share/skald/voices/a.safetensors").is_file())
        self.env["XDG_DATA_HOME"] = str(self.dir / "data")
        self.add("b")
        self.assertTrue((self.dir / "data/skald/voices/b.safetensors").is_file())
        self.add("c", "--voices", self.dir / "mine")
        self.assertTrue((self.dir / "mine/c.safetensors").is_file())
        self.env = {"SKALD_MODEL": str(BASE), "SKALD_VOICES": "", "XDG_DATA_HOME": "", "HOME": ""}
        self.assertIn("SKALD_VOICES", self.skald("voice", "list", status=2).err)


class Accounting(Voices):
    def lines(self, path=None):
        return [json.loads(line) for line in (path or self.store / "audit.jsonl").read_text().splitlines()]

    def test_every_clone_leaves_a_line(self):
        made = self.add("anna", "--text", "Secret words", "--json").json()
        self.skald("say", "--voice", "anna", "--max-frames", "3", "-o", self.dir / "o.wav", "Private words")
        mine = self.dir / "mine.jsonl"
        said = self.skald("say", "--voice", "anna", "--max-frames", "3", "-o", self.dir / "o.wav", "--audit", mine, "--json",
                          "Hello").json()
        lines = self.lines()
        self.assertEqual([line["event"] for line in lines], ["voice_made", "cloned_speech"])
        self.assertEqual({line["voice_hash"] for line in lines}, {made["hash"]})
        self.assertEqual([line["request_id"] for line in self.lines(mine)], [said["request_id"]])
        text = (self.store / "audit.jsonl").read_text()
        self.assertNotIn("Secret", text)
        self.assertNotIn("Private", text)
        write_npy(self.dir / "x.npy", "<f4", [32], Safetensors(self.store / "anna.safetensors").values("xvector"))
        self.skald("say", "--x-vector", self.dir / "x.npy", "--max-frames", "3", "-o", self.dir / "o.wav", "Hello")
        self.assertIn("--x-vector", self.lines()[-1]["consent"])
        self.assertEqual(self.names(), ["anna"])

    def test_an_audit_that_cannot_be_written(self):
        self.add("anna")
        say = ["say", "--voice", "anna", "--max-frames", "3", "-o", self.dir / "o.wav", "Hello"]
        self.refused(self.skald(*say, "--audit", self.dir / "clip.wav" / "x", status=1), "io")
        self.assertFalse((self.dir / "o.wav").exists())
        (self.store / "audit.jsonl").unlink()
        (self.store / "audit.jsonl").mkdir()
        self.assertIn("audit", self.skald(*say).err)
        write_npy(self.dir / "x.npy", "<f4", [32], [0.25] * 32)
        self.env.update(SKALD_VOICES="", XDG_DATA_HOME="", HOME="")
        self.assertIn("audit", self.skald("say", "--x-vector", self.dir / "x.npy", *say[3:]).err)

    def test_disclaimer(self):  # B120: asked for, never forced
        self.add("anna", "--text", "Some words")
        words = ["say", "--voice", "anna", "--seed", "5", "--json", "-o", self.dir / "o.wav", "Hello there"]
        plain = self.skald(*words).json()
        plain_audio = wav(self.dir / "o.wav").data
        self.assertEqual([p["disclaimer"] for p in plain["pieces"]], [False])
        dump = self.dir / "dump"
        both = self.skald(*words, "--disclaimer", "--dump", dump).json()
        self.assertEqual([p["disclaimer"] for p in both["pieces"]], [True, False])
        self.assertEqual(both["pieces"][0]["text"], "This voice was made by a computer.")
        self.assertEqual([p["seed"] for p in both["pieces"]], [4, 5])
        self.assertEqual(both["pieces"][1]["frames"], plain["frames"])
        edge = 2 * 24 * 5  # the fade
        self.assertEqual(wav(self.dir / "o.wav").data[-len(plain_audio) + edge:], plain_audio[edge:])
        self.assertEqual(sorted(p.name for p in dump.iterdir()), ["disclaimer", "piece-000"])
        german = self.skald(*words, "--language", "de", "--disclaimer").json()
        self.assertIn("Computer", german["pieces"][0]["text"])
        own = self.skald(*words, "--disclaimer-text", "Hola", "--disclaimer-language", "es", "--max-frames", "2").json()
        self.assertEqual(own["pieces"][0]["text"], "Hola")
        self.assertEqual(own["pieces"][1]["frames"], 2)
        self.skald("voice", "design", "vera", "--model", DESIGN, "--base", BASE, "--describe", "A calm voice",
                   "--sample-text", "Some words", "--seed", "3", "--replace")
        nobody = self.skald(*[w if w != "anna" else "vera" for w in words], "--disclaimer").json()
        self.assertEqual([p["disclaimer"] for p in nobody["pieces"]], [False])


class Codec(Voices):
    def encode(self, clip, *words, **more):
        out = self.dir / "codes.npy"
        self.skald("codec", "encode", clip, "-o", out, *words, **more)
        return Npy(out)

    def test_encode(self):
        codes = self.encode(self.clip)
        self.assertEqual((codes.shape, codes.type), ((19, 16), "<i2"))
        self.assertEqual(self.encode(self.clip, "--threads", "3").values(), codes.values())
        self.assertEqual(self.skald("codec", "encode", "-", "-o", "-", stdin=self.clip.read_bytes()).out,
                         (self.dir / "codes.npy").read_bytes())
        stereo = write_wav(self.dir / "stereo.wav", array.array("h", (v for x in tone(36000) for v in (x, x))), channels=2)
        self.assertEqual(self.encode(stereo).values(), codes.values())
        for rate in (8000, 11025, 44100, 96000, 192000):  # B042
            other = write_wav(self.dir / "rate.wav", tone(rate), rate=rate)
            self.assertEqual(self.encode(other).shape, (13, 16), rate)
        self.refused(self.skald("codec", "encode", write_wav(self.dir / "slow.wav", tone(7000), rate=7000), "-o",
                                self.dir / "x.npy", status=2), "audio_invalid")
        self.refused(self.skald("codec", "encode", write_wav(self.dir / "none.wav", tone(0)), "-o", self.dir / "x.npy",
                                status=2), "audio_invalid")
        self.assertFalse((self.dir / "x.npy").exists())

    def test_there_and_back(self):
        codes = self.encode(ROOT / "tests/fixtures/audio/clip.flac")
        out = self.dir / "back.wav"
        result = self.skald("codec", "decode", self.dir / "codes.npy", "-o", out, "--json").json()
        self.assertEqual(result["samples"], codes.shape[0] * FRAME)
        self.assertEqual(wav(out).samples, codes.shape[0] * FRAME)

    @unittest.skipIf(SANITIZED, "measures memory")
    def test_memory_does_not_grow_with_the_length(self):
        peaks = []
        for seconds in (10, 240):
            clip = write_wav(self.dir / "long.wav", tone(24000) * seconds)
            env = {**environment(), **self.env}
            for command in (["encode", clip, "-o", self.dir / "long.npy"], ["decode", self.dir / "long.npy", "-o", "/dev/null"]):
                child = os.posix_spawn(SKALD, [SKALD, "codec", *map(str, command)], env)
                _, status, usage = os.wait4(child, 0)
                self.assertEqual(status, 0)
                peaks.append(usage.ru_maxrss)
        self.assertEqual(Npy(self.dir / "long.npy").shape, (3000, 16))
        for short, long in ((peaks[0], peaks[2]), (peaks[1], peaks[3])):
            self.assertLess(long, short + 30000, peaks)  # kilobytes; the clip has 11,520 kB as 16-bit samples


if __name__ == "__main__":
    unittest.main()
