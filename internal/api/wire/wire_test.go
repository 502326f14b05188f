package wire

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// pair is two connected ends that need no kernel.
func pair(t *testing.T) (net.Conn, net.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func client(t *testing.T, c net.Conn) *http.Client {
	t.Helper()
	h, err := Client(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestManyRequestsOneConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() {
		served <- Serve(context.Background(), theirs, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write([]byte(r.Proto + " " + string(body)))
		}))
	}()
	c := client(t, ours)
	results := make(chan string, 8)
	for range 8 {
		go func() {
			resp, err := c.Post(BaseURL+"/x", "text/plain", strings.NewReader("hello"))
			if err != nil {
				results <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			results <- string(b)
		}()
	}
	for range 8 {
		if got := <-results; got != "HTTP/2.0 hello" {
			t.Errorf("got %q", got)
		}
	}
	ours.Close()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := c.Get(BaseURL); err == nil {
		t.Errorf("a spent wire answered: %v", err)
	}
}

// A client that goes away cancels its handlers, and Serve waits for them: what
// they record on the way out is recorded.
func TestServeWaitsForHandlers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(conn net.Conn, stop context.CancelFunc){
		"client gone": func(c net.Conn, _ context.CancelFunc) { c.Close() },
		"stopped":     func(_ net.Conn, stop context.CancelFunc) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { waits(t, end) })
		})
	}
}

func waits(t *testing.T, end func(net.Conn, context.CancelFunc)) {
	ours, theirs := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	started, release := make(chan struct{}), make(chan struct{})
	served, asked := make(chan error, 1), make(chan struct{})
	go func() {
		served <- Serve(ctx, theirs, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(started)
			<-r.Context().Done()
			<-release
		}))
	}()
	c := client(t, ours)
	go func() {
		defer close(asked)
		if resp, err := c.Get(BaseURL); err == nil {
			resp.Body.Close()
		}
	}()
	<-started
	end(ours, stop)
	synctest.Wait() // everything that can happen without the handler has happened
	select {
	case <-served:
		t.Error("serve returned before its handler")
	default:
	}
	close(release)
	<-served
	<-asked
	ours.Close()
}
