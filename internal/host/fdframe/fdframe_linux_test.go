package fdframe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
)

func pair(t testing.TB, max int) (*Conn, *Conn) {
	t.Helper()
	fa, fb, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Inherited(fa)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Inherited(fb)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return New(a, max), New(b, max)
}

func TestMessagesAndDescriptorsArriveTogether(t *testing.T) {
	a, b := pair(t, 1<<20)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := range 50 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = w.Write([]byte{byte(i)})
			if err := a.Write(bytes.Repeat([]byte{byte(i)}, i*1000), r); err != nil {
				t.Error(err)
			}
			if err := a.Write([]byte("plain")); err != nil {
				t.Error(err)
			}
			r.Close()
			w.Close()
		}
		a.Close()
	}()
	for i := range 50 {
		body, files, err := b.Read()
		if err != nil || len(files) != 1 || len(body) != i*1000 {
			t.Fatalf("%d: %d bytes, %d files, %v", i, len(body), len(files), err)
		}
		var got [2]byte
		if n, _ := files[0].Read(got[:]); n != 1 || got[0] != byte(i) {
			t.Fatalf("message %d came with another message's descriptor", i)
		}
		files[0].Close()
		if body, files, err := b.Read(); err != nil || string(body) != "plain" || len(files) != 0 {
			t.Fatalf("%q %d %v", body, len(files), err)
		}
	}
	if _, _, err := b.Read(); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
	wg.Wait()
}

func TestLimits(t *testing.T) {
	a, b := pair(t, 10)
	if err := a.Write(make([]byte, 11)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("wrote too much: %v", err)
	}
	if err := a.Write(nil, make([]*os.File, MaxFiles+1)...); err == nil {
		t.Error("wrote too many descriptors")
	}
	big := New(a.c, 1<<20)
	go func() { _ = big.Write(make([]byte, 11)) }()
	if _, _, err := b.Read(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("read too much: %v", err)
	}
}

func TestCutMessage(t *testing.T) {
	for _, raw := range [][]byte{{0}, {0, 0, 0, 9, 0}, {0, 0, 0, 9, 0, 'x'}, {0, 0, 0, 0, 1}} {
		a, b := pair(t, 100)
		_, _ = a.c.Write(raw)
		a.Close()
		if _, _, err := b.Read(); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("% x: %v", raw, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 'x'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 64<<10 { // fits the socket's buffer: the writer never blocks
			return
		}
		a, b := pair(t, 4096)
		_, _ = a.c.Write(raw)
		_ = a.c.CloseWrite()
		for {
			body, files, err := b.Read()
			if err != nil {
				return
			}
			if len(body) > 4096 || len(files) != 0 {
				t.Fatalf("%d bytes, %d files", len(body), len(files))
			}
		}
	})
}
