package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentos/internal/host/fdframe"
	"agentos/internal/lib/fault"
)

// stdio are the command's three descriptors and what the shim gets for them: the
// terminal's master, or the far ends of three pipes.
type stdio struct {
	own [3]int
	far []int
}

func (s stdio) close() {
	for i, fd := range s.own {
		if i == 0 || fd != s.own[0] {
			_ = unix.Close(fd)
		}
	}
}

// stdio makes them.
func (f *first) stdio() error {
	var err error
	if f.Plan.TTY {
		f.io, err = f.terminal()
	} else {
		f.io, err = f.pipes()
	}
	return err
}

// start runs the command as a session of its own. The error says why it could
// not be executed.
func (f *first) start() error {
	own := f.io.own
	defer f.io.close()
	exe, err := f.find()
	if err != nil {
		return err
	}
	hearing()
	f.child, err = syscall.ForkExec(exe, f.Plan.Command, &syscall.ProcAttr{
		Env:   append([]string{}, f.Plan.Env...),
		Files: []uintptr{uintptr(own[0]), uintptr(own[1]), uintptr(own[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: f.Plan.TTY},
	})
	if err != nil {
		return notRun(err, f.Plan.Command[0])
	}
	f.childFD = -1
	if f.bare() {
		if f.childFD, err = unix.PidfdOpen(f.child, 0); err != nil {
			return failed(err, "command", "watch it")
		}
	}
	return nil
}

func notRun(err error, name string) error {
	k, next := fault.Denied, "grant the folder that it is in so that programs may be started from it"
	if errors.Is(err, unix.ENOENT) {
		k, next = fault.NotFound, "name a program that the sandbox sees; its interpreter counts"
	}
	return &Error{"command", fault.Wrap(err, k, next, "run %q", name)}
}

// find looks the command up in the sandbox's own PATH.
func (f *first) find() (string, error) {
	name := f.Plan.Command[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	list := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range f.Plan.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = v
		}
	}
	denied := false
	for _, dir := range strings.Split(list, ":") {
		if !path.IsAbs(dir) {
			continue // the working directory is no place to find programs in
		}
		p := path.Join(dir, name)
		var st unix.Stat_t
		if unix.Stat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
		denied = true
	}
	if denied {
		return "", notRun(unix.EACCES, name)
	}
	return "", notRun(unix.ENOENT, name)
}

// pipes makes three; the agent owns them, so that it may open them again through
// /dev/stdout.
func (f *first) pipes() (stdio, error) {
	var s stdio
	for i := range 3 {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return s, errno("pipe2", err)
		}
		if i == 0 {
			s.own[i], s.far = p[0], append(s.far, p[1])
		} else {
			s.own[i], s.far = p[1], append(s.far, p[0])
		}
	}
	return s, nil
}

// terminal makes the pair; the slave is opened through the master, not by name.
func (f *first) terminal() (stdio, error) {
	var s stdio
	var master int
	var err error
	if f.bare() {
		master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	} else {
		if f.pts < 0 {
			return s, fmt.Errorf("the plan has no /dev: %w", unix.ENOENT)
		}
		master, err = unix.Openat(f.pts, "ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return s, errno("open ptmx", err)
	}
	s.far = []int{master}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return s, errno("unlock terminal", err)
	}
	slave, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return s, errno("open terminal", e)
	}
	s.own = [3]int{int(slave), int(slave), int(slave)}
	if f.Plan.Rows > 0 && f.Plan.Cols > 0 {
		size := &unix.Winsize{Row: f.Plan.Rows, Col: f.Plan.Cols}
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size); err != nil {
			return s, errno("set terminal size", err)
		}
	}
	return s, nil
}

// handOver gives the shim its ends over the lifeline, and keeps none.
func (f *first) handOver() error {
	dup, err := unix.FcntlInt(uintptr(f.lifeline), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	c, err := fdframe.Inherited(os.NewFile(uintptr(dup), "lifeline"))
	if err != nil {
		return err
	}
	wire := fdframe.New(c, maxMessage)
	defer wire.Close()
	var files []*os.File
	for _, fd := range f.io.far {
		files = append(files, os.NewFile(uintptr(fd), "far end"))
	}
	err = wire.Write([]byte(`{"ready":true}`), files...)
	for _, file := range files {
		_ = file.Close()
	}
	return err
}

// watch waits: for the command's end, which it reports; for the starter and the
// shim to be there. It reaps whatever else ends.
func (f *first) watch(ctl int, wire *fdframe.Conn) {
	f.deaf()
	options := 0
	if f.bare() {
		options = unix.WNOHANG
	} else {
		go f.lifelines(ctl, -1)
	}
	for {
		if f.bare() && f.lifelines(ctl, int(second.Milliseconds())) {
			break
		}
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, options, nil)
		if err == unix.EINTR || err == nil && pid == 0 {
			continue
		}
		if err != nil {
			break // no child left, the command included: it was reaped below
		}
		if pid == f.child && (ws.Exited() || ws.Signaled()) {
			s := status{Code: ws.ExitStatus()}
			if ws.Signaled() {
				s = status{-1, int(ws.Signal())}
			}
			send(wire, answer{Exit: &s})
			break
		}
	}
	f.end()
}

// second is how often, without a PID namespace, what ended is reaped; the
// command's own end is noticed at once.
const second = time.Second

// lifelines waits for one of the two connections to end. In a PID namespace it
// ends the process then. Without one, it also returns when the command ended or
// the time in milliseconds is over, and says whether a connection ended: signals
// to the command have to come from the thread that started it, since each thread
// has a Landlock domain of its own and the command's lies in that one's.
func (f *first) lifelines(ctl, timeout int) bool {
	const gone = unix.POLLIN | unix.POLLRDHUP
	fds := []unix.PollFd{{Fd: int32(ctl), Events: gone}, {Fd: int32(f.lifeline), Events: gone}, {Fd: int32(f.childFD), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, timeout)
		over := err == nil && n > 0 && fds[0].Revents|fds[1].Revents != 0
		if f.bare() {
			return over
		}
		if over {
			exit(1)
		}
	}
}

// end makes sure that nothing of the command goes on. In a PID namespace the
// kernel does it when this process ends. Without one, the Landlock domain is what
// tells the sandbox's processes from the user's others: a signal to everybody
// reaches just them, in one step that no fork escapes.
func (f *first) end() {
	if !f.bare() || f.child == 0 {
		return
	}
	for {
		_ = unix.Kill(-1, unix.SIGKILL)
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return
		}
	}
}

// exit ends the process at once, without the runtime.
func exit(code int) {
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(code), 0, 0)
	}
}

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// hearing gives every signal that is ignored its default again, for the command
// to inherit: whoever started us may ignore some (nohup), and children of make
// ignore signal 32, which glibc keeps for itself.
func hearing() {
	for sig := uintptr(1); sig <= 64; sig++ {
		var old action
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
		if e == 0 && old.handler == 1 {
			byDefault := action{}
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		}
	}
}

// deaf ignores every signal that a process of the sandbox could send. It comes
// after the command's start, which would have inherited it.
func (f *first) deaf() {
	ignore := action{handler: 1}
	for sig := uintptr(1); sig <= 64; sig++ {
		switch unix.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD: // the last would lose exit codes
			continue
		}
		// The runtime keeps real-time signals 32 to 34 for its own use, too.
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	}
	for _, fd := range []int{0, 1, 2} {
		_ = unix.Dup3(f.null, fd, 0) // what the starter gave is not needed any more
	}
}

func decodeAnswer(b []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("read answer of the first process: %w", err)
	}
	return a, nil
}
