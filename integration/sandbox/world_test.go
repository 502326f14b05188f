//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentos/integration/sandbox/attempt"
	"agentos/internal/host/pty/ptytest"
)

// world is one person with a home, a workspace, and everything around them that
// an agent may be after. All of it is made for the test and goes with it.
type world struct {
	t       *testing.T
	uid     int
	root    string // everything is below it
	home    string
	targets attempt.Targets
	file    string // the targets, in the workspace
	probe   string // the program, in the workspace
	hits    atomic.Int64
	victim  *exec.Cmd
	later   func() (end func()) // makes the socket that comes later
}

func newWorld(t *testing.T, uid int) *world {
	t.Helper()
	base := "/home" // below /tmp everything would be in the sandbox's private /tmp
	if !root() {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, "agentos-escape-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	canary := make([]byte, 16)
	_, err = rand.Read(canary)
	must(t, err)
	w := &world{t: t, uid: uid, root: dir, home: filepath.Join(dir, "home")}
	w.targets = attempt.Targets{
		Workspace: filepath.Join(w.home, "project"), Canary: "canary-" + hex.EncodeToString(canary),
		Secret: filepath.Join(dir, "outside", "secret.txt"), ReadOnly: filepath.Join(w.home, "readonly"),
		Files: map[string]string{}, Sockets: map[string]string{}, TCP: map[string]string{}, HostNS: map[string]uint64{},
		Key: "agentos-escape-" + hex.EncodeToString(canary[:4]), Abstract: dir + "/abstract", Datagram: dir + "/datagram",
		Limits: attempt.Limits{PIDs: 200, Files: 400, Memory: 400 << 20, Tmp: 24 << 20, Shm: 24 << 20, OneFile: 12 << 20},
	}
	t.Cleanup(w.dismiss)
	w.makeFiles()
	w.makeSockets()
	w.makeNetwork()
	w.makeIPC()
	w.makePrograms()
	w.startVictim()
	for _, kind := range []string{"mnt", "pid", "net", "uts", "ipc"} {
		var st unix.Stat_t
		must(t, unix.Stat("/proc/self/ns/"+kind, &st))
		w.targets.HostNS[kind] = st.Ino
	}
	w.terminal()
	return w
}

// terminal makes one of the person's, the one that attempts are after.
func (w *world) terminal() (master, slave *os.File) {
	master, slave = ptytest.Open(w.t)
	w.own(slave.Name())
	var st unix.Stat_t
	must(w.t, unix.Stat(slave.Name(), &st))
	w.targets.TTY, w.targets.TTYDev = slave.Name(), st.Dev
	w.write()
	return master, slave
}

// write puts the targets down where the probe finds them.
func (w *world) write() {
	b, err := json.Marshal(w.targets)
	must(w.t, err)
	w.file = filepath.Join(w.targets.Workspace, "targets.json")
	must(w.t, os.WriteFile(w.file, b, 0o644))
}

// put makes a file of the person's.
func (w *world) put(path, data string, mode os.FileMode) string {
	w.t.Helper()
	w.folder(filepath.Dir(path), 0o755)
	must(w.t, os.WriteFile(path, []byte(data), mode))
	must(w.t, os.Chmod(path, mode))
	w.own(path)
	return path
}

func (w *world) folder(path string, mode os.FileMode) {
	w.t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	w.folder(filepath.Dir(path), 0o755)
	must(w.t, os.Mkdir(path, 0o755))
	must(w.t, os.Chmod(path, mode))
	w.own(path)
}

func (w *world) own(path string) {
	if root() {
		must(w.t, os.Lchown(path, w.uid, w.uid))
	}
}

func (w *world) makeFiles() {
	t, secret := &w.targets, w.targets.Canary+"\n"
	w.folder(w.home, 0o755)
	w.folder(filepath.Join(t.Workspace, "sub"), 0o755)
	w.folder(filepath.Dir(t.Secret), 0o777)
	w.put(t.Secret, secret, 0o644)
	t.Link = filepath.Join(t.Workspace, "link-out")
	must(w.t, os.Symlink(t.Secret, t.Link))
	w.put(filepath.Join(t.ReadOnly, "file"), "kept\n", 0o666)
	t.Denied = w.put(filepath.Join(t.ReadOnly, "deeper", "denied.txt"), secret, 0o644)
	t.Files["ssh key"] = w.put(filepath.Join(w.home, ".ssh", "id_ed25519"), secret, 0o600)
	t.Files["aws credentials"] = w.put(filepath.Join(w.home, ".aws", "credentials"), secret, 0o600)
	t.Files["home of another"] = w.put(filepath.Join(w.root, "another", "notes"), secret, 0o644)
	for name, dir := range map[string]string{"host /tmp": "/tmp", "host /dev/shm": "/dev/shm"} {
		p := filepath.Join(dir, filepath.Base(w.root)+".txt")
		t.Files[name] = w.put(p, secret, 0o644)
		w.t.Cleanup(func() { _ = os.Remove(p) })
	}
	git := command(w.t.Context(), w.uid, w.home, t.Workspace, "git", "init", "-q")
	if r := finish(w.t, git); r.code != 0 {
		w.t.Fatal("git init:", r.err)
	}
	// Open to everybody, so that the modes of files stop nobody here.
	for p, mode := range map[string]os.FileMode{"": 0o777, "sub": 0o777, ".git/hooks": 0o777, ".git/config": 0o666} {
		must(w.t, os.Chmod(filepath.Join(t.Workspace, p), mode))
	}
	must(w.t, os.Chmod(t.ReadOnly, 0o777))
	state := filepath.Join(w.home, ".local", "share", "agentos")
	for name, f := range map[string]string{"agentos log": "agentos.sqlite3", "agentos key": "audit.key", "agentos lock": "lock"} {
		t.Files[name] = filepath.Join(state, f)
	}
	t.Sockets["control"] = filepath.Join(state, "control.sock")
}

// listen serves a pathname socket until the end of the test.
func (w *world) listen(network, path string) net.Listener {
	l, err := net.Listen(network, path)
	must(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	if strings.HasPrefix(path, "/") {
		must(w.t, os.Chmod(path, 0o777))
		w.own(path)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return l
}

func (w *world) makeSockets() {
	t := &w.targets
	for kind, p := range map[string]string{
		"tmp": filepath.Join(w.root, "tmp.sock"), "home": filepath.Join(w.home, "home.sock"),
		"parent": filepath.Join(filepath.Dir(t.Workspace), "parent.sock"),
	} {
		t.Sockets[kind] = p
		w.listen("unix", p)
	}
	run := w.root + "/run"
	if root() { // where services have theirs
		run = "/run/" + filepath.Base(w.root)
		w.t.Cleanup(func() { _ = os.RemoveAll(run) })
	}
	w.folder(run, 0o755)
	for kind, name := range map[string]string{"docker": "docker.sock", "bus": "bus"} {
		t.Sockets[kind] = filepath.Join(run, name)
		w.listen("unix", t.Sockets[kind])
	}
	t.Sockets["later"] = filepath.Join(t.Workspace, "later.sock")
	w.later = func() (end func()) {
		l := w.listen("unix", t.Sockets["later"])
		return func() { _ = l.Close() }
	}
	w.listen("unix", "@"+t.Abstract)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + t.Datagram, Net: "unixgram"})
	must(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
}

func (w *world) makeNetwork() {
	t := &w.targets
	t.HostIP = "127.0.0.1"
	addrs, err := net.InterfaceAddrs()
	must(w.t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			t.HostIP = n.IP.String()
		}
	}
	for kind, addr := range map[string]string{"tcp loopback": "127.0.0.1:0", "tcp loopback v6": "[::1]:0", "tcp host address": t.HostIP + ":0"} {
		l, err := net.Listen("tcp", addr)
		must(w.t, err)
		w.t.Cleanup(func() { _ = l.Close() })
		t.TCP[kind] = l.Addr().String()
	}
	for to, answer := range map[*string]func([]byte) []byte{&t.UDP: func(b []byte) []byte { return b }, &t.DNS: answerDNS} {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(w.t, err)
		w.t.Cleanup(func() { _ = c.Close() })
		*to = c.LocalAddr().String()
		go func() {
			b := make([]byte, 1500)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(answer(b[:n]), from)
			}
		}()
	}
}

// answerDNS answers any question with one address.
func answerDNS(q []byte) []byte {
	if len(q) < 12 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	if end > len(q) {
		return nil
	}
	a := append([]byte(nil), q[:end]...)
	binary.BigEndian.PutUint16(a[2:], 0x8180)
	binary.BigEndian.PutUint16(a[6:], 1) // one answer
	binary.BigEndian.PutUint32(a[8:], 0) // nothing else
	return append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1)
}

func (w *world) makeIPC() {
	t := &w.targets
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	must(w.t, err)
	w.t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	b, err := unix.SysvShmAttach(id, 0, 0)
	must(w.t, err)
	copy(b, t.Canary)
	must(w.t, unix.SysvShmDetach(b))
	t.Shm, t.Queue = id, filepath.Base(w.root)
	name, err := unix.BytePtrFromString(t.Queue)
	must(w.t, err)
	old := unix.Umask(0)
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o666, 0, 0, 0)
	unix.Umask(old)
	if e != 0 {
		w.t.Fatal("mq_open:", e)
	}
	w.t.Cleanup(func() {
		_ = unix.Close(int(fd))
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	})
}

// makePrograms puts the probe into the workspace, and for root the copies that
// would give privileges.
func (w *world) makePrograms() {
	b, err := os.ReadFile(filepath.Join(bin, "probe"))
	must(w.t, err)
	w.probe = w.put(filepath.Join(w.targets.Workspace, "probe"), string(b), 0o755)
	if !root() {
		return
	}
	t := &w.targets
	t.Setuid = filepath.Join(t.Workspace, "setuid-root")
	must(w.t, os.WriteFile(t.Setuid, b, 0o755))
	must(w.t, os.Chmod(t.Setuid, 0o755|os.ModeSetuid|os.ModeSetgid))
	t.Filecaps = filepath.Join(t.Workspace, "file-caps")
	must(w.t, os.WriteFile(t.Filecaps, b, 0o755))
	v := make([]byte, 20) // struct vfs_cap_data, revision 2, effective, everything
	binary.LittleEndian.PutUint32(v, 0x02000001)
	binary.LittleEndian.PutUint32(v[4:], 1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_DAC_OVERRIDE)
	must(w.t, unix.Setxattr(t.Filecaps, "security.capability", v, 0))
}

// startVictim starts a process of the person's that others may be after.
func (w *world) startVictim() {
	t := &w.targets
	c := command(context.Background(), w.uid, w.home, filepath.Dir(t.Secret), filepath.Join(bin, "probe"), "victim", t.Canary, t.Secret)
	c.Env = append(c.Env, "ESCAPE_VICTIM="+t.Canary)
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	in, err := c.StdinPipe()
	must(w.t, err)
	out, err := c.StdoutPipe()
	must(w.t, err)
	must(w.t, c.Start())
	w.victim = c
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		w.t.Fatal("the victim did not start")
	}
	must(w.t, json.Unmarshal(lines.Bytes(), &t.Victim))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			w.hits.Add(1)
		}
	}()
	w.t.Cleanup(func() { _ = in.Close(); <-done; _ = c.Wait() })
}

// alive fails the test if the victim is hurt.
func (w *world) alive() {
	w.t.Helper()
	if err := w.victim.Process.Signal(syscall.Signal(0)); err != nil {
		w.t.Error("the process outside is gone:", err)
	}
}

// inside runs argv in the sandbox and reads the results that it prints; first is
// called when it has printed anything.
func (w *world) inside(ctx context.Context, flags []string, argv ...string) ([]attempt.Result, result) {
	w.t.Helper()
	return w.read(w.run(ctx, flags, argv...))
}

// run prepares `agentos run` by a careless caller.
func (w *world) run(ctx context.Context, flags []string, argv ...string) *exec.Cmd {
	t := &w.targets
	args := []string{"caller", w.file, agentos(), "run", "--rw", t.Workspace, "--ro", t.ReadOnly, "--deny", t.Denied}
	args = append(append(append(args, flags...), "--"), argv...)
	return command(ctx, w.uid, w.home, t.Workspace, w.probe, args...)
}

// outside runs argv without any sandbox, by the same careless caller.
func (w *world) outside(ctx context.Context, uid int, argv ...string) ([]attempt.Result, result) {
	w.t.Helper()
	return w.read(command(ctx, uid, w.home, w.targets.Workspace, w.probe, append([]string{"caller", w.file}, argv...)...))
}

// read runs c and parses the results that it prints, one a line.
func (w *world) read(c *exec.Cmd) ([]attempt.Result, result) {
	w.t.Helper()
	r, wr := io.Pipe()
	var errb strings.Builder
	c.Stdout, c.Stderr = wr, &errb
	must(w.t, c.Start())
	done := make(chan error, 1)
	go func() { err := c.Wait(); _ = wr.Close(); done <- err }()
	end := func() {}
	out, all := results(r, func() { end = w.later() })
	end()
	err := <-done
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%q: %v", c.Args, err)
	}
	return out, result{c.ProcessState.ExitCode(), all, errb.String()}
}

// results reads lines until the end.
func results(r io.Reader, first func()) (out []attempt.Result, all string) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if first != nil {
			first()
			first = nil
		}
		all += lines.Text() + "\n"
		var a attempt.Result
		_, text, ok := strings.Cut(lines.Text(), `{"name"`) // a terminal's echo may come before
		if ok && json.Unmarshal([]byte(`{"name"`+strings.TrimSpace(text)), &a) == nil {
			out = append(out, a)
		}
	}
	return out, all
}

// eventually waits until ok, without guessing how long it takes.
func eventually(within time.Duration, ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			return false
		}
		<-tick.C
	}
	return true
}

// processes finds processes by a text in their arguments or environment.
func processes(mark string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args, _ := os.ReadFile(d + "/cmdline")
		env, _ := os.ReadFile(d + "/environ")
		var pid int
		if strings.Contains(string(args)+string(env), mark) {
			if _, err := fmt.Sscanf(d, "/proc/%d", &pid); err == nil && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
