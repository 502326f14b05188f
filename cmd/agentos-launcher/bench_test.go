//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStart measures `true` from the request to its reported end, through a
// launcher that runs, beside bubblewrap with the same namespaces and view, and
// bare. Run it with -benchtime 100x; the medians count.
func BenchmarkStart(b *testing.B) {
	for _, m := range modes() {
		cred := &syscall.SysProcAttr{}
		if m.uid != 0 {
			cred.Credential = &syscall.Credential{Uid: uint32(m.uid), Gid: uint32(m.uid)}
		}
		run := func(argv ...string) func(int) {
			return func(int) {
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.SysProcAttr = cred
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.Run(m.name+"/bare", median(run("/usr/bin/true")))
		b.Run(m.name+"/bubblewrap", median(run("/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
			"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--tmpfs", "/home/agent", "--new-session", "--die-with-parent", "/usr/bin/true")))
		l := launch(b, m.uid)
		b.Run(m.name+"/launcher", median(func(i int) {
			p := m.plan(fmt.Sprintf("bench-%s-%d-%d", m.name, i, time.Now().UnixNano()), "", "")
			p.Command = []string{"/usr/bin/true"}
			x := l.start(p)
			x.ready()
			for _, f := range x.stdio {
				_ = f.Close()
			}
			if e := x.gone(); e.Code != 0 {
				b.Fatal(e)
			}
			_ = x.shim.Close()
		}))
	}
}

func median(f func(i int)) func(b *testing.B) {
	return func(b *testing.B) {
		var all []time.Duration
		for i := range b.N {
			begin := time.Now()
			f(i)
			all = append(all, time.Since(begin))
		}
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms/median")
		b.ReportMetric(0, "ns/op")
	}
}
