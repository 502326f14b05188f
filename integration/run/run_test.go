//go:build linux

// Package run drives `agentos run` and its sisters on the built binaries: how
// runs start, end, are watched and stopped. What a sandbox holds back is
// integration/sandbox's.
package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentos/integration/person"
)

var bin string

func TestMain(m *testing.M) { os.Exit(person.Main(m, &bin)) }

type runner struct {
	*person.Person
	said string // what git said last
}

func as(t *testing.T, f func(t *testing.T, p *runner)) {
	t.Helper()
	person.Everybody(t, bin, func(t *testing.T, p *person.Person) {
		work := filepath.Join(p.Home, "work")
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(work, int(p.UID), int(p.UID)); err != nil {
				t.Fatal(err)
			}
		}
		p.Dir = work
		r := &runner{Person: p}
		t.Cleanup(r.nothingLeft)
		f(t, r)
	})
}

// nothingLeft ends what a failed test may have left, and checks that ended runs
// left neither a process nor a control group.
func (p *runner) nothingLeft() {
	for _, r := range p.ps() {
		_ = p.Do("kill", r.Run)
	}
	if left := processes(p.UID, "agentos-shim"); len(left) > 0 && p.UID != 0 {
		p.T.Errorf("processes left: %v", left)
	}
}

type summary struct {
	Run   string `json:"run"`
	Name  string `json:"name"`
	State string `json:"state"`
}

func (p *runner) ps() []summary {
	p.T.Helper()
	var out struct {
		Runs []summary `json:"runs"`
	}
	if err := json.Unmarshal([]byte(p.Want(0, nil, "--json", "ps").Out), &out); err != nil {
		p.T.Fatal(err)
	}
	return out.Runs
}

// processes lists the processes of a user whose command is name.
func processes(uid uint32, name string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var st syscall.Stat_t
		cmd, err := os.ReadFile(d + "/cmdline")
		if err != nil || syscall.Stat(d, &st) != nil || st.Uid != uid {
			continue
		}
		if filepath.Base(string(bytes.SplitN(cmd, []byte{0}, 2)[0])) == name {
			if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestExitCodes: the command's own end is what the caller sees.
func TestExitCodes(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		for _, tc := range []struct {
			code int
			argv []string
		}{
			{0, []string{"true"}},
			{1, []string{"false"}},
			{42, []string{"sh", "-c", "exit 42"}},
			{128 + 15, []string{"sh", "-c", "kill -TERM $$"}},
			{128 + 9, []string{"sh", "-c", "kill -KILL $$"}},
			{127, []string{"no-such-command-here"}},
		} {
			if r := p.Do(append([]string{"run", "--"}, tc.argv...)...); r.Code != tc.code {
				t.Errorf("%q: want exit %d, got %v", tc.argv, tc.code, r)
			}
		}
		p.Paired()
	})
}

// TestStreams: three separate streams, binary and unchanged.
func TestStreams(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		in := make([]byte, 3<<20)
		for i := range in {
			in[i] = byte(i * 7)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := p.Cmd(ctx, "run", "--quiet", "--", "sh", "-c", "cat; echo to-stderr >&2")
		var out, errb bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &out, &errb
		if err := c.Run(); err != nil {
			t.Fatalf("%v: %s", err, errb.String())
		}
		if !bytes.Equal(out.Bytes(), in) {
			t.Errorf("%d bytes came back of %d, or others", out.Len(), len(in))
		}
		if strings.TrimSpace(errb.String()) != "to-stderr" {
			t.Errorf("standard error %q", errb.String())
		}
	})
}

// TestWorkspace: read-only unless asked; written through with the owner's
// identity when it is.
func TestWorkspace(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		if r := p.Do("run", "--", "sh", "-c", "echo x > new"); r.Code == 0 {
			t.Errorf("wrote into a workspace that is read only: %v", r)
		}
		if _, err := os.Stat(filepath.Join(p.Dir, "new")); err == nil {
			t.Error("the file is there")
		}
		p.Want(0, []string{"written through"}, "run", "--rw", p.Dir, "--", "sh", "-c", "mkdir d && echo x > d/new && ls -l d")
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(p.Dir, "d", "new"), &st); err != nil || st.Uid != p.UID {
			t.Errorf("owner %d, want %d (%v)", st.Uid, p.UID, err)
		}
	})
}

// TestRefusals name what is wrong and what helps, and start nothing.
func TestRefusals(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		secret := filepath.Join(p.Dir, "secret.txt")
		if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, argv := range map[string][]string{
			"C-01: denied inside writable": {"run", "--rw", p.Dir, "--deny", secret, "--", "true"},
			"no command":                   {"run"},
			"unknown profile":              {"run", "--profile", "nobody", "--", "true"},
			"unknown strength":             {"run", "--strength", "mighty", "--", "true"},
			"unknown limit":                {"run", "--limit", "wishes=3", "--", "true"},
			"missing path":                 {"run", "--rw", "/no/such/path", "--", "true"},
			"the state directory":          {"run", "--rw", p.State(), "--", "true"},
			"unknown run":                  {"stop", "run-nothing"},
		} {
			if r := p.Do(argv...); r.Code == 0 || !strings.Contains(r.Err, "next:") {
				t.Errorf("%s: %v", name, r)
			}
		}
		p.Want(0, nil, "run", "--deny", secret, "--", "sh", "-c", "test ! -e secret.txt") // absent from a read-only workspace
	})
}

// TestNoSetUID: what an agent makes in the owner's folder is the owner's file, so
// none may carry the set-user-ID or set-group-ID bit; other modes work.
func TestNoSetUID(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		p.Want(0, nil, "run", "--rw", p.Dir, "--", "sh", "-c", "cp /bin/true tool && chmod 755 tool && chmod +t . && mkdir -m 700 d && umask 077 && echo x > f")
		for name, script := range map[string]string{
			"chmod u+s":      "chmod u+s tool",
			"chmod 4755":     "chmod 4755 tool",
			"chmod g+s":      "chmod g+s tool",
			"chmod 2755":     "chmod 2755 d",
			"install":        "install -m 4755 /bin/true installed",
			"open with mode": `perl -e 'use Fcntl; sysopen(F, "opened", O_CREAT|O_WRONLY, 04755) or exit 1; exit 0'`,
			"mknod":          `perl -e 'exit(syscall(133, "noded", 0104755, 0) == 0 ? 0 : 1)'`,
		} {
			if r := p.Do("run", "--rw", p.Dir, "--", "sh", "-c", script); r.Code == 0 {
				t.Errorf("%s: %v", name, r)
			}
		}
		err := filepath.Walk(p.Dir, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestPlanted: a file through which the owner's Git would take instructions, and
// that could not be kept from being made, is told at the end and recorded.
func TestPlanted(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		if err := p.git("init", "-q"); err != nil {
			t.Fatal(err)
		}
		p.Want(0, []string{"commondir", "remove it"}, "run", "--rw", p.Dir, "--", "sh", "-c", "echo /tmp/evil > .git/commondir")
		log := p.Log()
		if last := log[len(log)-1]; last.Kind != "run.end" || fmt.Sprint(last.Body["planted"]) == "<nil>" {
			t.Errorf("last record %+v", last)
		}
	})
}

// TestAnchorFails: an anchor that somebody configured and that can't take the
// checkpoint is told at the end of a run, not passed over.
func TestAnchorFails(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		p.Env = []string{"AGENTOS_AUDIT_ANCHORS=file:" + filepath.Join(p.Home, "no", "such", "folder", "anchor")}
		p.Want(0, []string{"not anchored"}, "run", "--", "true")
	})
}

// TestSockets: a socket of somebody else in a granted tree refuses the start,
// unless it is allowed by name.
func TestSockets(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		path := filepath.Join(p.Dir, "s.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r := p.Do("run", "--", "true")
		if r.Code == 0 || !strings.Contains(r.Err, "s.sock") || !strings.Contains(r.Err, "--allow-sockets") {
			t.Errorf("%v", r)
		}
		p.Want(0, nil, "run", "--allow-sockets", path, "--", "true")
	})
}

// git runs git in the workspace as the person.
func (p *runner) git(args ...string) error {
	c := exec.CommandContext(p.T.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.test", "-C", p.Dir}, args...)...)
	c.Env = []string{"HOME=" + p.Home, "PATH=/usr/bin:/bin"}
	if os.Getuid() == 0 && p.UID != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.UID, Gid: p.UID}}
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %q: %w: %s", args, err, out)
	}
	p.said = string(out)
	return nil
}

// TestOwner: an ordinary user can't run as if they were somebody else.
func TestOwner(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		p.Env = []string{"AGENTOS_OWNER_UID=7777"}
		r := p.Do("run", "--", "true")
		if p.UID != 0 && (r.Code == 0 || !strings.Contains(r.Err, "another owner")) {
			t.Errorf("%v", r)
		}
	})
}

// TestWatching: a detached run is listed, shown, attached to and stopped; what
// it said is kept.
func TestWatching(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		run := strings.TrimSpace(p.Want(0, nil, "run", "-d", "--name", "watched", "--", "sh", "-c",
			"trap 'echo bye; exit 5' TERM; echo hello; while :; do sleep 0.1; done").Out)
		if !strings.HasPrefix(run, "run-") {
			t.Fatalf("detached: %q", run)
		}
		list := p.ps()
		if len(list) != 1 || list[0].Run != run || list[0].Name != "watched" || list[0].State != "running" {
			t.Fatalf("%+v", list)
		}
		p.Want(0, []string{"watched", "seccomp"}, "inspect", run)
		p.eventually("hello", "logs", run)
		begin := time.Now()
		p.Want(0, nil, "stop", "watched")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("stop took %s", took)
		}
		if list := p.ps(); len(list) != 0 {
			t.Errorf("still listed: %+v", list)
		}
		p.Want(0, []string{run}, "ps", "--all")
		p.Want(0, []string{"hello", "bye"}, "logs", run)
		p.Want(0, []string{"agent.start", "watched"}, "lineage", run)
		p.Paired()
	})
}

// eventually repeats a command until its output has text.
func (p *runner) eventually(text string, argv ...string) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r := p.Do(argv...)
		if strings.Contains(r.Out, text) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.T.Fatalf("agentos %q: no %q in %v", argv, text, r)
		}
	}
}

// TestSharedKeepsNothing: the shared agentosd outlives its first client, and has
// neither that client's secrets in its environment nor a descriptor of it.
func TestSharedKeepsNothing(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		const canary = "canary-5e1d-of-the-first-client"
		p.Env = append(p.Env, "SOME_TOKEN="+canary)
		held := filepath.Join(p.Home, "held")
		f, err := os.Create(held)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c := p.Cmd(t.Context(), "run", "-d", "--", "sleep", "1000")
		c.ExtraFiles = []*os.File{f, f, f, f, f, f}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		run := strings.TrimSpace(string(out))
		pid := p.family(run, "agentosd")[0]
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || bytes.Contains(env, []byte(canary)) {
			t.Errorf("environment %q, %v", env, err)
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(fds) == 0 {
			t.Fatal(fds, err)
		}
		for _, fd := range fds {
			if target, _ := os.Readlink(fd); target == held {
				t.Errorf("%s is %s", fd, target)
			}
		}
		p.Want(0, nil, "kill", run)
	})
}

// TestOneLog: the built-in agent and commands that only read work while a run
// goes on, and write to and read from the one log.
func TestOneLog(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		run := strings.TrimSpace(p.Want(0, nil, "run", "-d", "--", "sleep", "1000").Out)
		p.Want(0, []string{"Memory"}, "agent", "once", "Inspect this Linux system")
		p.Want(0, nil, "doctor")
		p.Want(0, []string{run}, "ps")
		p.Want(0, nil, "kill", run)
		p.Paired()
	})
}

// TestStopEndsTheTree is C-13: five children, one double-forked, one in another
// session, one that ignores every signal; all gone within a second of kill.
func TestStopEndsTheTree(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		mark := fmt.Sprintf("%d", 86400+os.Getpid()+int(p.UID))
		script := `sleep M & (sleep M &) ; setsid sleep M & sh -c 'trap "" TERM INT HUP; sleep M; sleep M' & nohup sleep M >/dev/null 2>&1 & echo up; wait`
		run := strings.TrimSpace(p.Want(0, nil, "run", "-d", "--", "sh", "-c", strings.ReplaceAll(script, "M", mark)).Out)
		p.eventually("up", "logs", run)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for sleepers(mark) < 5 {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%d children before the stop", sleepers(mark))
			}
		}
		begin := time.Now()
		p.Want(0, nil, "kill", run)
		if took := time.Since(begin); took > time.Second+500*time.Millisecond { // and the client's own start
			t.Errorf("kill took %s", took)
		}
		if n := sleepers(mark); n != 0 {
			t.Errorf("%d children outlived the run", n)
		}
	})
}

// sleepers counts processes that were started as `sleep mark`.
func sleepers(mark string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == "sleep\x00"+mark+"\x00" {
			n++
		}
	}
	return n
}

// TestPartsDie: whichever part is killed, the run ends, its end is recorded and
// nothing is left.
func TestPartsDie(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		for _, part := range []string{"agentos-shim", "agentos-launcher", "agentosd"} {
			mark := fmt.Sprintf("%d", 96400+os.Getpid()+int(p.UID)+len(part))
			run := strings.TrimSpace(p.Want(0, nil, "run", "-d", "--", "sh", "-c", "echo up; exec sleep "+mark).Out)
			p.eventually("up", "logs", run)
			for _, pid := range p.family(run, part) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(part, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			for sleepers(mark) > 0 && ctx.Err() == nil {
				<-time.After(10 * time.Millisecond)
			}
			cancel()
			if sleepers(mark) > 0 {
				t.Errorf("%s killed: the program goes on", part)
			}
			p.eventually(run, "ps", "--all")
			p.Want(0, nil, "run", "--", "true") // and the next one works
		}
		p.Paired()
	})
}

// family finds the processes of one part by the start record: shim and sandbox
// have their numbers in it, launcher and agentosd are their parents.
func (p *runner) family(run, part string) []int {
	p.T.Helper()
	for _, r := range p.Log() {
		if r.Run != run || r.Kind != "call.outcome" {
			continue
		}
		facts, _ := r.Body["facts"].(map[string]any)
		shim, _ := facts["shim_pid"].(float64)
		box, _ := facts["pid"].(float64)
		switch part {
		case "agentos-shim":
			return []int{int(shim)}
		case "agentos-launcher":
			return []int{parent(p.T, int(box))}
		case "agentosd":
			return []int{parent(p.T, int(shim))}
		}
	}
	p.T.Fatalf("no start record of %s", run)
	return nil
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "PPid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no parent")
	return 0
}

// TestLandlockOnly: without namespaces what the plan doesn't show can't be
// opened, and the run says that this is the weakest strength.
func TestLandlockOnly(t *testing.T) {
	person.Everybody(t, bin, func(t *testing.T, p *person.Person) {
		p.Dir = filepath.Join(p.Home, "work")
		if err := os.Mkdir(p.Dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if p.UID == 0 {
			p.Want(2, []string{"next:"}, "run", "--strength", "landlock-only", "--", "true")
			return
		}
		other := filepath.Join(p.Home, "other")
		if err := os.WriteFile(other, []byte("not yours"), 0o644); err != nil {
			t.Fatal(err)
		}
		p.Want(0, []string{"weakest"}, "run", "--strength", "landlock-only", "--", "ls")
		if r := p.Do("run", "--strength", "landlock-only", "--", "cat", other); r.Code == 0 || strings.Contains(r.Out, "not yours") {
			t.Errorf("read what the plan does not show: %v", r)
		}
		if r := p.Do("run", "--strength", "landlock-only", "--", "sh", "-c", "echo x > new"); r.Code == 0 {
			t.Errorf("wrote into a workspace that is read only: %v", r)
		}
		if left, _ := filepath.Glob(filepath.Join(p.State(), "scratch", "*")); len(left) > 0 {
			t.Errorf("scratch folders left: %v", left)
		}
	})
}

// TestMany: runs of one owner go on side by side and share one log.
func TestMany(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if r := p.Do("run", "--quiet", "--", "sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i)); r.Code != i || strings.TrimSpace(r.Out) != strconv.Itoa(i) {
					t.Errorf("run %d: %v", i, r)
				}
			}()
		}
		wg.Wait()
		p.Paired()
	})
}

// TestLimits: what a limit says holds, and what nothing here enforces is said.
func TestLimits(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		r := p.Do("run", "--limit", "pids=20", "--", "sh", "-c", "for i in $(seq 60); do sleep 5 & done 2>/dev/null; jobs | wc -l")
		if p.UID == 0 && r.Code == 0 {
			if n, err := strconv.Atoi(strings.TrimSpace(r.Out)); err != nil || n >= 60 {
				t.Errorf("pids=20 let %q processes start", r.Out)
			}
		}
		if p.UID != 0 && !strings.Contains(r.Err, "pids") {
			t.Errorf("a limit that can't be had is not said: %v", r)
		}
		p.Want(1, nil, "run", "--limit", "file=1M", "--", "sh", "-c", "head -c 3000000 /dev/zero > /tmp/big 2>/dev/null; test $(stat -c %s /tmp/big) -gt 2000000")
	})
}

// TestWorkspaceStaysClean is C-03: a Git repository is clean after a run, also
// after one that was killed.
func TestWorkspaceStaysClean(t *testing.T) {
	as(t, func(t *testing.T, p *runner) {
		git := func(args ...string) {
			t.Helper()
			if err := p.git(args...); err != nil {
				t.Fatal(err)
			}
		}
		git("init", "-q")
		git("commit", "-q", "--allow-empty", "-m", "first")
		p.Want(0, nil, "run", "--rw", p.Dir, "--", "git", "status")
		run := strings.TrimSpace(p.Want(0, nil, "run", "-d", "--rw", p.Dir, "--", "sh", "-c", "echo up; sleep 1000").Out)
		p.eventually("up", "logs", run)
		p.Want(0, nil, "kill", run)
		if git("status", "--porcelain", "--ignored"); p.said != "" {
			t.Errorf("left behind:\n%s", p.said)
		}
	})
}
