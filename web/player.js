// The audio worklet: plays 24 kHz samples as they arrive, and reports how far it is.
//
// A small reserve is gathered first, and again after it ran dry, so that an uneven stream is not heard as crackle.
class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.parts = [];
    this.at = 0;          // in the first part
    this.ready = 0;       // samples in all parts
    this.reserve = 2400;  // 0.1 s
    this.playing = false;
    this.ended = false;   // nothing more will come
    this.played = 0;
    this.gaps = 0;
    this.port.onmessage = ({data}) => {
      if (data.samples) {
        this.parts.push(data.samples);
        this.ready += data.samples.length;
      } else if (data.end) {
        this.ended = true;
      } else if (data.clear) {
        this.parts = [];
        this.at = this.ready = this.played = this.gaps = 0;
        this.playing = this.ended = false;
      }
    };
  }

  process(inputs, [[out]]) {
    if (!this.playing) {
      if (this.ready < this.reserve && !(this.ended && this.ready > 0)) return true;
      this.playing = true;
    }
    let filled = 0;
    while (filled < out.length && this.parts.length) {
      const part = this.parts[0];
      const count = Math.min(out.length - filled, part.length - this.at);
      out.set(part.subarray(this.at, this.at + count), filled);
      filled += count;
      this.at += count;
      if (this.at === part.length) {
        this.parts.shift();
        this.at = 0;
      }
    }
    this.ready -= filled;
    this.played += filled;
    if (filled < out.length) {
      this.playing = false;
      if (!this.ended) this.gaps++;
      this.port.postMessage({played: this.played, gaps: this.gaps, done: this.ended && this.ready === 0});
    } else if (currentFrame % 2048 < 128) {
      this.port.postMessage({played: this.played, gaps: this.gaps, done: false});
    }
    return true;
  }
}
registerProcessor('player', Player);

// Hands the samples of a microphone on.
class Recorder extends AudioWorkletProcessor {
  process([[samples]]) {
    if (samples) this.port.postMessage(samples.slice());
    return true;
  }
}
registerProcessor('recorder', Recorder);
