"""Drawing the weights that the repository does not carry: `tiny.py OUT --missing`."""

import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import tiny

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "models"


class Missing(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in tiny.missing_weights(self.folder):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)

    def files(self):
        return {str(f.relative_to(self.folder)) for f in self.folder.rglob("*") if f.is_file()}

    def test_every_snapshot_has_its_sum(self):
        names = {name.split("/")[0] for name in tiny.missing_weights(self.folder)}
        self.assertEqual(names, set(tiny.VARIANTS))
        self.assertEqual(names, {f.name for f in FIXTURES.iterdir() if f.is_dir()})

    def test_the_weights_and_nothing_else_are_drawn(self):
        wanted = set(tiny.missing_weights(self.folder))
        tiny.draw_missing(self.folder)
        self.assertEqual(self.files(), wanted)
        self.assertEqual(tiny.missing_weights(self.folder), {})

    def test_what_is_there_stays(self):
        changed = self.folder / "tiny-cv" / "model.safetensors"
        changed.write_bytes(b"mine")
        tiny.draw_missing(self.folder)
        self.assertEqual(changed.read_bytes(), b"mine")

    def test_other_numbers_are_refused_and_leave_nothing(self):
        other = self.folder / "other.sha256"
        other.write_text("0" * 64 + "  tiny-vd/model.safetensors\n")
        with mock.patch.object(tiny, "SUMS", other), self.assertRaises(SystemExit) as end:
            tiny.draw_missing(self.folder)
        self.assertIn("tiny-vd/model.safetensors: this numpy", str(end.exception))
        self.assertEqual(self.files(), {"other.sha256"})


if __name__ == "__main__":
    unittest.main()
