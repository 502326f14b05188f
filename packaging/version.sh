#!/bin/sh
# version.sh VERSION EPOCH: the Debian version of what `git describe` calls
# VERSION; EPOCH is the time of that source. Prints one line.
#
#   v1.2.3            1.2.3-1
#   v1.3.0-rc1        1.3.0~rc1-1          before 1.3.0
#   v1.2.3-4-gabc1234 1.2.3+4.gabc1234-1   after 1.2.3
#   abc1234           0~20261129144631.abc1234-1   no tag yet: by time
#   …-dirty           ….dirty-1 or …+dirty-1
set -eu
v=$1 epoch=$2

dirty=
case $v in
*-dirty) v=${v%-dirty} dirty=dirty ;;
esac

case $v in
v[0-9]* | [0-9]*.*)
	v=${v#v}
	after=$(expr "$v" : '.*-\([0-9]*-g[0-9a-f]*\)$' || true)
	v=${v%"${after:+-$after}"}
	v=$(printf %s "$v" | sed 's/-/~/; s/-/./g')
	[ -z "$after" ] || v=$v+$(printf %s "$after" | tr - .)
	[ -z "$dirty" ] || case $v in
	*+*) v=$v.dirty ;;
	*) v=$v+dirty ;;
	esac
	;;
*)
	v=0~$(date -u -d "@$epoch" +%Y%m%d%H%M%S).$v${dirty:+.dirty}
	;;
esac

case $v in
*[!A-Za-z0-9.+~]*)
	echo "version.sh: \"$1\" holds a character that no Debian version may; set VERSION" >&2
	exit 1
	;;
esac
echo "$v-1"
