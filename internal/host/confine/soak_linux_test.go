package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
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

// state reads what Apply set, from inside, where the profile still lets it.
func state() map[string]int64 {
	out := map[string]int64{}
	for name, res := range map[string]int{"core": unix.RLIMIT_CORE, "fsize": unix.RLIMIT_FSIZE, "nofile": unix.RLIMIT_NOFILE} {
		var l unix.Rlimit
		if err := unix.Getrlimit(res, &l); err != nil {
			out[name] = -1
			continue
		}
		out[name] = int64(l.Max)
	}
	return out
}
