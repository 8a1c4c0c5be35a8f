// The official Node SDK against the server: formats, streams, errors. usage: node openai_node_test.mjs ADDRESS
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const client = new OpenAI({baseURL: `${process.argv[2]}/v1`, apiKey: 'sk-any', maxRetries: 0});
const base = {model: 'tts-1', voice: 'alloy', input: 'Hello there.', seed: 7, max_frames: 20, language: 'en'};

for (const response_format of ['mp3', 'opus', 'flac', 'wav', 'pcm']) {
  const answer = await client.audio.speech.create({...base, response_format});
  const bytes = Buffer.from(await answer.arrayBuffer());
  assert.ok(bytes.length > 500, response_format);
  if (response_format === 'pcm') assert.equal(bytes.length, 20 * 3840);
}
const stream = await client.audio.speech.create({...base, response_format: 'pcm', max_frames: 60});
const chunks = [];
for await (const chunk of stream.body) chunks.push(Buffer.from(chunk));
const whole = await client.audio.speech.create({...base, response_format: 'pcm', max_frames: 60, stream: false});
assert.deepEqual(Buffer.concat(chunks), Buffer.from(await whole.arrayBuffer()));
await assert.rejects(client.audio.speech.create({...base, voice: 'nobody'}), (error) => error.status === 400 && error.code === 'unknown_voice');
await assert.rejects(client.audio.speech.create({...base, model: 'gpt-9'}), (error) => error.status === 404);
const ids = [];
for await (const model of client.models.list()) ids.push(model.id);
assert.ok(ids.includes('tts-1'));
console.log('node sdk: ok');
