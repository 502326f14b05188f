#!/bin/sh
# Prints the path of a go command that builds this tree. What it looks at, in
# order: $GO, PATH, /usr/local/go, build/toolchain. A Go of 1.21 or later fetches the
# version that go.mod names by itself. Where there is none, root on Debian gets
# one: Debian's own Go, which then fetches the right toolchain as a module,
# verified like any module, into build/toolchain. Otherwise it says what to do.
set -eu
cd "$(dirname "$0")/.."
full=1.26.8

works() {
	[ -x "$1" ] || return 1
	case $("$1" env GOVERSION 2>/dev/null) in
	go1.2[6-9]* | go1.[3-9][0-9]* | go[2-9]*) return 0 ;;
	esac
	return 1
}

old=
for go in "${GO-}" "$(command -v go || true)" /usr/local/go/bin/go "$PWD/build/toolchain/bin/go"; do
	[ -n "$go" ] || continue
	if works "$go"; then
		echo "$go"
		exit
	fi
	[ ! -x "$go" ] || old=$go
done

case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch=unknown ;;
esac

if [ -z "$old" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "make: no Go here; installing Debian's to fetch Go $full with" >&2
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update -q && apt-get install -q -y --no-install-recommends golang-go ca-certificates; } >&2
	old=$(command -v go)
fi

if [ -z "$old" ] || [ $arch = unknown ]; then
	cat >&2 <<-END
	make: AgentOS needs Go 1.26 or later, and none was found. Either
	  run make as root: it then installs golang-go by apt and fetches the rest, or
	  curl -fsSL https://go.dev/dl/go$full.linux-$arch.tar.gz | sudo tar -C /usr/local -xz
	END
	exit 1
fi

echo "make: $old is too old; fetching Go $full as a module into build/toolchain" >&2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo 'module fetch' >"$tmp/go.mod"
dir=$(cd "$tmp" && "$old" mod download -json "golang.org/toolchain@v0.0.1-go$full.linux-$arch" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
if [ ! -d "$dir" ]; then
	echo "make: fetching Go $full failed; see https://go.dev/dl/ for other ways to install it" >&2
	exit 1
fi
mkdir -p build
rm -rf build/toolchain.new build/toolchain
cp -r "$dir" build/toolchain.new
# A module carries no execute bits.
chmod -R u+w build/toolchain.new
chmod +x build/toolchain.new/bin/* build/toolchain.new/pkg/tool/*/*
mv build/toolchain.new build/toolchain
echo "$PWD/build/toolchain/bin/go"
