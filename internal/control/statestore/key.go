//go:build linux

package statestore

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"agentos/internal/lib/fault"
	"agentos/internal/trusted/audit"
)

const maxKeyFile = 4 << 10

// loadKey reads the signing key, or creates one for a directory that has no
// database yet, and derives the key of the payload index from it.
func loadKey(dir string) (*audit.Key, []byte, error) {
	path := filepath.Join(dir, keyName)
	exists, err := checkFile(path)
	if err != nil {
		return nil, nil, err
	}
	if !exists {
		if err := createKey(dir, path); err != nil {
			return nil, nil, err
		}
	}
	key, err := readKey(path)
	if err != nil {
		return nil, nil, err
	}
	index, err := hkdf.Key(sha256.New, key.Seed, nil, "agentos payload index v1", sha256.Size)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Internal, "", "derive payload index key")
	}
	return key, index, nil
}

func readKey(path string) (*audit.Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check its permissions", "open audit key %q", path)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "check the disk", "read audit key %q", path)
	}
	key, err := audit.ParseKey(strings.TrimSuffix(string(b), "\n"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, "restore audit.key from a backup", "read audit key %q", path)
	}
	return key, nil
}

// createKey writes a fresh key by temporary file and rename.
func createKey(dir, path string) error {
	if fi, err := os.Stat(filepath.Join(dir, dbName)); err == nil && fi.Size() > 0 {
		return fault.New(fault.Corrupt, "restore audit.key from a backup; a new key could not continue this log",
			"open audit key %q: the log is there, its key is not", path)
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fault.Wrap(err, fault.Internal, "", "create log name")
	}
	secret, err := audit.GenerateKey(rand.Reader, "agentos/log/"+hex.EncodeToString(id[:]))
	if err != nil {
		return fault.Wrap(err, fault.Internal, "", "create audit key")
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return ioFault(err, dir, "remove %q", tmp)
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ioFault(err, dir, "create audit key %q", tmp)
	}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return ioFault(err, dir, "write audit key %q", tmp)
	}
	if err := os.Rename(tmp, path); err != nil {
		return ioFault(err, dir, "rename audit key %q", path)
	}
	return syncDir(dir)
}
