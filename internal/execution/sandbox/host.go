package sandbox

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"agentos/internal/lib/fault"
)

// Host is what Build asks of the machine. It must look with the owner's rights,
// or Build would tell an owner about files that are not theirs to see; the
// launcher opens what a plan names with the owner's rights for the same reason.
type Host interface {
	// Lstat looks at a path without following a final link.
	Lstat(path string) (Entry, error)
	Readlink(path string) (string, error)
	// ReadDir lists a folder in order of name; more than limit entries are an
	// error that is ErrMany.
	ReadDir(path string, limit int) ([]Entry, error)
	// ReadFile reads at most limit bytes of a regular file; more are ErrMany.
	ReadFile(path string, limit int) ([]byte, error)
}

// ErrMany says that there is more than the limit of a Host's method.
var ErrMany = errors.New("too much")

// Entry is one thing in a folder.
type Entry struct {
	Name string
	Type fs.FileMode // type bits: 0 regular, fs.ModeDir, fs.ModeSymlink, …
	Exec bool        // somebody may execute it; set by Lstat only
}

func (e Entry) isDir() bool     { return e.Type&fs.ModeDir != 0 }
func (e Entry) isLink() bool    { return e.Type&fs.ModeSymlink != 0 }
func (e Entry) isRegular() bool { return e.Type&fs.ModeType == 0 }

const maxLinks = 40 // as the kernel follows at most

// resolve follows every link of an absolute path once, and returns the path
// without links and what is there.
func resolve(h Host, p string) (string, Entry, error) {
	todo := strings.Split(strings.Trim(p, "/"), "/")
	done, links := "/", 0
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, c)
		e, err := h.Lstat(next)
		if err != nil {
			return next, Entry{}, err
		}
		if !e.isLink() {
			if len(todo) > 0 && !e.isDir() {
				return next, Entry{}, fs.ErrNotExist
			}
			done = next
			continue
		}
		if links++; links > maxLinks {
			return next, Entry{}, fault.New(fault.Usage, "name the real path", "follow %q: too many links", p)
		}
		to, err := h.Readlink(next)
		if err != nil {
			return next, Entry{}, err
		}
		if path.IsAbs(to) {
			done = "/"
		}
		todo = append(strings.Split(strings.Trim(to, "/"), "/"), todo...)
	}
	e, err := h.Lstat(done)
	return done, e, err
}

// resolveMissing is resolve for a path whose end need not exist: what exists is
// resolved, the rest is appended.
func resolveMissing(h Host, p string) (string, error) {
	rest := ""
	for at := p; ; at = path.Dir(at) {
		real, _, err := resolve(h, at)
		if err == nil {
			return path.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || at == "/" {
			return "", err
		}
		rest = path.Join(path.Base(at), rest)
	}
}

// there reports what is at a path, without following a final link.
func there(h Host, p string) (Entry, bool) {
	e, err := h.Lstat(p)
	return e, err == nil
}
