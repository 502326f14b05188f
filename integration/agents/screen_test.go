//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// screen is a terminal of tmux, an independent emulator, with a command in it.
type screen struct {
	w      *worker
	socket string
}

// open runs `agentos run` with the arguments in a terminal of 30 rows and 90
// columns. The terminal's modes before and after it are kept in files.
func (w *worker) open(args ...string) *screen {
	w.T.Helper()
	// A server of its own: one that is about to end takes no new session.
	dir, err := os.MkdirTemp(w.Home, "tmux-")
	if err != nil {
		w.T.Fatal(err)
	}
	w.give(dir)
	s := &screen{w, filepath.Join(dir, "socket")}
	script := filepath.Join(w.Home, "session.sh")
	text := "cd '" + w.Dir + "'\nstty -g >~/before\n\"$@\"\ncode=$?\nstty -g >~/after\necho code $code\nexec cat\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		w.T.Fatal(err)
	}
	s.tmux(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "30", "sh", script, filepath.Join(w.Bin, "agentos"), "run"}, args...)...)
	w.T.Cleanup(func() { _ = s.cmd("kill-server").Run() })
	return s
}

func (s *screen) cmd(args ...string) *exec.Cmd {
	c := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...)
	c.Env = []string{"HOME=" + s.w.Home, "PATH=" + s.w.path, "TERM=xterm-256color", "LANG=C.UTF-8"}
	if os.Getuid() == 0 && s.w.UID != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.w.UID, Gid: s.w.UID}}
	}
	return c
}

func (s *screen) tmux(args ...string) string {
	s.w.T.Helper()
	b, err := s.cmd(args...).CombinedOutput()
	if err != nil {
		s.w.T.Fatalf("tmux %q: %v\n%s", args, err, b)
	}
	return string(b)
}

func (s *screen) keys(keys ...string) {
	s.w.T.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

func (s *screen) resize(cols, rows string) {
	s.w.T.Helper()
	s.tmux("resize-window", "-x", cols, "-y", rows)
}

// sees waits until the terminal shows a text.
func (s *screen) sees(text string) {
	s.w.T.Helper()
	shows := func() bool { return strings.Contains(s.tmux("capture-pane", "-p"), text) }
	if !within(time.Minute, shows) {
		s.w.T.Fatalf("the terminal never shows %q, but\n%s", text, s.tmux("capture-pane", "-p"))
	}
}

// asks types a question until the answers are there: a change of the window's
// size and what is typed after it go separate ways.
func (s *screen) asks(question string, answers ...string) {
	s.w.T.Helper()
	ok := within(time.Minute, func() bool {
		s.keys(question, "Enter")
		shown := s.tmux("capture-pane", "-p")
		for _, a := range answers {
			if !strings.Contains(shown, a) {
				return false
			}
		}
		return true
	})
	if !ok {
		s.w.T.Fatalf("asked %q, the terminal shows\n%s", question, s.tmux("capture-pane", "-p"))
	}
}

// ended requires that the run is over, with this line, and the terminal as it was.
func (s *screen) ended(line string) {
	s.w.T.Helper()
	s.sees(line)
	var modes [2]string
	for i, f := range []string{"before", "after"} {
		b, err := os.ReadFile(filepath.Join(s.w.Home, f))
		if err != nil {
			s.w.T.Fatal(err)
		}
		modes[i] = string(b)
	}
	if modes[0] != modes[1] || modes[0] == "" {
		s.w.T.Errorf("the terminal's modes were %q and are %q", modes[0], modes[1])
	}
	if s.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}") != "0 1 0\n" {
		s.w.T.Error("the terminal is left in another screen, without a cursor, or with the mouse")
	}
	s.tmux("kill-server")
}

// TestScreens: full-screen programs draw, follow the window's size, and end.
func TestScreens(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *worker) {
		long := w.write("long.txt", strings.Repeat("line\n", 100)+"the last\n")

		s := w.open("-q", "--", "less", long)
		s.sees("long.txt")
		s.keys("G")
		s.sees("(END)")
		s.keys("q")
		s.ended("code 0")

		s = w.open("-q", "--rw", w.Dir, "--", "vim", "-u", "NONE", "a.txt")
		s.sees("a.txt")
		s.resize("100", "24")
		s.asks(":set columns? lines?", "columns=100", "lines=24")
		s.keys("Enter", "onew text", "Escape", ":wq", "Enter")
		s.ended("code 0")
		if b, err := os.ReadFile(filepath.Join(w.Dir, "a.txt")); err != nil || string(b) != "one\nnew text\n" {
			t.Errorf("a.txt: %q %v", b, err)
		}
		w.owned(filepath.Join(w.Dir, "a.txt"))

		s = w.open("-q", "--", "top")
		s.sees("PID USER")
		s.sees("Tasks:   1 total")
		s.keys("q")
		s.ended("code 0")

		s = w.open("-q", "--", "bash")
		s.sees("agentos:")
		s.keys("stty size; sh -c 'echo re''ady; exec sleep 99'", "Enter")
		s.sees("30 90")
		s.sees("\nready")
		s.keys("C-z")
		s.sees("Stopped")
		// wait answers at once for a stopped job, so let it go on first.
		s.keys("bg %1; kill %1; wait %1; echo code-was-$?", "Enter")
		s.sees("code-was-143")
		s.keys("exit 5", "Enter")
		s.ended("code 5")
	})
}

// TestInteractiveAgent: an agent's own interface in a terminal, offline.
func TestInteractiveAgent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *worker) {
		a := qwen()
		w.fetch(a.pkg, a.version)
		w.run(0, nil, "-q", "--profile", a.profile, "--", "sh", "-c", a.settings)
		s := w.open("-q", "--", a.command)
		s.sees("Type your message")
		s.resize("80", "50")
		s.keys("hello there")
		s.sees("hello there")
		s.keys("Enter")
		s.sees("Connection error")
		s.keys("C-c")
		s.sees("again to exit")
		s.keys("C-c")
		s.ended("code 0")
		w.clean()
	})
}
