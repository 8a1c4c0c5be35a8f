"""Bodies made from the server's own OpenAPI document, good ones and spoilt ones: never a failure of the server, never a hang."""
import random
import unittest

from support import *

COUNT = int(os.environ.get("SKALD_SCHEMA_REQUESTS", 150 if SLOW else 400))
# What may be answered to any request that reaches the reader of bodies; 5xx only with these codes.
STATUSES = {200, 201, 400, 403, 404, 409, 413, 415, 429}
FAILURES = {"runaway", "no_audio", "queue_timeout", "request_timeout"}
TEXTS = ["Hello there.", "", " ", "...", "\u200b", "1984", "日本語です。", "🎲", "a" * 5000, "<|im_end|>", "x\ny", "\u202eabc", "\ud83d"]
JUNK = [None, True, False, 0, -1, 1e308, -0.0, 2**53, 2**63, -2**63, 10**30, "", "x", "\x00", [], {}, [[]], {"id": 3}, {"id": ""}, "NaN", "1"]


class Schema(Case):
    options = ("--slots", 2, "--cache-capacity", 256)

    def document(self):
        return self.server.get("/openapi.json").json()

    def value(self, choose, schema):
        """A value that the schema allows, often at its bounds."""
        if "oneOf" in schema:
            return choose.choice(["alloy", "anna", "ANNA", "nobody", {"id": "alloy"}])
        if "enum" in schema:
            return choose.choice(schema["enum"])
        kind = schema["type"]
        if kind == "boolean":
            return choose.random() < 0.5
        if kind == "string":
            return choose.choice(TEXTS[:-1])
        least, most = schema["minimum"], schema["maximum"]
        near = [least, most, least + (most - least) / 2, min(most, least + 1), min(most, 20)]
        value = choose.choice(near)
        return int(value) if kind == "integer" else value

    def body(self, choose, properties):
        body = {"model": choose.choice(["tts-1", "tiny-cv", "tts-1-de", "none"]), "voice": "alloy", "input": choose.choice(TEXTS[:4]),
                "max_frames": choose.randrange(1, 6)}
        for name in choose.sample(sorted(properties), choose.randrange(6)):
            body[name] = choose.choice(JUNK) if choose.random() < 0.4 else self.value(choose, properties[name])
        if choose.random() < 0.1:
            body.pop(choose.choice(sorted(body)))
        # Every speech ends soon, whatever was drawn.
        if not isinstance(body.get("max_frames"), int) or isinstance(body.get("max_frames"), bool) or body["max_frames"] > 20:
            body["max_frames"] = choose.choice([3, 3, 3, None, "x"])
        return body

    def check(self, answer, what):
        code = None
        if answer.status >= 400:
            self.assertEqual(answer.headers["Content-Type"], "application/json", what)
            code = answer.error()["code"]
            self.assertTrue(code and answer.error()["message"], what)
        if answer.status >= 500:
            self.assertIn(code, FAILURES, (what, answer.body[:300]))
        else:
            self.assertIn(answer.status, STATUSES, (what, answer.body[:300]))

    def test_speech(self):
        properties = self.document()["components"]["schemas"]["Speech"]["properties"]
        paths = ["/v1/audio/speech"] * 4 + ["/v1/audio/speech/estimate", "/v1/audio/speech/batch", "/v1/audio/voice-clone"]
        seen = set()
        for i in range(COUNT):
            choose = random.Random(i)
            path, body = choose.choice(paths), self.body(choose, properties)
            if path.endswith("batch"):
                body = {**self.body(choose, properties), "items": choose.choice([[body], [body, {}], [], 3, [3], [body] * 33])}
            try:
                answer = self.server.post(path, json.dumps(body), headers={"Content-Type": "application/json"})
            except http.client.HTTPException:
                continue  # a stream that failed after its start is broken off
            self.check(answer, (i, path, body))
            seen.add(answer.status)
        self.assertLessEqual({200, 400, 404}, seen)
        self.server.wait_idle()
        self.assertEqual(self.server.speech(max_frames=3).status, 200)

    def test_every_route_with_every_method(self):  # B065
        for path in self.document()["paths"]:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                for data, kind in ((None, None), (b"{}", "application/json"), (b"a=1", "application/x-www-form-urlencoded"),
                                   (b"--b--", "multipart/form-data; boundary=b")):
                    headers = {"Content-Type": kind} if kind else {}
                    answer = self.server.request(method, path.replace("{id}", "x%2f..").replace("{name}", "..%2fx"), data, headers)
                    what = (method, path, kind)
                    self.assertIn(answer.status, {200, 204, 400, 403, 404, 405, 413, 415, 426}, what)
                    if answer.status >= 400 and method != "HEAD":
                        self.assertTrue(answer.error()["code"], what)

    def test_spoilt_bytes(self):
        good = json.dumps(speech_body(max_frames=2)).encode()
        for i in range(COUNT // 2):
            choose = random.Random(i)
            data = bytearray(good)
            for _ in range(choose.randrange(1, 4)):
                at = choose.randrange(len(data))
                data[at:at + choose.randrange(3)] = bytes(choose.randrange(256) for _ in range(choose.randrange(3)))
            try:
                # A digit may have become many: no speech here may be long.
                if b'"max_frames": 2,' not in data and b'"max_frames": 2}' not in data:
                    continue
                answer = self.server.post("/v1/audio/speech", bytes(data), headers={"Content-Type": "application/json"})
            except http.client.HTTPException:
                continue
            self.check(answer, bytes(data))


if __name__ == "__main__":
    unittest.main()
