"""`skald say`, `prompt`, `verify`, `codec decode`: what they write and report."""
import json
import pathlib
import shutil
import unittest

from support import CASES, FRAME, MODELS, TEXT, Case, Npy, Wav, say, skald, wav, write_npy


class Output(Case):
    def test_file_and_result_agree(self):
        result = self.assert_status(say("-o", self.dir / "a.wav", "--json", TEXT), 0)
        report, audio = result.json(), wav(self.dir / "a.wav")
        for field in ("frames", "samples", "stop", "seed", "request_id", "rtf", "first_audio_ms", "warnings", "pieces",
                      "prompt_rows", "text_tokens", "instruct_ignored"):
            self.assertIn(field, report)
        self.assertEqual(report["stop"], "eos")
        self.assertEqual(report["seed"], 7)
        self.assertEqual(report["samples"], report["frames"] * FRAME)
        self.assertEqual(audio.samples, report["samples"])
        self.assertEqual((audio.rate, audio.bits, audio.format, audio.placeholder), (24000, 16, 1, False))
        self.assertEqual(report["warnings"], [])
        self.assertIn("seed 7", result.err)
        self.assert_nothing_left("a.wav")

    def test_b054_every_form_has_the_same_samples(self):
        self.assert_status(say("-o", self.dir / "a.wav", TEXT), 0)
        samples = wav(self.dir / "a.wav").data
        piped = Wav(self.assert_status(say("-o", "-", TEXT), 0).out)
        self.assertTrue(piped.placeholder)
        self.assertEqual(piped.data, samples)
        self.assertEqual(self.assert_status(say("--raw", TEXT), 0).out, samples)
        self.assert_status(say("--raw", "-o", self.dir / "a.pcm", TEXT), 0)
        self.assertEqual((self.dir / "a.pcm").read_bytes(), samples)
        for mode in ("whole", "stream"):
            self.assert_status(say("--decode", mode, "-o", self.dir / "b.wav", TEXT), 0)
            self.assertEqual(wav(self.dir / "b.wav").data, samples)

    def test_float_wav(self):
        self.assert_status(say("--float", "-o", self.dir / "a.wav", TEXT), 0)
        audio = wav(self.dir / "a.wav")
        self.assertEqual((audio.bits, audio.format), (32, 3))

    def test_json_beside_audio_goes_to_standard_error(self):
        result = self.assert_status(say("-o", "-", "--json", "-q", TEXT), 0)
        Wav(result.out)
        self.assertEqual(json.loads(result.err)["stop"], "eos")

    def test_quiet_still_writes(self):
        result = self.assert_status(say("-q", "-o", self.dir / "a.wav", TEXT), 0)
        self.assertEqual((result.out, result.err), (b"", ""))
        wav(self.dir / "a.wav")

    def test_b076_exact_samples_in_every_form(self):
        for frames in (1, 2, 15, 16, 17):
            report = self.assert_status(say("--max-frames", frames, "--json", "-o", self.dir / "a.wav", TEXT), 0).json()
            self.assertEqual((report["frames"], report["stop"]), (frames, "length"))
            self.assertEqual(wav(self.dir / "a.wav").samples, frames * FRAME)
            self.assertEqual(len(say("--max-frames", frames, "--raw", TEXT).out), frames * FRAME * 2)
            self.assertEqual(len(say("--max-frames", frames, "--raw", "--float", TEXT).out), frames * FRAME * 4)

    def test_b023_the_official_count_is_one_less(self):
        report = self.assert_status(say("--max-new-tokens", 16, "--json", "-o", self.dir / "a.wav", TEXT), 0).json()
        self.assertEqual((report["frames"], report["stop"]), (15, "length"))
        for option, value in (("--max-frames", 0), ("--max-frames", -1), ("--max-new-tokens", 1), ("--max-new-tokens", 0)):
            self.assert_status(say(option, value, "-o", self.dir / "b.wav", TEXT), 2)
        self.assert_nothing_left("a.wav")


class Text(Case):
    def pieces(self, *words, **more):
        return self.assert_status(say("--json", "-q", "-o", self.dir / "a.wav", *words, **more), 0).json()["pieces"]

    def test_argument_file_and_standard_input_are_the_same(self):
        (self.dir / "t.txt").write_text(TEXT)
        forms = [self.pieces(TEXT), self.pieces("-f", self.dir / "t.txt"), self.pieces(stdin=TEXT.encode()),
                 self.pieces("-", stdin=TEXT.encode()), self.pieces("-f", "-", stdin=TEXT.encode()), self.pieces("--", TEXT)]
        for form in forms:
            self.assertEqual(form, forms[0])

    def test_b060_every_line_is_read(self):
        for count in (1, 2, 100):
            text = "".join(f"This is line {i} of a text whose lines are not too short.\n" for i in range(count))
            pieces = self.pieces(stdin=text.encode())
            self.assertEqual("".join(p["text"] for p in pieces), text)

    def test_b059_two_sentences_are_one_generation(self):
        self.assertEqual(len(self.pieces("First sentence. And the second, with a comma.")), 1)

    def test_b074_a_hundred_sentences_lose_nothing(self):
        text = " ".join(f"Sentence {i} has 3.14 words, Dr. Smith said." for i in range(100))
        pieces = self.pieces(text)
        self.assertGreater(len(pieces), 5)
        self.assertEqual("".join(p["text"] for p in pieces), text)
        self.assertTrue(all(len(p["text"]) <= 400 for p in pieces))
        self.assertEqual([p["seed"] for p in pieces], [7 + i for i in range(len(pieces))])
        total = sum(p["samples"] for p in pieces) + (len(pieces) - 1) * 2880
        self.assertEqual(wav(self.dir / "a.wav").samples, total)

    def test_max_piece_and_no_split(self):
        text = "One sentence here. Another sentence there. A third one follows."
        self.assertEqual(len(self.pieces("--max-piece", 25, text)), 3)
        self.assertEqual(len(self.pieces("--max-piece", 25, "--no-split", text)), 1)

    def test_c004_clean_up(self):
        report = self.assert_status(say("--json", "-o", self.dir / "a.wav", "pre\u00adrequi\u00adsite\u200b"), 0).json()
        self.assertIn("U+00AD", report["warnings"][0])
        self.assertIn("U+200B", report["warnings"][0])
        report = self.assert_status(say("--json", "--clean-text", "-o", self.dir / "a.wav", "pre\u00adrequi\u00adsite"), 0).json()
        self.assertEqual(report["warnings"], [])
        self.assertEqual(report["pieces"][0]["text"], "prerequisite")

    def test_c004_nothing_to_speak(self):
        for text in ("", " \n ", "…", "\U0001F3B2\U0001F9D2", "* * *", "\u200b\u200b"):
            for words, more in (([text], {}), ([], {"stdin": text.encode()})):
                for out in ("a.wav", "-"):
                    target = out if out == "-" else self.dir / out
                    result = self.assert_status(say("--json", "-o", target, *words, **more), 2)
                    self.assertIn("[nothing_to_speak]", result.err)
        self.assert_nothing_left()

    def test_c004_a_line_of_marks_is_no_request_of_its_own(self):
        pieces = self.pieces("--max-piece", 10, stdin=b"First one\n-\nThird one")
        self.assertEqual("".join(p["text"] for p in pieces), "First one\n-\nThird one")
        for piece in pieces:
            self.assertRegex(piece["text"], "[a-z]")

    def test_other_encodings(self):
        self.assertEqual(self.pieces(stdin="Gr\u00fc\u00dfe.".encode("utf-16"))[0]["text"], "Gr\u00fc\u00dfe.")
        result = self.assert_status(say("-o", self.dir / "b.wav", stdin=b"abc\xff"), 2)
        self.assertIn("[invalid_text]", result.err)
        self.assertIn("3", result.err)
        (self.dir / "t.txt").write_bytes("Hello".encode("utf-16-le"))
        for words, more in ((["-f", self.dir / "t.txt"], {}), ([], {"stdin": "Hello".encode("utf-16-be")})):
            for out in (self.dir / "b.wav", "-"):
                result = self.assert_status(say("-o", out, *words, **more), 2)
                self.assertIn("without a byte order mark", result.err)
                self.assertEqual(result.out, b"")

    def test_a_long_run_of_marks(self):
        text = "First words.\n" + "-" * 20000 + "\nSecond words."
        result = self.assert_status(say("--json", "-o", self.dir / "a.wav", text), 0)
        self.assertIn("characters were left out", result.json()["warnings"][0])
        self.assertIn("[text_too_long]", self.assert_status(say("--no-split", "-o", self.dir / "b.wav", text), 2).err)


class Languages(Case):
    def rows(self, language):
        return skald("prompt", "--voice", "anna", "--json", "--language", language, "Hi")

    def test_c006_spellings(self):
        expected = self.assert_status(self.rows("english"), 0).json()["rows"]
        for spelling in ("en", "EN", "en-US", "en_GB", "eng", "English"):
            self.assertEqual(self.assert_status(self.rows(spelling), 0).json()["rows"], expected, spelling)
        automatic = self.assert_status(skald("prompt", "--voice", "anna", "--json", "Hi"), 0).json()["rows"]
        for spelling in ("auto", "", "null"):
            self.assertEqual(self.rows(spelling).json()["rows"], automatic, spelling)
        self.assertNotEqual(expected, automatic)
        for spelling in ("nl", "xx", "en;de"):
            result = self.assert_status(self.rows(spelling), 2)
            self.assertIn("unknown_language", result.err)
            self.assertIn("english (en)", result.err)
            self.assertEqual(result.json()["error"]["code"], "unknown_language")

    def test_lists(self):
        self.assertIn(b"anna\n", self.assert_status(skald("say", "--list-voices"), 0).out)
        listed = self.assert_status(skald("say", "--list-languages", "--json"), 0).json()["languages"]
        self.assertIn({"name": "english", "code": "en"}, listed)
        result = self.assert_status(skald("say", "--voice", "nobody", "-o", self.dir / "a.wav", "Hi"), 2)
        self.assertIn("anna", result.err)

    def test_why_a_list_is_empty(self):
        for model, why in (("tiny-vd", "--instruct describes"), ("tiny-base", "skald voice add")):
            result = self.assert_status(skald("say", "--list-voices", "--model", MODELS / model,
                                              env={"SKALD_VOICES": str(self.dir)}), 0)
            self.assertEqual(result.out, b"")
            self.assertIn(why, result.err)
            self.assertEqual(skald("say", "--list-voices", "--json", "--model", MODELS / model,
                                   env={"SKALD_VOICES": str(self.dir)}).json(), {"voices": []})


class Runaway(Case):
    def endless(self, *words):
        return say("--model", MODELS / "tiny-endless", "--json", *words, TEXT)

    def test_b019_is_status_5_and_leaves_nothing(self):
        result = self.assert_status(self.endless("-o", self.dir / "a.wav"), 5)
        self.assertEqual(result.json()["error"]["code"], "runaway")
        self.assertEqual(result.json()["stop"], "runaway")
        self.assertIn("[runaway]", result.err)
        self.assert_nothing_left()

    def test_b019_streamed(self):
        result = self.assert_status(self.endless("-o", "-"), 5)
        self.assertTrue(Wav(result.out).placeholder)

    def test_the_sentence_names_the_option(self):
        result = self.endless("-o", self.dir / "a.wav")
        for words in (result.err, result.json()["error"]["message"]):
            self.assertIn("or set --max-frames", words)
            self.assertNotIn("max_frames", words)

    def test_kept_when_asked(self):
        self.assert_status(self.endless("--keep-runaway", "-o", self.dir / "a.wav"), 5)
        self.assertGreater(wav(self.dir / "a.wav").samples, 200 * FRAME)

    def test_b020_is_tried_twice(self):
        result = self.endless("-o", self.dir / "a.wav").json()
        self.assertEqual(result["pieces"][0]["attempts"], 2)
        self.assertIn("seeds 7 and 1000007", result["error"]["message"])
        self.assertEqual(self.endless("--greedy", "-o", self.dir / "a.wav").json()["pieces"][0]["attempts"], 1)

    def test_a_limit_of_the_caller_is_none(self):
        report = self.assert_status(self.endless("--max-frames", 20, "-o", self.dir / "a.wav"), 0).json()
        self.assertEqual((report["stop"], report["frames"]), ("length", 20))


class Dump(Case):
    def dump(self, name, *words):
        self.assert_status(say("-q", "--dump", self.dir / name, *words, TEXT), 0)
        return {p.name: p.read_bytes() for p in (self.dir / name / "piece-000").iterdir()}

    def test_files_and_shapes(self):
        self.dump("d")
        load = lambda name: Npy(self.dir / "d/piece-000" / (name + ".npy"))
        codes = load("codes")
        frames = codes.shape[0]
        self.assertEqual((codes.shape[1], codes.type), (16, "<i2"))
        rows, hidden = load("prompt_rows").shape
        self.assertEqual(load("hidden").shape, (frames + 1, hidden))
        self.assertEqual(load("logits").shape[0], frames + 1)
        self.assertEqual(load("probs").shape, load("logits").shape)
        self.assertEqual(load("predictor_logits").shape[:2], (frames, 15))
        self.assertEqual(load("predictor_probs").shape, load("predictor_logits").shape)
        request = json.loads((self.dir / "d/piece-000/request.json").read_text())
        self.assertEqual((request["frames"], request["seed"], request["prompt_rows"]), (frames, 7, rows))
        ids = skald("prompt", "--voice", "anna", "--language", "english", "--json", TEXT).json()["ids"]
        self.assertEqual(list(load("ids").values()), ids)

    def test_the_same_bytes_run_after_run(self):
        self.assertEqual(self.dump("a"), self.dump("b"))
        self.assertNotIn("probs.npy", self.dump("g", "--greedy"))

    def test_one_folder_per_piece(self):
        self.assert_status(say("-q", "--dump", self.dir / "d", "--max-piece", 20, "One sentence here. Another one there."), 0)
        self.assertEqual(sorted(p.name for p in (self.dir / "d").iterdir()), ["piece-000", "piece-001"])

    def test_replay_computes_what_the_run_computed(self):
        run = self.dump("run", "--greedy")
        replayed = self.dump("replayed", "--replay", self.dir / "run/piece-000/codes.npy")
        self.assertEqual(replayed["codes.npy"], run["codes.npy"])
        self.assertEqual(replayed["predictor_logits.npy"], run["predictor_logits.npy"])
        for name in ("hidden", "logits"):
            whole, part = (Npy(self.dir / d / "piece-000" / (name + ".npy")).data for d in ("run", "replayed"))
            self.assertTrue(whole.startswith(part), name)

    def test_replay_takes_any_integer_type(self):
        for type_name in ("|u1", "<i4", "<i8"):
            write_npy(self.dir / "c.npy", type_name, (3, 16), [7] * 48)
            report = self.assert_status(say("--json", "--replay", self.dir / "c.npy", "-o", self.dir / "a.wav", TEXT), 0).json()
            self.assertEqual(report["frames"], 3)

    def test_bad_codes_are_refused(self):
        for shape, values in (((3, 15), [7] * 45), ((48,), [7] * 48), ((1, 16), [64] * 16), ((1, 16), [-1] * 16)):
            write_npy(self.dir / "c.npy", "<i4", shape, values)
            self.assert_status(say("--replay", self.dir / "c.npy", "-o", self.dir / "a.wav", TEXT), 2)
        self.assert_status(say("--replay", self.dir / "none.npy", "-o", self.dir / "a.wav", TEXT), 1)
        self.assert_nothing_left("c.npy")

    def test_recorded_cases_of_the_reference(self):
        """Through every option that a case needs: the codes of the official implementation."""
        sampled = skald("say", "--voice", "anna", "--language", "english", "--max-new-tokens", 13, "--noise",
                        CASES / "sample-defaults", "--dump", self.dir / "s", "Good morning.")
        self.assert_status(sampled, 0)
        self.assertEqual(Npy(self.dir / "s/piece-000/codes.npy").values(), Npy(CASES / "sample-defaults/codes.npy").values())
        clone = CASES / "base-icl-equal"
        self.assert_status(skald("say", "--model", MODELS / "tiny-base", "--greedy", "--ref-codes", clone / "ref_codes.npy",
                                 "--ref-text", "No", "--x-vector", clone / "xvector.npy", "--text-layout", "stream",
                                 "--max-new-tokens", 700, "--dump", self.dir / "c", "Go"), 0)
        self.assertEqual(Npy(self.dir / "c/piece-000/codes.npy").values(), Npy(clone / "codes.npy").values())


class Others(Case):
    def test_codec_decode(self):
        self.assert_status(say("-q", "--greedy", "-o", self.dir / "a.wav", "--dump", self.dir / "d", TEXT), 0)
        codes = self.dir / "d/piece-000/codes.npy"
        for mode in ("whole", "stream"):
            self.assert_status(skald("codec", "decode", codes, "--decode", mode, "-o", self.dir / "b.wav"), 0)
            self.assertEqual((self.dir / "b.wav").read_bytes(), (self.dir / "a.wav").read_bytes())
        report = self.assert_status(skald("codec", "decode", codes, "--float", "--json", "-o", self.dir / "f.wav"), 0).json()
        self.assertEqual(wav(self.dir / "f.wav").samples, report["samples"])

    def test_b025_both_samplers_read_their_knobs(self):
        codes = {}
        for name, words in {"greedy": ["--greedy"], "zero": ["--temperature", 0, "--sub-temperature", 0],
                            "talker": ["--temperature", 1.5, "--sub-temperature", 0],
                            "sub": ["--temperature", 0, "--sub-temperature", 1.5]}.items():
            self.assert_status(say("-q", "--max-frames", 20, "--seed", 3, "--dump", self.dir / name, *words, TEXT), 0)
            codes[name] = Npy(self.dir / name / "piece-000/codes.npy").values()
        self.assertEqual(codes["zero"], codes["greedy"])
        self.assertNotEqual(codes["talker"][::16], codes["greedy"][::16])
        self.assertNotEqual(codes["sub"][1:16], codes["greedy"][1:16])
        self.assertEqual(codes["sub"][0], codes["greedy"][0])

    def test_prompt_table_and_object(self):
        words = ["prompt", "--voice", "anna", "--language", "en", "--seed", 3, "--greedy", "-o", "unused.wav"]
        self.assertIn(b"row   text id", self.assert_status(skald(*words, "Hi"), 0).out)
        prompt = self.assert_status(skald(*words, "--json", "Hi"), 0).json()
        self.assertEqual(sorted(prompt), ["ids", "language", "rows", "trailing", "warnings"])
        self.assertEqual(sorted(prompt["rows"][0]), ["codec_id", "codec_ids", "speaker", "text_id"])
        self.assertFalse(pathlib.Path("unused.wav").exists())

    def test_verify(self):
        report = self.assert_status(skald("verify", MODELS / "tiny-cv", "--json"), 0).json()
        self.assertEqual((report["ok"], report["type"], report["findings"]), (True, "custom_voice", []))
        report = self.assert_status(skald("verify", self.dir, "--json"), 3).json()
        self.assertFalse(report["ok"])
        self.assertIn("do", report["findings"][0])
        self.assertTrue(self.assert_status(skald("verify", self.dir), 3).out.decode().startswith(f"{self.dir}: no model\nerror: "))
        self.assert_status(skald("verify", self.dir / "none"), 3)

    def test_verify_reads_the_tokenizer(self):
        model = self.dir / "model"
        for name, old, new, what in (
                ("merges.txt", None, b"", "incomplete"), ("vocab.json", None, b"{}", "byte 0x00"),
                ("tokenizer_config.json", None, b"[", "not valid JSON"),
                ("config.json", b'"assistant_token_id": 263', b'"assistant_token_id": 264', "different models")):
            shutil.copytree(MODELS / "tiny-cv", model)
            path = model / name
            path.chmod(0o644)
            good = path.read_bytes()
            path.write_bytes(new if old is None else good.replace(old, new))
            self.assertNotEqual(path.read_bytes(), good)
            report = self.assert_status(skald("verify", model, "--json"), 3).json()
            self.assertFalse(report["ok"])
            self.assertIn(what, report["findings"][0]["what"] + report["findings"][0]["do"])
            self.assert_status(say("--model", model, "-o", self.dir / "a.wav", TEXT), 3)
            shutil.rmtree(model)

    def test_instruct_that_is_ignored(self):
        words = ["--instruct", "-slowly-", "-o", self.dir / "a.wav", "--json", TEXT]
        report = self.assert_status(say(*words), 0).json()
        self.assertTrue(report["instruct_ignored"])
        self.assertTrue(report["warnings"])
        self.assert_status(say("--strict", *words), 2)

    def test_environment(self):
        self.assert_status(say("-o", self.dir / "a.wav", TEXT, env={"SKALD_THREADS": "1"}), 0)
        self.assert_status(say("-o", self.dir / "a.wav", TEXT, env={"SKALD_THREADS": "many"}), 2)
        self.assert_status(say("-o", self.dir / "a.wav", TEXT, env={"SKALD_MODEL": ""}), 2)
        self.assert_status(say("-o", self.dir / "a.wav", TEXT, env={"SKALD_MODEL": str(self.dir)}), 3)

    def test_version(self):
        out = self.assert_status(skald("--version"), 0).out.decode()
        self.assertRegex(out, r"^skald \d+\.\d+\.\d+\n")
        self.assertIn("SIMD targets", out)


if __name__ == "__main__":
    unittest.main()
