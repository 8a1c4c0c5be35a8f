#!/bin/bash
# From a fresh Debian 12 or 13 machine to speech in a file: installs packages, builds a release, speaks.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./quickstart.sh "TEXT" [-o FILE] [--model DIR] [options of `skald say`]

  -o FILE       where the audio goes (default: speech.wav; `-` = standard output)
  --model DIR   an official Qwen3-TTS 12 Hz snapshot folder (default: the folder in $SKALD_MODEL)

Without a model of yours, the small demonstration voice of this repository speaks (models/small-en: English, voices
af_heart and am_michael). Every other option goes to `skald say`, for example: --voice am_michael --seed 7
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$root/build/release
out=speech.wav
model=${SKALD_MODEL:-}
text=''
have_text=no
options=()

fail() {
  printf '\nquickstart: %s\n' "$*" >&2
  exit 1
}

usage_error() {
  printf 'quickstart: %s\n' "$*" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    -o | --output | -m | --model)
      [ $# -ge 2 ] || usage_error "$1 needs a value"
      case $1 in -o | --output) out=$2 ;; *) model=$2 ;; esac
      shift ;;
    --model=*) model=${1#--model=} ;;
    --output=*) out=${1#--output=} ;;
    *)
      if [ $have_text = yes ]; then
        options+=("$1")
      elif [ "${1#-}" != "$1" ]; then
        usage_error "the text comes first, then the options: ./quickstart.sh \"Some text\" $1 ..."
      else
        text=$1 have_text=yes
      fi ;;
  esac
  shift
done
[ $have_text = yes ] || { usage >&2 && exit 2; }

# The options of `skald say` by their names, before minutes go into a build; what their values must be, skald says.
check_options() {
  local sources=("$root"/src/cli/{say,request,output,voice}_options.cc) known flags word name value_of=''
  known=$(grep -oh '"--[a-z-]*' "${sources[@]}" | tr -d '"')
  flags=$(grep -oh 'add_flag("--[a-z-]*' "${sources[@]}" | sed 's/.*"//')
  for word in ${options[@]+"${options[@]}"}; do
    if [ -n "$value_of" ]; then value_of='' && continue; fi
    case $word in
      -f | -q) name=$([ "$word" = -f ] && echo --file || echo --quiet) ;;
      --?*) name=${word%%=*} ;;
      -*) usage_error "'$word' is no option of \`skald say\`; text goes first, in quotes" ;;
      *) usage_error "'$word' is one word too many; put the text in quotes" ;;
    esac
    grep -qxF -e "$name" <<<"$known" || usage_error "'$name' is no option of \`skald say\`; docs/cli.md has them"
    if [ "$word" = "${word%%=*}" ] && ! grep -qxF -e "$name" <<<"$flags"; then value_of=$word; fi
  done
  [ -z "$value_of" ] || usage_error "$value_of needs a value"
}
check_options

# Words for the reader; standard output belongs to the audio with `-o -`.
if [ "$out" = - ]; then exec 3>&2; else exec 3>&1; fi
say() { printf '%s\n' "$*" >&3; }

if [ -z "$model" ]; then
  model=$root/models/small-en
  say "No model was named, so the small demonstration voice of this repository speaks (English; models/small-en/README.md)."
  say "For the official models, name a snapshot folder with --model DIR or SKALD_MODEL (README.md, \"Models\")."
fi
[ -f "$model/config.json" ] ||
  fail "there is no model in '$model'; --model and SKALD_MODEL want a folder with config.json in it (README.md, \"Models\")"

# ---- packages, build --------------------------------------------------------------------------------------------

"$root/tools/install_packages" build >&3 || exit 1

mkdir -p "$build"
log=$build/quickstart.log
if [ ! -x "$build/bin/skald" ]; then say "Building a release of skald (some minutes, once; the log is $log) ..."; fi
# A build folder made by hand keeps its tests.
settings=(-G Ninja -DCMAKE_BUILD_TYPE=Release)
if [ ! -e "$build/CMakeCache.txt" ]; then settings+=(-DSKALD_TESTS=OFF); fi
cmake -S "$root" -B "$build" "${settings[@]}" >"$log" 2>&1 </dev/null ||
  { tail -n 20 "$log" >&2; fail "the build could not be configured; the whole log is $log"; }
# On a terminal, a line that counts the steps.
show_steps() {
  if [ ! -t 3 ]; then cat >/dev/null && return; fi
  while IFS= read -r line; do
    case $line in "["*/*"]"*) printf '\r  %s]   ' "${line%%]*}" >&3 ;; esac
  done
  printf '\r\033[K' >&3
}
cmake --build "$build" --target bin/skald 2>&1 </dev/null | tee -a "$log" | show_steps ||
  { tail -n 40 "$log" >&2; fail "the build failed; the whole log is $log"; }

# ---- speak --------------------------------------------------------------------------------------------------------

given=" ${options[*]-} "
arguments=(say --model "$model" -o "$out")
# A CustomVoice model wants a voice: its first one, unless the reader chose.
first_voice=$(tr -d '\n' <"$model/config.json" | sed -n 's/.*"spk_id": *{ *"\([^"]*\)".*/\1/p')
if [[ -n $first_voice && $given != *" --voice"* ]]; then
  say "No --voice was named: speaking as \"$first_voice\"."
  arguments+=(--voice "$first_voice")
fi
arguments+=(${options[@]+"${options[@]}"})

status=0
"$build/bin/skald" "${arguments[@]}" -- "$text" </dev/null || status=$?
if [ $status != 0 ]; then
  printf '\nquickstart: skald ended with status %d; docs/errors.md says what each status means.\n' $status >&2
  exit $status
fi
if [ "$out" = - ]; then exit 0; fi
[ "$given" = "${given#* --list-}" ] || exit 0  # a list was asked for, nothing was spoken
say "Wrote $out."
if [ "$given" != "${given#* --raw }" ]; then say "It is headerless: aplay -f S16_LE -r 24000 -c 1 $out" && exit 0; fi
for player in aplay paplay ffplay mpv play; do
  if command -v $player >/dev/null 2>&1; then
    say "Play it with: $player $out"
    exit 0
  fi
done
say "To hear it: apt-get install alsa-utils, then aplay $out - or open the file with any audio player."
