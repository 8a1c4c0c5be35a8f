#!/bin/sh
# Fails if libskald shows a symbol that is not part of skald.h or skald_c.h. usage: exports.sh LIBRARY
set -eu
shown=$(nm -D --defined-only -C "$1" | cut -c18-)
stray=$(printf '%s\n' "$shown" | grep -vE ' (SKALD_1$|skald_[a-z_]+@@|(typeinfo (name )?for |vtable for )?skald::(Engine|Error|SpeechStream|TextStream|VoiceFolder|error_code_name|stop_reason_name|speaker_identity_name|voice_hash|valid_voice_name|states_consent|require_consent|write_voice|read_voice|import_voices)\b)' || true)
if [ -n "$stray" ]; then
  echo "not part of the interface:" "$stray"
  exit 1
fi
for name in skald_engine_open skald::Engine::open skald_voice_make skald::read_voice skald::VoiceFolder::save; do
  printf '%s\n' "$shown" | grep -q " $name" || { echo "$name is missing"; exit 1; }
done
