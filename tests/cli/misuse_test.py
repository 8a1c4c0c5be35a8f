"""Wrong command lines, unusable places, and what is left behind: nothing."""
import json
import os
import shutil
import subprocess
import time
import unittest

from support import MODELS, SKALD, TEXT, Case, environment, say, skald, spoil, wav


class Damage(Case):
    def test_a_codec_that_gives_no_numbers_is_an_error_not_silence(self):
        shutil.copytree(MODELS / "tiny-cv", self.dir / "model")
        spoil(self.dir / "model/speech_tokenizer/model.safetensors", "decoder.decoder.0.conv.bias")
        for words in ((), ("--float",)):
            result = self.assert_status(skald("say", "--model", self.dir / "model", "--voice", "anna", "-o", self.dir / "o.wav",
                                              *words, TEXT), 1)
            self.assertIn("codec's samples hold NaN", result.err)
            self.assertIn("[non_finite]", result.err)
            self.assertFalse((self.dir / "o.wav").exists())


class Files(Case):
    """What may stand where a file of a snapshot should be."""

    NAMES = ("config.json", "generation_config.json", "vocab.json", "merges.txt", "tokenizer_config.json", "model.safetensors",
             "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")

    def said(self, model):
        """The sentences of `say` and of `verify`."""
        spoken = self.assert_status(say("--json", "--model", model, "-o", self.dir / "o.wav", TEXT), 3)
        findings = self.assert_status(skald("verify", model, "--json"), 3).json()["findings"]
        return [spoken.json()["error"]["message"], *(f["what"] for f in findings if f["severity"] == "error")]

    def test_each_is_called_what_it_is(self):
        kinds = ((lambda path: path.mkdir(), "is a folder, not a plain file"), (os.mkfifo, "is a pipe (FIFO), not a plain file"),
                 (lambda path: path.symlink_to(path.name), "cannot be opened: its links lead in a circle"),
                 (lambda path: path.symlink_to("none"), "is a link to something that is missing"))
        for name in self.NAMES:
            for make, what in kinds:
                model = self.dir / "model"
                shutil.copytree(MODELS / "tiny-cv", model)
                (model / name).unlink()
                make(model / name)
                spoken, *found = self.said(model)
                self.assertIn(f"{model / name} {what}", spoken)
                self.assertEqual([s.startswith(f"{model / name} {what}") for s in found], [True], found)
                self.assertNotIn("permissions", spoken)
                shutil.rmtree(model)

    @unittest.skipIf(os.geteuid() == 0, "root may read anything")
    def test_a_folder_that_may_not_be_read(self):
        model = self.dir / "model"
        shutil.copytree(MODELS / "tiny-cv", model)
        model.chmod(0)
        self.addCleanup(model.chmod, 0o700)
        result = self.assert_status(say("--model", model, "-o", self.dir / "o.wav", TEXT), 1)
        self.assertIn("config.json may not be read (Permission denied)", result.err)

    def test_a_value_of_the_file_is_no_option(self):
        model = self.dir / "model"
        shutil.copytree(MODELS / "tiny-cv", model)
        path = model / "generation_config.json"
        for field, value in (("top_p", 0), ("top_k", -1), ("repetition_penalty", 0), ("temperature", -1), ("subtalker_top_p", 2)):
            path.write_text(json.dumps({field: value}))
            for message in self.said(model):
                self.assertIn(f"{path}: {field} is {value}", message)
                self.assertNotIn("--", message)


class Options(Case):
    def refused(self, *words, **more):
        begin = time.monotonic()
        result = self.assert_status(skald(*words, **more), 2)
        self.assertLess(time.monotonic() - begin, 0.5)
        self.assertEqual(result.out, b"")
        self.assert_nothing_left()
        return result.err

    def test_c001_misspelt_options(self):
        out = self.dir / "o.wav"
        # The model does not exist: naming the option first shows that no file of it was touched.
        missing = ["--model", self.dir / "none"]
        self.assertIn("'--device'", self.refused("say", *missing, "--voice", "v", "--devcie", "cpu", "-o", out, "Hi"))
        self.assertIn("'--voice'", self.refused("say", *missing, "--vioce", "v", "-o", out, "--json", "Hi"))
        self.assertIn("'--decode'", self.refused("codec", "decode", *missing, "--decoed", "whole", "-o", out, "c.npy"))
        self.assertIn("'--json'", self.refused("verify", "--jsno", self.dir / "none"))
        self.assertIn("'--language'", self.refused("prompt", *missing, "--langauge", "en", "Hi"))
        self.assertIn("'say'", self.refused("sayy", "Hi"))
        self.assertIn("there are: say, prompt", self.refused("xylophone"))
        self.refused()

    def test_a_group_of_commands_alone(self):
        self.assertIn("skald codec needs a command: decode, encode; try skald codec --help", self.refused("codec"))
        self.assertIn("skald voice needs a command: add, design", self.refused("voice"))
        self.assertIn("decode", self.assert_status(skald("codec", "--help"), 0).out.decode())

    def test_c001_dash_text(self):
        out = self.dir / "o.wav"
        for text in ("-30 degrees is cold", "-3", "- milk", "-o my word", "--- dashes", "-slowly-"):
            self.assertIn("'--'", self.refused("say", "--voice", "anna", "-o", out, text))
        self.refused("say", "--voice", "anna", "-o", out, "-3", "plus")

    def test_c001_dash_text_that_is_text(self):
        pieces = lambda *words, **more: self.assert_status(
            say("--json", "-o", self.dir / "o.wav", *words, **more), 0).json()["pieces"]
        self.assertEqual(pieces("--", "-30 degrees is cold")[0]["text"], "-30 degrees is cold")
        self.assertEqual(pieces(stdin=b"- milk\n- bread\n")[0]["text"], "- milk\n- bread\n")
        (self.dir / "list.txt").write_text("- milk\n- bread\n")
        self.assertEqual(pieces("-f", self.dir / "list.txt")[0]["text"], "- milk\n- bread\n")

    def test_values_out_of_range(self):
        for words in (["--temperature", "nan"], ["--temperature", "-1"], ["--top-p", "0"], ["--top-p", "1.5"],
                      ["--top-k", "-1"], ["--top-k", "2.5"], ["--top-k", "99999999999"], ["--repetition-penalty", "0"],
                      ["--repetition-penalty", "inf"], ["--sub-top-p", "x"], ["--seed", "-1"], ["--seed", "1e3"],
                      ["--seed", "18446744073709551616"], ["--threads", "0"], ["--text-layout", "sideways"],
                      ["--text-split", "bpe"], ["--decode", "fast"], ["--cut", ""], ["--pause-ms", "-5"],
                      ["--max-piece", "0"], ["--stall-frames", "-1"], ["--greedy=no"], ["--voice"]):
            err = self.refused("say", "-o", self.dir / "o.wav", "Hi", *words)
            self.assertIn(words[0].split("=")[0], err)

    def test_factors_that_would_overflow(self):
        for option in ("--temperature", "--sub-temperature", "--repetition-penalty"):
            self.assertIn("1e-6", self.refused("say", "--voice", "anna", "-o", self.dir / "o.wav", "Hi", option, "1e-39"))

    def test_a_number_beyond_the_type_is_told_the_limit(self):
        self.assertIn("2147483647", self.refused("say", "-o", self.dir / "o.wav", "Hi", "--max-frames", "2147483648"))

    def test_an_empty_name_is_not_a_missing_option(self):
        for option in ("--model", "--x-vector", "--ref-codes", "-f", "--cpu-target", "--dump", "--replay", "--noise"):
            self.assertIn("is ''", self.refused("say", "--voice", "anna", "-o", self.dir / "o.wav", option, "", stdin=b"Hi"))
        self.assertIn("--output is ''", self.refused("say", "--voice", "anna", "-o", "", "Hi"))
        self.assertIn("--output is ''", self.refused("codec", "decode", "c.npy", "-o", ""))

    def test_an_option_given_twice(self):
        out = self.dir / "o.wav"
        for words, said in ((["--seed", 1, "--seed", 2], "option '--seed' is given twice; leave one of the two out"),
                            (["--seed=1", "--seed=1"], "option '--seed' is given twice"), (["--voice", "", "--voice", "anna"], "'--voice' is given twice"),
                            (["-o", out, "--output", out], "option '--output' is given twice, first as '-o'")):
            self.assertIn(said, self.refused("say", *words, TEXT))
        self.assertIn("'--port' is given twice", self.refused("serve", "--port", 1, "--port", 2))
        self.assertIn("no output", self.refused("say", "--greedy", "--greedy", TEXT))  # a flag may be

    def test_half_a_device(self):
        for device in ("cpu:", "hip:", "cuda:", "+plain", "hip:+plain", "auto:"):
            for words in (["say", "--voice", "anna", "-o", self.dir / "o.wav", "--device", device, TEXT], ["bench", "--device", device],
                          ["compare", "--a", device], ["compare", "--b", device], ["doctor", "--device", device],
                          ["serve", "--device", device], ["serve", "--port", 0, "--worker", device]):
                self.assertIn(f"device '{device}' is half a name", self.refused(*words))

    def test_one_range_of_the_cache(self):
        for command in (["say", "--voice", "anna", "-o", self.dir / "o.wav", TEXT], ["bench", "--frames", 10]):
            for value in (10, 31, -1, "x"):
                self.assertIn("a whole number of at least 32", self.refused(*command, "--cache-capacity", value))
            for value in (100_000, 2**40):
                self.assertIn("within 32..32768", self.refused(*command, "--cache-capacity", value))

    def test_the_largest_seed_is_one(self):
        report = say("--json", "--max-frames", 2, "--seed", 2**64 - 1, "-o", self.dir / "o.wav", TEXT).json()
        self.assertEqual(report["seed"], 2**64 - 1)

    def test_contradictions(self):
        self.refused("say", "--voice", "anna", TEXT)  # no output
        self.refused("say", "--voice", "anna", "-o", self.dir / "o.wav", "Hello", "there")
        self.refused("say", "--voice", "anna", "-o", self.dir / "o.wav", "-f", "x.txt", "Hello")
        self.refused("say", "--voice", "anna", "-o", self.dir / "o.wav", "--seed", "1", "--seed", "2", TEXT)


class Places(Case):
    def test_unwritable_places_are_known_before_the_work(self):
        for out in (self.dir, self.dir / "none" / "o.wav"):
            result = self.assert_status(say("--json", "-o", out, TEXT), 1)
            self.assertIn("[io]", result.err)
            self.assertEqual(result.json()["error"]["code"], "io")
        self.assert_nothing_left()

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_protected_folder_and_file(self):
        (self.dir / "o.wav").write_text("mine")
        (self.dir / "o.wav").chmod(0o400)
        self.assert_status(say("-o", self.dir / "o.wav", TEXT), 1)
        self.dir.chmod(0o500)
        self.addCleanup(self.dir.chmod, 0o700)
        self.assert_status(say("-o", self.dir / "p.wav", TEXT), 1)

    def test_odd_names_are_known_before_the_work(self):
        (self.dir / "loop").symlink_to("loop")
        for out in (self.dir / "loop", self.dir / ("x" * 300)):
            result = self.assert_status(say("--json", "-o", out, TEXT), 1)
            self.assertEqual(result.json()["error"]["code"], "io")
        self.assert_nothing_left("loop")

    def test_endless_devices_are_no_input(self):
        for words in (["--replay", "/dev/zero", TEXT], ["--ref-codes", "/dev/zero", TEXT], ["-f", "/dev/zero"]):
            self.assert_status(say("-o", self.dir / "o.wav", *words, timeout=20), 2)
        self.assert_nothing_left()

    def test_codes_without_a_frame(self):
        header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (0, 16), }\n"
        (self.dir / "none.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for option in ("--replay", "--ref-codes"):
            result = self.assert_status(say(option, self.dir / "none.npy", "-o", self.dir / "o.wav", TEXT), 2)
            self.assertIn("holds no frame", result.err)
        self.assert_nothing_left("none.npy")

    def limited(self, limit):
        """`say` under a limit of the shell."""
        return subprocess.run(["sh", "-c", f'{limit}; exec "$0" say --voice anna --seed 7 -o "$1" "$2"', SKALD,
                               str(self.dir / "o.wav"), TEXT], env=environment(), capture_output=True, timeout=60)

    def test_a_file_at_its_size_limit(self):
        done = self.limited("ulimit -f 8")
        self.assertEqual((done.returncode, done.stdout), (1, b""), done.stderr)
        self.assertIn(b"[io]", done.stderr)
        self.assert_nothing_left()

    @unittest.skipIf(os.environ.get("SKALD_SANITIZE"), "a sanitizer needs descriptors of its own")
    def test_no_descriptors_for_the_program_itself(self):
        done = self.limited("ulimit -n 4")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"skald: error: ", done.stderr)
        self.assert_nothing_left()

    def test_a_dump_that_does_not_fit_leaves_nothing(self):
        dump = self.dir / "dump"
        def write(blocks):
            return subprocess.run(["sh", "-c", f'ulimit -f {blocks}; exec "$0" say --voice anna --seed 7 --dump "$1" "$2"', SKALD,
                                   str(dump), TEXT], env=environment(), capture_output=True, timeout=60)

        for blocks in (1, 8, 64):  # of 512 bytes
            done = write(blocks)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(b"[io]", done.stderr)
            self.assert_nothing_left()
        dump.mkdir()
        (dump / "mine.txt").write_text("mine")
        self.assertEqual(write(8).returncode, 1)
        self.assertEqual([p.name for p in dump.iterdir()], ["mine.txt"])

    def test_more_threads_than_processors(self):
        result = self.assert_status(say("--threads", 100, "-o", self.dir / "o.wav", "--max-frames", 2, TEXT), 0)
        self.assertIn("100 threads were asked for", result.err)
        self.assertNotIn("threads", say("--threads", 1, "-o", self.dir / "o.wav", "--max-frames", 2, TEXT).err)

    def test_full_device(self):
        self.assertIn("No space left", self.assert_status(say("-o", "/dev/full", TEXT), 1).err)
        with open("/dev/full", "wb") as full:
            for words in (["say", "--voice", "anna", "--seed", "7", "-o", "-", TEXT], ["--version"],
                          ["say", "--list-voices"], ["prompt", "--voice", "anna", "--json", TEXT]):
                done = subprocess.run([SKALD, *words], env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)

    def test_closed_standard_output(self):
        done = subprocess.run(["sh", "-c", '"$0" say --voice anna --seed 7 -o - "Hello there, world." >&-', SKALD],
                              env=environment(), stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_wav_does_not_go_by_another_name(self):
        for name in ("o.mp3", "o.OGG", "o.flac"):
            result = self.assert_status(say("-o", self.dir / name, TEXT), 2)
            self.assertIn("would hold WAV under another format's name", result.err)
            self.assert_nothing_left()
        self.assert_status(say("--raw", "-o", self.dir / "o.opus", TEXT), 0)

    def test_an_old_file_survives_a_failure(self):
        (self.dir / "o.wav").write_text("old")
        self.assert_status(say("--model", MODELS / "tiny-endless", "-o", self.dir / "o.wav", TEXT), 5)
        self.assertEqual((self.dir / "o.wav").read_text(), "old")
        self.assert_status(say("-o", self.dir / "o.wav", TEXT), 0)
        wav(self.dir / "o.wav")
        self.assert_nothing_left("o.wav")

    def test_models_that_are_none(self):
        for model, code in ((self.dir / "none", "model_not_found"), (self.dir, "model_not_found")):
            result = self.assert_status(say("--json", "--model", model, "-o", self.dir / "o.wav", TEXT), 3)
            self.assertEqual(result.json()["error"]["code"], code)
        self.assert_status(say("--device", "hip:0", "-o", self.dir / "o.wav", TEXT), 4)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
