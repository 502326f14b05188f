package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// SaltSize is the length of a payload's random salt in bytes.
const SaltSize = 32

const commitPrefix = "sha256:"

// Commitment binds a record to a payload without revealing it: SHA-256 over a
// label, the salt, the media type with its length, and the data. With salt and
// data deleted, the commitment says nothing about the content, also not to
// somebody who can guess it, and the record stays valid.
func Commitment(salt [SaltSize]byte, media string, data []byte) string {
	h := sha256.New()
	h.Write([]byte("agentos-payload/v1\n"))
	h.Write(salt[:])
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(media)))
	h.Write(n[:])
	h.Write([]byte(media))
	h.Write(data)
	return commitPrefix + hex.EncodeToString(h.Sum(nil))
}

// ValidCommitment reports whether s has the form of a commitment.
func ValidCommitment(s string) bool {
	x, ok := strings.CutPrefix(s, commitPrefix)
	if !ok || len(x) != 2*sha256.Size {
		return false
	}
	for i := range len(x) {
		if c := x[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Check refuses a payload that a record can't carry.
func (p Payload) Check() error {
	if !validName(p.Name) {
		return fmt.Errorf("%w: payload name %.40q", ErrRecord, p.Name)
	}
	if len(p.Media) > maxMedia {
		return fmt.Errorf("%w: media type of payload %q has %d bytes, limit %d", ErrRecord, p.Name, len(p.Media), maxMedia)
	}
	if len(p.Data) > MaxPayload {
		return fmt.Errorf("%w: payload %q has %d bytes, limit %d", ErrRecord, p.Name, len(p.Data), MaxPayload)
	}
	return nil
}
