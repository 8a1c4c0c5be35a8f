// The page: asks for speech, plays it while it comes, shows what it looks like and what it costs.
const $ = (id) => document.getElementById(id);
const RATE = 24000;

let voices = [];
let audio = null;    // {context, player, analyser}, made at the first click: browsers want one
let running = null;  // AbortController of the request in work
let failed = false;  // the last speech was not spoken to its end

// ---- the server

function headers() {
  const out = {};
  if ($('key').value) out.Authorization = `Bearer ${$('key').value}`;
  return out;
}

async function ask(path) {
  const answer = await fetch(path, {headers: headers()});
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

async function reason(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

function options(select, entries) {
  const before = select.value;
  select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  if (entries.some(([value]) => value === before)) select.value = before;
}

async function look() {
  try {
    const [ready, models] = await Promise.all([fetch('ready').then((r) => r.json()), ask('v1/models')]);
    const names = new Set(ready.models.map((m) => m.id));
    options($('model'), models.data.filter((m) => names.has(m.id)).map((m) => [m.id, m.id]));
    await lookAtVoices();
    const clone = await ask('v1/audio/voice-clone/capabilities');
    $('clone').hidden = !(clone.supported && clone.voices_kept);
    const device = ready.models.map((m) => m.device).find(Boolean);
    $('server').textContent = ready.status === 'ready' ? `Ready${device ? ` on ${device}` : ''}.` : `Not ready: ${ready.status}.`;
  } catch (error) {
    $('server').textContent = error.message;
  }
}

async function lookAtVoices() {
  voices = (await ask('v1/audio/voices')).voices;
  showVoices();
  $('kept').replaceChildren(...voices.filter((v) => v.clone).map((v) => {
    const item = document.createElement('li'), drop = document.createElement('button');
    drop.type = 'button', drop.textContent = `Delete ${v.name}`;
    drop.addEventListener('click', () => removeVoice(v.name));
    item.append(drop);
    return item;
  }));
}

function showVoices() {
  const own = voices.filter((v) => v.model === $('model').value && v.kind !== 'alias');
  options($('voice'), own.map((v) => [v.id, v.name]));
  $('voice-field').hidden = own.length === 0;
  $('style-label').textContent = own.length ? 'Style' : 'The voice, in words';
  const languages = own.length ? own[0].languages : ['auto'];
  options($('language'), languages.map((l) => [l, l === 'auto' ? 'Automatic' : l[0].toUpperCase() + l.slice(1)]));
}

// ---- sound

async function openAudio() {
  if (!audio) {
    const context = new AudioContext({sampleRate: RATE, latencyHint: 'interactive'});
    await context.audioWorklet.addModule('player.js');
    const player = new AudioWorkletNode(context, 'player', {numberOfInputs: 0, outputChannelCount: [1]});
    const analyser = new AnalyserNode(context, {fftSize: 1024, smoothingTimeConstant: 0.4});
    player.connect(analyser).connect(context.destination);
    player.port.onmessage = ({data}) => heard(data);
    audio = {context, player, analyser};
  }
  await audio.context.resume();
  audio.player.port.postMessage({clear: true});
  return audio;
}

function heard({played, gaps, done}) {
  document.body.dataset.played = played;
  document.body.dataset.gaps = gaps;
  if (done && !running) {
    if (!failed) $('state').textContent = 'Done.';
    drawing = false;
  }
}

function toFloats(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({length: bytes.byteLength / 2}, (_, i) => view.getInt16(2 * i, true) / 32768);
}

function wavOf(parts) {
  const count = parts.reduce((sum, part) => sum + part.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const word = (at, text) => [...text].forEach((c, i) => head.setUint8(at + i, c.charCodeAt(0)));
  word(0, 'RIFF'), word(8, 'WAVEfmt '), word(36, 'data');
  [[4, 36 + count], [16, 16], [24, RATE], [28, 2 * RATE], [40, count]].forEach(([at, v]) => head.setUint32(at, v, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([at, v]) => head.setUint16(at, v, true));
  return new Blob([head, ...parts], {type: 'audio/wav'});
}

// ---- pictures

let drawing = false;
let column = 0;

function colours() {
  const style = getComputedStyle(document.documentElement);
  return {ink: style.getPropertyValue('--accent').trim(), back: style.getPropertyValue('--back').trim()};
}

function draw() {
  if (!drawing) return;
  const {ink, back} = colours();
  const wave = $('wave').getContext('2d'), spectrum = $('spectrum').getContext('2d');
  const samples = new Float32Array(audio.analyser.fftSize), levels = new Uint8Array(audio.analyser.frequencyBinCount);
  audio.analyser.getFloatTimeDomainData(samples);
  audio.analyser.getByteFrequencyData(levels);
  const peak = samples.reduce((most, s) => Math.max(most, Math.abs(s)), 0);
  const {width, height} = $('wave'), tall = $('spectrum').height;
  wave.fillStyle = back, wave.fillRect(column, 0, 3, height);
  wave.fillStyle = ink, wave.fillRect(column, height / 2 * (1 - peak), 2, Math.max(1, height * peak));
  spectrum.fillStyle = back, spectrum.fillRect(column, 0, 3, tall);
  spectrum.fillStyle = ink;
  for (let y = 0; y < tall; y += 2) {
    const level = levels[Math.floor((1 - y / tall) * (levels.length - 1))];
    if (level > 0) {
      spectrum.globalAlpha = level / 255;
      spectrum.fillRect(column, y, 2, 2);
    }
  }
  spectrum.globalAlpha = 1;
  column = (column + 2) % width;
  requestAnimationFrame(draw);
}

function startPictures() {
  for (const id of ['wave', 'spectrum']) $(id).getContext('2d').clearRect(0, 0, $(id).width, $(id).height);
  column = 0;
  if (!drawing) {
    drawing = true;
    requestAnimationFrame(draw);
  }
}

// ---- a voice from a recording

let recording = null;  // {stream, context, parts} while the microphone is on
let recorded = null;   // a WAV

async function record() {
  if (recording) {
    recording.stream.getTracks().forEach((track) => track.stop());
    await recording.context.close();
    recorded = wavOf(recording.parts.map((part) => Int16Array.from(part, (s) => Math.max(-1, Math.min(1, s)) * 32767)));
    $('clone-state').textContent = `Recorded ${((recorded.size - 44) / 2 / RATE).toFixed(1)} s.`;
    recording = null;
  } else {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({audio: {channelCount: 1}});
      const context = new AudioContext({sampleRate: RATE}), parts = [];
      await context.audioWorklet.addModule('player.js');
      const node = new AudioWorkletNode(context, 'recorder', {numberOfOutputs: 0});
      node.port.onmessage = ({data}) => parts.push(data);
      context.createMediaStreamSource(stream).connect(node);
      recording = {stream, context, parts};
      $('clone-state').textContent = 'Recording.';
    } catch (error) {
      $('clone-state').textContent = `No microphone: ${error.message}`;
    }
  }
  $('record').textContent = recording ? 'Stop recording' : 'Record instead';
  $('record').setAttribute('aria-pressed', String(Boolean(recording)));
}

async function keep() {
  const clip = $('clip').files[0] ?? recorded;
  if (!clip) {
    $('clone-state').textContent = 'Choose a recording, or make one.';
    return;
  }
  const form = new FormData();
  form.append('name', $('clone-name').value);
  form.append('consent', $('consent').value);
  form.append('ref_text', $('transcript').value);
  form.append('audio_sample', clip, 'recording');
  $('keep').disabled = true;
  $('clone-state').textContent = 'Listening to the recording.';
  try {
    const answer = await fetch('v1/audio/voices', {method: 'POST', headers: headers(), body: form});
    if (!answer.ok) throw new Error(await reason(answer));
    const made = await answer.json();
    $('clone-state').textContent = [`Kept ${made.name}.`, ...made.warnings].join(' ');
    await lookAtVoices();
    $('voice').value = made.name;
  } catch (error) {
    $('clone-state').textContent = error.message;
  } finally {
    $('keep').disabled = false;
  }
}

async function removeVoice(name) {
  const answer = await fetch(`v1/audio/voices/${encodeURIComponent(name)}`, {method: 'DELETE', headers: headers()});
  $('clone-state').textContent = answer.ok ? `Deleted ${name}.` : await reason(answer);
  await lookAtVoices();
}

// ---- speaking

function body() {
  const out = {model: $('model').value, input: $('text').value, response_format: 'pcm', stream_format: 'audio'};
  if (!$('voice-field').hidden) out.voice = $('voice').value;
  if ($('language').value !== 'auto') out.language = $('language').value;
  if ($('style').value) out.instructions = $('style').value;
  if ($('speed').valueAsNumber && $('speed').valueAsNumber !== 1) out.speed = $('speed').valueAsNumber;
  if ($('seed').value !== '') out.seed = $('seed').valueAsNumber;
  return out;
}

function busy(now) {
  $('speak').disabled = now;
  $('stop').disabled = !now;
}

async function speak() {
  const sound = await openAudio();
  const control = running = new AbortController();
  failed = false;
  busy(true);
  $('problem').textContent = '';
  $('state').textContent = 'Waiting for the first sound.';
  ['first', 'factor', 'length', 'used-seed', 'device'].forEach((id) => { $(id).textContent = '-'; });
  startPictures();
  const asked = performance.now(), request = body(), parts = [];
  let samples = 0;
  try {
    const answer = await fetch('v1/audio/speech', {
      method: 'POST', signal: control.signal, body: JSON.stringify(request),
      headers: {...headers(), 'Content-Type': 'application/json'},
    });
    if (!answer.ok) throw new Error(await reason(answer));
    $('used-seed').textContent = answer.headers.get('X-Skald-Seed');
    $('device').textContent = answer.headers.get('X-Skald-Device');
    let held = new Uint8Array(0);  // half a sample, where a network cut one
    for (const reader = answer.body.getReader();;) {
      const {done, value} = await reader.read();
      if (done) break;
      const bytes = new Uint8Array(held.length + value.length);
      bytes.set(held), bytes.set(value, held.length);
      const whole = bytes.subarray(0, bytes.length & ~1);
      held = bytes.slice(whole.length);
      if (samples === 0) $('first').textContent = `${Math.round(performance.now() - asked)} ms`;
      samples += whole.length / 2;
      parts.push(whole);
      sound.player.port.postMessage({samples: toFloats(whole)});
      $('length').textContent = `${(samples / RATE).toFixed(1)} s`;
      $('state').textContent = 'Speaking.';
    }
    const took = (performance.now() - asked) / 1000;
    $('factor').textContent = (took / (samples / RATE)).toFixed(2);
    remember(request, parts, samples, answer.headers.get('X-Skald-Seed'));
  } catch (error) {
    failed = true;
    if (samples === 0) drawing = false;
    if (error.name !== 'AbortError') $('problem').textContent = samples ? `The speech broke off: ${error.message}` : error.message;
    $('state').textContent = error.name === 'AbortError' ? 'Stopped.' : 'Not spoken to its end.';
  } finally {
    sound.player.port.postMessage({end: true});
    if (running === control) running = null;
    busy(false);
  }
}

function stop() {
  running?.abort();
  audio?.player.port.postMessage({clear: true});
  drawing = false;
}

function remember(request, parts, samples, seed) {
  const url = URL.createObjectURL(wavOf(parts));
  const item = document.createElement('li'), text = document.createElement('p'), note = document.createElement('p');
  text.textContent = request.input.length > 160 ? `${request.input.slice(0, 160)}…` : request.input;
  note.textContent = `${request.voice ?? 'designed voice'}, ${(samples / RATE).toFixed(1)} s, seed ${seed}`;
  note.className = 'note';
  const save = document.createElement('a'), again = document.createElement('button'), drop = document.createElement('button');
  save.href = url, save.download = `speech-${seed}.wav`, save.className = 'button', save.textContent = 'Download';
  again.type = drop.type = 'button', again.textContent = 'Play again', drop.textContent = 'Remove';
  again.addEventListener('click', async () => {
    const sound = await openAudio();
    failed = false;
    startPictures();
    parts.forEach((part) => sound.player.port.postMessage({samples: toFloats(part)}));
    sound.player.port.postMessage({end: true});
    $('state').textContent = 'Playing again.';
  });
  drop.addEventListener('click', () => {
    URL.revokeObjectURL(url);
    item.remove();
    $('no-history').hidden = $('history').children.length > 0;
  });
  item.append(text, note, save, again, drop);
  $('history').prepend(item);
  $('no-history').hidden = true;
}

$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  speak();
});
$('clone').addEventListener('submit', (event) => {
  event.preventDefault();
  keep();
});
$('record').addEventListener('click', record);
$('stop').addEventListener('click', stop);
$('model').addEventListener('change', showVoices);
$('key').addEventListener('change', look);
$('text').addEventListener('input', () => { $('count').textContent = [...$('text').value].length; });
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('form').requestSubmit();
});
$('count').textContent = [...$('text').value].length;
look();
