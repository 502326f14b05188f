package confine

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func vm(t *testing.T, p Profile) func(archID, nr uint32, args ...uint64) uint32 {
	t.Helper()
	return machine(t, policy(p, 4242))
}

// machine runs the program of f on struct seccomp_data.
func machine(t *testing.T, f filter) func(archID, nr uint32, args ...uint64) uint32 {
	t.Helper()
	raw, err := f.assemble()
	if err != nil {
		t.Fatal(err)
	}
	insts, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("filter can't be disassembled")
	}
	m, err := bpf.NewVM(insts)
	if err != nil {
		t.Fatal(err)
	}
	return func(archID, nr uint32, args ...uint64) uint32 {
		// struct seccomp_data, each 32-bit word big-endian as this VM loads it.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data, nr)
		binary.BigEndian.PutUint32(data[4:], archID)
		for i, a := range args {
			binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
		}
		r, err := m.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(r)
	}
}

// The filter's own rules, also those that this machine's kernel can't show.
func TestFilterRules(t *testing.T) {
	t.Parallel()
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	own := uint32(info.ID)
	threadFlags := uint64(unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD)
	for _, p := range []Profile{Loop, Shim, Tool, ToolExec} {
		do := vm(t, p)
		exec := retEPERM
		if p == ToolExec {
			exec = retAllow
		}
		for _, tt := range []struct {
			name string
			arch uint32
			nr   uint32
			args []uint64
			want uint32
		}{
			{"read", own, unix.SYS_READ, nil, retAllow},
			{"read of another architecture", uint32(arch.I386.ID), 3, nil, retEPERM},
			{"unknown number", own, 4000, nil, retEPERM},
			{"thread", own, unix.SYS_CLONE, []uint64{threadFlags}, retAllow},
			{"thread in new user namespace", own, unix.SYS_CLONE, []uint64{threadFlags | unix.CLONE_NEWUSER}, retEPERM},
			{"process", own, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, exec},
			{"process in new network", own, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD) | unix.CLONE_NEWNET}, retEPERM},
			{"process whose flags are the number of mmap", own, unix.SYS_CLONE, []uint64{unix.SYS_MMAP}, exec},
			{"prctl whose option is the number of mmap", own, unix.SYS_PRCTL, []uint64{unix.SYS_MMAP}, retEPERM},
			{"clone3", own, unix.SYS_CLONE3, nil, retENOSYS},
			{"signal to self", own, unix.SYS_TGKILL, []uint64{4242, 1, 9}, retAllow},
			{"signal to another", own, unix.SYS_TGKILL, []uint64{4243, 1, 9}, retEPERM},
			{"signal with high bits", own, unix.SYS_TGKILL, []uint64{1<<32 | 4242, 1, 9}, retEPERM},
			{"memory", own, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ | unix.PROT_WRITE}, retAllow},
			{"executable memory", own, unix.SYS_MMAP, []uint64{0, 4096, unix.PROT_READ | unix.PROT_EXEC}, exec},
			{"fcntl getfl", own, unix.SYS_FCNTL, []uint64{1, unix.F_GETFL}, retAllow},
			{"fcntl setown", own, unix.SYS_FCNTL, []uint64{1, unix.F_SETOWN}, retEPERM},
			{"prctl name memory", own, unix.SYS_PRCTL, []uint64{unix.PR_SET_VMA}, retAllow},
			{"prctl dumpable", own, unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE, 1}, retEPERM},
			{"execve", own, unix.SYS_EXECVE, nil, exec},
			{"socket", own, unix.SYS_SOCKET, nil, retEPERM},
			{"connect", own, unix.SYS_CONNECT, nil, retEPERM},
			{"io_uring", own, unix.SYS_IO_URING_SETUP, nil, retENOSYS},
			{"create file", own, unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY | unix.O_CREAT}, retEPERM},
		} {
			if got := do(tt.arch, tt.nr, tt.args...); got != tt.want {
				t.Errorf("%s: %s: got %#x, want %#x", p, tt.name, got, tt.want)
			}
		}
		if runtime.GOARCH == "amd64" { // pipe, read and openat by the x32 numbers
			for _, nr := range []uint32{0, 22, 257} {
				if got := do(own, 0x40000000|nr); got != retENOSYS {
					t.Errorf("%s: x32 call %d: got %#x, want ENOSYS", p, nr, got)
				}
			}
		}
	}
	readOnly := vm(t, Tool)
	for flags, want := range map[uint64]uint32{
		unix.O_RDONLY | unix.O_CLOEXEC: retAllow, unix.O_WRONLY: retEPERM,
		unix.O_RDWR: retEPERM, unix.O_TRUNC: retEPERM, unix.O_CREAT: retEPERM,
	} {
		if got := readOnly(own, unix.SYS_OPENAT, 0, 0, flags); got != want {
			t.Errorf("tool: open with %#x: got %#x, want %#x", flags, got, want)
		}
	}
}

// Every name is a call of this architecture, and of arm64 (which CI only
// compiles), and stands once; the libc that misses one would get EPERM.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Loop, Shim, Tool, ToolExec} {
		pol := policy(p, os.Getpid())
		names := append(slices.Clone(pol.allow), pol.absent...)
		for _, r := range pol.when {
			names = append(names, r.name)
		}
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
			t.Errorf("%s: %d duplicate names", p, len(names)-n)
		}
		only64 := perArch([]string{
			"open", "newfstatat", "arch_prctl", "fork", "vfork", "pipe", "dup2", "stat", "lstat", "access", "readlink",
			"poll", "select", "epoll_wait", "getrlimit", "getpgrp", "time", "alarm",
		}, nil)
		for _, n := range names {
			if _, ok := arch.AARCH64.SyscallNames[n]; !ok && !slices.Contains(only64, n) {
				t.Errorf("%s: %s is no call of arm64", p, n)
			}
		}
	}
}
