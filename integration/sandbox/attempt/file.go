//go:build linux

package attempt

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func files() map[string]Func {
	m := map[string]Func{
		"file: outside the grants":      func(t *Targets) (string, error) { return secret(t, t.Secret) },
		"file: denied in the workspace": func(t *Targets) (string, error) { return secret(t, t.Denied) },
		"file: through a link":          func(t *Targets) (string, error) { return secret(t, t.Link) },
		"file: through ..": func(t *Targets) (string, error) {
			return secret(t, filepath.Join(t.Workspace, "sub")+strings.Repeat("/..", 30)+t.Secret)
		},
		"file: through root of self": func(t *Targets) (string, error) { return secret(t, "/proc/self/root"+t.Secret) },
		"file: through a new link": func(t *Targets) (string, error) {
			p := filepath.Join(t.Workspace, "new-link")
			_ = os.Remove(p)
			if err := os.Symlink(t.Secret, p); err != nil {
				return "", err
			}
			defer os.Remove(p)
			return secret(t, p)
		},
		"file: hard link in": func(t *Targets) (string, error) {
			p := filepath.Join(t.Workspace, "hard-link")
			_ = os.Remove(p)
			if err := os.Link(t.Secret, p); err != nil {
				return "", err
			}
			defer os.Remove(p)
			return secret(t, p)
		},
		"file: hard link to denied": func(t *Targets) (string, error) {
			p := filepath.Join(t.Workspace, "hard-link-2")
			_ = os.Remove(p)
			if err := os.Link(t.Denied, p); err != nil {
				return "", err
			}
			defer os.Remove(p)
			return secret(t, p)
		},
		"file: rename out": func(t *Targets) (string, error) {
			return moved(t, filepath.Dir(t.Secret))
		},
		"file: rename into read-only": func(t *Targets) (string, error) { return moved(t, t.ReadOnly) },
		"file: write into the parent": func(t *Targets) (string, error) {
			return creates(filepath.Join(filepath.Dir(t.Workspace), "escaped"), "")
		},
		"file: write read-only":  func(t *Targets) (string, error) { return opens(filepath.Join(t.ReadOnly, "file"), unix.O_WRONLY) },
		"file: create read-only": func(t *Targets) (string, error) { return creates(filepath.Join(t.ReadOnly, "new"), "") },
		"file: chmod read-only": func(t *Targets) (string, error) {
			return did("chmod", os.Chmod(filepath.Join(t.ReadOnly, "file"), 0o644))
		},
		"file: truncate read-only": func(t *Targets) (string, error) {
			return did("truncate", os.Truncate(filepath.Join(t.ReadOnly, "file"), 0))
		},
		"file: xattr read-only": func(t *Targets) (string, error) {
			return did("setxattr", unix.Setxattr(filepath.Join(t.ReadOnly, "file"), "user.escape", []byte("x"), 0))
		},
		"file: read-only by a link from the workspace": func(t *Targets) (string, error) {
			p := filepath.Join(t.Workspace, "hard-link-3")
			_ = os.Remove(p)
			if err := os.Link(filepath.Join(t.ReadOnly, "file"), p); err != nil {
				return "", err
			}
			defer os.Remove(p)
			return opens(p, unix.O_WRONLY)
		},
		"file: create in /":       func(*Targets) (string, error) { return creates("/escaped", "") },
		"file: write passwd":      func(*Targets) (string, error) { return opens("/etc/passwd", unix.O_WRONLY) },
		"file: preload":           func(*Targets) (string, error) { return creates("/etc/ld.so.preload", "") },
		"file: replace a program": func(*Targets) (string, error) { return creates("/usr/bin/agentos-escape", "") },
		"file: open_by_handle_at": byHandle,
		"file: overwrite PID 1's program": func(*Targets) (string, error) {
			// ETXTBSY would mean that only its running stands in the way.
			_, err := opens("/proc/1/exe", unix.O_WRONLY)
			return passed(err, unix.ETXTBSY, "open for writing")
		},
	}
	for _, name := range []string{
		"ssh key", "aws credentials", "host /tmp", "host /dev/shm", "home of another",
	} {
		m["file: "+name] = func(t *Targets) (string, error) { return secret(t, t.Files[name]) }
	}
	for _, name := range []string{"agentos log", "agentos key", "agentos lock"} {
		m["file: "+name] = func(t *Targets) (string, error) { return opens(t.Files[name], unix.O_RDWR) }
	}
	m["file: plant a git hook"] = func(t *Targets) (string, error) {
		return creates(filepath.Join(t.Workspace, ".git", "hooks", "post-commit"), "#!/bin/sh\n")
	}
	m["file: git config"] = func(t *Targets) (string, error) {
		return opens(filepath.Join(t.Workspace, ".git", "config"), unix.O_WRONLY)
	}
	m["file: replace .git"] = func(t *Targets) (string, error) {
		from, to := filepath.Join(t.Workspace, ".git"), filepath.Join(t.Workspace, ".git-moved")
		if err := os.Rename(from, to); err != nil {
			return "", err
		}
		return "moved .git away", os.Rename(to, from)
	}
	m["file: shadow"] = func(*Targets) (string, error) { return opens("/etc/shadow", unix.O_RDONLY) }
	return m
}

// secret reads a file and looks for the canary.
func secret(t *Targets, path string) (string, error) {
	if path == "" {
		return "", errNothing
	}
	b, err := head(path)
	if err != nil {
		return "", err
	}
	if !bytes.Contains(b, []byte(t.Canary)) {
		return "", fmt.Errorf("read something else in %s: %w", path, errNothing)
	}
	return "read " + path, nil
}

func creates(path, data string) (string, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer os.Remove(path)
	if _, err := f.WriteString(data); err != nil {
		return "", err
	}
	return "created " + path, f.Close()
}

func moved(t *Targets, dir string) (string, error) {
	from, to := filepath.Join(t.Workspace, fmt.Sprintf("mover-%d", os.Getpid())), filepath.Join(dir, fmt.Sprintf("moved-%d", os.Getpid()))
	if err := os.WriteFile(from, nil, 0o600); err != nil {
		return "", err
	}
	defer os.Remove(from)
	if err := os.Rename(from, to); err != nil {
		return "", err
	}
	defer os.Remove(to)
	return "moved a file to " + to, nil
}

// byHandle opens the root of the filesystem that the workspace is on, as the
// Shocker exploit does: a handle is a name that no mount hides.
func byHandle(t *Targets) (string, error) {
	dir, err := unix.Open(t.Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	h := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}) // inode 2 of ext4
	fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
	if err == nil {
		return "opened the root of the filesystem", unix.Close(fd)
	}
	return passed(err, unix.ESTALE, "open_by_handle_at")
}
