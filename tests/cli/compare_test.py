"""skald compare: verdict, statuses, the object that may be published, and misuse."""
import json
import shutil
import unittest

from support import MODELS, Case, skald, spoil

SHORT = ("--lengths", "1,33", "--frames", 3, "--codec-frames", 6, "--threads", 1)


class Compare(Case):
    def test_a_cpu_equals_itself(self):
        result = self.assert_status(skald("compare", "--b", "cpu", *SHORT, "--json"), 0)
        bundle = result.json()
        self.assertEqual(bundle["verdict"], "equal")
        self.assertEqual((bundle["failures"], bundle["first_difference"]), ([], None))
        self.assertEqual(bundle["lock_step"]["lengths"], [1, 33])
        self.assertEqual(len(bundle["forced"]["heads"]), 16)
        self.assertEqual(bundle["model"], {"type": "custom_voice", "size": "0b6"})
        self.assertGreater(bundle["lock_step"]["ops_compared"], 1000)
        self.assertTrue(bundle["build"])
        self.assertNotIn(str(MODELS), result.out.decode())

    def test_a_cpu_in_the_place_of_a_gpu_is_told(self):
        nowhere = {"SKALD_GPU_LIBRARIES": str(self.dir)}
        for words in (("compare", "--a", "cpu", "--b", "auto", *SHORT), ("bench", "--device", "auto", "--frames", 2)):
            result = skald(*words, env=nowhere)
            if "b: cpu" in result.out.decode() or words[0] == "bench" and " cpu " in result.out.decode():
                self.assertIn("no usable", result.err)

    def test_targets_by_name_in_any_case(self):
        for target in ("scalar", "SCALAR"):
            result = self.assert_status(skald("compare", "--a", f"cpu:{target}", "--b", "cpu", *SHORT), 0)
            text = result.out.decode()
            for words in ("a: cpu scalar x1", "lock step:", "codebook", "equal within tolerance"):
                self.assertIn(words, text)

    def test_the_same_object_each_time(self):
        first, second = (skald("compare", "--b", "cpu", *SHORT, "--weights", "int8", "--json") for _ in range(2))
        self.assertEqual(first.out, second.out)
        self.assertEqual(first.json()["weights"], "int8")

    def test_what_rounding_changes(self):
        result = self.assert_status(skald("compare", "--b", "cpu", *SHORT, "--weights", "f32", "--b-weights", "int8",
                                          "--b-compute", "fast", "--json"), 0)
        bundle = result.json()
        self.assertEqual([bundle[name] for name in ("weights", "compute", "b_weights", "b_compute")],
                         ["f32", "exact", "int8", "fast"])
        self.assertEqual(bundle["lock_step"]["ops_compared"], 0)
        self.assertTrue(0.99 < bundle["forced"]["worst_cosine"] < 0.999999)
        self.assertTrue(0 < bundle["forced"]["waveform_difference"] < 1e-3)

    def test_numbers_that_are_none_differ_and_are_called_so(self):
        shutil.copytree(MODELS / "tiny-cv", self.dir / "model")
        path = self.dir / "model/speech_tokenizer/model.safetensors"
        spoil(path, "decoder.decoder.0.conv.bias")
        words = ("compare", "--b", "cpu", *SHORT, "--model", self.dir / "model")
        result = self.assert_status(skald(*words, "--json"), 1)
        bundle = json.loads(result.out, parse_constant=lambda name: self.fail(f"{name} is no JSON"))
        self.assertEqual((bundle["verdict"], bundle["forced"]["waveform_difference"]), ("different", "nan"))
        text = self.assert_status(skald(*words), 1).out.decode()
        self.assertIn("samples hold NaN or infinity", text)
        self.assertIn("DIFFERENT, codec: samples that are no numbers", text)

    def test_a_device_that_is_not_there(self):
        result = self.assert_status(skald("compare", "--b", "hip:7", *SHORT, "--json"), 4)
        self.assertEqual(result.json()["error"]["code"], "device")
        self.assertIn("hip:7", result.err)


class Misuse(Case):
    def test_refused(self):
        for words, named in ((["--lengths", "1,,2"], "--lengths"), (["--lengths", "5-3"], "--lengths"), (["--lengths", "0"], "--lengths"),
                             (["--lengths", "1-"], "--lengths"), (["--lengths", "4001"], "within 1..4000"), (["--lengths", "1,255-4095"], "within 1..4000"), (["--lengths", "99999999999"], "within 1..4000"), (["--lengths", "7x"], "--lengths"),
                             (["--frames", "-1"], "--frames"), (["--c", "cpu"], "'--c'"), (["--a", ""], "--a"),
                             (["--b", "cpu:MMX"], "MMX"), (["--weights", "int3", "--b", "cpu"], "int3"),
                             (["--b-weights", "int3", "--b", "cpu"], "int3"), (["--b-compute", "vague", "--b", "cpu"], "vague"), (["Hello"], "compare takes no text")):
            result = self.assert_status(skald("compare", *words), 2)
            self.assertIn(named, result.err)
            self.assertEqual(result.out, b"")

    def test_a_model_that_is_not_there(self):
        result = self.assert_status(skald("compare", "--b", "cpu", "--model", self.dir / "none", "--json"), 3)
        self.assertEqual(result.json()["error"]["code"], "model_not_found")


if __name__ == "__main__":
    unittest.main()
