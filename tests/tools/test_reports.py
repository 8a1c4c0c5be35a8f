"""The table of reports in docs/testing.md names tests that exist and carry the report's number."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).parents[2]
# A test's own line, the lines above it (comments), and its name.
ABOVE = 3


def rows():
    text = (ROOT / "docs/testing.md").read_text()
    return re.findall(r"^\| ([BC]\d{3}) \| [^|]* \| ([^|]*) \|$", text, re.M)


class Reports(unittest.TestCase):
    def test_every_report_of_these_areas_is_there(self):
        wanted = [f"B{n:03}" for n in (*range(52, 57), *range(58, 74), 126, *range(79, 90))]
        wanted += ["C006", "C012", "C013", "C015", "C017", "C019", "C021"]
        wanted += ["B021", *(f"B{n:03}" for n in (*range(40, 46), *range(48, 52), 118, 120, 121, 123, 125)), "C010", "C012"]  # clones
        self.assertEqual([number for number, _ in rows()], wanted)

    def test_the_tests_exist_and_carry_the_number(self):
        for number, cell in rows():
            found = 0
            for entry in cell.split("; "):
                for path, names in re.findall(r"`([\w/.]+)`([^`;]*)$", entry):
                    lines = (ROOT / path).read_text().splitlines()
                    if not path.startswith("tests/"):
                        found += 1
                        continue
                    for name in filter(None, re.split(r"[\s,]+", names)):
                        at = [i for i, line in enumerate(lines) if re.search(rf"\b{name}\b", line)]
                        self.assertTrue(at, f"{number}: there is no {name} in {path}")
                        around = "\n".join(lines[max(0, at[0] - ABOVE):at[0] + 1])
                        self.assertIn(number, around.upper(), f"{name} in {path} does not carry the number")
                        found += 1
                    found += not names.strip()
            self.assertGreater(found, 0, number)


if __name__ == "__main__":
    unittest.main()
