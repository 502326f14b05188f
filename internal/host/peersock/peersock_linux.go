// Package peersock verifies a pathname Unix socket of a local server and
// connects to exactly the socket that it verified. The path, its owner, group
// and mode, and who listens are part of the boundary.
//
// State owned: none; every Dial verifies afresh, so a server that was restarted
// with a new socket is found, and one that was replaced is refused. Imports:
// lib/fault, golang.org/x/sys/unix. Imported by: the daemon, which hands the
// connection on. Invariants: no component is a symbolic link; whoever may change
// a component is root or the owner; the inode that was checked is the inode that
// is connected to; the peer is root, the owner, or expected.
// Linux only (O_PATH, /proc/self/fd, SO_PEERCRED). Tests: peersock_test.go, as
// root, with children of other UIDs. Page: docs/spec/model-socket.md.
//
// Spec: OSA-13.
package peersock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

// Policy says whose socket it must be.
type Policy struct {
	// Owner may own the socket and the folders above it, and may listen on it;
	// root always may.
	Owner uint32
	// Group, if not nil, is the socket's exact group. Members of this group may
	// also write to the folders above it.
	Group *uint32
	// Peers are further UIDs that may listen, such as the service user of a
	// server whose socket systemd made.
	Peers []uint32
}

// Verified is a socket that passed. Safe for concurrent use.
type Verified struct {
	path string
	want Policy
	// What the check found, for doctor and records.
	UID, GID uint32
	Mode     fs.FileMode // permission bits
}

// Verify checks the socket at the absolute path without connecting. Errors are
// faults: usage for the path, not_found, denied with a next step that mends it,
// or unavailable.
func Verify(p string, want Policy) (*Verified, error) {
	fd, st, err := open(p, want)
	if err != nil {
		return nil, err
	}
	_ = unix.Close(fd)
	return &Verified{path: p, want: want, UID: st.Uid, GID: st.Gid, Mode: fs.FileMode(st.Mode & 0o777)}, nil
}

// Dial verifies again, connects to that very inode, and checks who listens.
func (v *Verified) Dial(ctx context.Context) (net.Conn, error) {
	fd, _, err := open(v.path, v.want)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// The magic link leads to the inode that fd holds, whatever its name leads to
	// by now. It also spares the 108 bytes of sun_path.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd))
	if err != nil {
		return nil, dialFault(ctx, v.path, err)
	}
	if err := v.checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialFault(ctx context.Context, p string, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "see whether the server hangs", "connect to socket %q", p)
	case ctx.Err() != nil:
		return fault.Wrap(err, fault.Cancelled, "", "connect to socket %q", p)
	case errors.Is(err, unix.ECONNREFUSED):
		return fault.New(fault.Unavailable, "start the server; remove a stale socket first", "connect to socket %q: nobody listens", p)
	case errors.Is(err, unix.EAGAIN):
		return fault.New(fault.Unavailable, "try again later", "connect to socket %q: the server's queue is full", p)
	case errors.Is(err, unix.EPROTOTYPE):
		return fault.New(fault.Denied, "use the server's stream socket", "connect to socket %q: not a stream socket", p)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "chmod u+rw "+p+", or run the daemon as the socket's owner", "connect to socket %q: permission denied", p)
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Unavailable, "mount /proc", "connect to socket %q: /proc is not mounted", p)
	default:
		return fault.Wrap(err, fault.Unavailable, "see the server's log", "connect to socket %q", p)
	}
}

func (v *Verified) checkPeer(conn net.Conn) error {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return fault.New(fault.Internal, "", "check peer of %q: not a Unix connection", v.path)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "check peer of %q", v.path)
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || cerr != nil {
		return fault.Wrap(errors.Join(err, cerr), fault.Internal, "", "check peer of %q", v.path)
	}
	if v.want.allowed(cred.Uid) || slices.Contains(v.want.Peers, cred.Uid) {
		return nil
	}
	return fault.New(fault.Denied, fmt.Sprintf("run the server as uid %d, or name its uid as an expected peer", v.want.Owner),
		"check peer of %q: the listener runs as uid %d", v.path, cred.Uid)
}

// allowed are root and the owner.
func (w Policy) allowed(uid uint32) bool { return uid == 0 || uid == w.Owner }

// open walks to the socket one component at a time and holds each while it is
// checked, so that nothing can be put in between. The result is an O_PATH
// descriptor of the socket.
func open(p string, want Policy) (int, *unix.Stat_t, error) {
	if err := checkPath(p); err != nil {
		return -1, nil, err
	}
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open("/", flags|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, nil, fault.Wrap(err, fault.Internal, "", "open folder %q", "/")
	}
	names := strings.Split(p[1:], "/")
	at := "/"
	for i, name := range names {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
			return -1, nil, fault.Wrap(err, fault.Internal, "", "look at folder %q", at)
		}
		if err := want.checkFolder(at, &st); err != nil {
			_ = unix.Close(fd)
			return -1, nil, err
		}
		next, err := unix.Openat(fd, name, flags, 0)
		_ = unix.Close(fd)
		at = "/" + strings.Join(names[:i+1], "/")
		if err != nil {
			return -1, nil, openFault(at, err)
		}
		fd = next
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, nil, fault.Wrap(err, fault.Internal, "", "look at socket %q", p)
	}
	if err := want.checkSocket(p, &st); err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, &st, nil
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > 4096 || strings.ContainsRune(p, 0) {
		return fault.New(fault.Usage, "give the absolute path of the socket, without . or .. or // in it", "check socket path %.200q", p)
	}
	return nil
}

func openFault(at string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "start the server, or correct the path", "open %q: does not exist", at)
	case errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.Usage, "correct the path", "open %q: what is above it is no folder", at)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "chmod o+x the folders above "+at, "open %q: permission denied", at)
	default:
		return fault.Wrap(err, fault.Unavailable, "correct the path", "open %q", at)
	}
}

// checkFolder: whoever can write to a folder can put another socket there.
func (w Policy) checkFolder(at string, st *unix.Stat_t) error {
	if err := w.checkKind("folder", at, st, unix.S_IFDIR); err != nil {
		return err
	}
	// In a sticky folder only an entry's owner, the folder's owner and root can
	// rename or remove the entry, and all three are checked: the next component
	// must belong to root or the owner like every other.
	if st.Mode&unix.S_ISVTX != 0 {
		return nil
	}
	if st.Mode&0o002 != 0 {
		return fault.New(fault.Denied, "chmod o-w "+at, "check folder %q: anybody may write to it", at)
	}
	if st.Mode&0o020 != 0 && st.Gid != 0 && (w.Group == nil || st.Gid != *w.Group) {
		return fault.New(fault.Denied, "chmod g-w "+at, "check folder %q: group %d may write to it", at, st.Gid)
	}
	return nil
}

func (w Policy) checkSocket(at string, st *unix.Stat_t) error {
	if err := w.checkKind("socket", at, st, unix.S_IFSOCK); err != nil {
		return err
	}
	if st.Mode&0o002 != 0 {
		return fault.New(fault.Denied, "chmod o-w "+at, "check socket %q: anybody may connect to it", at)
	}
	if w.Group != nil && st.Gid != *w.Group {
		return fault.New(fault.Denied, fmt.Sprintf("chgrp %d %s", *w.Group, at), "check socket %q: its group is %d, want %d", at, st.Gid, *w.Group)
	}
	return nil
}

func (w Policy) checkKind(what, at string, st *unix.Stat_t, kind uint32) error {
	switch st.Mode & unix.S_IFMT {
	case kind:
	case unix.S_IFLNK:
		return fault.New(fault.Denied, "give the path that realpath prints", "check %s %q: it is a symbolic link", what, at)
	default:
		return fault.New(fault.Denied, "give the path of the server's socket", "check %s %q: it is no %s", what, at, what)
	}
	if !w.allowed(st.Uid) {
		return fault.New(fault.Denied, fmt.Sprintf("chown %d %s", w.Owner, at), "check %s %q: its owner is uid %d, want root or %d", what, at, st.Uid, w.Owner)
	}
	return nil
}
