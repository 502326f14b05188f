package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// MaxNote bounds one signed checkpoint in bytes, MaxNotes a file of them.
const (
	MaxNote  = 4 << 10
	MaxNotes = 64 << 20
)

// ErrCheckpoint is wrapped by every refusal of a checkpoint.
var ErrCheckpoint = errors.New("malformed checkpoint")

// Checkpoint is a tree head of the log: C2SP tlog-checkpoint. Origin is the
// log's name and that of its key.
type Checkpoint struct {
	Origin string
	Size   uint64
	Root   tlog.Hash
}

// text is the signed part: three lines.
func (c Checkpoint) text() string {
	return c.Origin + "\n" + strconv.FormatUint(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

func parseText(text string) (Checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 || lines[0] == "" {
		return Checkpoint{}, fmt.Errorf("%w: not three lines", ErrCheckpoint)
	}
	n, err := strconv.ParseUint(lines[1], 10, 64)
	if err != nil || n > maxSeq || strconv.FormatUint(n, 10) != lines[1] {
		return Checkpoint{}, fmt.Errorf("%w: size %.40q", ErrCheckpoint, lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return Checkpoint{}, fmt.Errorf("%w: root %.80q", ErrCheckpoint, lines[2])
	}
	return Checkpoint{Origin: lines[0], Size: n, Root: tlog.Hash(root)}, nil
}

// Key signs checkpoints. Its String is redacted; Seed is the secret.
type Key struct {
	Name     string // of the log
	Verifier string // public: note verifier key
	Seed     []byte // ed25519 seed
	signer   note.Signer
}

// String names the key without its secret.
func (k *Key) String() string { return "audit key " + k.Name }

// GoString keeps %#v from printing the secret.
func (k *Key) GoString() string { return k.String() }

// GenerateKey makes a key and the text to keep it as (note's PRIVATE+KEY form).
func GenerateKey(rand io.Reader, name string) (secret string, err error) {
	secret, _, err = note.GenerateKey(rand, name)
	return secret, err
}

// ParseKey reads the text of GenerateKey. Errors never contain it.
func ParseKey(secret string) (*Key, error) {
	signer, err := note.NewSigner(secret)
	if err != nil {
		return nil, errors.New("malformed audit key")
	}
	f := strings.SplitN(secret, "+", 5) // PRIVATE+KEY+name+hash+base64
	raw, err := base64.StdEncoding.DecodeString(f[len(f)-1])
	if err != nil || len(f) != 5 || len(raw) != 1+ed25519.SeedSize {
		return nil, errors.New("malformed audit key")
	}
	seed := raw[1:]
	pub, ok := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("malformed audit key")
	}
	v, err := note.NewEd25519VerifierKey(signer.Name(), pub)
	if err != nil {
		return nil, fmt.Errorf("derive verifier key: %w", err)
	}
	return &Key{Name: signer.Name(), Verifier: v, Seed: seed, signer: signer}, nil
}

// Sign signs the tree head of size records.
func (k *Key) Sign(size uint64, root tlog.Hash) ([]byte, error) {
	c := Checkpoint{Origin: k.Name, Size: size, Root: root}
	return note.Sign(&note.Note{Text: c.text()}, k.signer)
}

// OpenCheckpoint verifies a signed checkpoint against a verifier key; its
// origin must be the key's name. Other signatures (witnesses) are ignored.
func OpenCheckpoint(msg []byte, verifierKey string) (Checkpoint, error) {
	v, err := note.NewVerifier(verifierKey)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: verifier key: %w", ErrCheckpoint, err)
	}
	return openCheckpoint(msg, v)
}

func openCheckpoint(msg []byte, v note.Verifier) (Checkpoint, error) {
	if len(msg) > MaxNote {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes, limit %d", ErrCheckpoint, len(msg), MaxNote)
	}
	n, err := note.Open(msg, note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	c, err := parseText(n.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	if c.Origin != v.Name() {
		return Checkpoint{}, fmt.Errorf("%w: origin %.80q, key of %q", ErrCheckpoint, c.Origin, v.Name())
	}
	return c, nil
}

// claim reads what a signed checkpoint says without looking at its signatures.
func claim(msg []byte, v note.Verifier) (Checkpoint, error) {
	end := bytes.LastIndex(msg, []byte("\n\n"))
	if end < 0 || len(msg) > MaxNote {
		return Checkpoint{}, fmt.Errorf("%w: no signed note", ErrCheckpoint)
	}
	c, err := parseText(string(msg[:end+1]))
	if err == nil && c.Origin != v.Name() {
		err = fmt.Errorf("%w: origin %.80q, key of %q", ErrCheckpoint, c.Origin, v.Name())
	}
	return c, err
}

// SplitNotes cuts a file of signed notes, as an anchor file holds them, into
// single notes: each ends with its signature lines and an empty line. The notes
// are not verified.
func SplitNotes(file []byte) ([][]byte, error) {
	if len(file) > MaxNotes {
		return nil, fmt.Errorf("%w: %d bytes of checkpoints, limit %d", ErrCheckpoint, len(file), MaxNotes)
	}
	var notes [][]byte
	start, inSigs := 0, false
	for i := 0; i < len(file); {
		end := bytes.IndexByte(file[i:], '\n')
		if end < 0 {
			return nil, fmt.Errorf("%w: last line not ended", ErrCheckpoint)
		}
		line := file[i : i+end]
		next := i + end + 1
		isSig := bytes.HasPrefix(line, []byte("— "))
		switch {
		case isSig:
			inSigs = true
		case inSigs:
			notes = append(notes, file[start:i])
			start, inSigs = i, false
			if len(line) == 0 {
				start = next
			}
		case len(line) == 0 && start == i: // leading empty lines
			start = next
		}
		i = next
	}
	if inSigs {
		notes = append(notes, file[start:])
	} else if start < len(file) {
		return nil, fmt.Errorf("%w: text without a signature", ErrCheckpoint)
	}
	return notes, nil
}
