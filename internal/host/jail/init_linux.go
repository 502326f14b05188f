package jail

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"agentos/internal/host/fdframe"
	"agentos/internal/lib/fault"
	"agentos/internal/lib/sandboxplan"
)

// order is what the starter tells the first process, in one message with the
// lifeline and, for idmapped mounts, a user namespace.
type order struct {
	Plan     sandboxplan.Plan     `json:"plan"`
	Filter   []bpf.RawInstruction `json:"filter"`
	Landlock int                  `json:"landlock"` // ABI
	Map      bool                 `json:"map"`      // a user namespace comes with it
}

// answer is what it says: that the command runs, that a step failed, or how the
// command ended.
type answer struct {
	Started *begun   `json:"started,omitempty"`
	Failed  *verdict `json:"failed,omitempty"`
	Exit    *status  `json:"exit,omitempty"`
}

type begun struct {
	Layers []string `json:"layers"`
	Child  int      `json:"child"` // the command's number, as the first process sees it
}

// status is how the command ended.
type status struct {
	Code   int `json:"code"` // -1 with a signal
	Signal int `json:"signal"`
}

const (
	ctlFD      = 3
	maxMessage = 2 << 20
)

// Init is the first process of a sandbox, from its start to its end. It returns
// the exit code of the process, and never an error to go on from. Nothing else
// may run in the process.
func Init() int {
	// Namespaces and the parent-death signal belong to a thread.
	runtime.LockOSThread()
	// Nothing is collected: the process does its few steps once, and must not
	// need another thread when its group allows none.
	debug.SetGCPercent(-1)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 1
	}
	if err := CloseOnExec(); err != nil {
		return 1
	}
	c, err := fdframe.Inherited(os.NewFile(ctlFD, "starter"))
	if err != nil {
		return 1
	}
	wire := fdframe.New(c, maxMessage)
	b, files, err := wire.Read()
	if err != nil {
		return 1 // the starter is gone or gave up
	}
	first, err := newFirst(b, files)
	if err == nil {
		err = first.prepare()
	}
	if err == nil {
		// Caught, not ignored: the command gets the defaults, and may signal at once.
		signal.Notify(make(chan os.Signal, 1))
		err = first.start()
	}
	if err != nil {
		send(wire, answer{Failed: asError(err, "first process").verdict()})
		if first != nil {
			first.end()
		}
		return 1
	}
	if err := first.handOver(); err != nil {
		first.end()
		return 1 // the shim is gone
	}
	send(wire, answer{Started: &begun{first.layers, first.child}})
	ctl, err := c.File()
	if err != nil {
		first.end()
		return 1
	}
	first.watch(int(ctl.Fd()), wire)
	return 0
}

// CloseOnExec keeps every descriptor but the standard ones from children, also
// those that this process inherited without knowing.
func CloseOnExec() error {
	return errno("close_range", unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC))
}

func send(wire *fdframe.Conn, a answer) {
	if b, err := json.Marshal(a); err == nil {
		_ = wire.Write(b) // nobody to tell when the starter is gone
	}
}

// first is the first process.
type first struct {
	order
	lifeline int
	users    int // user namespace for idmapped mounts, or -1
	view     *view
	pts      int // the sandbox's terminals, or -1
	null     int // the host's null device, for descriptors that are left
	layers   []string
	io       stdio
	child    int // pid of the command, once it runs
	childFD  int // without a PID namespace, a pidfd of it
}

func newFirst(b []byte, files []*os.File) (*first, error) {
	f := &first{users: -1, pts: -1, null: -1}
	if err := json.Unmarshal(b, &f.order); err != nil {
		return nil, &Error{"first process", fault.Wrap(err, fault.Internal, "", "read order")}
	}
	want := 1
	if f.Map {
		want = 2
	}
	if len(files) != want {
		return nil, &Error{"first process", fault.New(fault.Internal, "", "read order: %d descriptors, want %d", len(files), want)}
	}
	f.lifeline = int(files[0].Fd()) // never collected: see Init
	if f.Map {
		f.users = int(files[1].Fd())
	}
	return f, nil
}

func (f *first) bare() bool { return f.Plan.Strength == sandboxplan.LandlockOnly }

// prepare does everything up to the command, in an order in which each step
// still may do what it needs. Each is fatal.
func (f *first) prepare() error {
	var mask unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil); err != nil {
		return failed(err, "signals", "unblock signals")
	}
	unix.Umask(0) // modes are exact while the view is made
	if err := f.isolate(); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := f.limits(); err != nil {
		return err
	}
	if err := f.identity(); err != nil {
		return err
	}
	if err := f.stdio(); err != nil {
		return failed(err, "terminal", "make the command's input and output")
	}
	if err := unix.Chdir(f.Plan.Dir); err != nil {
		return failed(err, "working directory", "enter %q", f.Plan.Dir)
	}
	return f.lock()
}

// isolate makes the view, or without namespaces prepares to be the reaper.
func (f *first) isolate() error {
	var err error
	if f.null, err = openNull(); err != nil {
		return failed(err, "null device", "open the null device")
	}
	if f.bare() {
		if f.Landlock < 6 {
			return failed(unix.EOPNOTSUPP, "landlock", "confine signals: ABI %d, 6 is needed without namespaces", f.Landlock)
		}
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return failed(err, "subreaper", "become the reaper of the command")
		}
		f.layers = append(f.layers, "process reaper")
		return nil
	}
	if os.Getpid() != 1 {
		return failed(unix.EINVAL, "pid namespace", "be its first process")
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return failed(errno("unshare", err), "cgroup namespace", "make it")
	}
	if err := unix.Sethostname([]byte(f.Plan.Hostname)); err != nil {
		return failed(err, "uts namespace", "set host name %q", f.Plan.Hostname)
	}
	if err := loopback(); err != nil {
		return failed(err, "network namespace", "start its loopback")
	}
	id := f.Plan.Identity
	f.view = &view{own: map[uint64]bool{}, agent: map[uint64]bool{}, uid: int(id.UID), gid: int(id.GID), users: f.users}
	if f.pts, err = f.view.build(&f.Plan); err != nil {
		return err
	}
	f.layers = append(f.layers, "mount namespace", "pid namespace", "ipc namespace", "uts namespace",
		"cgroup namespace", "network namespace (loopback only)", "private root")
	if f.Plan.Strength == sandboxplan.Rootless {
		f.layers = append(f.layers, "user namespace")
	}
	if f.users >= 0 {
		f.layers = append(f.layers, "idmapped mounts")
	}
	return nil
}

func openNull() (int, error) {
	fd, err := openDevice(device{"null", 1, 3})
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
}

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return errno("socket", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return errno("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req))
}

// limits are hard. No core file: it would hold what the agent read.
func (f *first) limits() error {
	l := f.Plan.Limits
	for _, r := range []struct {
		name string
		res  int
		max  int64
	}{{"core size", unix.RLIMIT_CORE, -1}, {"open files", unix.RLIMIT_NOFILE, l.OpenFiles}, {"file size", unix.RLIMIT_FSIZE, l.FileBytes}} {
		n := uint64(r.max)
		switch {
		case r.max == 0:
			continue
		case r.max < 0:
			n = 0
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(r.res, &now); err != nil {
			return failed(err, "resource limits", "read the limit of %s", r.name)
		}
		n = min(n, now.Max)
		if err := unix.Prlimit(0, r.res, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return failed(err, "resource limits", "limit %s to %d", r.name, n)
		}
	}
	f.layers = append(f.layers, "resource limits")
	return nil
}
