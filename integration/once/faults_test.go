//go:build linux

package once

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentos/integration/person"
	"agentos/internal/execution/model/modeltest"
)

// live is a run under way.
type live struct {
	cmd    *exec.Cmd
	out    *bytes.Buffer
	stderr *bytes.Buffer
	events chan map[string]any
	done   chan struct{}
}

// begin starts `agent once` and follows its events.
func (p *asked) begin(goal string) *live {
	p.T.Helper()
	l := &live{cmd: p.Cmd(context.Background(), "--json", "agent", "once", goal), out: &bytes.Buffer{}, stderr: &bytes.Buffer{},
		events: make(chan map[string]any, 1000), done: make(chan struct{})}
	pipe, err := l.cmd.StdoutPipe()
	if err != nil {
		p.T.Fatal(err)
	}
	l.cmd.Stderr = l.stderr
	if err := l.cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	go func() {
		defer close(l.done)
		dec := json.NewDecoder(io.TeeReader(pipe, l.out))
		for {
			var e map[string]any
			if dec.Decode(&e) != nil {
				break
			}
			l.events <- e
		}
		_, _ = io.Copy(io.Discard, pipe)
		_ = l.cmd.Wait()
		close(l.events)
	}()
	p.T.Cleanup(func() { _ = l.cmd.Process.Kill(); <-l.done })
	return l
}

// until waits for an event.
func (l *live) until(t *testing.T, what string, ok func(map[string]any) bool) map[string]any {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case e, open := <-l.events:
			if !open {
				t.Fatalf("ended before %s: %s%s", what, l.out, l.stderr)
			}
			if ok(e) {
				return e
			}
		case <-timeout:
			t.Fatalf("no %s: %s%s", what, l.out, l.stderr)
		}
	}
}

func admitted(e map[string]any) bool {
	d, ok := e["decided"].(map[string]any)
	return ok && d["allowed"] == true
}

// wait gives the exit code.
func (l *live) wait(t *testing.T) int {
	t.Helper()
	go func() {
		for range l.events { // keeps the reader from blocking
		}
	}()
	select {
	case <-l.done:
		return l.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatal("the run does not end")
		return -1
	}
}

// children lists the processes of a run by name: agentosd and, below it, its
// parts.
func (l *live) children(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	queue := []int{l.cmd.Process.Pid}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			for _, c := range strings.Fields(string(b)) {
				n, err := strconv.Atoi(c)
				if err != nil {
					t.Fatal(err)
				}
				comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n))
				name := filepath.Base(string(bytes.SplitN(comm, []byte{0}, 2)[0]))
				out[name] = n
				queue = append(queue, n)
			}
		}
	}
	return out
}

// watch holds on to a process from while it is alive, so that its number can't
// come to mean another one.
func watch(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("watch process %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// ends waits until the process behind a pidfd has ended.
func ends(fd int, limit time.Duration) bool {
	until := time.Now().Add(limit)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(time.Until(until), 0).Milliseconds()))
		if err != unix.EINTR {
			return err == nil && n == 1
		}
	}
}

// TestKillDuringModelCall: agentosd dies between an intent and its outcome. Its
// parts die with it, and the next start records what is not known.
func TestKillDuringModelCall(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.model(modeltest.Script{Turns: []modeltest.Turn{{Fault: modeltest.Silent}}, Repeat: true})
		l := p.begin("wait")
		l.until(t, "model call", admitted)
		kids := l.children(t)
		if kids["agentosd"] == 0 || kids["agentos-loop"] == 0 || kids["agentos-shim"] == 0 {
			t.Fatalf("processes %v", kids)
		}
		fds := map[string]int{}
		for name, pid := range kids {
			fds[name] = watch(t, pid)
		}
		if err := syscall.Kill(kids["agentosd"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := l.wait(t); code == 0 {
			t.Error("the client reported success")
		}
		for name, fd := range fds {
			if !ends(fd, 5*time.Second) {
				t.Fatalf("%s (%d) outlived agentosd", name, kids[name])
			}
		}
		p.Env = nil
		p.events(0, "Inspect this Linux system") // the next start recovers
		var unknown, recovered, crashed int
		for _, r := range p.Log() {
			switch {
			case r.Kind == "call.outcome" && r.Body["status"] == "unknown":
				unknown++
			case r.Kind == "log.recovery":
				recovered++
			case r.Kind == "run.end" && r.Body["reason"] == "crashed":
				crashed++
			}
		}
		if unknown != 1 || recovered != 1 || crashed != 1 {
			t.Errorf("%d unknown outcomes, %d recoveries, %d crashed runs", unknown, recovered, crashed)
		}
		p.Paired()
	})
}

// TestKillAnywhere: agentosd is killed at a random moment of a run, over and
// over on the same state. Whatever was recorded stays, verifies and pairs.
func TestKillAnywhere(t *testing.T) {
	p := user(t)
	seed := time.Now().UnixNano()
	rnd := rand.New(rand.NewSource(seed))
	size := 0
	for i := range 15 {
		l := p.begin("Inspect this Linux system")
		wait := time.Duration(rnd.Intn(400)) * time.Millisecond
		select {
		case <-time.After(wait):
		case <-l.done:
		}
		if pid := l.children(t)["agentosd"]; pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		l.wait(t)
		if _, err := os.Stat(filepath.Join(p.State(), "agentos.sqlite3")); err != nil {
			continue // killed before there was a state
		}
		r := p.Do("--json", "audit", "verify")
		var v struct {
			Records string `json:"records"`
			Ok      bool   `json:"ok"`
		}
		if r.Code == 4 {
			continue // killed before the first record
		}
		if err := json.Unmarshal([]byte(r.Out), &v); err != nil || !v.Ok {
			t.Fatalf("seed %d, round %d after %s: %v %v", seed, i, wait, err, r)
		}
		n, err := strconv.Atoi(v.Records)
		if err != nil || n < size {
			t.Fatalf("seed %d, round %d: %d records after %d (%v)", seed, i, n, size, err)
		}
		size = n
	}
	p.events(0, "Inspect this Linux system")
	p.Paired()
}

// TestInterrupt: Ctrl-C cancels, and that is recorded.
func TestInterrupt(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.model(modeltest.Script{Turns: []modeltest.Turn{{Fault: modeltest.Silent}}, Repeat: true})
		l := p.begin("wait")
		l.until(t, "model call", admitted)
		if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := l.wait(t); code != 130 {
			t.Errorf("exit %d, want 130: %s%s", code, l.out, l.stderr)
		}
		_, log := lastRun(p)
		last := log[len(log)-1]
		if last.Kind != "run.end" || last.Body["reason"] != "cancelled" {
			t.Errorf("last record %+v", last)
		}
		p.Paired()
	})
}

// TestPartsAreLocked looks at the real processes of a run from outside: whose
// they are, what they hold and what they may do (OSA-02, C-11, INV-13).
func TestPartsAreLocked(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.model(modeltest.Script{Turns: []modeltest.Turn{{Fault: modeltest.Silent}}, Repeat: true})
		const canary = "canary-8d1f-not-for-agents"
		p.Env = append(p.Env, "OPENAI_API_KEY="+canary, "SOME_TOKEN="+canary)
		l := p.begin("wait")
		l.until(t, "model call", admitted)
		kids := l.children(t)
		uids := map[string]bool{}
		for _, name := range []string{"agentos-loop", "agentos-shim"} {
			pid := kids[name]
			status := string(read(t, pid, "status"))
			for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"} {
				if !strings.Contains(status, want) {
					t.Errorf("%s: no %q in\n%s", name, want, status)
				}
			}
			uid := field(status, "Uid")
			if uid[0] == "0" || uid[0] != uid[1] || uid[1] != uid[2] {
				t.Errorf("%s runs as %v", name, uid)
			}
			uids[uid[0]] = true
			if env := read(t, pid, "environ"); len(bytes.Trim(env, "\x00")) != 0 {
				t.Errorf("%s has an environment: %q", name, env)
			}
			fds := descriptors(t, pid)
			for fd, target := range fds {
				if !strings.HasPrefix(target, "socket:") && !strings.HasPrefix(target, "pipe:") && !strings.HasPrefix(target, "anon_inode:") && target != "/dev/null" {
					t.Errorf("%s: descriptor %s is %s", name, fd, target)
				}
			}
		}
		if p.UID == 0 && len(uids) != 2 {
			t.Errorf("shim and loop share an identity: %v", uids)
		}
		_ = l.cmd.Process.Signal(os.Interrupt)
		l.wait(t)
		if strings.Contains(l.out.String()+l.stderr.String(), canary) {
			t.Error("secret in the output")
		}
		err := filepath.Walk(p.State(), func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if bytes.Contains(b, []byte(canary)) {
				t.Errorf("secret in %s", path)
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %o", path, info.Mode().Perm())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func read(t *testing.T, pid int, what string) []byte {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func field(status, name string) []string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(v)
		}
	}
	return []string{"", "?", ""}
}

func descriptors(t *testing.T, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name()], _ = os.Readlink(filepath.Join(dir, e.Name()))
	}
	return out
}

// TestStateFaults: what can be wrong with the state is named with a next step
// and its own exit code; nothing runs.
func TestStateFaults(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.events(0, "Inspect this Linux system")
		db := filepath.Join(p.State(), "agentos.sqlite3")

		p.model(modeltest.Script{Turns: []modeltest.Turn{{Fault: modeltest.Silent}}, Repeat: true})
		l := p.begin("hold the lock")
		l.until(t, "model call", admitted)
		p.Want(8, []string{"next:"}, "agent", "once", "Inspect this Linux system")
		p.Want(0, nil, "audit", "verify") // reading needs no lock
		_ = l.cmd.Process.Signal(os.Interrupt)
		l.wait(t)
		p.Env = nil

		if err := os.Chmod(p.State(), 0o755); err != nil {
			t.Fatal(err)
		}
		p.Want(5, []string{"chmod"}, "agent", "once", "Inspect this Linux system")
		if err := os.Chmod(p.State(), 0o700); err != nil {
			t.Fatal(err)
		}

		good, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(good)
		for i := 4096; i < 4096+200 && i < len(bad); i++ {
			bad[i] ^= 0x5a
		}
		if err := os.WriteFile(db, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := p.Do("agent", "once", "Inspect this Linux system"); r.Code != 9 || !strings.Contains(r.Err, "next:") {
			t.Errorf("corrupt database: %v", r)
		}
		if err := os.WriteFile(db, good, 0o600); err != nil {
			t.Fatal(err)
		}
		p.events(0, "Inspect this Linux system")
	})
}

// TestFullDisk: a state directory on a full file system ends in a typed error,
// and once there is room again the log is whole.
func TestFullDisk(t *testing.T) {
	p := &asked{person.Root(t, bin)}
	mnt := filepath.Join(p.Home, "small")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mnt, syscall.MNT_DETACH) })
	p.Env = []string{"AGENTOS_STATE_DIR=" + filepath.Join(mnt, "state")}
	p.events(0, "Inspect this Linux system")
	filler := filepath.Join(mnt, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4096); ; {
		if _, err := f.Write(b); err != nil {
			break
		}
	}
	f.Close()
	r := p.Do("agent", "once", "Inspect this Linux system")
	if r.Code == 0 || !strings.Contains(r.Err, "next:") {
		t.Errorf("full disk: %v", r)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.events(0, "Inspect this Linux system")
	p.Paired()
}

// TestTampering is C-14 at the command line: an edited log does not verify, and
// with a saved checkpoint neither does an old copy.
func TestTampering(t *testing.T) {
	as(t, func(t *testing.T, p *asked) {
		p.events(0, "Inspect this Linux system")
		old := copyState(t, p)
		p.events(0, "Inspect this Linux system")
		saved := filepath.Join(p.Home, "saved.ckpt")
		p.Want(0, nil, "audit", "checkpoint", "--out", saved)
		key := ""
		var cp struct {
			PublicKey string `json:"public_key"`
		}
		if err := json.Unmarshal([]byte(p.Want(0, nil, "--json", "audit", "checkpoint").Out), &cp); err != nil {
			t.Fatal(err)
		}
		key = cp.PublicKey
		p.Want(0, nil, "audit", "verify", "--key", key, "--checkpoint", saved)
		restore(t, p, old)
		p.Want(0, nil, "audit", "verify", "--key", key) // an old copy is whole in itself
		p.Want(9, []string{"missing"}, "audit", "verify", "--key", key, "--checkpoint", saved)
	})
}

func copyState(t *testing.T, p *asked) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := os.ReadDir(p.State())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			b, err := os.ReadFile(filepath.Join(p.State(), e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = b
		}
	}
	return out
}

func restore(t *testing.T, p *asked, files map[string][]byte) {
	t.Helper()
	entries, err := os.ReadDir(p.State())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := files[e.Name()]; !ok {
			if err := os.RemoveAll(filepath.Join(p.State(), e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(p.State(), name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
