#!/usr/bin/env bash
# Tools to build and test for aarch64-unknown-linux-gnu on Debian 12, without rustup targets and without a container.
#
#   cross/setup-debian.sh         as root: installs what is missing
#   cross/setup-debian.sh --env   prints the exports:  eval "$(cross/setup-debian.sh --env)"
#
# The compiler is Debian's rustc-web, whose standard library for arm64 is a package. RUSTC changes the compiler of the
# whole shell: use a subshell, and a target folder of its own (CARGO_TARGET_DIR), or every switch rebuilds everything.
# Do not give qemu `-L /usr/aarch64-linux-gnu`: it mixes two C libraries and every thread then spins for ever.
set -euo pipefail

packages=(gcc libc6-dev rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

if [[ ${1-} == --env ]]; then
  cat <<'ENV'
export RUSTC=/usr/bin/rustc
export RUSTDOC=/usr/bin/rustdoc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static
ENV
  exit 0
fi

[[ $(id -u) == 0 ]] || { echo "run as root (it installs Debian packages), or with --env" >&2; exit 1; }
dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
if ((${#missing[@]})); then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
/usr/bin/rustc --version >&2
