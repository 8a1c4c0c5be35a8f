#!/bin/sh
# Installs a build into an empty prefix, moves the prefix, and builds and runs two strangers against it.
# usage: run.sh BUILD CONSUMER
set -eu

build=$1 consumer=$2
work=$build/install_test
rm -rf "$work"
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved" # nothing may remember where it was installed

cmake -S "$consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer"
"$work/build/consumer_c"

PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name skald.pc)")
export PKG_CONFIG_PATH
libraries=$(pkg-config --variable=libdir skald)
# The flags are split into words on purpose.
# shellcheck disable=SC2046
cc -std=c99 -Wall -Wextra -Werror -pedantic "$consumer/main.c" $(pkg-config --cflags --libs skald) \
  -Wl,-rpath,"$libraries" -o "$work/consumer_pc"
"$work/consumer_pc"

"$work/moved/bin/skald" --help >/dev/null
