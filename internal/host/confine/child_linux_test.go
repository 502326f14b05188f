package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of kernel effects run in children of the test binary: what is under
// test can't be undone. A child gets one order in its environment, and answers
// with one JSON document on standard output.

const orderEnv = "CONFINE_TEST_ORDER"

type order struct {
	Plan   Plan
	Layer  string // "all", "seccomp", "landlock", "none"
	Do     string // "probe", "files", "soak", "exec", "state"
	Files  []string
	Argv   []string
	UID    int // setresuid before Apply, 0: stay
	Groups []int
	Evict  bool   // drop the kernel's dentries and inodes after the layer
	Keep   string // which ID stays 0: "uid", "gid", "saved uid", "real gid"
}

type answer struct {
	Err     string            `json:"err,omitempty"`     // of Apply
	Report  Report            `json:"report"`            // of Apply
	Before  map[string]string `json:"before,omitempty"`  // probe → "" or errno text
	After   map[string]string `json:"after,omitempty"`   // probe → "" or errno text
	Output  string            `json:"output,omitempty"`  // of "exec"
	Numbers map[string]int64  `json:"numbers,omitempty"` // of "state"
}

func TestMain(m *testing.M) {
	if s := os.Getenv(orderEnv); s != "" {
		os.Exit(child(s))
	}
	os.Exit(m.Run())
}

func child(s string) int {
	var o order
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var a answer
	probes := probesFor(o)
	a.Before = runProbes(probes)
	if err := makePair(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	evict, err := os.OpenFile("/proc/sys/vm/drop_caches", os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	busy := startThreads()
	defer close(busy)
	if o.UID != 0 {
		if err := become(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	if err := applyLayer(o, &a.Report); err != nil {
		a.Err = err.Error()
	} else {
		if o.Evict {
			if _, err := evict.WriteString("2\n"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
		}
		act(o, &a, probes)
	}
	b, err := json.Marshal(a)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if _, err := os.Stdout.Write(b); err != nil {
		return 2
	}
	return 0
}

func act(o order, a *answer, probes []probe) {
	switch o.Do {
	case "probe", "files":
		a.After = runProbes(probes)
	case "soak":
		if err := soak(); err != nil {
			a.Err = err.Error()
		}
	case "exec":
		out, err := exec.Command(o.Argv[0], o.Argv[1:]...).CombinedOutput()
		a.Output = string(out)
		if err != nil {
			a.Err = err.Error()
		}
	case "state":
		var err error
		if a.Numbers, err = state(); err != nil {
			a.Err = err.Error()
		}
	case "talk":
		a.Output, a.Err = talk(a.Report, o.Plan.Connect[0])
	}
}

// talk uses the connection that Apply made: one line there, one line back.
func talk(r Report, path string) (string, string) {
	c := r.Conns[path]
	if _, err := c.Write([]byte("ping\n")); err != nil {
		return "", err.Error()
	}
	b := make([]byte, 16)
	n, err := c.Read(b)
	if err != nil {
		return "", err.Error()
	}
	return string(b[:n]), ""
}

func become(o order) error {
	if err := syscall.Setgroups(o.Groups); err != nil {
		return err
	}
	ids := [][3]int{{o.UID, o.UID, o.UID}, {o.UID, o.UID, o.UID}} // group, user
	switch o.Keep {
	case "uid":
		ids[1] = [3]int{0, 0, 0}
	case "gid":
		ids[0] = [3]int{0, 0, 0}
	case "saved uid":
		ids[1][2] = 0
	case "real gid":
		ids[0][0] = 0
	}
	if err := syscall.Setresgid(ids[0][0], ids[0][1], ids[0][2]); err != nil {
		return err
	}
	return syscall.Setresuid(ids[1][0], ids[1][1], ids[1][2])
}

func applyLayer(o order, r *Report) (err error) {
	switch o.Layer {
	case "all":
		*r, err = Apply(o.Plan)
		return err
	case "seccomp":
		if o.Plan.Profile == ToolExec {
			primeProcesses()
		}
		if err := AllPrctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
			return err
		}
		return installFilter(o.Plan.Profile)
	case "landlock":
		return restrictFiles(o.Plan, r)
	case "none":
		return nil
	}
	return errors.New("unknown layer")
}

// startThreads keeps a few goroutines in blocking system calls, so that there
// are threads beside the one that calls Apply.
func startThreads() chan struct{} {
	stop := make(chan struct{})
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(10 * time.Millisecond)}, nil)
				}
			}
		}()
	}
	return stop
}

// run starts a child with o and returns its answer.
func run(t *testing.T, o order) answer {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{orderEnv + "=" + string(b), "GOTRACEBACK=all"}
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("child: %v\n%s%s", err, out, ee.Stderr)
		}
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("child printed %q: %v", out, err)
	}
	return a
}
