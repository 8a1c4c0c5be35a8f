#!/bin/bash
# Checks skald on this machine's GPU: builds (or takes what tools/gpu-pack made), runs the operation tests, the
# fixtures, comparisons with the CPU and the benches, each within a time limit, and prints a table.
#
# A step that fails or runs out of time does not stop the others. Everything a step printed lies in OUT/STEP.txt.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: tools/gpu-check.sh [options]

  --pack FILE        programs and libraries from tools/gpu-pack, nothing is built; default: a build in build/gpu-check
  --build FOLDER     build there instead
  --bin FOLDER       programs as they are in this folder, nothing is built
  --out FOLDER       logs (default build/gpu-check-log)
  --work FOLDER      snapshots, kept machine code, unpacked programs (default build/gpu-check-work)
  --device NAME      as for `skald --device` (default gpu)
  --libraries FOLDER where the driver's library is, before any other place
  --tokenizer FOLDER with the tokenizer.json of the published models; default: the pack's, else fetched with npm
  --sizes "S ..."    full-size snapshots: 0.6b 1.7b (default both; "" = none)
  --only STEP        only this step (repeatable); --list names them
  --seconds N        for everything together (default 470)
  --quick            few cases of each step: for trying this script on a stand-in driver
TEXT
}

steps=(machine waits doctor ops fixtures clones say bench compare_tiny sanitizer bench_full voice long compare_full)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pack='' build=$root/build/gpu-check bin='' out=$root/build/gpu-check-log work=$root/build/gpu-check-work device=gpu libraries='' tokenizer='' sizes='0.6b 1.7b'
total=470 quick=no only=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --list) printf '%s\n' "${steps[@]}" && exit 0 ;;
    -h | --help) usage && exit 0 ;;
    --pack | --build | --bin | --out | --work | --device | --libraries | --tokenizer | --sizes | --only | --seconds)
      [ $# -ge 2 ] || { usage >&2 && exit 2; }
      case $1 in
        --pack) pack=$2 ;;
        --build) build=$2 ;;
        --bin) bin=$2 ;;
        --out) out=$2 ;;
        --work) work=$2 ;;
        --device) device=$2 ;;
        --libraries) libraries=$2 ;;
        --tokenizer) tokenizer=$2 ;;
        --sizes) sizes=$2 ;;
        --only) only+=("$2") ;;
        --seconds) total=$2 ;;
      esac
      shift ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
[ ${#only[@]} -gt 0 ] && steps=("${only[@]}")
mkdir -p "$out" "$work/cache"
out=$(cd "$out" && pwd) work=$(cd "$work" && pwd)
fixtures=$root/tests/fixtures
table=$out/table.txt
: >"$table"

# ---- programs -----------------------------------------------------------------------------------------------------

programs=(skald skald-rtc gpu_waits parity_test engine_clone_test)
for name in linear attention audio encode speaker rows sample_op; do programs+=("kernels_${name}_test"); done

if [ -n "$pack" ]; then
  # Where there is no xz, Python has one.
  tar -C "$work" -xf "$pack" 2>/dev/null || python3 -m tarfile -e "$pack" "$work" || { echo "gpu-check: $pack does not unpack" >&2 && exit 1; }
  bin=$work/gpu-pack/bin
  # The snapshots' weights are drawn where programs are built; another numpy may draw others.
  fixtures=$work/fixtures
  cp -r "$root/tests/fixtures" "$work/" && cp -r --remove-destination "$work/gpu-pack/models" "$fixtures/" || exit 1
  [ -n "$tokenizer" ] || { [ -e "$work/gpu-pack/tokenizer/tokenizer.json" ] && tokenizer=$work/gpu-pack/tokenizer; }
elif [ -z "$bin" ]; then
  bin=$build/bin
  { cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$build" -j "$(nproc)" --target skald_program "${programs[@]:1}"; } >"$out/build.txt" 2>&1 ||
    { tail -n 20 "$out/build.txt" && echo "gpu-check: the build failed; the whole log is $out/build.txt" && exit 1; }
fi

export SKALD_TEST_DEVICE=$device SKALD_TEST_CACHE=$work/cache SKALD_TEST_FIXTURES=$fixtures XDG_CACHE_HOME=$work/cache
[ -n "$libraries" ] && export SKALD_GPU_LIBRARIES=$libraries

# ---- steps --------------------------------------------------------------------------------------------------------

# A step's last line may start with "note: ", which the table shows; status 77 means that it does not apply here.
skip() { printf 'note: %s\n' "$*" && exit 77; }

# Numbers out of a file with an object: fields 'FORMAT' FILE, where FORMAT is an f-string over the object j.
fields() { python3 -c 'import json, sys; j = json.load(open(sys.argv[2])); print(eval("f" + repr(sys.argv[1])))' "$1" "$2"; }

# Runs GoogleTest programs one after the other, all of them.
run_tests() {
  local limit=$1 failed=0 name
  shift
  for name in "$@"; do
    echo "== $name"
    timeout -k 5 "$limit" "$bin/$name" --gtest_brief=1 ${filter:+--gtest_filter="$filter"} || { echo "$name ended with $?" && failed=$((failed + 1)); }
  done
  echo "note: $(($# - failed)) of $# programs passed"
  [ $failed = 0 ]
}

step_machine() {
  uname -a
  lscpu | grep -E 'Model name|Hypervisor|^CPU\(s\)'
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.used,memory.total,utilization.gpu,clocks.sm,clocks.mem,power.draw,pstate --format=csv
    nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv
    echo "note: $(nvidia-smi --query-gpu=name,utilization.gpu,memory.used,clocks.sm --format=csv,noheader | head -n 1) before the first step"
  elif command -v rocm-smi >/dev/null; then
    rocm-smi
  else
    echo "note: neither nvidia-smi nor rocm-smi"
  fi
}

step_waits() {
  "$bin/gpu_waits" "$device" | tee "$out/waits.table" || return 1
  echo "note: mark to host $(sed -n 's/^own wait of the backend *\([0-9.]*\).*/\1/p' "$out/waits.table") us; tight loop $(sed -n 's/^tight loop  *\([0-9.]*\).*/\1/p' "$out/waits.table") us, driver's answer $(sed -n "s/^driver's own answer *\([0-9.]*\).*/\1/p" "$out/waits.table") us"
}

step_doctor() {
  local part=everything
  [ $quick = yes ] && part=machine
  "$bin/skald" doctor --device "$device" --only $part
}

step_ops() {
  local filter='' names=(kernels_{linear,attention,audio,encode,speaker,rows,sample_op}_test)
  [ $quick = yes ] && names=(kernels_{speaker,rows}_test)
  run_tests 60 "${names[@]}"
}

step_fixtures() {
  local filter='-*Elsewhere*'
  [ $quick = yes ] && filter='*cv_whole_length_one_frame*'
  run_tests 90 parity_test
}

step_clones() {
  local filter='*CloneParity*'
  [ $quick = yes ] && filter='*clip_xvector_3s*'
  run_tests 60 engine_clone_test
}

step_say() {
  local frames=40
  [ $quick = yes ] && frames=2 && export SKALD_SELF_TEST=off
  rm -rf "$work"/say-*
  for where in cpu "$device"; do
    "$bin/skald" say --model "$fixtures/models/tiny-cv" --device "$where" --voice anna --seed 7 --max-frames $frames \
      --dump "$work/say-${where%%:*}" -o "$work/say-${where%%:*}.wav" -- "Good morning, this is a GPU." || return 1
  done
  python3 - "$work/say-cpu" "$work/say-${device%%:*}" <<'PY'
import pathlib, sys
a, b = (sorted(pathlib.Path(p).rglob("codes.npy"))[-1].read_bytes() for p in sys.argv[1:])
print("note: codes are", "equal" if a == b else "DIFFERENT", f"({len(a)} bytes)")
sys.exit(a != b)
PY
}

# bench NAME MODEL [options]: NAME.json in OUT.
bench() {
  local name=$1 model=$2
  shift 2
  timeout -k 5 60 "$bin/skald" bench --model "$model" --device "$device" --json "$@" >"$out/$name.json" || return 1
  echo "$name: $(fields '{j["compute_ms"] / j["frames"]:.2f} ms a frame, {j["language_model"]["launches_per_frame"]:.0f} launches, {j["language_model"]["bytes_per_frame"] / 1e6:.0f} MB at {j["read_bandwidth_gb_per_s"]:.0f} GB/s, idle {100 * j["idle_share"]:.1f} %, RTF {j["rtf"]:.4f}, first audio {j["first_audio_ms"]:.1f} ms, cold {j["cold_first_audio_ms"]:.1f} ms' "$out/$name.json")" | tee -a "$out/bench.lines"
}

step_bench() {
  local frames=100
  [ $quick = yes ] && frames=2
  export SKALD_SELF_TEST=off
  bench tiny "$fixtures/models/tiny-cv" --frames $frames || return 1
  echo "note: $(tail -n 1 "$out/bench.lines")"
}

snapshots_ready() {
  local size
  [ -n "$sizes" ] || skip "no full-size snapshots wanted"
  while [ -e "$work/making" ]; do sleep 1; done
  for size in $sizes; do
    [ -e "$work/$size/speech_tokenizer/model.safetensors" ] || { cat "$out/snapshots.txt" && echo "note: no snapshot of $size" && return 1; }
  done
}

step_bench_full() {
  local size weights failed=0
  snapshots_ready || return
  export SKALD_SELF_TEST=off
  for size in $sizes; do
    for weights in bf16 int8 f32; do
      [ "$size/$weights" = 1.7b/f32 ] && continue
      bench "$size-$weights" "$work/$size" --weights $weights --frames 100 || failed=$((failed + 1))
    done
  done
  echo "note: $(grep -E '^(0.6b|1.7b)-bf16' "$out/bench.lines" | tr '\n' ';')"
  [ $failed = 0 ]
}

# A reference of 10 s through both encoders, and the codes of a longer clip beside the CPU's.
step_voice() {
  snapshots_ready || return
  [ -e "$work/base/speech_tokenizer/model.safetensors" ] || { cat "$out/snapshots.txt" && echo "note: no base snapshot" && return 1; }
  export SKALD_SELF_TEST=off
  local note warm_runs=5
  [ $quick = yes ] && warm_runs=1
  bench base "$work/base" --frames 20 --warm-runs $warm_runs || return 1
  note=$(fields '{(r := j["reference"])["audio_seconds"]:.0f} s through both encoders: first {r["first_ms"]:.1f} ms, then {r["ms"]["median"]:.1f} ms' "$out/base.json") || return 1
  python3 - "$work/clip.wav" <<'PY'
import math, struct, sys, wave
rate = 24000
with wave.open(sys.argv[1], "wb") as w:
    w.setnchannels(1), w.setsampwidth(2), w.setframerate(rate)
    tone = lambda t: math.sin(2 * math.pi * (160 + 40 * t) * t) * (0.6 + 0.4 * math.sin(2 * math.pi * 3 * t))
    w.writeframes(b"".join(struct.pack("<h", int(9000 * tone(i / rate) + 2000 * math.sin(i * i % 977))) for i in range(12 * rate)))
PY
  for where in cpu "$device"; do
    "$bin/skald" codec encode --model "$work/base" --device "$where" "$work/clip.wav" -o "$work/clip-${where%%:*}.npy" || return 1
  done
  python3 - "$note" "$work/clip-cpu.npy" "$work/clip-${device%%:*}.npy" <<'PY'
import pathlib, sys
a, b = (pathlib.Path(p).read_bytes() for p in sys.argv[2:])
print(f"note: {sys.argv[1]}; codes of 12 s are", "the CPU's" if a == b else "DIFFERENT from the CPU's")
sys.exit(a != b)
PY
}

step_long() {
  local size=${sizes%% *}
  snapshots_ready || return
  export SKALD_SELF_TEST=off
  bench "$size-4096" "$work/$size" --frames 4096 || return 1
  echo "note: $(fields '{"; ".join("at %d: %.2f" % (r["frames"], r["ms_per_frame"]) for r in j["lengths"])} ms' "$out/$size-4096.json")"
}

# compare NAME MODEL [options]: the CPU is right.
compare() {
  local name=$1 model=$2
  shift 2
  timeout -k 5 120 "$bin/skald" compare --a cpu --b "$device" --model "$model" --json "$@" >"$out/$name.json"
  local status=$?
  echo "$name: $(fields '{j["verdict"]} {j["failures"][:2]}' "$out/$name.json" 2>/dev/null || echo "no object, status $status")" | tee -a "$out/compare.lines"
  return $status
}

step_compare_tiny() {
  local options=(--lengths "1-20,31-33,63-65,127-129,255-260,290-310" --frames 40 --codec-frames 80) failed=0 model
  [ $quick = yes ] && options=(--lengths 3 --frames 1 --codec-frames 1)
  for model in tiny-cv tiny-cv-1b7; do
    [ $quick = yes ] && [ $model != tiny-cv ] && continue
    compare "compare-$model" "$fixtures/models/$model" "${options[@]}" || failed=$((failed + 1))
  done
  echo "note: $(tr '\n' ';' <"$out/compare.lines")"
  [ $failed = 0 ]
}

step_compare_full() {
  local size weights failed=0
  snapshots_ready || return
  : >"$out/compare.lines"
  for size in $sizes; do
    for weights in f32 bf16 int8; do
      [ "$size/$weights" = 1.7b/int8 ] && continue
      compare "compare-$size-$weights" "$work/$size" --weights $weights --lengths 8,255-258,300 --frames 60 --codec-frames 24 || failed=$((failed + 1))
    done
  done
  echo "note: $(tr '\n' ';' <"$out/compare.lines")"
  [ $failed = 0 ]
}

# sanitize TOOL PROGRAM TEST: what it found, and its exit status, in a file each. Ends with the step, which cannot
# reach what `timeout` started.
sanitize() {
  local log=$out/sanitizer/$1-$2-${3//\//-} left=$((until - $(date +%s)))
  [ $left -gt 0 ] || { echo 124 >"$log.status" && return; }
  timeout -k 5 $left compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/$2" --gtest_brief=1 --gtest_filter="$3" >"$log.txt" 2>&1
  echo "$?" >"$log.status"
}

# Every operation test under both tools, each in a process of its own: one is slow, many at once are not.
step_sanitizer() {
  command -v compute-sanitizer >/dev/null || skip "there is no compute-sanitizer"
  local runs=$out/sanitizer/runs.txt most_at_once=16 tool name tests
  rm -rf "$out/sanitizer" && mkdir "$out/sanitizer"
  for tool in racecheck memcheck; do
    for name in attention linear encode audio speaker rows sample_op; do
      # The transform is tested on the host alone.
      tests=$("$bin/kernels_${name}_test" --gtest_list_tests --gtest_filter='-*Many*:*Long*:*EverySize*:Fft.*' |
        awk '/^[^ ]+\.$/ { suite = $1 } /^  / { print suite $1 }')
      [ -n "$tests" ] || { echo "kernels_${name}_test does not list its tests" && return 1; }
      printf "$tool kernels_${name}_test %s\n" $tests
    done
  done >"$runs" || return 1
  export until=$(($(date +%s) + limit - 8))
  xargs -P $(($(nproc) < most_at_once ? $(nproc) : most_at_once)) -L 1 bash -c 'sanitize "$@"' sanitize <"$runs"
  grep -L '^0' "$out"/sanitizer/*.status | while read -r status; do
    echo "== $status: $(cat "$status")" && tail -n 5 "${status%.status}.txt"
  done
  cat "$out"/sanitizer/*.status | awk -v runs="$(wc -l <"$runs")" '
    $1 == 0 { clean++ } $1 == 124 || $1 == 137 { late++ }
    END { printf "note: memcheck, racecheck: %d of %d runs clean, %d out of time\n", clean, runs, late; exit clean != runs }'
}

# Seconds that a step may take.
limit_of() {
  case $1 in
    machine | doctor) echo 30 ;;
    waits) echo 40 ;;
    ops) echo 120 ;;
    fixtures) echo 90 ;;
    bench_full) echo 150 ;;
    compare_full) echo 240 ;;
    sanitizer) echo 200 ;;
    voice) echo 90 ;;
    *) echo 60 ;;
  esac
}

# Full-size snapshots of random numbers are made beside the first steps.
make_snapshots() {
  local size
  for size in $sizes; do
    [ -e "$work/$size/speech_tokenizer/model.safetensors" ] && continue
    (python3 "$root/tools/make_snapshot.py" "$work/$size.part" --size "$size" ${tokenizer:+--tokenizer "$tokenizer"} &&
      mv "$work/$size.part" "$work/$size") &
  done
  [ -e "$work/base/speech_tokenizer/model.safetensors" ] ||
    (python3 "$root/tools/make_snapshot.py" "$work/base.part" --size "${sizes%% *}" --type base ${tokenizer:+--tokenizer "$tokenizer"} &&
      mv "$work/base.part" "$work/base") &
  wait
  rm -f "$work/making"
}

# ---- the run ------------------------------------------------------------------------------------------------------

needs_snapshots=no
for step in "${steps[@]}"; do
  declare -F "step_$step" >/dev/null || { echo "gpu-check: there is no step $step; --list names them" >&2 && exit 2; }
  case $step in bench_full | voice | long | compare_full) needs_snapshots=yes ;; esac
done
rm -f "$work/making" "$out/bench.lines" "$out/compare.lines"
if [ $needs_snapshots = yes ] && [ -n "$sizes" ]; then
  touch "$work/making"
  make_snapshots >"$out/snapshots.txt" 2>&1 &
fi

failed=0
for step in "${steps[@]}"; do
  log=$out/$step.txt began=$SECONDS left=$((total - SECONDS)) limit=$(limit_of "$step")
  [ $quick = yes ] && limit=600
  [ "$limit" -gt $left ] && limit=$left
  if [ $left -lt 5 ]; then
    printf '%-13s %-8s %4s  %s\n' "$step" 'no time' - '' | tee -a "$table"
    failed=$((failed + 1))
    continue
  fi
  # A shell of its own, so that the limit ends the step with everything it started.
  export -f usage skip fields run_tests bench compare sanitize snapshots_ready "step_$step"
  export bin out work device fixtures sizes quick limit
  timeout -k 5 "$limit" bash -c "set -uo pipefail; step_$step" >"$log" 2>&1 </dev/null
  status=$?
  note=$(grep -a '^note: ' "$log" | tail -n 1 | sed 's/^note: //')
  case $status in
    0) word=ok ;;
    77) word=skipped ;;
    124 | 137) word='time out' failed=$((failed + 1)) ;;
    *) word=FAILED failed=$((failed + 1)) ;;
  esac
  printf '%-13s %-8s %4d  %s\n' "$step" "$word" $((SECONDS - began)) "$note" | tee -a "$table"
done
printf '\n%s\n' "== all steps, logs in $out, $SECONDS s"
printf '%-13s %-8s %4s  %s\n' step verdict s note
cat "$table"
[ $failed = 0 ]
