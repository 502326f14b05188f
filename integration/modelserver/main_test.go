package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const script = `{"turns":[{"response":{"message":{"role":"assistant","text":"hi"},"stop":"end","usage":{"input_tokens":1,"output_tokens":1}}}]}`

// serve runs the command until stop, which returns how it ended.
func serve(t *testing.T, args ...string) (path string, stop func() error) {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "script.json"), filepath.Join(dir, "m.sock")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, append([]string{"--socket", path, "--script", file}, args...), w)
		_ = w.Close()
	}()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return path, func() error { cancel(); return <-done }
}

func TestServes(t *testing.T) {
	t.Parallel()
	path, stop := serve(t)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", fi, err)
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := c.Post("http://m/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), `"hi"`) {
		t.Errorf("%s, %v", b, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket left behind: %v", err)
	}
}

func TestUnused(t *testing.T) {
	t.Parallel()
	_, stop := serve(t)
	if err := stop(); code(err) != 3 {
		t.Errorf("%v", err)
	}
	_, stop = serve(t, "--partial")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte(`{"turns":[{"fault":"unheard_of"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--script", "/nonexistent"}, {"--script", bad, "--socket", bad + ".sock"}, {"--no-such-flag"}} {
		if err := run(t.Context(), args, io.Discard); code(err) != 1 || err == nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}
