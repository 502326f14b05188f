#!/bin/sh
# Installs what the tests need, on Debian, as root; does nothing when all of it
# is there. As an ordinary user it says what is missing and what will be left out.
set -eu

# dbus, systemd, systemd-journal-remote: a private bus, units and journals for
#   service_inspect and journal_read; no service of this machine is started.
# rpm: package databases for package_query.
# gcc, libc6-dev: the race detector.
# fish, lintian, man-db, zsh: what is in the package is read by those who read it.
# less, procps, python3, tmux, vim: programs and terminals that runs are tried with.
need="ca-certificates dbus fish gcc git less libc6-dev lintian man-db procps python3 rpm systemd systemd-journal-remote tmux vim zsh"
# nodejs, npm: agents come from npm; a Node.js from elsewhere will do.
command -v npm >/dev/null || need="$need nodejs npm"
# bubblewrap is the peer of `make bench` only.

missing=
for p in $need; do
	case $(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null || true) in
	ii*) ;;
	*) missing="$missing $p" ;;
	esac
done

if [ -z "$missing" ]; then
	[ "$(id -u)" = 0 ] || echo "setup: not root: tests that change UIDs, mounts or host state are left out; sudo make test runs them"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here; tests that need one of$missing are left out" >&2
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "setup: not root, so not installed:$missing; tests that need them are left out" >&2
	echo "setup: sudo make test installs them and runs everything" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: installing$missing"
apt-get install -q -y --no-install-recommends $missing ||
	{ apt-get update -q && apt-get install -q -y --no-install-recommends $missing; }
