package cli

import (
	"io"
	"os"
	"path/filepath"

	"agentos/internal/lib/fault"
)

// WriteFile replaces path by a new file with data, all or nothing.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	fail := func(err error) error {
		return fault.Wrap(err, fault.Unavailable, "choose a place that you can write", "write %q", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".agentos-*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	for _, step := range []func() error{func() error { return f.Chmod(mode) }, f.Sync, f.Close} {
		if serr := step(); err == nil {
			err = serr
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// ReadFile reads a regular file of at most limit bytes; "-" is in.
func ReadFile(path string, in io.Reader, limit int64) ([]byte, error) {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fault.Wrap(err, fault.NotFound, "name a file that you can read", "open %q", path)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "name a file that you can read", "read %q", path)
	}
	if int64(len(data)) > limit {
		return nil, fault.New(fault.Limit, "name a smaller file", "read %q: larger than %s", path, Bytes(uint64(limit)))
	}
	return data, nil
}
