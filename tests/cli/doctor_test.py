"""skald doctor: the list, statuses, variables, and that it needs neither GPU nor model."""
import pathlib
import subprocess
import time
import unittest

from support import MODELS, SKALD, Case, environment, skald

FIELDS = {"id", "severity", "what", "do"}


def doctor(*words, **more):
    return skald("doctor", "--threads", 1, *words, **more)


class Doctor(Case):
    def findings(self, *words, status=0, **more):
        found = self.assert_status(doctor(*words, "--json", **more), status).json()
        self.assertIsInstance(found, list)
        for one in found:
            self.assertEqual(set(one) - {"details"}, FIELDS)
            self.assertIn(one["severity"], ("ok", "note", "warning", "error"))
            self.assertTrue(one["what"])
        return found

    def test_the_machine(self):
        found = {one["id"]: one for one in self.findings("--only", "machine", "--device", "cpu")}
        self.assertIn("SIMD", found["machine"]["what"])
        for vendor in ("library-amd", "library-nvidia"):
            self.assertTrue(found[vendor]["details"], "every place that was tried")

    def test_the_self_test_runs_without_a_model(self):
        found = {one["id"]: one for one in self.findings("--device", "cpu", env={"SKALD_MODEL": "/none", "TMPDIR": str(self.dir)}, timeout=240)}
        self.assertEqual(found["self-test"]["severity"], "ok")
        self.assertEqual(len(found["self-test"]["details"]), 3)
        self.assertIn("test model", found["speed"]["what"])
        self.assertIn("machine", found)
        self.assert_nothing_left()

    def test_variables_are_named(self):
        found = self.findings("--only", "machine", "--device", "cpu", env={"HSA_OVERRIDE_GFX_VERSION": "11.0.0", "HSA_ENABLE_INTERRUPT": "0"})
        by_id = {one["id"]: one for one in found}
        self.assertEqual(by_id["override"]["severity"], "warning")
        self.assertIn("11.0.0", by_id["override"]["what"])
        self.assertEqual(by_id["interrupts"]["severity"], "note")

    def test_an_error_has_status_1(self):
        found = self.findings("--only", "machine", "--device", "hip:7", status=1)
        self.assertIn("error", [one["severity"] for one in found])
        empty = self.findings("--only", "machine", env={"HSA_OVERRIDE_GFX_VERSION": ""}, status=1)
        self.assertIn("hides every AMD GPU", next(one["what"] for one in empty if one["id"] == "override"))

    def test_a_model_is_looked_at(self):
        found = {one["id"]: one for one in self.findings("--only", "machine", "--device", "cpu", "--model", MODELS / "tiny-cv")}
        self.assertEqual(found["model"]["severity"], "ok")
        found = {one["id"]: one for one in self.findings("--only", "machine", "--device", "cpu", "--model", self.dir, status=1)}
        self.assertEqual(found["model"]["severity"], "error")

    def test_names_of_nothing_are_a_usage_error(self):
        self.assertIn("q4", self.assert_status(doctor("--weights", "q4"), 2).err)

    def test_the_self_test_ends_with_doctor(self):
        run = subprocess.Popen([SKALD, "doctor", "--device", "cpu", "--threads", "1"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
        end = time.monotonic() + 60
        while not (child := children.read_text().split()) and time.monotonic() < end:
            time.sleep(0.05)
        run.kill()
        end = time.monotonic() + 1  # by itself it would go on for longer
        run.communicate()
        self.assertTrue(child)
        status = pathlib.Path(f"/proc/{child[0]}/stat")
        lives = lambda: status.exists() and status.read_text().rpartition(")")[2].split()[0] not in "ZX"
        while lives() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(lives(), "nobody would end it on a device that hangs")

    def test_text_for_people(self):
        text = self.assert_status(doctor("--only", "machine", "--device", "cpu"), 0).out.decode()
        self.assertRegex(text, r"(?m)^ok +machine: ")

    def test_a_self_test_that_fails_is_an_error(self):
        found = {one["id"]: one for one in self.findings("--only", "self-test", "--device", "hip:7", status=1)}
        self.assertEqual(found["self-test"]["severity"], "error")

    def test_nothing_spoken_is_in_it(self):
        # C019: what is spoken turns up nowhere.
        self.assertNotIn("marker", doctor("--only", "machine", "--json", env={"SKALD_VOICES": "marker"}).out.decode())


class Misuse(Case):
    def test_refused(self):
        for words, named in ((["--only", "half"], "--only"), (["--devcie", "cpu"], "'--device'"), (["Hello"], "doctor takes no text")):
            result = self.assert_status(skald("doctor", *words), 2)
            self.assertIn(named, result.err)
            self.assertEqual(result.out, b"")


if __name__ == "__main__":
    unittest.main()
