package profile

import (
	"io/fs"
	"os"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// ours reports whether only its owner, who is us or root, can write the file.
func ours(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && st.Mode().Perm()&0o022 == 0 && (sys.Uid == 0 || int(sys.Uid) == os.Geteuid())
}
