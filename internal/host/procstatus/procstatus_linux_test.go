package procstatus

import (
	"os"
	"strings"
	"testing"
)

const sample = "Name:\tx: y\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t00ff\nCapEff:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n"

func TestParse(t *testing.T) {
	s, err := Parse([]byte(sample))
	if err != nil || s.UID != 1 || s.EUID != 2 || s.GID != 5 || s.EGID != 6 || !s.NoNewPrivs || s.Seccomp != 2 || len(s.Groups) != 2 || s.CapPrm != 0xff {
		t.Fatalf("%+v %v", s, err)
	}
	for _, drop := range []string{"Uid", "Gid", "NoNewPrivs", "Seccomp", "CapEff"} {
		if _, err := Parse([]byte(strings.Replace(sample, drop+":", "X:", 1))); err == nil {
			t.Errorf("accepted a status without %s", drop)
		}
	}
	if _, err := Parse([]byte(strings.Replace(sample, "1\t2\t3\t4", "1\t2", 1))); err == nil {
		t.Error("accepted a short Uid line")
	}
}

func TestReadSelf(t *testing.T) {
	s, err := Read(os.Getpid())
	if err != nil || int(s.UID) != os.Getuid() || int(s.EGID) != os.Getegid() {
		t.Fatalf("%+v %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = Parse(b) })
}
