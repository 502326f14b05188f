package audit

import (
	"context"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// SizedNote is a stored signed checkpoint with the size it is filed under.
type SizedNote struct {
	Size uint64
	Note []byte
}

// Bundle is a run of consecutive records as stored. All but the last of a log
// hold BundleSize records and start at a multiple of it.
type Bundle struct {
	First  uint64
	Data   []byte // frames: AppendFrame
	Leaves []byte // the stored leaf hashes, 32 bytes each; a hint, not a proof
	// Notes are the stored checkpoints with First < Size <= First+records; the
	// last bundle also holds all larger ones.
	Notes []SizedNote
}

// Source gives the stored log in order. The yielded slices belong to the
// callee. It returns yield's error or its own.
type Source interface {
	Bundles(ctx context.Context, yield func(Bundle) error) error
}

// Options of Verify.
type Options struct {
	Key string // note verifier key; required
	// Older are signed checkpoints saved elsewhere: the log must contain each.
	// More than one narrow down where a log was rewritten.
	Older [][]byte
	// Live says that a writer may be at work: intents open at the end are noted
	// instead of being a problem.
	Live    bool
	Workers int // 0: one for each core
}

// ProblemKind classifies the first bad record; the set is closed.
type ProblemKind string

// The kinds of problem.
const (
	Altered   ProblemKind = "altered"   // a record's bytes differ from those hashed
	Missing   ProblemKind = "missing"   // records that were signed are not there
	Reordered ProblemKind = "reordered" // a record stands at another's place
	Rewritten ProblemKind = "rewritten" // records and hashes differ from what was signed
	Signature ProblemKind = "signature" // a checkpoint is not signed by the key, or covers not all
	Format    ProblemKind = "format"    // a signed record or its index breaks the format
	Pairing   ProblemKind = "pairing"   // an intent without exactly one later outcome
)

// Problem names the first record that can't be trusted.
type Problem struct {
	Seq    uint64
	Kind   ProblemKind
	Detail string
	Next   string // what to do
}

// Report is what Verify found. The log is sound if First is nil.
type Report struct {
	Records    uint64
	Root       tlog.Hash // recomputed over Records
	KeyName    string
	First      *Problem
	Checkpoint uint64    // size of the newest stored checkpoint that holds
	At         time.Time // time in the last record
	Intents    uint64
	Outcomes   uint64
	Denied     uint64
	Open       uint64 // intents without outcome at the end of a live log
	Notes      []string
}
