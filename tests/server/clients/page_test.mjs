// The page in headless Chromium: speaks, stops, remembers, clones, designs, is usable by keyboard and screen reader.
// usage: node page_test.mjs ADDRESS [SCREENSHOT-FOLDER]
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {chromium} from 'playwright-core';

const [address, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--autoplay-policy=no-user-gesture-required', '--disable-gpu', '--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'],
});

async function open(colorScheme) {
  const page = await (await browser.newContext({colorScheme, viewport: {width: 1000, height: 1200}})).newPage();
  const complaints = [], foreign = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url())) foreign.push(request.url()); });
  await page.goto(address);
  await page.waitForFunction(() => document.querySelector('#server').textContent.startsWith('Ready'));
  return {page, complaints, foreign};
}

async function accessible(page, what) {
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`), [], what);
}

const text = (page, id) => page.locator(id).textContent();

for (const scheme of ['light', 'dark']) {
  const {page, complaints, foreign} = await open(scheme);
  await accessible(page, `${scheme}, before`);
  assert.ok(await page.locator('#voice option').count() > 1);
  await page.fill('#text', 'Hello there.');
  assert.equal(await text(page, '#count'), '12');
  await page.click('summary');
  await page.fill('#seed', '7');
  await page.selectOption('#language', 'english');
  await page.click('#speak');
  await page.waitForFunction(() => Number(document.body.dataset.played) > 2400, null, {timeout: 60000});
  if (folder) await page.screenshot({path: `${folder}/page-${scheme}-speaking.png`});
  await page.waitForFunction(() => document.querySelector('#history li'), null, {timeout: 120000});
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'Done.', null, {timeout: 120000});
  assert.match(await text(page, '#first'), /^\d+ ms$/);
  assert.match(await text(page, '#factor'), /^\d+\.\d\d$/);
  assert.equal(await text(page, '#used-seed'), '7');
  assert.equal(await text(page, '#problem'), '');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#history li a')]);
  assert.equal(download.suggestedFilename(), 'speech-7.wav');
  const size = readFileSync(await download.path()).length;
  const shown = parseFloat(await text(page, '#length'));
  assert.ok(Math.abs((size - 44) / 48000 - shown) < 0.1, 'the download is what was heard');
  await accessible(page, `${scheme}, after`);
  if (folder) await page.screenshot({path: `${folder}/page-${scheme}.png`, fullPage: true});
  await page.click('#history li button:text("Remove")');
  assert.equal(await page.locator('#history li').count(), 0);

  // By keyboard alone: from the text to the button and into the next speech.
  await page.focus('#text');
  await page.fill('#text', 'Once more.');
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction(() => document.querySelector('#history li'), null, {timeout: 120000});

  // What the server refuses is said in words.
  await page.fill('#text', '...');
  await page.click('#speak');
  await page.waitForFunction(() => document.querySelector('#problem').textContent.length > 10);
  assert.deepEqual(foreign, []);
  assert.deepEqual(complaints.filter((line) => !line.includes('400')), []);
  await page.context().close();
}

// ---- voices: from a file, from the microphone, from words

function clip(seconds) {
  const samples = 24000 * seconds, bytes = Buffer.alloc(44 + 2 * samples);
  bytes.write('RIFF'), bytes.write('WAVEfmt ', 8), bytes.write('data', 36);
  bytes.writeUInt32LE(36 + 2 * samples, 4), bytes.writeUInt32LE(16, 16), bytes.writeUInt16LE(1, 20), bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(24000, 24), bytes.writeUInt32LE(48000, 28), bytes.writeUInt16LE(2, 32), bytes.writeUInt16LE(16, 34);
  bytes.writeUInt32LE(2 * samples, 40);
  for (let i = 0; i < samples; ++i) bytes.writeInt16LE(Math.round(9000 * Math.sin(i / 25 * (1 + 0.1 * Math.sin(i / 9000)))), 44 + 2 * i);
  return bytes;
}

async function speaks(page, words) {
  const before = await page.locator('#history li').count();
  await page.fill('#text', words);
  await page.click('#speak');
  await page.waitForFunction((n) => document.querySelectorAll('#history li').length > n || document.querySelector('#problem').textContent,
    before, {timeout: 120000});
  assert.equal(await text(page, '#problem'), '');
}

{
  const {page, complaints, foreign} = await open('light');
  assert.ok(await page.locator('#clone').isVisible());
  const keep = async (name, consent) => {
    await page.fill('#clone-name', name);
    await page.fill('#consent', consent);
    await page.click('#keep');
    await page.waitForFunction((n) => document.querySelector('#clone-state').textContent.startsWith(`Kept ${n}`), name, {timeout: 120000});
  };
  await page.selectOption('#model', 'base');
  await page.setInputFiles('#clip', {name: 'anna.wav', mimeType: 'audio/wav', buffer: clip(4)});
  await page.fill('#clone-name', 'anna');
  await page.click('#keep');  // without consent nothing is sent
  assert.equal(await page.evaluate(() => document.querySelector('#consent').validity.valueMissing), true);
  await page.fill('#transcript', 'What it says.');
  await keep('anna', 'My own voice.');
  await speaks(page, 'Hello there.');
  await page.setInputFiles('#clip', []);
  await page.click('#record');
  await page.waitForFunction(() => document.querySelector('#clone-state').textContent === 'Recording.');
  await page.waitForTimeout(4000);
  await page.click('#record');
  await page.waitForFunction(() => document.querySelector('#clone-state').textContent.startsWith('Recorded'));
  await page.fill('#transcript', '');
  await keep('ben', 'The machine beeps.');
  await page.waitForFunction(() => document.querySelectorAll('#kept li').length === 2);
  await accessible(page, 'voices');
  if (folder) await page.screenshot({path: `${folder}/page-voices.png`, fullPage: true});
  await page.click('#kept button:text("Delete ben")');
  await page.waitForFunction(() => document.querySelectorAll('#kept li').length === 1);
  await page.selectOption('#model', 'design');
  assert.equal(await text(page, '#style-label'), 'The voice, in words');
  await page.fill('#style', 'An old man, calm.');
  await page.click('summary');
  await page.fill('#seed', '4');  // the tiny model does not find an end with every one
  await speaks(page, 'Good morning.');
  assert.deepEqual([foreign, complaints], [[], []]);
  await page.context().close();
}
await browser.close();
console.log('page: ok');
