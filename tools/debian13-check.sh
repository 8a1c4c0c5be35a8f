#!/bin/bash
# Proves that the tracked tree builds and passes its tests on Debian 13, in a debootstrap chroot.
#
# usage: tools/debian13-check.sh [--no-tests] [FOLDER]
#   FOLDER  where the chroot is kept for the next run (default: ~/.cache/skald/trixie); delete it to start anew
#
# The chroot gets its packages from where this machine gets its own: mirrors, apt settings and certificates are read
# from the machine at run time, with the release name replaced.
set -euo pipefail

tests=yes
if [ "${1:-}" = --no-tests ]; then
  tests=no
  shift
fi
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/skald/trixie}
source_root=$(cd "$(dirname "$0")/.." && pwd)
suite=trixie
chroot_root=$folder/root

fail() {
  printf 'debian13-check: %s\n' "$*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail "a chroot needs root; run it with sudo"
command -v debootstrap >/dev/null || "$source_root/tools/install_packages" full

# One line a source of this machine that is Debian's own: repository, suite, component.
host_codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
host_sources() {
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 == "Debian" { print $2, $3, $4 }' | sort -u
}

# With another suite of the same mirrors: the mirror of the plain suite comes first.
sources=$(host_sources | sed "s/ \(${host_codename:-stable}\|stable\)\([ -]\)/ $suite\2/" |
  awk -v suite=$suite 'index($2, suite) == 1')
mirror=$(printf '%s\n' "$sources" | awk -v suite=$suite '$2 == suite { print $1; exit }')
[ -n "$mirror" ] || fail "apt of this machine lists no Debian source; run apt-get update and try again"

if [ ! -e "$folder/ready" ]; then
  printf 'Making a %s chroot in %s ...\n' $suite "$folder"
  rm -rf "$chroot_root"
  mkdir -p "$chroot_root"
  debootstrap --variant=minbase --include=ca-certificates $suite "$chroot_root" "$mirror" >"$folder/debootstrap.log" 2>&1 ||
    fail "debootstrap failed; see $folder/debootstrap.log"
  touch "$folder/ready"
fi

# The machine's way to its packages, as it is now.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
printf '%s\n' "$sources" | sed "s|^|deb [signed-by=$keyring] |" >"$chroot_root/etc/apt/sources.list"
for config in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/resolv.conf /etc/hosts \
  /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt; do
  [ -e "$config" ] || continue
  mkdir -p "$chroot_root$(dirname "$config")"
  rm -rf "${chroot_root:?}$config"
  cp -rL "$config" "$chroot_root$config"
done
rm -f "$chroot_root/etc/apt/apt.conf.d/70debconf"

# The tracked files as they stand in the work tree, with their times, so that a second run builds what changed.
rm -rf "$chroot_root/src"
mkdir -p "$chroot_root/src" "$chroot_root/build"
git -C "$source_root" ls-files -z |
  (cd "$source_root" && tar --null --ignore-failed-read -T - -cf -) | tar -C "$chroot_root/src" -xf -

cat >"$chroot_root/check.sh" <<INSIDE
#!/bin/sh
set -eu
export LC_ALL=C.UTF-8 HOME=/build CCACHE_DIR=/build/.ccache
cd /src
tools/install_packages build test
cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release >/build/configure.log 2>&1 || { cat /build/configure.log; exit 1; }
ninja -C /build ${SKALD_NINJA_FLAGS:-}
if [ $tests = yes ]; then
  ctest --test-dir /build --output-on-failure -LE full
fi
INSIDE
chmod +x "$chroot_root/check.sh"

# Mounts live in a namespace of their own, so that they are gone whatever happens.
export chroot_root
exec unshare --mount bash -c '
  mount --make-rprivate /
  mount -t proc proc "$chroot_root/proc"
  mount --rbind /dev "$chroot_root/dev"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" chroot "$chroot_root" /check.sh'
