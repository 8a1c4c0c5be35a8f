"""The official Python SDK against the server: formats, streams, errors, retries, raw requests."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from support import *

import openai


class Sdk(Case):
    options = ("--slots", 2, "--queue", 8)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.address + "/v1", api_key="sk-any", max_retries=0)

    def speak(self, **fields):
        arguments = dict(model="tts-1", voice="alloy", input="Hello there.", extra_body={"seed": 7, "max_frames": 20, "language": "en"})
        arguments.update(fields)
        return self.client.audio.speech.create(**arguments)

    def test_formats(self):
        for name in ("mp3", "opus", "flac", "wav", "pcm", "aac"):
            try:
                answer = self.speak(response_format=name)
            except openai.BadRequestError as error:
                self.assertEqual((name, error.code), ("aac", "unsupported_response_format"))
                continue
            self.assertGreater(len(answer.content), 500, name)
        self.assertEqual(len(self.speak(response_format="pcm").content), 20 * 2 * FRAME)
        self.assertGreater(len(self.speak().read()), 500)

    def test_streaming(self):
        with self.client.audio.speech.with_streaming_response.create(
                model="gpt-4o-mini-tts", voice="coral", input="Hello there.", instructions="Cheerful.", response_format="pcm",
                extra_body={"seed": 7, "max_frames": 50}) as answer:
            got = b"".join(answer.iter_bytes(chunk_size=4096))
        self.assertEqual(got, self.server.speech(voice="coral", instructions="Cheerful.", max_frames=50, language=...).body)

    def test_stream_to_file(self):
        path = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"skald-sdk-{os.getpid()}.mp3"
        try:
            with self.client.audio.speech.with_streaming_response.create(
                    model="tts-1", voice="nova", input="Hello there.", extra_body={"max_frames": 20}) as answer:
                answer.stream_to_file(path)
            self.assertGreater(path.stat().st_size, 500)
        finally:
            path.unlink(missing_ok=True)

    def test_events(self):
        with self.client.audio.speech.with_streaming_response.create(
                model="gpt-4o-mini-tts", voice="alloy", input="Hello there.", response_format="pcm", stream_format="sse",
                extra_body={"seed": 7, "max_frames": 20}) as answer:
            got = events(b"".join(answer.iter_bytes()))
        self.assertEqual(got[-1]["type"], "speech.audio.done")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.speak(voice="nobody")
        self.assertEqual((caught.exception.code, caught.exception.param), ("unknown_voice", "voice"))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.speak(model="gpt-9")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError):
            self.speak(input="")
        with self.assertRaises(openai.BadRequestError):
            self.speak(speed=9)
        with self.assertRaises(openai.BadRequestError):
            self.speak(input="x" * 4097)

    def test_models(self):
        self.assertIn("tts-1", [m.id for m in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve("tiny-cv").owned_by, "skald")

    def test_async(self):
        import asyncio

        async def many():
            client = openai.AsyncOpenAI(base_url=self.server.address + "/v1", api_key="k", max_retries=5)
            return await asyncio.gather(*[
                client.audio.speech.create(model="tts-1", voice="echo", input=f"Number {i}.", response_format="pcm",
                                           extra_body={"seed": i, "max_frames": 10 + i}) for i in range(8)])

        for i, answer in enumerate(asyncio.run(many())):
            self.assertEqual(answer.content, self.server.speech(voice="echo", input=f"Number {i}.", seed=i, max_frames=10 + i,
                                                                language=...).body)


class SdkFailures(Case):
    model = "tiny-endless"
    options = ("--slots", 1, "--queue", 0)

    def test_runaway_and_retry(self):
        client = openai.OpenAI(base_url=self.server.address + "/v1", api_key="k", max_retries=0)
        with self.assertRaises(openai.InternalServerError):
            client.audio.speech.create(model="tts-1", voice="alloy", input="Hi", extra_body={"stream": False})
        with self.assertRaises(Exception):  # a broken stream is seen
            client.audio.speech.create(model="tts-1", voice="alloy", input="Hi").read()
        with self.server.connect() as s:
            s.sendall(post_bytes("/v1/audio/speech", speech_body(max_frames=1500, input="Hi")))
            s.recv(10)
            with self.assertRaises(openai.RateLimitError) as caught:
                client.audio.speech.create(model="tts-1", voice="alloy", input="Hi", extra_body={"max_frames": 2})
            self.assertEqual(caught.exception.code, "server_busy")
        self.server.wait_idle()
        self.assertGreater(len(client.with_options(max_retries=5).audio.speech.create(
            model="tts-1", voice="alloy", input="Hi", extra_body={"max_frames": 2}).content), 100)


if __name__ == "__main__":
    unittest.main()
