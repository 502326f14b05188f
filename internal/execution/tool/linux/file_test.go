//go:build linux

package linux

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestEachLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("y", 100)
	for name, c := range map[string]struct {
		in   string
		want []string
		err  error
	}{
		"plain":     {"a\nb\n", []string{"a", "b"}, nil},
		"no end":    {"a\nb", []string{"a", "b"}, nil},
		"empty":     {"a\n\r\nb\n", []string{"a", "", "b"}, nil},
		"long":      {"a\n" + long + "\nb\n", []string{"a", long[:16], "b"}, nil},
		"long last": {long, []string{long[:16]}, nil},
		"too much":  {strings.Repeat("0123456789\n", 100), nil, errTooLarge},
		"endless":   {strings.Repeat("0", 2000), nil, errTooLarge},
	} {
		var got []string
		err := eachLine(strings.NewReader(c.in), 16, 500, func(l []byte) bool {
			got = append(got, string(l))
			return true
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if c.err == nil {
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	broken := errors.New("broken")
	if err := eachLine(io.MultiReader(strings.NewReader("a\nb"), errReader{broken}), 16, 100, func([]byte) bool { return true }); !errors.Is(err, broken) {
		t.Errorf("read error: %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestReadFile(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"small": "12345", "big": "123456"})
	if b, err := readFile(root+"/small", 5); err != nil || string(b) != "12345" {
		t.Errorf("small: %q, %v", b, err)
	}
	if _, err := readFile(root+"/big", 5); !errors.Is(err, errTooLarge) {
		t.Errorf("big: %v", err)
	}
	fifo := filepath.Join(root, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, root, "/dev/zero", root + "/absent"} {
		if _, err := readFile(p, 100); err == nil {
			t.Errorf("%s: no error", p)
		}
	}
	list, more, err := names(root, 2)
	if len(list) != 2 || !more || err != nil {
		t.Errorf("names: %v, %v, %v", list, more, err)
	}
}
