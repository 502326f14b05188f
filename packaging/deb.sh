#!/bin/sh
# deb.sh BIN VERSION OUT: packs the programs in BIN, which make build made of
# VERSION, as a Debian package in OUT and prints its path.
#
# The same source gives the same bytes: every time is SOURCE_DATE_EPOCH (default:
# the newest commit), every owner root, and nothing of this machine gets in.
# GO is the go command; GOARCH as for the build; DEB_COMPRESS goes to dpkg-deb.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd) version=$2 out=$3
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$here/.."
umask 022
export LC_ALL=C TZ=UTC

for tool in dpkg-deb gzip find md5sum; do
	command -v $tool >/dev/null || { echo "deb.sh: needs $tool: apt-get install dpkg gzip findutils coreutils" >&2; exit 1; }
done
if [ -z "${SOURCE_DATE_EPOCH-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y go.mod)
fi
export SOURCE_DATE_EPOCH
deb=$(sh packaging/version.sh "$version" "$SOURCE_DATE_EPOCH")
goarch=$($GO env GOARCH)
case $goarch in
386) arch=i386 ;;
arm) arch=armhf ;;
loong64) arch=loong64 ;;
mips64le) arch=mips64el ;;
ppc64le) arch=ppc64el ;;
amd64 | arm64 | riscv64 | s390x) arch=$goarch ;;
*) echo "deb.sh: Debian has no architecture for GOARCH=$goarch" >&2; exit 1 ;;
esac

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
doc=$root/usr/share/doc/agentos
chmod 755 "$tmp"
mkdir -p "$root/DEBIAN" "$doc"

# Programs.
install -D -m 755 "$bin/agentos" "$root/usr/bin/agentos"
for p in agentosd agentos-launcher agentos-loop agentos-probe agentos-shim agentos-tool; do
	install -D -m 755 "$bin/$p" "$root/usr/libexec/agentos/$p"
done

# What the command line says about itself. It is built for this machine, whatever
# the package is for, and sees neither our settings nor our home.
GOOS= GOARCH= CGO_ENABLED=0 $GO build -trimpath -o "$tmp/agentos" ./cmd/agentos
agentos() { env -i PATH=/usr/bin:/bin HOME=/nonexistent "$tmp/agentos" "$@"; }
agentos man "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*
complete() {
	mkdir -p "$root/$(dirname "$2")"
	agentos completion "$1" >"$root/$2"
}
complete bash usr/share/bash-completion/completions/agentos
complete zsh usr/share/zsh/vendor-completions/_agentos
complete fish usr/share/fish/vendor_completions.d/agentos.fish

# Documents.
install -m 644 README.md "$doc/README"
install -m 644 docs/INSTALL.md "$doc/README.Debian"
install -m 644 docs/config.reference.yaml packaging/debian/copyright "$doc"
gzip -9n <<-END >"$doc/changelog.Debian.gz"
	agentos ($deb) unstable; urgency=medium

	  * Built from source revision $version.

	 -- AgentOS maintainers <maintainers@agentos.invalid>  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
# The programs are static: the licences of what they link come along.
$GO list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u >"$tmp/modules"
while read -r module mversion dir; do
	find "$dir" -maxdepth 1 -type f \( -iname '*licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort >"$tmp/found"
	[ -s "$tmp/found" ] || { echo "deb.sh: $module has no licence file" >&2; exit 1; }
	while read -r f; do
		printf '======== %s %s: %s\n\n' "$module" "$mversion" "${f##*/}"
		cat "$f"
		echo
	done <"$tmp/found"
done <"$tmp/modules" >"$tmp/licences"
gzip -9n <"$tmp/licences" >"$doc/third-party-licenses.gz"

install -D -m 644 packaging/apparmor/agentos-launcher "$root/usr/share/agentos/apparmor/agentos-launcher"
install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/agentos"

# Control.
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN"
install -m 644 packaging/debian/triggers "$root/DEBIAN"
size=$(cd "$root" && find usr \( -type f -printf '%s\n' -o -printf '1\n' \) | awk '{ k += int(($1 + 1023) / 1024) } END { print k }')
sed "s/@VERSION@/$deb/; s/@ARCH@/$arch/; s/@SIZE@/$size/" packaging/debian/control >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

chmod -R u=rwX,go=rX "$root"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
file=$out/agentos_${deb}_$arch.deb
dpkg-deb --root-owner-group ${DEB_COMPRESS:--Zxz} --build "$root" "$file" >"$tmp/said" || { cat "$tmp/said" >&2; exit 1; }
echo "$file"
