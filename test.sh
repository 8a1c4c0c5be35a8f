#!/bin/bash
# Builds and runs every test; one line a step, then the line `N passed, N failed`.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: ./test.sh [--full] [--only STEP]... [--list]

  --full        also thread sanitizer, clang-tidy, slow tests, other people's clients, planted faults, long fuzzing, Debian 13
  --only STEP   only this step (repeatable); --list names them
TEXT
}

quick_steps=(format includes style strings shell release asan fuzz python kernels)
full_steps=(tsan tidy slow load bench nvrtc clients mutate debian13)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root" || exit 1
jobs=$(nproc)
full=no
only=()
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=yes ;;
    --only)
      [ $# -ge 2 ] || { usage >&2 && exit 2; }
      only+=("$2")
      shift ;;
    --list) printf '%s\n' "${quick_steps[@]}" "${full_steps[@]}" && exit 0 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

# A step runs in a shell of its own with `set -e`. Its last line of output may start with "note: ", which is shown
# with the verdict; status 77 means that it could not run here.
skip() { printf 'note: %s\n' "$*" && exit 77; }
note() { printf 'note: %s\n' "$*"; }

# ---- checks of the text -------------------------------------------------------------------------------------------

step_format() {
  # Versions format differently; the tree follows Debian 12's.
  clang-format --version | grep -q 'version 14\.' || skip "the format is that of clang-format 14"
  git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 -r clang-format --dry-run -Werror
}

step_includes() {
  tools/check_includes --self-test
  tools/check_includes
}

step_style() {
  tools/check_style --self-test
  tools/check_style
}

step_strings() {
  tools/check_strings --self-test
  tools/check_strings
}

step_shell() {
  git grep -lIE '^#!/bin/(ba)?sh' | xargs -r shellcheck -S warning
}

# ---- builds and their tests ---------------------------------------------------------------------------------------

# build PRESET [cmake options]: configures and builds everything of a preset.
build() {
  cmake --preset "$@"
  cmake --build "build/$1" -j "$jobs"
}

run_ctest() {
  ctest --test-dir "build/$1" -j "$jobs" --output-on-failure --no-tests=error "${@:2}" | tee "build/$1/ctest.txt"
  note "$(sed -n 's/^.*% tests passed, .* out of \([0-9]*\)$/\1 test programs/p' "build/$1/ctest.txt")"
}

step_release() {
  build release -DSKALD_TESTS=ON -DSKALD_WERROR=ON
  run_ctest release -LE full
}

step_asan() {
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
  build asan
  # The tests that start the program see what the unit tests see, at the price of a sanitized start each time.
  local not='full|program'
  [ $full = yes ] && not=full
  run_ctest asan -LE "$not"
}

# Every program of the fuzz build but `skald` and `skald-rtc` is a fuzz target; its seeds are those of tools/fuzz_seeds.
step_fuzz() {
  local seconds=8 names name
  [ $full = yes ] && seconds=180
  cmake --preset fuzz
  names=$(ninja -C build/fuzz -t targets all | sed -n 's/^bin\/\([^/]*\): .*EXECUTABLE_LINKER.*$/\1/p' | grep -vxE 'skald(-rtc)?')
  [ -n "$names" ] || { echo "the fuzz build has no target" && return 1; }
  printf 'bin/%s\n' $names | xargs ninja -C build/fuzz
  tools/fuzz_seeds build/fuzz/seeds
  for name in $names; do
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" build/fuzz/found
    echo "== $name, $seconds s"
    "build/fuzz/bin/$name" -max_total_time=$seconds -seed=1 -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "build/fuzz/seeds/$name" ||
      { echo "$name found something, see build/fuzz/found" && return 1; }  # its own status, 77, would mean skipped
  done
  note "$(echo "$names" | wc -w) targets, $seconds s each"
}

step_python() {
  local found
  found=$(git ls-files 'python/*test_*.py' 'tests/tools/test_*.py')
  [ -n "$found" ] || skip "no Python unit tests in the tree"
  for file in $found; do
    (cd "$(dirname "$file")" && python3 -m unittest -v "$(basename "$file" .py)")
  done
}

# GPU kernels for AMD, offline: three families, with --full every architecture. Needs the packages of section `gpu`.
step_kernels() {
  local some=(--arch "gfx906,gfx1100,gfx1201")
  [ $full = yes ] && some=()
  tools/gpu-offline-build --self-test
  tools/gpu-offline-build "${some[@]}"
}

# ---- with --full --------------------------------------------------------------------------------------------------

step_tsan() {
  # A process that ends at once, as a second signal makes it, joins no threads.
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0
  build tsan
  run_ctest tsan -R '^(base_|engine_|capi_test|gpu_faults_test|gpu_engine_test|server_(unit|socket|worker|load)_test)' -E '_full$'
}

step_tidy() {
  cmake --preset release -DSKALD_TESTS=ON
  tools/tidy build/release
}

step_slow() {
  build release -DSKALD_TESTS=ON
  run_ctest release -L full
}

# The long form of server_load_test: a minute of 64 streams, 1,000 clients that leave, 10,000 requests.
step_load() {
  build release -DSKALD_TESTS=ON
  SKALD_LOAD_SECONDS=60 SKALD_LOAD_DISCONNECTS=1000 SKALD_LOAD_REQUESTS=10000 run_ctest release -R '^server_load_test$'
}

# The benchmarks build; their numbers mean something only on a quiet machine.
step_bench() {
  cmake --preset release -B build/bench -DSKALD_BENCH=ON -DSKALD_TESTS=OFF
  cmake --build build/bench -j "$jobs"
}

# The same for NVIDIA, where NVRTC is installed.
step_nvrtc() {
  tools/nvrtc-build
}

# The server's clients as their makers publish them, and the page in a browser. Needs the registries.
step_clients() {
  command -v npm >/dev/null || skip "there is no npm"
  build release -DSKALD_TESTS=ON
  tests/server/clients/run build/release/bin/skald build/clients
}

step_mutate() {
  [ -x tools/mutate ] || skip "tools/mutate is not in this tree"
  tools/mutate
}

step_debian13() {
  [ "$(id -u)" = 0 ] || skip "the Debian 13 chroot needs root"
  tools/debian13-check.sh
}

# ---- the run ------------------------------------------------------------------------------------------------------

steps=("${quick_steps[@]}")
[ $full = yes ] && steps+=("${full_steps[@]}")
[ ${#only[@]} -gt 0 ] && steps=("${only[@]}")
for step in "${steps[@]}"; do
  declare -F "step_$step" >/dev/null || { printf 'test.sh: there is no step %s; --list names them\n' "$step" >&2 && exit 2; }
done

sections=(build test fuzz)
[[ " ${steps[*]} " =~ " "(tidy|debian13)" " ]] && sections+=(full)
[[ " ${steps[*]} " =~ " clients " ]] && sections+=(clients)
[[ " ${steps[*]} " =~ " "bench" " ]] && sections+=(bench)
tools/install_packages "${sections[@]}" || exit 1

logs=build/log
mkdir -p $logs
passed=0 failed=0 skipped=0
for step in "${steps[@]}"; do
  log=$logs/$step.txt
  printf '%-9s ' "$step"
  began=$SECONDS
  (set -e && "step_$step") >"$log" 2>&1 </dev/null
  status=$?
  took=$((SECONDS - began))
  verdict=$(tail -n 1 "$log" | sed -n 's/^note: //p')
  case $status in
    0) word=ok passed=$((passed + 1)) ;;
    77) word=skipped skipped=$((skipped + 1)) ;;
    *) word=FAILED failed=$((failed + 1)) verdict="the whole log is $log" ;;
  esac
  printf '%-8s %2d:%02d  %s\n' $word $((took / 60)) $((took % 60)) "$verdict"
  if [ $word = FAILED ]; then
    # The first complaints, then the end.
    { grep -nE -A4 ' error: |: Failure$|^FAILED: |runtime error: |ERROR: |^(FAIL|ERROR): ' "$log" | head -n 50
      printf '...\n'
      tail -n 20 "$log"; } | sed 's/^/  | /'
  fi
done

line="$passed passed, $failed failed"
[ $skipped -gt 0 ] && line="$line, $skipped skipped"
printf '%s\n' "$line"
[ $failed = 0 ]
