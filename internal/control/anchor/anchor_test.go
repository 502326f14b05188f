//go:build linux

package anchor

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentos/internal/lib/fault"
)

const someNote = "agentos/log/1\n5\nAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— agentos/log/1 c2lnbmF0dXJl\n"

func TestFileAppends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "anchor")
	f, err := NewFile(path, filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Name() != "file:"+path {
		t.Error(f.Name())
	}
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := f.Send(t.Context(), []byte(someNote)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	if want := "before\n" + strings.Repeat(someNote+"\n", 20); err != nil || string(got) != want {
		t.Errorf("%v, %d bytes, want %d", err, len(got), len(want))
	}
}

func TestFileRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": state, "dangling": filepath.Join(state, "later"), "file": filepath.Join(state, "agentos.sqlite3")} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"anchor", state, filepath.Join(state, "anchor"), filepath.Join(state, "sub", "new", "anchor"),
		filepath.Join(dir, "x", "..", "state", "anchor"), filepath.Join(dir, "link", "anchor"), filepath.Join(dir, "dangling"), filepath.Join(dir, "file")} {
		if _, err := NewFile(p, state); fault.KindOf(err) != fault.Usage || fault.NextOf(err) == "" {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := NewFile(filepath.Join(dir, "state-anchor"), state); err != nil {
		t.Errorf("a sibling whose name begins alike: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, filepath.Join(dir, "none", "anchor"), dir} {
		f, err := NewFile(p, state)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Send(t.Context(), []byte(someNote)); fault.KindOf(err) != fault.Unavailable || fault.NextOf(err) == "" {
			t.Errorf("send to %s: %v", p, err)
		}
	}
}

func TestJournald(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j := NewJournald(socket)
	if err := j.Send(t.Context(), []byte(someNote)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	want := "PRIORITY=5\nSYSLOG_IDENTIFIER=agentos\nMESSAGE_ID=" + MessageID + "\nMESSAGE=audit log checkpoint\nAGENTOS_CHECKPOINT\n" +
		string([]byte{byte(len(someNote)), 0, 0, 0, 0, 0, 0, 0}) + someNote + "\n"
	if !bytes.Equal(buf[:n], []byte(want)) {
		t.Errorf("sent %q", buf[:n])
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	j := NewJournald(filepath.Join(t.TempDir(), "absent"))
	if err := j.Send(t.Context(), []byte(someNote)); fault.KindOf(err) != fault.Unavailable || !strings.Contains(fault.NextOf(err), "anchor file") {
		t.Errorf("no journal: %v", err)
	}
	for _, note := range []string{"", "no newline", strings.Repeat("x", maxNote) + "\n"} {
		if err := j.Send(t.Context(), []byte(note)); fault.KindOf(err) != fault.Internal {
			t.Errorf("%.20q: %v", note, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Send(ctx, []byte(someNote)); fault.KindOf(err) != fault.Cancelled {
		t.Errorf("cancelled: %v", err)
	}
}
