package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var soakPair [2]net.Conn

// soak uses what the Go runtime does under load: threads, timers, deadlines,
// garbage collection, polling, stack growth, for about a second.
func soak() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	errs := make(chan error, 64)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if err := churn(ctx); err != nil {
				errs <- err
			}
		})
	}
	for range 8 { // blocked threads, so that the runtime clones more
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			for ctx.Err() == nil {
				_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(20 * time.Millisecond)}, nil)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			runtime.GC()
			debug.FreeOSMemory()
		}
	})
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return deadline()
	}
}

func churn(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	keep := make([][]byte, 64)
	for i := 0; ctx.Err() == nil; i++ {
		keep[i%64] = make([]byte, 1<<(10+i%8))
		if deep(200) != 200 {
			return errors.New("stack growth")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func deep(n int) int {
	var pad [256]byte
	if n == 0 {
		return int(pad[0])
	}
	return 1 + deep(n-1)
}

// deadline checks that a connection made before still polls, times out, answers.
func deadline() error {
	a, b := soakPair[0], soakPair[1]
	if err := a.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read without data: %w", err)
	}
	if err := a.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := b.Write([]byte("x")); err != nil {
		return err
	}
	_, err := a.Read(make([]byte, 1))
	return err
}

func makePair() error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		soakPair[i] = c
	}
	return nil
}

// state reads what Apply set from /proc/self, of every thread. Limits are the
// hard ones; "owner" is who owns /proc/self, which is root for a process that is
// not dumpable.
func state() (map[string]int64, error) {
	out := map[string]int64{"min nnp": 1, "min seccomp": 2, "caps": 0, "threads": 0}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread ended
		}
		if err != nil {
			return nil, err
		}
		out["threads"]++
		out["min nnp"] = min(out["min nnp"], field(b, "NoNewPrivs", 10))
		out["min seccomp"] = min(out["min seccomp"], field(b, "Seccomp", 10))
		for _, c := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if c != "CapBnd" || os.Getuid() == 0 {
				out["caps"] |= field(b, c, 16)
			}
		}
	}
	b, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return nil, err
	}
	for _, n := range []string{"Max core file size", "Max file size", "Max open files"} {
		_, rest, _ := strings.Cut(string(b), n)
		f := strings.Fields(rest)
		if len(f) < 2 {
			return nil, fmt.Errorf("no limit %q", n)
		}
		if f[1] == "unlimited" { // in the control
			f[1] = "9223372036854775807"
		}
		if out[n], err = strconv.ParseInt(f[1], 10, 64); err != nil {
			return nil, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, "/proc/self/status", &st, 0); err != nil {
		return nil, err
	}
	out["owner"] = int64(st.Uid)
	return out, nil
}

func field(b []byte, name string, base int) int64 {
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), base, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}
