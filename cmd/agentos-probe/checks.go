//go:build linux

package main

import (
	"strings"

	"agentos/internal/lib/sandboxplan"
)

// machine is what can be tried; a nil error says that it worked. The real one
// asks the kernel.
type machine interface {
	look(p string) (dir bool, err error)         // lstat(2)
	list(p string) ([]string, error)             // names in a folder
	read(p string) error                         // open for reading, and close
	write(p string) error                        // open a file for writing, change nothing
	create(dir string) error                     // make a file in a folder and remove it
	mount(p string) (ro, noexec bool, err error) // flags of the mount that p is on
	mode(p string) bool                          // the file's own mode lets us write
	run(dir string) error                        // start a file that was just made in dir
	load(p string) error                         // map a file as code
	identity() identity
	names() (host, dir string, env []string)
	interfaces() ([]string, error)
	loopback() error
	connect(v6 bool) error // to an address outside; nil also while it is under way
	socket(domain, kind, protocol int) error
	processes() (others int, ppid int, err error)
	call(name string, scratch string) error // one of calls()
}

// identity of this process, as the kernel tells it.
type identity struct {
	uids, gids [3]int
	groups     []int
	caps       string // "none" or the sets that hold some, but bounding
	bounding   int    // capabilities in the bounding set
	nnp        int
	seccomp    int
}

// checker collects findings. Methods are called in order by one goroutine.
type checker struct {
	m    machine
	plan *sandboxplan.Plan
	bare bool // landlock-only: no namespace, the paths are the host's
	out  []sandboxplan.Finding
}

// probe asks everything that a plan says.
func probe(doc sandboxplan.Probe, m machine) []sandboxplan.Finding {
	c := &checker{m: m, plan: &doc.Plan, bare: doc.Plan.Strength == sandboxplan.LandlockOnly}
	c.identity()
	c.folders()
	for _, mt := range c.plan.Mounts {
		c.place(mt)
	}
	c.files()
	c.absent(doc.Absent)
	c.network()
	c.processes()
	c.calls()
	return c.out
}

// add compares. Both texts are what people read.
func (c *checker) add(check, plan, kernel, detail string) {
	c.out = append(c.out, sandboxplan.Finding{Check: check, Plan: plan, Kernel: clip(kernel), Agree: plan == kernel, Detail: clip(detail)})
}

// because is an error as a detail.
func because(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func clip(s string) string {
	const most = 2048 // bytes
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
