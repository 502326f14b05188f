//go:build !linux

package wire

import (
	"net"
	"os"

	"agentos/internal/lib/fault"
)

const linuxOnly = "run agentos on the Linux machine that the agent works on"

// Pair refuses: agentosd runs on Linux only.
func Pair() (ours net.Conn, child *os.File, err error) {
	return nil, nil, fault.New(fault.Unavailable, linuxOnly, "make a socket pair: agentosd runs on Linux only")
}

// Inherited refuses: agentosd runs on Linux only.
func Inherited() (*net.UnixConn, error) {
	return nil, fault.New(fault.Unavailable, linuxOnly, "find the client: agentosd runs on Linux only")
}
