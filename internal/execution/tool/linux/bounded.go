//go:build linux

package linux

import (
	"fmt"
	"net"
)

// bounded is a connection that refuses to deliver more than a number of bytes,
// so that no reply can be larger than that. Used by one reader at a time.
type bounded struct {
	*net.UnixConn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("read reply: %w", errTooLarge)
	}
	n, err := b.UnixConn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
