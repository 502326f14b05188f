package probe

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// In a user namespace of its own a child can forbid further ones.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[0] == "userns" {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte(os.Args[1]), 0); err != nil {
			fmt.Print("write: ", err)
			os.Exit(2)
		}
		fmt.Print(userNS())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestUserNS(t *testing.T) {
	t.Parallel()
	for limit, refused := range map[string]bool{"0": true, "10": false} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"userns", limit}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", limit, err, out)
		}
		if (len(out) > 0) != refused {
			t.Errorf("limit %s: got %q, refused should be %v", limit, out, refused)
		}
	}
}

// What Read says agrees with other sources on this machine.
func TestRead(t *testing.T) { // not parallel: it counts descriptors
	r := Read()
	osrelease, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if r.Release != strings.TrimSpace(string(osrelease)) || r.Cores < 1 || r.Memory < 64<<20 || r.Init == "" {
		t.Errorf("%+v", r)
	}
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		t.Fatal(err)
	}
	if r.Seccomp != strings.Contains(string(actions), "errno") || r.UserNotify != strings.Contains(string(actions), "user_notif") {
		t.Errorf("seccomp %v, notification %v, kernel says %s", r.Seccomp, r.UserNotify, actions)
	}
	before := descriptors(t)
	for range 5 {
		Read()
	}
	if after := descriptors(t); after > before {
		t.Errorf("descriptors: %d before, %d after", before, after)
	}
	t.Logf("%+v", r)
}

func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func TestParsers(t *testing.T) {
	t.Parallel()
	list := "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\nnet_cls\t0\t1\t1\nmemory\t4\t15\t0\npids\t8\t1\t1\nodd\n"
	if diff := cmp.Diff([]string{"cpuset", "pids"}, v1Controllers(list)); diff != "" {
		t.Errorf("v1 controllers (-want +got):\n%s", diff)
	}
	if got := release("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"); got != "Debian GNU/Linux 12" {
		t.Errorf("release %q", got)
	}
	if got := release("NAME=x\n"); got != "" {
		t.Errorf("release %q", got)
	}
	var r Raw
	r.filesystems("nodev\tsysfs\nnodev\toverlay\n\text4\n\n")
	if !r.Overlay || r.Btrfs {
		t.Errorf("%+v", r)
	}
	if sysctl("no/such") != -1 || file("/nonexistent") != "" {
		t.Error("what isn't there must be unknown")
	}
}
