//go:build linux

package statestore

import (
	"context"
	"database/sql"
	"fmt"

	"agentos/internal/lib/fault"
)

// applicationID marks the file as ours: "AOS1".
const applicationID = 0x414f5331

// migrations lead from an empty database to this version, one step each; a
// step, once released, never changes. Tables: docs/spec/state.md.
var migrations = []string{
	fmt.Sprintf("PRAGMA application_id = %d;", applicationID) + `
CREATE TABLE tree (
	one     INTEGER PRIMARY KEY CHECK (one = 1),
	bundles INTEGER NOT NULL,
	peaks   BLOB NOT NULL,
	settled INTEGER NOT NULL
);
INSERT INTO tree VALUES (1, 0, x'', 0);
CREATE TABLE bundles (
	n      INTEGER PRIMARY KEY,
	note   BLOB NOT NULL,
	leaves BLOB NOT NULL,
	data   BLOB NOT NULL
);
CREATE TABLE edge (
	k      INTEGER PRIMARY KEY,
	leaves BLOB,
	data   BLOB NOT NULL
);
CREATE VIEW tail AS SELECT k / 2 AS first, leaves, data FROM edge WHERE k % 2 = 0;
CREATE VIEW checkpoints AS SELECT (k + 1) / 2 AS size, data AS note FROM edge WHERE k % 2 = 1;
CREATE TABLE calls (
	call    TEXT PRIMARY KEY,
	intent  INTEGER NOT NULL,
	outcome INTEGER
) WITHOUT ROWID;
CREATE TABLE runs (
	run       TEXT PRIMARY KEY,
	agent     TEXT NOT NULL,
	owner     INTEGER NOT NULL,
	state     TEXT NOT NULL,
	reason    TEXT NOT NULL,
	first_seq INTEGER NOT NULL,
	last_seq  INTEGER
) WITHOUT ROWID;
CREATE INDEX runs_alive ON runs (first_seq) WHERE reason = '';
CREATE TABLE balances (
	key      TEXT NOT NULL,
	resource TEXT NOT NULL,
	used     INTEGER NOT NULL,
	PRIMARY KEY (key, resource)
) WITHOUT ROWID;
CREATE TABLE reservations (
	call   TEXT PRIMARY KEY,
	keys   TEXT NOT NULL,
	amount TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE payloads (
	id         INTEGER PRIMARY KEY,
	dedup      BLOB NOT NULL UNIQUE,
	commitment TEXT NOT NULL UNIQUE,
	salt       BLOB NOT NULL,
	media      TEXT NOT NULL,
	data       BLOB NOT NULL
);
CREATE TABLE principals (
	agent    TEXT NOT NULL,
	owner    INTEGER NOT NULL,
	uid      INTEGER NOT NULL,
	gid      INTEGER NOT NULL,
	bound_at TEXT NOT NULL,
	PRIMARY KEY (agent, owner)
) WITHOUT ROWID;
CREATE TABLE uids (
	one  INTEGER PRIMARY KEY CHECK (one = 1),
	next INTEGER NOT NULL
);
INSERT INTO uids VALUES (1, 0);
`,
}

// migrate applies the missing steps, each in a transaction of its own.
func migrate(ctx context.Context, c *sql.Conn, dir string, steps []string) error {
	v, err := version(ctx, c, dir)
	if err != nil {
		return err
	}
	if v > len(steps) {
		return newerFault(dir, v, len(steps))
	}
	for ; v < len(steps); v++ {
		script := "BEGIN IMMEDIATE;" + steps[v] + fmt.Sprintf("PRAGMA user_version = %d;COMMIT;", v+1)
		if _, err := c.ExecContext(ctx, script); err != nil {
			_, _ = c.ExecContext(context.Background(), "ROLLBACK") // fails when there is nothing to roll back
			return sqlFault(err, dir, "migrate database from version %d", v)
		}
	}
	return nil
}

// version reads the schema version and refuses somebody else's database.
func version(ctx context.Context, c interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, dir string) (int, error) {
	var v, id int
	if err := c.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, sqlFault(err, dir, "read database version")
	}
	if err := c.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return 0, sqlFault(err, dir, "read database version")
	}
	if v < 0 || v > 0 && id != applicationID || v == 0 && id != 0 {
		return 0, fault.New(fault.Corrupt, nextCorrupt, "open database in %q: not written by agentos", dir)
	}
	return v, nil
}

func newerFault(dir string, have, know int) error {
	return fault.New(fault.Conflict, "use the agentos version that wrote it, or a newer one",
		"open database in %q: format %d is newer than this program's %d", dir, have, know)
}
