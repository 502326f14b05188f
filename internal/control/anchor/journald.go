//go:build linux

package anchor

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"time"

	"agentos/internal/lib/fault"
)

// JournalSocket is where systemd-journald listens.
const JournalSocket = "/run/systemd/journal/socket"

// MessageID marks checkpoints in the journal: `journalctl MESSAGE_ID=…`.
const MessageID = "6f1d2a4c0b7e4f0c9a3e5d8b7c6a5f41"

// Journald sends checkpoints to systemd's journal by its native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram, so that nothing is kept
// open and a host without systemd costs one failed connect.
type Journald struct {
	socket string
}

// NewJournald names the socket; empty: JournalSocket.
func NewJournald(socket string) *Journald {
	if socket == "" {
		socket = JournalSocket
	}
	return &Journald{socket: socket}
}

// Name implements Anchor.
func (j *Journald) Name() string { return "journald" }

// Send implements Anchor.
func (j *Journald) Send(ctx context.Context, note []byte) error {
	if err := check(ctx, note); err != nil {
		return err
	}
	const next = "add an anchor file outside the state directory to audit.anchors (file:PATH)"
	c, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unixgram", j.socket)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "send checkpoint to journald: no journal on this host")
	}
	defer c.Close()
	// journald may be stopped and its buffer full: no run waits for it.
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "send checkpoint to journald")
	}
	if _, err := c.Write(datagram(note)); err != nil {
		return fault.Wrap(err, fault.Unavailable, next, "send checkpoint to journald")
	}
	return nil
}

// datagram builds the fields; one with newlines carries its length instead of
// an equals sign.
func datagram(note []byte) []byte {
	var b bytes.Buffer
	b.WriteString("PRIORITY=5\nSYSLOG_IDENTIFIER=agentos\nMESSAGE_ID=" + MessageID + "\nMESSAGE=audit log checkpoint\n")
	b.WriteString("AGENTOS_CHECKPOINT\n")
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(note))))
	b.Write(note)
	b.WriteByte('\n')
	return b.Bytes()
}
