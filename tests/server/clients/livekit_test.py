"""LiveKit agents' OpenAI plug-in against the server: formats, streams, errors, an interruption."""
import asyncio
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from support import *

import aiohttp  # noqa: F401  the plug-in brings it
from livekit.agents import APIStatusError, APIConnectOptions
from livekit.plugins import openai


class LiveKit(Case):
    options = ("--slots", 2)

    def tts(self, **more):
        return openai.TTS(base_url=self.server.address + "/v1", api_key="any", **{
            "model": "gpt-4o-mini-tts", "voice": "coral", "response_format": "pcm", **more})

    async def speak(self, text, most=None, **more):
        """Samples at the rate that the plug-in tells, at most so many frames of its own."""
        tts, data, rates = self.tts(**more), b"", set()
        try:
            async with tts.synthesize(text, conn_options=APIConnectOptions(max_retry=0, timeout=PATIENCE)) as stream:
                count = 0
                async for piece in stream:
                    data += bytes(piece.frame.data)
                    rates.add((piece.frame.sample_rate, piece.frame.num_channels))
                    count += 1
                    if most and count >= most:
                        break
        finally:
            await tts.aclose()
        return data, rates

    def test_formats(self):
        for name in ("pcm", "wav", "mp3", "opus", "flac"):
            with self.subTest(name):
                data, rates = asyncio.run(self.speak("Hello there.", response_format=name))
                self.assertEqual(rates, {(24000, 1)})
                self.assertGreater(len(data), 2 * FRAME)

    def test_samples_are_the_servers(self):
        data, _ = asyncio.run(self.speak("Hello there.", speed=1.0))
        self.assertEqual(len(data) % 2, 0)
        self.assertGreater(len(data), FRAME)

    def test_errors_are_seen(self):
        with self.assertRaises(APIStatusError) as caught:
            asyncio.run(self.speak("Hello there.", voice="nobody"))
        self.assertEqual(caught.exception.status_code, 400)

    def test_an_interruption_frees_the_slot(self):
        asyncio.run(self.speak("Hello there. This goes on for a while, and on, and on, and on.", most=1))
        self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
