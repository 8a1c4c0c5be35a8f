#!/bin/bash
# Compares skald with the official package at true size: random-weight snapshots of the published layout, prefill and
# five forced frames, all sixteen heads; rounded weights and products against float32 over 60 forced frames; then a clip
# through both encoders. Needs about 16 GB of disk, 12 GB of memory and 35 minutes.
set -euo pipefail

usage() {
  echo "usage: tools/full-size-check.sh FOLDER [0.6b|1.7b ...]   (snapshots and references are kept in FOLDER)"
}

[ $# -ge 1 ] || { usage >&2 && exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$1
shift
[ $# -gt 0 ] || set -- 0.6b 1.7b
skald=${SKALD_BINARY:-$root/build/release/bin/skald}
[ -x "$skald" ] || { echo "build first: cmake --preset release && cmake --build build/release" >&2 && exit 1; }
mkdir -p "$folder"

oracle=${SKALD_ORACLE:-$folder/oracle}
[ -x "$oracle/bin/python" ] || sh "$root/python/reference/setup.sh" "$oracle"

status=0
for size in "$@"; do
  snapshot=$folder/$size-cv reference=$folder/$size-ref dump=$folder/$size-dump
  if [ ! -e "$snapshot/speech_tokenizer/model.safetensors" ]; then
    "$oracle/bin/python" "$root/tools/make_snapshot.py" "$snapshot" --size "$size" --type custom_voice
  fi
  if [ ! -e "$reference/case.json" ]; then
    HF_HUB_OFFLINE=1 "$oracle/bin/python" "$root/python/reference/full_size.py" "$snapshot" "$reference"
  fi
  "$skald" verify "$snapshot"
  rm -rf "$dump"
  field() { "$oracle/bin/python" -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$reference/case.json" "$1"; }
  "$skald" say --model "$snapshot" --voice "$(field speaker)" --language "$(field language)" --greedy --no-split \
    --replay "$reference/codes.npy" --dump "$dump" -o "$folder/$size.wav" -- "$(field text)"
  echo "== $size"
  "$oracle/bin/python" "$root/python/reference/compare.py" "$(find "$dump" -name request.json -printf '%h\n' | head -n 1)" \
    "$reference" || status=1

  # What may be rounded, against float32: all sixteen heads and the waveform. The limits are those of docs/compare.md.
  for rounded in "bf16 exact" "int8 exact" "bf16 fast" "int8 fast"; do
    read -r weights compute <<<"$rounded"
    echo "== $size, weights $weights, compute $compute"
    "$skald" compare --model "$snapshot" --a cpu --b cpu --weights f32 --b-weights "$weights" --b-compute "$compute" \
      --lengths 22 --frames 60 || status=1
  done

  # A clip through both encoders of the Base model of this size.
  base=$folder/$size-base clip=$folder/$size-clip
  if [ ! -e "$base/speech_tokenizer/model.safetensors" ]; then
    "$oracle/bin/python" "$root/tools/make_snapshot.py" "$base" --size "$size" --type base
  fi
  if [ ! -e "$clip/codes.npy" ]; then
    HF_HUB_OFFLINE=1 "$oracle/bin/python" "$root/python/reference/full_size_clip.py" "$base" "$clip"
  fi
  "$skald" voice add clip --model "$base" --from "$clip/clip.wav" --text "Made of integers, it says nothing at all in ten seconds." \
    --identity synthetic --voices "$clip" --replace
  "$oracle/bin/python" "$root/python/reference/full_size_clip.py" --compare "$clip/clip.safetensors" "$clip" || status=1
done
exit $status
