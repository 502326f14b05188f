//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentos/integration/sandbox/attempt"
)

// limits are below what the attempts on resources ask for.
func limits() []string {
	var out []string
	for _, l := range []string{"pids=128", "memory=256M", "tmp=16M", "files=256", "file=8M"} {
		out = append(out, "--limit", l)
	}
	return out
}

// kind says how an attempt has to be made.
func kind(name string) string {
	switch name {
	case "kill all":
		return name
	case "privilege: setuid program", "privilege: file capabilities":
		return "exec"
	}
	if strings.Contains(name, "PID 1") {
		return "PID 1"
	}
	for _, k := range []string{"inherit", "tty"} {
		if strings.HasPrefix(name, k+":") {
			return k
		}
	}
	return "batch"
}

func named(kinds ...string) []string {
	return slices.DeleteFunc(attempt.Names(), func(n string) bool { return !slices.Contains(kinds, kind(n)) })
}

// outcomes maps an attempt to how it went in one place.
type outcomes map[string]attempt.Result

func (o outcomes) add(list []attempt.Result) {
	for _, r := range list {
		o[r.Name] = r
	}
}

// everybody signals all that it may; whether it worked is the victim's to say.
func (w *trial) everybody(t *testing.T, c *exec.Cmd) []attempt.Result {
	before := w.hits.Load()
	list, r := w.read(c)
	if r.code != 0 || len(list) != 1 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	hit := eventually(time.Second, func() bool { return w.hits.Load() > before })
	list[0].Succeeded = hit
	if !hit && list[0].Errno == "" {
		list[0].Errno, list[0].Detail = "ESRCH", "nobody outside got it"
	}
	return list
}

// trial is one world with the ways to try attempts in it.
type trial struct {
	*world
	notes string // what the run said about itself
}

// sandboxed makes every attempt in the sandbox.
func (w *trial) sandboxed(t *testing.T) outcomes {
	out := outcomes{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	argv := append([]string{w.probe, "batch", w.file}, named("batch", "exec", "PID 1")...)
	list, r := w.inside(ctx, limits(), argv...)
	w.notes = r.err
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	out.add(list)
	out.add(w.everybody(t, w.run(ctx, limits(), w.probe, "batch", w.file, "kill all")))
	for _, name := range named("inherit") {
		out.add(w.alone(t, name, w.run(ctx, limits(), w.probe, "one", w.file, name)))
	}
	out.add(w.onTerminal(t, w.run(ctx, append(limits(), "--tty"), append([]string{w.probe, "batch", w.file}, named("tty")...)...)))
	return out
}

// bare makes every attempt outside, as uid.
func (w *trial) bare(t *testing.T, uid int) outcomes {
	out := outcomes{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kinds := []string{"batch", "exec"}
	if uid != 0 {
		kinds = append(kinds, "PID 1")
	}
	argv := append([]string{w.probe, "batch", w.file}, named(kinds...)...)
	if uid == 0 {
		// In mounts of its own: as root they work.
		argv = append([]string{w.probe, "enter", w.layers(t, 0, nil)}, argv[1:]...)
	}
	list, r := w.outside(ctx, uid, argv...)
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	out.add(list)
	if uid == 0 { // the host's own first process may be out of everybody's reach
		list, r := w.outside(ctx, uid, append([]string{w.probe, "first", "batch", w.file}, named("PID 1")...)...)
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
		out.add(list)
	}
	if uid != 0 { // root would reach everybody on this machine
		out.add(w.everybody(t, command(ctx, uid, w.home, w.targets.Workspace, w.probe, "caller", w.file, w.probe, "batch", w.file, "kill all")))
	}
	for _, name := range named("inherit") {
		c := command(ctx, uid, w.home, w.targets.Workspace, w.probe, "caller", w.file, w.probe, "one", w.file, name)
		c.Dir = filepath.Dir(w.targets.Secret)
		out.add(w.alone(t, name, c))
	}
	out.add(w.onTerminal(t, command(ctx, uid, w.home, w.targets.Workspace, w.probe, append([]string{"caller", w.file, w.probe, "batch", w.file}, named("tty")...)...)))
	return out
}

// alone makes an attempt as the command itself, with its standard output in a
// file that holds something, which must stay.
func (w *trial) alone(t *testing.T, name string, c *exec.Cmd) []attempt.Result {
	t.Helper()
	const kept = "kept from before\n"
	p := filepath.Join(w.root, "stdout")
	f, err := os.OpenFile(p, os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(kept)
	must(t, err)
	w.own(p)
	c.Stdout = f
	r := finish(t, c)
	b, err := os.ReadFile(p)
	must(t, err)
	list, _ := results(bytes.NewReader(b), nil)
	if r.code != 0 || len(list) != 1 {
		t.Fatalf("%s: exit %d, %s: %s", name, r.code, b, r.err)
	}
	if lost := !bytes.HasPrefix(b, []byte(kept)); lost && !list[0].Succeeded {
		t.Errorf("%s: the caller's file lost what it held", name)
	}
	return list
}

// onTerminal runs c on a terminal, as its session's own.
func (w *trial) onTerminal(t *testing.T, c *exec.Cmd) []attempt.Result {
	t.Helper()
	master, slave := w.terminal()
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.Env = append(c.Env, "TERM=xterm")
	must(t, c.Start())
	_ = slave.Close()
	done := make(chan struct{})
	var list []attempt.Result
	var all string
	go func() { defer close(done); list, all = results(master, nil) }()
	err := c.Wait()
	_ = master.SetReadDeadline(time.Now().Add(time.Second))
	<-done
	if err != nil || len(list) == 0 {
		t.Fatalf("%q: %v: %s", c.Args, err, all)
	}
	return list
}
