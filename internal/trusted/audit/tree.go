package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// BundleSize is the number of records of a full bundle: a perfect subtree of
// height 8, as in C2SP tlog-tiles.
const BundleSize = 256

// Frontier is the right edge of a perfect-subtree decomposition: enough to
// append leaves and to compute the root, in 32 bytes times log2 of the size.
// Leaves are records, or whole bundles (subtrees of height 8). The zero value
// is empty. Not safe for concurrent use.
type Frontier struct {
	n     uint64
	peaks []tlog.Hash // one for each set bit of n, largest subtree first
}

// NewFrontier restores a frontier of n leaves; false when the number of peaks
// doesn't fit.
func NewFrontier(n uint64, peaks []tlog.Hash) (Frontier, bool) {
	bits := 0
	for m := n; m > 0; m &= m - 1 {
		bits++
	}
	return Frontier{n: n, peaks: slices.Clone(peaks)}, bits == len(peaks)
}

// Push appends one leaf.
func (f *Frontier) Push(h tlog.Hash) {
	for m := f.n; m&1 == 1; m >>= 1 {
		last := len(f.peaks) - 1
		h = tlog.NodeHash(f.peaks[last], h)
		f.peaks = f.peaks[:last]
	}
	f.peaks = append(f.peaks, h)
	f.n++
}

// Len is the number of leaves.
func (f *Frontier) Len() uint64 { return f.n }

// Peaks are the subtree roots, largest first; valid until the next Push.
func (f *Frontier) Peaks() []tlog.Hash { return f.peaks }

// Clone is independent of f.
func (f *Frontier) Clone() Frontier { return Frontier{n: f.n, peaks: slices.Clone(f.peaks)} }

// Root is the RFC 6962 tree head over the subtrees of f and, right of them,
// those of tail (which must be smaller than the smallest of f; nil for none).
func (f *Frontier) Root(tail *Frontier) tlog.Hash {
	var h tlog.Hash
	have := false
	fold := func(peaks []tlog.Hash) {
		for i := len(peaks) - 1; i >= 0; i-- {
			if !have {
				h, have = peaks[i], true
				continue
			}
			h = tlog.NodeHash(peaks[i], h)
		}
	}
	if tail != nil {
		fold(tail.peaks)
	}
	fold(f.peaks)
	if !have {
		return sha256.Sum256(nil) // RFC 6962 section 2.1: the empty tree
	}
	return h
}

// Frames. A stored record is its length (four bytes, big endian), the zero byte
// of RFC 6962's leaf hash, and its encoding: hashing needs no copy.
const frameHeader = 5

var errFrame = errors.New("broken record frame")

// AppendFrame appends one record with its frame and returns its leaf hash
// (RFC 6962 section 2.1; equal to tlog.RecordHash of the encoding).
func AppendFrame(dst []byte, r Record) ([]byte, tlog.Hash) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0)
	dst = r.Append(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-frameHeader))
	return dst, sha256.Sum256(dst[start+frameHeader-1:])
}

// nextFrame cuts the first frame off: the leaf's hash input, and the rest.
func nextFrame(data []byte) (leaf, rest []byte, err error) {
	if len(data) < frameHeader || data[4] != 0 {
		return nil, nil, errFrame
	}
	n := binary.BigEndian.Uint32(data)
	if n > MaxRecord || uint64(n) > uint64(len(data)-frameHeader) {
		return nil, nil, errFrame
	}
	return data[4 : frameHeader+n], data[frameHeader+n:], nil
}

// Frames calls yield for each record in framed data with its index and leaf
// hash, until yield answers false. The error names broken framing.
func Frames(data []byte, yield func(i int, record []byte, leaf tlog.Hash) bool) error {
	for i := 0; len(data) > 0; i++ {
		leaf, rest, err := nextFrame(data)
		if err != nil {
			return err
		}
		if !yield(i, leaf[1:], sha256.Sum256(leaf)) {
			return nil
		}
		data = rest
	}
	return nil
}
