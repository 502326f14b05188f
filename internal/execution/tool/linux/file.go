//go:build linux

package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errTooLarge is a file beyond its bound; readers say so instead of using a part.
var errTooLarge = errors.New("file too large")

// openRegular opens path for reading without waiting on a FIFO or a device that
// stands in its place.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("open %q: not a regular file", path)
	}
	return f, nil
}

// readFile returns a file of at most limit bytes.
func readFile(path string, limit int) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("read %q: %w", path, errTooLarge)
	}
	return b, nil
}

// firstLine is the first line of a small file, trimmed and cleaned; "" when it
// can't be read.
func firstLine(path string, limit int) string {
	b, err := readFile(path, 4096)
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(b), "\n")
	return line(strings.TrimSpace(s), limit)
}

// names returns the first limit entries of a directory, unsorted, and whether
// there were more.
func names(dir string, limit int) ([]string, bool, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	list, err := d.Readdirnames(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(list) > limit {
		return list[:limit], true, err
	}
	return list, false, err
}

// eachLine calls f with each line of r without its end, skipping the rest of a
// line longer than limit (f sees its beginning), until f returns false. At most
// total bytes are read; more is errTooLarge. The slice is valid during f.
func eachLine(r io.Reader, limit int, total int64, f func(line []byte) bool) error {
	lim := &io.LimitedReader{R: r, N: total + 1}
	b := bufio.NewReaderSize(lim, limit)
	for {
		chunk, err := b.ReadSlice('\n')
		if lim.N == 0 {
			return errTooLarge
		}
		rest := err
		if len(chunk) > 0 {
			for len(chunk) > 0 && (chunk[len(chunk)-1] == '\n' || chunk[len(chunk)-1] == '\r') {
				chunk = chunk[:len(chunk)-1]
			}
			if !f(chunk) {
				return nil
			}
		}
		for errors.Is(rest, bufio.ErrBufferFull) {
			_, rest = b.ReadSlice('\n')
			if lim.N == 0 {
				return errTooLarge
			}
		}
		switch {
		case rest == nil:
		case errors.Is(rest, io.EOF):
			return nil
		default:
			return rest
		}
	}
}
