//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"agentos/internal/api/launchwire"
	"agentos/internal/lib/sandboxplan"
)

// The view is the plan and nothing else. Spec: INV-02.
func TestView(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		x, out := l.start(m.plan("view-"+m.name, workspace(t), `ls -1A / /etc /dev /home /project; echo; cut -d' ' -f5,6 /proc/self/mountinfo | grep -v ' ro,.*' | cut -d' ' -f1`)).end()
		if x.Code != 0 {
			t.Fatalf("%+v %s", x, out)
		}
		tree, mounts, _ := strings.Cut(out, "\n\n/")
		want := "/:\nbin\ndev\netc\nhome\nlib\nlib64\nproc\nproject\ntmp\nusr\n\n/dev:\nfd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n\n/etc:\npasswd\n\n/home:\nagent\n\n/project:"
		_ = mounts
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(strings.TrimSpace(out[:strings.Index(out, "/project:")+9]), "\n")); diff != "" {
			t.Errorf("%s\n%s", diff, tree)
		}
		rw := lines(out[strings.LastIndex(out, "\n\n")+2:])
		slices.Sort(rw)
		if diff := cmp.Diff([]string{"/dev/full", "/dev/null", "/dev/pts", "/dev/random", "/dev/shm", "/dev/tty", "/dev/urandom", "/dev/zero", "/home/agent", "/proc", "/project", "/tmp"}, rw); diff != "" {
			t.Errorf("writable mounts: %s", diff)
		}
	})
}

// What the command is: identity, privileges, limits, descriptors, signals.
func TestState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		r, w, err := os.Pipe() // a descriptor that leaks into everything
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil {
			t.Fatal(err)
		}
		l := launch(t, m.uid)
		p := m.plan("state-"+m.name, workspace(t), `id -u; id -g; id -G; umask; hostname; env | sort | tr '\n' ' '; echo
ls /proc/self/fd | grep -cv '^[0-3]$'; ulimit -c; ulimit -n; ulimit -f; cat /proc/self/cgroup | cut -d: -f3 | sort -u; cat /sys/class/net/lo/operstate 2>&1 | tail -c 10
grep -E '^(Cap|NoNewPrivs|Seccomp:|Sig(Blk|Ign)|Uid|Gid)' /proc/self/status; ls -d /proc/[0-9]* | grep -c '/1$'; cat /proc/kmsg /proc/keys 2>&1 | grep -c denied; (: > /proc/sys/kernel/hostname); python3 -c '
import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); c=socket.create_connection(s.getsockname()); print("loopback"); print(open("/proc/net/dev").read().count(":"))'`)
		p.Limits = sandboxplan.Limits{OpenFiles: 100, FileBytes: 1 << 20}
		x, out := l.start(p).end()
		id := strconv.Itoa(int(m.id()))
		zero := "\t" + strings.Repeat("0", 16)
		want := id + "\n" + id + "\n" + id + "\n0022\nbox\nHOME=/home/agent PATH=/usr/bin PWD=/project \n0\n0\n100\n2048\n/\ndirectory\n" +
			"Uid:" + strings.Repeat("\t"+id, 4) + "\nGid:" + strings.Repeat("\t"+id, 4) + "\nSigBlk:" + zero + "\nSigIgn:" + zero +
			"\nCapInh:" + zero + "\nCapPrm:" + zero + "\nCapEff:" + zero + "\nCapBnd:" + zero + "\nCapAmb:" + zero +
			"\nNoNewPrivs:\t1\nSeccomp:\t2\n0\n2\nloopback\n1\nsh: 4: cannot create /proc/sys/kernel/hostname: Read-only file system\n"
		out = regexp.MustCompile(`sh: \d+:`).ReplaceAllString(out, "sh: 4:")
		if diff := cmp.Diff(lines(want), lines(out)); diff != "" || x.Code != 0 {
			t.Errorf("%+v\n%s", x, diff)
		}
	})
}

// Writes land with the owner's identity, and nothing else is left.
func TestOwner(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		work := workspace(t)
		l := launch(t, m.uid)
		x, out := l.start(m.plan("owner-"+m.name, work, `echo hi > file && mkdir d && ln -s file link && mkfifo pipe && stat -c %u file`)).end()
		if x.Code != 0 || out != strconv.Itoa(int(m.id()))+"\n" {
			t.Errorf("%+v %q", x, out)
		}
		list, err := os.ReadDir(work)
		if err != nil || len(list) != 4 {
			t.Fatal(list, err)
		}
		for _, e := range list {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(work, e.Name()), &st); err != nil || st.Uid != owner || st.Gid != owner {
				t.Errorf("%s: owner %d:%d %v", e.Name(), st.Uid, st.Gid, err)
			}
		}
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l, n := launch(t, m.uid), 0
		for script, want := range map[string]launchwire.Exited{
			"exit 0": {}, "exit 7": {Code: 7}, "kill -TERM $$": {Code: -1, Signal: 15}, "kill -KILL $$": {Code: -1, Signal: 9},
			"setsid sleep 1000 & exit 3": {Code: 3}, "kill -9 1; kill -15 1; kill -11 1; exit 4": {Code: 4},
			"(sleep 0.1 &) ; exit 5": {Code: 5},
		} {
			n++
			p := m.plan(fmt.Sprintf("ends-%s-%d", m.name, n), "", script)
			x, _ := l.start(p).end()
			if x.Code != want.Code || x.Signal != want.Signal || x.MaxRSS == 0 {
				t.Errorf("%q: %+v, want %+v", script, x, want)
			}
		}
	})
}

// processes whose command line holds a mark.
func marked(t *testing.T, mark string) (pids []int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		b, err := os.ReadFile(f)
		if err == nil && string(b) == "sleep\x00"+mark+"\x00" {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); time.Now().Before(end); <-time.After(15 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: it never happened", what)
}

// Spec: INV-05. However a sandbox is ended, whatever it did, nothing is left
// within a second.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*launcher, *box, launchwire.Started){
		"stop": func(l *launcher, x *box, _ launchwire.Started) {
			l.send(launchwire.Request{Stop: &launchwire.Stop{Run: x.run}})
		},
		"lifeline":        func(_ *launcher, x *box, _ launchwire.Started) { _ = x.shim.Close() },
		"wire":            func(l *launcher, _ *box, _ launchwire.Started) { _ = l.wire.Close() },
		"launcher killed": func(l *launcher, _ *box, _ launchwire.Started) { _ = l.cmd.Process.Kill() },
		"init killed":     func(_ *launcher, _ *box, s launchwire.Started) { _ = unix.Kill(s.PID, unix.SIGKILL) },
	}
	modes := append(modes(), mode{"landlock", owner, sandboxplan.LandlockOnly})
	n := 0
	for _, m := range modes {
		for way, do := range ways {
			n++
			mark := strconv.Itoa(1000000 + os.Getpid()*100 + n)
			if m.name == "landlock" && way == "launcher killed" {
				way += ", lifeline too" // the same: the first process sees both
			}
			t.Run(m.name+"/"+way, func(t *testing.T) {
				t.Parallel()
				l := launch(t, m.uid)
				script := `(setsid sleep ` + mark + ` &); setsid setsid sleep ` + mark + ` & (sleep ` + mark + ` & sleep 0.2; kill -STOP $!) & i=0; while [ $i -lt 15 ]; do (trap '' TERM HUP INT; exec sleep ` + mark + `) & i=$((i+1)); done; kill -STOP $$`
				p := m.plan("left-"+mark, "", script)
				if m.name == "landlock" {
					p = m.bare("left-"+mark, workspace(t), script)
				}
				x := l.start(p)
				x.ready()
				s := <-x.started
				until(t, "start", func() bool { return len(marked(t, mark)) == 18 })
				do(l, x, s)
				begin := time.Now()
				until(t, "end", func() bool { return len(marked(t, mark)) == 0 })
				if d := time.Since(begin); d > time.Second {
					t.Errorf("it took %s", d)
				}
				if way == "stop" || way == "lifeline" || way == "init killed" {
					if e := x.gone(); e.Code != -1 || e.Signal != 9 {
						t.Errorf("%+v", e)
					}
					for _, g := range s.Cgroup {
						if _, err := os.Stat(g); err == nil {
							t.Errorf("%s is still there", g)
						}
					}
					return
				}
				if way == "wire" {
					l.close()
				} else {
					l.dead = true
					_ = l.cmd.Wait()
				}
				if m.uid == 0 { // the next one cleans
					launch(t, 0).close()
				}
				for _, g := range s.Cgroup {
					if _, err := os.Stat(g); err == nil {
						t.Errorf("%s is still there", g)
					}
				}
			})
		}
	}
}

// bare is a plan without namespaces.
func (m mode) bare(run, work, script string) sandboxplan.Plan {
	p := m.plan(run, "", script)
	p.Files, p.Dir, p.Identity.Home = nil, work, work
	p.Mounts = []sandboxplan.Mount{
		{Kind: sandboxplan.Bind, Source: "/usr", Target: "/usr", Exec: true, Why: "test"},
		{Kind: sandboxplan.Dev, Target: "/dev", Why: "test"},
		{Kind: sandboxplan.Bind, Source: work, Target: work, Write: true, Exec: true, Why: "test"},
	}
	return p
}

// Without namespaces only the plan's paths are reachable, no socket, and no signal
// gets out.
func TestLandlockOnly(t *testing.T) {
	t.Parallel()
	m := mode{"landlock", owner, sandboxplan.LandlockOnly}
	l := launch(t, owner)
	work := workspace(t)
	p := m.bare("bare", work, `echo x > f && cat f; ls / /etc /proc /home /tmp 2>&1 | grep -c denied; cat /etc/passwd 2>&1 | grep -c denied
echo > /dev/null && echo null; kill -9 `+strconv.Itoa(l.cmd.Process.Pid)+` 2>&1 | grep -c permitted
python3 -c '
import socket
for f in (socket.AF_UNIX, socket.AF_INET):
  try: socket.socket(f); print("socket")
  except PermissionError: print("refused")
socket.socketpair(); print("pair")'`)
	x, out := l.start(p).end()
	if want := "x\n5\n1\nnull\n1\nrefused\nrefused\npair\n"; out != want || x.Code != 0 {
		t.Errorf("%+v %s", x, cmp.Diff(lines(want), lines(out)))
	}
	p = m.bare("bare-tty", work, "test -t 0 && test -t 1 && : > /dev/tty && stty size")
	p.TTY, p.Rows, p.Cols = true, 11, 22
	if x, out := l.start(p).end(); x.Code != 0 || out != "11 22\r\n" {
		t.Errorf("terminal: %+v %q", x, out)
	}
}

// A private terminal with its size, job control and signals from keys.
func TestTerminal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		p := m.plan("tty-"+m.name, "", "")
		p.Command, p.TTY, p.Rows, p.Cols = []string{"/usr/bin/bash", "--norc", "-i"}, true, 33, 44
		p.Env = append(p.Env, "PS1=READY> ")
		x := l.start(p)
		x.ready()
		if len(x.stdio) != 1 {
			t.Fatalf("%d descriptors", len(x.stdio))
		}
		tty := x.stdio[0]
		var mu sync.Mutex
		var seen strings.Builder
		done := make(chan struct{})
		go func() {
			defer close(done)
			b := make([]byte, 4096)
			for {
				n, err := tty.Read(b)
				mu.Lock()
				seen.Write(b[:n])
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}()
		has := func(s string) func() bool {
			return func() bool { mu.Lock(); defer mu.Unlock(); return strings.Contains(seen.String(), s) }
		}
		for _, step := range [][2]string{
			{"", "READY> "}, {"stty size; tty\n", "33 44\r\n/dev/pts/0"}, {"sleep 1000\n", "sleep 1000\r\n"}, {"\x1a", "Stopped"},
			{"jobs\n", "[1]+  Stopped"}, {"fg\n", "fg\r\nsleep 1000"}, {"\x03", "^C\r\nREADY> "}, {"echo code $?\n", "code 130"}, {"jobs; echo none\n", "none\r\nREADY> "}, {"exit 9\n", "exit 9"},
		} {
			// A key that comes before the job has the terminal is the shell's: again.
			key, last := len(step[0]) == 1, time.Time{}
			until(t, step[1], func() bool {
				if last.IsZero() || key && time.Since(last) > time.Second/2 {
					last = time.Now()
					if _, err := io.WriteString(tty, step[0]); err != nil {
						t.Fatal(err)
					}
				}
				return has(step[1])()
			})
		}
		if e := x.gone(); e.Code != 9 {
			t.Errorf("%+v", e)
		}
		<-done
		if has("no job control")() {
			t.Error(seen.String())
		}
	})
}

// Each part of making a sandbox fails once: the run is refused, says where, and
// the command never ran. Spec: INV-02.
func TestEveryStepIsFatal(t *testing.T) {
	t.Parallel()
	common := []string{"openat2", "open_tree", "mount_setattr", "fsopen", "fsconfig", "fsmount", "move_mount", "mkdirat", "mknodat", "symlinkat",
		"pivot_root", "umount2", "mount", "fchdir", "unshare", "sethostname", "capset", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "close_range", "prlimit64"}
	each(t, func(t *testing.T, m mode) {
		list := common
		if m.uid == 0 {
			list = append(slices.Clone(common), "setgroups", "setresgid", "setresuid")
		}
		for _, call := range list {
			work := workspace(t)
			l := launch(t, m.uid, "FAULT="+call)
			l.quiet = true
			p := m.plan("fault-"+m.name, work, "touch ran")
			x := l.start(p)
			select {
			case f := <-x.failed:
				if f.Step == "" || f.Message == "" || f.Kind == "" {
					t.Errorf("%s: %+v", call, f)
				}
			case s := <-x.started:
				t.Errorf("%s fails: started %+v", call, s)
			case <-l.over: // the launcher itself could not be
			case <-time.After(wait):
				t.Errorf("%s fails: no answer", call)
			}
			if list, err := os.ReadDir(work); err != nil || len(list) != 0 {
				t.Errorf("%s fails: left %v %v", call, list, err)
			}
			l.close()
		}
	})
}

func TestRefusedPlans(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		work := workspace(t)
		bind := func(src, dst string) func(*sandboxplan.Plan) {
			return func(p *sandboxplan.Plan) {
				p.Mounts = append(p.Mounts, sandboxplan.Mount{Kind: sandboxplan.Bind, Source: src, Target: dst, Why: "test"})
			}
		}
		for name, tt := range map[string]struct {
			change func(*sandboxplan.Plan)
			step   string
		}{
			"version":        {func(p *sandboxplan.Plan) { p.Version = 9 }, ""},
			"missing source": {bind("/usr/gone", "/tmp/x"), "open source"},
			"symbolic link":  {bind("/bin", "/tmp/x"), "open source"},
			"no folder":      {func(p *sandboxplan.Plan) { p.Dir = "/project/gone" }, "working directory"},
			"no program":     {func(p *sandboxplan.Plan) { p.Command = []string{"no-such-program"} }, "command"},
			"no permission":  {func(p *sandboxplan.Plan) { p.Command = []string{"/project/file"} }, "command"},
			"noexec":         {func(p *sandboxplan.Plan) { p.Mounts[0].Exec = false }, "command"},
			"no terminals": {func(p *sandboxplan.Plan) {
				p.TTY = true
				p.Mounts = slices.DeleteFunc(p.Mounts, func(m sandboxplan.Mount) bool { return m.Kind == sandboxplan.Dev })
			}, "terminal"},
			"identity": {func(p *sandboxplan.Plan) {
				if m.uid == 0 {
					p.Strength, p.Identity.OwnerUID, p.Identity.OwnerGID = sandboxplan.Rootless, agentID, agentID
				} else {
					p.Strength, p.Identity.UID = sandboxplan.Full, agentID
				}
			}, map[bool]string{true: "identity", false: "root"}[m.uid == 0]},
		} {
			if err := os.WriteFile(filepath.Join(work, "file"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			p := m.plan("plan-"+m.name+"-"+strings.ReplaceAll(name, " ", "-"), work, "touch ran")
			tt.change(&p)
			f := l.start(p).refused()
			if f.Step != tt.step || f.Next == "" {
				t.Errorf("%s: %+v", name, f)
			}
			if list, err := os.ReadDir(work); err != nil || len(list) != 1 {
				t.Errorf("%s: left %v %v", name, list, err)
			}
		}
		x := l.start(m.plan("twice", "", "read x"))
		x.ready()
		<-x.started
		l.send(launchwire.Request{Start: &launchwire.Start{Plan: m.plan("twice", "", "true")}}, x.pidfd)
		if f := x.refused(); f.Kind != "conflict" {
			t.Errorf("%+v", f)
		}
		l.send(launchwire.Request{Start: &launchwire.Start{Plan: m.plan("twice", "", "true")}})
		if f := x.refused(); f.Kind != "malformed" {
			t.Errorf("%+v", f)
		}
		_ = x.stdio[0].Close()
		_ = x.gone()
	})
}

// A file system that can't map owners is named. Spec: AOS-14.
func TestNoIdmap(t *testing.T) {
	t.Parallel()
	work := workspace(t)
	sub := filepath.Join(work, "ram")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("ramfs", sub, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(sub, 0); err != nil {
			t.Error(err)
		}
	}()
	m := modes()[0]
	f := launch(t, 0).start(m.plan("idmap", work, "true")).refused()
	if f.Step != "idmapped mount" || !strings.Contains(f.Next, "ext4") {
		t.Errorf("%+v", f)
	}
}

func TestFifty(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		var wg sync.WaitGroup
		for i := range 50 {
			x := l.start(m.plan(fmt.Sprintf("many-%s-%d", m.name, i), "", fmt.Sprintf("echo %d; exit %d", i, i)))
			wg.Go(func() {
				if e, out := x.end(); e.Code != i || out != fmt.Sprintf("%d\n", i) {
					t.Errorf("%d: %+v %q", i, e, out)
				}
			})
		}
		wg.Wait()
	})
}

// The launcher gave up what it does not need.
func TestLauncherItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		l.send(launchwire.Request{Ping: &launchwire.Ping{}})
		if p := <-l.pong; p.PID != l.cmd.Process.Pid || p.Root != (m.uid == 0) {
			t.Errorf("%+v", p)
		}
		list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", l.cmd.Process.Pid))
		if err != nil || len(list) < 2 {
			t.Fatal(list, err)
		}
		want := map[bool]string{true: "00000000002011e7", false: "0000000000000000"}[m.uid == 0]
		for _, f := range list {
			b, err := os.ReadFile(f)
			if err != nil {
				continue // a thread that ended
			}
			for _, s := range []string{"CapPrm:\t" + want, "CapEff:\t" + want, "NoNewPrivs:\t1", "Seccomp:\t2"} {
				if !strings.Contains(string(b), s+"\n") {
					t.Errorf("%s: no %s", f, s)
				}
			}
		}
	})
}

// Control groups hold the sandbox, with its limits, while it runs. Spec: AOS-17.
func TestGroups(t *testing.T) {
	t.Parallel()
	l := launch(t, 0)
	m := modes()[0]
	p := m.plan("groups", "", `i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done 2>&1 | grep -c -i 'cannot fork\|resource'; read x`)
	p.Limits = sandboxplan.Limits{PIDs: 20, MemoryBytes: 256 << 20, CPUPercent: 200}
	x := l.start(p)
	x.ready()
	s := <-x.started
	if len(s.Missing) != 0 || len(s.Cgroup) < 3 {
		t.Errorf("%+v", s)
	}
	until(t, "pids limit", func() bool {
		for _, g := range s.Cgroup {
			if b, err := os.ReadFile(filepath.Join(g, "pids.events")); err == nil && !strings.HasPrefix(string(b), "max 0") {
				return true
			}
		}
		return false
	})
	l.send(launchwire.Request{Stop: &launchwire.Stop{Run: "groups"}})
	_ = x.gone()
	rootless := mode{"rootless", owner, sandboxplan.Rootless}
	p = rootless.plan("groupless", "", "true")
	p.Limits.PIDs = 20
	x = launch(t, owner).start(p)
	x.ready()
	if s := <-x.started; !slices.Equal(s.Missing, []string{"pids"}) {
		t.Errorf("%+v", s)
	}
	_ = x.gone()
}
