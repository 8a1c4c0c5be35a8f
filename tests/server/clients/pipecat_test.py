"""Pipecat's OpenAI service against the server: frames of audio, errors as frames."""
import asyncio
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from support import *

from pipecat.frames.frames import ErrorFrame, TTSAudioRawFrame
from pipecat.services.openai.tts import OpenAITTSService


class Pipecat(Case):
    options = ("--slots", 2)

    def speak(self, text, most=None, **settings):
        async def run():
            service = OpenAITTSService(base_url=self.server.address + "/v1", api_key="any", sample_rate=24000,
                                       settings=OpenAITTSService.Settings(**{"voice": "coral", "model": "gpt-4o-mini-tts", **settings}))
            # What a pipeline sets when it starts.
            service._sample_rate = 24000
            frames = []
            generator = service.run_tts(text, "context")
            async for frame in generator:
                frames.append(frame)
                if most and len(frames) >= most:
                    break
            await generator.aclose()
            await service._client.close()
            return frames

        return asyncio.run(run())

    def test_audio(self):
        frames = [f for f in self.speak("Hello there.") if isinstance(f, TTSAudioRawFrame)]
        self.assertGreater(len(frames), 0)
        self.assertEqual({(f.sample_rate, f.num_channels) for f in frames}, {(24000, 1)})
        self.assertTrue(all(len(f.audio) % 2 == 0 for f in frames))
        self.assertGreater(sum(len(f.audio) for f in frames), FRAME)

    def test_every_voice_it_knows(self):
        for voice in ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"):
            frames = self.speak("Hi there.", most=1, voice=voice)
            self.assertIsInstance(frames[0], TTSAudioRawFrame, voice)
        self.server.wait_idle()

    def test_instructions_and_speed(self):
        slow = self.speak("Hello there.", instructions="Calm.", speed=0.5)
        self.assertIsInstance(slow[0], TTSAudioRawFrame)

    def test_errors_are_frames(self):
        frames = self.speak("...")
        self.assertIsInstance(frames[-1], ErrorFrame)
        self.assertIn("nothing", frames[-1].error.lower())


if __name__ == "__main__":
    unittest.main()
