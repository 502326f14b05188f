//go:build linux

package main

import (
	"testing"
)

func TestTrue(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		l := launch(t, m.uid)
		x, out := l.start(m.plan("r1", "", "exit 0")).end()
		if x.Code != 0 || x.Signal != 0 || out != "" {
			t.Errorf("%+v %q", x, out)
		}
	})
}
