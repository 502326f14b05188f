//go:build linux

package linux

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type filesystemsDoc struct {
	Mounts     []mountDoc `json:"mounts"`
	Skipped    int        `json:"skipped"`
	Unanswered int        `json:"unanswered"`
	more       bool
}

type mountDoc struct {
	Mount      string `json:"mount"`
	Type       string `json:"type"`
	Size       uint64 `json:"size"`
	Used       uint64 `json:"used"`
	Available  uint64 `json:"available"`
	Inodes     uint64 `json:"inodes"`
	InodesFree uint64 `json:"inodes_free"`
	ReadOnly   bool   `json:"read_only"`
}

const (
	maxMountinfo = 4 << 20 // bytes
	maxMounts    = 128     // reported
	statfsWait   = time.Second
)

// local are the filesystem types whose statfs is answered by this kernel from a
// local device or memory. An allow list, because a network or FUSE mount whose
// server is gone blocks statfs for as long as it likes.
var local = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "bcachefs": true, "f2fs": true, "zfs": true,
	"jfs": true, "reiserfs": true, "nilfs2": true, "vfat": true, "exfat": true, "ntfs3": true, "hfsplus": true,
	"iso9660": true, "udf": true, "squashfs": true, "erofs": true, "ubifs": true, "jffs2": true, "overlay": true, "tmpfs": true,
}

// mountEntry is the part of a mountinfo line that is used here.
type mountEntry struct {
	device, point, fstype string
	readOnly              bool
}

// parseMount parses one line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
func parseMount(l []byte) (mountEntry, error) {
	head, tail, ok := bytes.Cut(l, []byte(" - "))
	f, t := bytes.Fields(head), bytes.Fields(tail)
	if !ok || len(f) < 6 || len(t) < 1 {
		return mountEntry{}, errors.New("parse mountinfo: malformed line")
	}
	m := mountEntry{device: string(f[2]), point: unescape(string(f[4])), fstype: string(t[0])}
	if m.point == "" || m.point[0] != '/' || len(m.point) > unix.PathMax {
		return mountEntry{}, errors.New("parse mountinfo: malformed mount point")
	}
	for o := range strings.SplitSeq(string(f[5]), ",") {
		m.readOnly = m.readOnly || o == "ro"
	}
	return m, nil
}

// unescape undoes the octal escapes (\040 and the like) of the kernel's mangle_path.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// readFilesystems lists local filesystems, one entry a device (its shortest
// mount point), sorted by mount point.
func readFilesystems(ctx context.Context, h Host) (*filesystemsDoc, error) {
	b, err := readFile(h.path("/proc/self/mountinfo"), maxMountinfo)
	if err != nil {
		return nil, err
	}
	d := &filesystemsDoc{Mounts: []mountDoc{}}
	byPoint := map[string]mountEntry{} // a later mount hides an earlier one
	for l := range bytes.Lines(b) {
		m, err := parseMount(l)
		if err != nil {
			return nil, err
		}
		byPoint[m.point] = m
		d.Skipped++
	}
	byDevice := map[string]mountEntry{}
	for _, m := range byPoint {
		have, dup := byDevice[m.device]
		if local[m.fstype] && (!dup || cmp.Or(cmp.Compare(len(m.point), len(have.point)), cmp.Compare(m.point, have.point)) < 0) {
			byDevice[m.device] = m
		}
	}
	d.Skipped -= len(byDevice)
	mounts := make([]mountEntry, 0, len(byDevice))
	for _, m := range byDevice {
		mounts = append(mounts, m)
	}
	slices.SortFunc(mounts, func(a, b mountEntry) int { return cmp.Compare(a.point, b.point) })
	if len(mounts) > maxMounts {
		mounts, d.more = mounts[:maxMounts], true
	}
	return d, d.measure(ctx, h, mounts)
}

// measure asks each filesystem for its figures, all together for statfsWait at
// most: also a local disk can stop answering, and the kernel then holds the
// thread. Such a thread is left behind; this process ends right after.
func (d *filesystemsDoc) measure(ctx context.Context, h Host, mounts []mountEntry) error {
	ctx, cancel := context.WithTimeout(ctx, statfsWait)
	defer cancel()
	type answer struct {
		st  unix.Statfs_t
		err error
	}
	for i, m := range mounts {
		ch := make(chan answer, 1)
		go func() {
			var a answer
			a.err = h.Statfs(m.point, &a.st)
			ch <- a
		}()
		select {
		case <-ctx.Done():
			d.Unanswered = len(mounts) - i
			return nil
		case a := <-ch:
			if a.err != nil {
				d.Skipped++
				continue
			}
			d.Mounts = append(d.Mounts, m.doc(&a.st))
		}
	}
	return nil
}

func (m mountEntry) doc(st *unix.Statfs_t) mountDoc {
	unit := uint64(st.Frsize)
	if unit == 0 {
		unit = uint64(st.Bsize)
	}
	var used uint64
	if st.Blocks > st.Bfree {
		used = st.Blocks - st.Bfree
	}
	return mountDoc{
		Mount: line(m.point, 4096), Type: line(m.fstype, 64), Size: product(st.Blocks, unit), Used: product(used, unit),
		Available: product(st.Bavail, unit), Inodes: product(st.Files, 1), InodesFree: product(st.Ffree, 1), ReadOnly: m.readOnly,
	}
}
